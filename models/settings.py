"""Every setting of a training run, in sections; no torch, no I/O.

`flows/config.py` composes the sections into the configuration that users write.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict

_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True)

Share = Annotated[float, Ge(0.0), Le(1.0)]


@dataclass(frozen=True, kw_only=True)
class PromptSettings:
    """Which prompts are trained on, and how they are put to the policy."""

    __pydantic_config__ = _STRICT

    train: str = "countdown-pool"
    """Dataset of the pool. A built-in name is made on first use; any other must be in the store."""
    heldout: str = "countdown-heldout"
    """Dataset of the evaluations."""
    template: Literal["compact", "chat"] = "compact"
    """`chat`: the tokenizer's chat template with system prompt and instruction; `compact`: the bare problem."""


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """The language model that is trained."""

    __pydantic_config__ = _STRICT

    model: str = "countdown-tiny"
    """A folder or name that transformers can load, or a built-in: `countdown-tiny`, `smollm2`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the forward and backward pass. The weights that the optimiser steps are always float32."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How rollouts are sampled."""

    __pydantic_config__ = _STRICT

    group_size: Annotated[int, Ge(2)] = 8
    """Rollouts for each prompt (k); a group of one has no advantage to learn from."""
    temperature: Annotated[float, Gt(0.0)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Gt(0.0), Le(1.0)] = 1.0
    """Nucleus sampling threshold; 1 keeps the whole distribution."""
    max_tokens: Annotated[int, Ge(1)] = 24
    """Longest response, in tokens."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What generates the rollouts."""

    __pydantic_config__ = _STRICT

    name: Literal["transformers"] = "transformers"
    """Engine."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Sequences sampled at once; more is faster and takes more memory."""


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """GRPO with DAPO's token-level loss and Clip-Higher (arXiv 2402.03300, 2503.14476)."""

    __pydantic_config__ = _STRICT

    lr: Annotated[float, Gt(0.0)] = 5e-5
    """Learning rate of AdamW."""
    weight_decay: Annotated[float, Ge(0.0)] = 0.01
    """Decoupled weight decay."""
    clip_low: Annotated[float, Gt(0.0), Lt(1.0)] = 0.2
    """The ratio is clipped below 1 - clip_low."""
    clip_high: Annotated[float, Gt(0.0)] = 0.28
    """The ratio is clipped above 1 + clip_high."""
    normalise_std: bool = True
    """Divide advantages by their group's standard deviation (GRPO); off is Dr. GRPO's choice."""
    minibatches: Annotated[int, Ge(1)] = 1
    """Optimiser steps for each batch of rollouts; the ratio leaves 1 only from the second on."""
    max_grad_norm: Annotated[float, Gt(0.0)] = 1.0
    """Gradients are scaled down to this norm."""
    token_budget: Annotated[int, Ge(1)] = 8192
    """Most tokens, padding included, in one forward pass; bounds memory. A longer sequence goes alone."""
    max_skipped: Annotated[int, Ge(1)] = 3
    """Non-finite updates in a row after which the run stops."""


@dataclass(frozen=True, kw_only=True)
class MoppsSettings:
    """Beta posterior for each prompt, with forgetting (MoPPS)."""

    __pydantic_config__ = _STRICT

    name: Literal["mopps"] = "mopps"
    """Predictor."""
    decay: Share = 0.5
    """Lambda: how much of the old counts is kept at each visit; 1 forgets nothing."""
    prior_alpha: Annotated[float, Gt(0.0)] = 1.0
    """Prior successes."""
    prior_beta: Annotated[float, Gt(0.0)] = 1.0
    """Prior failures."""


@dataclass(frozen=True, kw_only=True)
class GpsSettings:
    """Latent-variable model shared by all prompts (GPS, arXiv 2602.01970), MLP variant."""

    __pydantic_config__ = _STRICT

    name: Literal["gps"] = "gps"
    """Predictor."""
    width: Annotated[int, Ge(1)] = 512
    """Hidden units of encoder and decoder layers."""
    latent: Annotated[int, Ge(1)] = 64
    """Dimensions of the difficulty context z."""
    lr: Annotated[float, Gt(0.0)] = 1e-3
    """Learning rate of Adam."""
    gradient_steps: Annotated[int, Ge(1)] = 5
    """Steps on the ELBO for each observed batch."""
    kl_weight: Annotated[float, Ge(0.0)] = 1.0
    """Weight of the KL term; 1 is the ELBO itself."""
    z_samples: Annotated[int, Ge(1)] = 50
    """Samples of z that a forecast averages (M)."""
    rescored: Annotated[int, Ge(1)] = 2048
    """In a larger pool, only this many prompts nearest to p = 0.5 at the prior mean get all z samples."""


@dataclass(frozen=True, kw_only=True)
class ForerollSettings:
    """Shared model of texts and past runs, sharpened by each prompt's own record."""

    __pydantic_config__ = _STRICT

    name: Literal["foreroll"] = "foreroll"
    """Predictor."""
    latent: Annotated[int, Ge(1)] = 3
    """Dimensions in which prompts differ across past runs."""
    components: Annotated[int, Ge(1)] = 128
    """Principal components of the prompts' words."""
    text_sd: Annotated[float, Gt(0.0)] = 1.0
    """Spread of logits that texts explain, before anything is seen."""
    own_sd: Annotated[float, Gt(0.0)] = 2.0
    """Spread of logits around the shared model, before anything is seen; learned from then on."""
    drift: Annotated[float, Ge(0.0)] = 0.1
    """Standard deviation of the move of a prompt's own logit in one step; learned from then on."""


PredictorSettings = MoppsSettings | GpsSettings | ForerollSettings


@dataclass(frozen=True, kw_only=True)
class AcquisitionSettings:
    """How forecasts become a batch."""

    __pydantic_config__ = _STRICT

    name: Literal["uniform", "thompson", "nearest", "gps"] = "gps"
    """`uniform` draws; `thompson` ranks a posterior draw; `nearest` ranks the mean; `gps` adds diversity."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Prompts in a batch (B)."""
    candidates: Annotated[int, Ge(0)] = 0
    """Prompts considered in a step, drawn uniformly from the pool; 0 considers all."""
    target: Annotated[float, Gt(0.0), Lt(1.0)] = 0.5
    """The p_success that utility prefers."""
    diversity: Annotated[float, Ge(0.0)] = 0.2
    """`gps` only: spread of diversity's gains relative to the spread of utility among the best candidates."""
    explore: Annotated[float, Gt(0.0), Le(1.0)] = 0.05
    """Share of the batch drawn uniformly, at least one prompt, so that forecasts can be judged unbiased."""


@dataclass(frozen=True, kw_only=True)
class DynamicSamplingSettings:
    """DAPO's dynamic sampling: more rounds until the batch is full of informative groups."""

    __pydantic_config__ = _STRICT

    enabled: bool = False
    """Generate further rounds while informative groups are missing."""
    max_rounds: Annotated[int, Ge(1)] = 4
    """Rounds after which the step trains on what it has."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Held-out success, measured while training."""

    __pydantic_config__ = _STRICT

    every: Annotated[int, Ge(0)] = 50
    """Steps between evaluations; the first is before step 1; 0 evaluates never. May change on resume."""
    samples: Annotated[int, Ge(1)] = 4
    """Rollouts for each held-out prompt, with the sampling settings of training."""
    prompts: Annotated[int, Ge(0)] = 0
    """Held-out prompts evaluated, the first of the dataset; 0 evaluates all."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """When the policy is written to disk."""

    __pydantic_config__ = _STRICT

    every: Annotated[int, Ge(1)] = 50
    """Steps between checkpoints; one more is written at the end. May change on resume."""
    keep: Annotated[int, Ge(1)] = 2
    """Newest checkpoints kept, beside the best by held-out success."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All that decides what a run computes."""

    seed: int = 0
    threads: int = 0
    prompts: PromptSettings = field(default_factory=PromptSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    predictor: PredictorSettings = field(default_factory=GpsSettings)
    acquisition: AcquisitionSettings = field(default_factory=AcquisitionSettings)
    dynamic_sampling: DynamicSamplingSettings = field(default_factory=DynamicSamplingSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
