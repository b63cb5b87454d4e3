"""Every setting of a training run, in sections; no torch, no I/O.

`flows/config.py` composes the sections into the configuration that users write.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, Field

_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, serialize_by_alias=True)

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

    name: Literal["auto", "transformers", "vllm", "vllm-server"] = "transformers"
    """`vllm` runs in this process, `vllm-server` behind `servers`; `auto` is vllm where it works, else transformers."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Sequences sampled at once; more is faster and takes more memory."""
    kv_cache_gib: Annotated[float, Gt(0.0)] = 1.0
    """`vllm` only: memory for the attention keys and values of sequences in flight, and of cached prefixes, in GiB."""
    servers: tuple[str, ...] = ()
    """`vllm-server` only: addresses such as http://localhost:8000."""
    concurrency: Annotated[int, Ge(1)] = 32
    """`vllm-server` only: prompts in flight at each server."""
    timeout: Annotated[float, Gt(0.0), Le(86_400.0)] = 600.0
    """`vllm-server` only: seconds that a server has for a whole answer; then the prompt is asked of another."""
    retries: Annotated[int, Ge(0)] = 4
    """`vllm-server` only: times that a prompt is asked again, after pauses of 1, 2, 4, ... and at most 60 seconds."""
    weights_folder: str = ""
    """`vllm-server` only: folder that all servers read, through which weights reach them; empty: a temporary one."""
    drift_limit: Annotated[float, Ge(0.0)] = 0.0
    """Alarm when engine and trainer differ by more, as mean |difference| of log-probabilities over a fixed sequence;
    0 is 1e-4 in float32 and 0.15 in bfloat16."""
    on_drift: Literal["warn", "stop"] = "warn"
    """What the alarm does."""


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
    importance_cap: Annotated[float, Ge(0.0)] = 0.0
    """Truncated importance sampling: each token's loss is weighted by min(trainer / engine probability, cap);
    0 weights nothing. Wants sampling.temperature = 1 and top_p = 1."""


@dataclass(frozen=True, kw_only=True)
class OverlongSettings:
    """What becomes of responses that hit `sampling.max_tokens` (DAPO, arXiv 2503.14476, section 3.4)."""

    __pydantic_config__ = _STRICT

    responses: Literal["keep", "mask", "penalise"] = "keep"
    """`keep`: as any other; `mask`: no gradient, but they count in their group's mean; `penalise`: soft punishment."""
    buffer: Annotated[int, Ge(1)] = 16
    """`penalise` only: over the last so many tokens before max_tokens the reward falls linearly by 1."""


_START = (
    "Published version to begin with: `NAME@best`, `NAME@latest` or `NAME@NUMBER`, fixed as a number when the run is "
    "created; empty begins anew."
)
"""Stands here because pydantic reads no docstring of a field that is inherited."""


@dataclass(frozen=True, kw_only=True)
class StartSettings:
    """What every predictor has: where it begins."""

    __pydantic_config__ = _STRICT

    start: Annotated[str, Field(alias="from", description=_START)] = ""


@dataclass(frozen=True, kw_only=True)
class MoppsSettings(StartSettings):
    """Beta posterior for each prompt, with forgetting (MoPPS)."""

    name: Literal["mopps"] = "mopps"
    """Predictor."""
    decay: Share = 0.5
    """Lambda: how much of the old counts is kept at each visit; 1 forgets nothing."""
    prior_alpha: Annotated[float, Gt(0.0)] = 1.0
    """Prior successes."""
    prior_beta: Annotated[float, Gt(0.0)] = 1.0
    """Prior failures."""


@dataclass(frozen=True, kw_only=True)
class GpsSettings(StartSettings):
    """Latent-variable model shared by all prompts (GPS, arXiv 2602.01970)."""

    name: Literal["gps"] = "gps"
    """Predictor."""
    encoder: Literal["mlp", "transformer"] = "mlp"
    """What reads the latest batch: the mean of an MLP of its prompts, or a Transformer over them."""
    layers: Annotated[int, Ge(1)] = 6
    """`transformer` only: layers."""
    heads: Annotated[int, Ge(1)] = 8
    """`transformer` only: attention heads; they share `width` evenly."""
    width: Annotated[int, Ge(1)] = 256
    """Hidden units of encoder and decoder layers."""
    latent: Annotated[int, Ge(1)] = 64
    """Dimensions of the difficulty context z."""
    lr: Annotated[float, Gt(0.0)] = 3e-4
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
class DepoSettings(StartSettings):
    """Scorer of prompt texts with two heads and a ranking loss (DEPO, arXiv 2602.06375)."""

    name: Literal["depo"] = "depo"
    """Predictor."""
    encoder: str = "static"
    """`static`: the pool's embeddings; else the folder of a Hugging Face encoder, which is trained too."""
    width: Annotated[int, Ge(2)] = 256
    """Hidden units of the scorer (1,024 as published); its last layer has half of them."""
    dropout: Annotated[float, Ge(0.0), Lt(1.0)] = 0.1
    """Share of hidden units left out at each training step."""
    lr: Annotated[float, Gt(0.0)] = 1e-3
    """Learning rate of AdamW (2e-4 as published, for a scorer four times as wide)."""
    encoder_lr: Annotated[float, Gt(0.0)] = 4e-5
    """Learning rate of AdamW for a Hugging Face encoder."""
    gradient_steps: Annotated[int, Ge(1)] = 1
    """Steps for each observed batch."""
    micro_batch: Annotated[int, Ge(1)] = 64
    """Prompts in one forward and backward pass; bounds memory, and changes no gradient but by dropout's draw."""
    warmup_batches: Annotated[int, Ge(0)] = 30
    """Observed batches until forecasts differ; a tenth of the run is the paper's share (100 of 1,000 steps)."""


@dataclass(frozen=True, kw_only=True)
class DotsSettings(StartSettings):
    """Attention of a prompt to recently observed ones (DOTS, arXiv 2506.05316)."""

    name: Literal["dots"] = "dots"
    """Predictor."""
    reference: Annotated[int, Ge(1)] = 256
    """Most recent groups that are attended to."""
    width: Annotated[int, Ge(1)] = 256
    """Hidden units of the projection, and the size that it projects to."""
    lr: Annotated[float, Gt(0.0)] = 5e-4
    """Learning rate of Adam."""
    gradient_steps: Annotated[int, Ge(1)] = 5
    """Steps for each observed batch."""


@dataclass(frozen=True, kw_only=True)
class PclSettings(StartSettings):
    """Value head on the policy's own state at the end of the prompt (PCL, arXiv 2510.01135)."""

    name: Literal["pcl"] = "pcl"
    """Predictor."""
    loss: Literal["mse", "binomial"] = "mse"
    """Squared error to the group's success rate, as published, or the likelihood of its successes."""
    width: Annotated[int, Ge(1)] = 256
    """Hidden units of the head."""
    lr: Annotated[float, Gt(0.0)] = 1e-3
    """Learning rate of Adam."""
    gradient_steps: Annotated[int, Ge(1)] = 5
    """Steps for each observed batch."""


@dataclass(frozen=True, kw_only=True)
class LastSettings(StartSettings):
    """Success rate of a prompt's last visit: a baseline."""

    name: Literal["last"] = "last"
    """Predictor."""
    prior_alpha: Annotated[float, Gt(0.0)] = 1.0
    """Successes added to those of the visit."""
    prior_beta: Annotated[float, Gt(0.0)] = 1.0
    """Failures added to those of the visit."""


@dataclass(frozen=True, kw_only=True)
class MeanSettings(StartSettings):
    """Mean success rate of a prompt's visits: a baseline."""

    name: Literal["mean"] = "mean"
    """Predictor."""
    window: Annotated[int, Ge(0)] = 5
    """Latest visits that count; 0 counts all."""
    prior_alpha: Annotated[float, Gt(0.0)] = 1.0
    """Successes added to those of the visits."""
    prior_beta: Annotated[float, Gt(0.0)] = 1.0
    """Failures added to those of the visits."""


@dataclass(frozen=True, kw_only=True)
class KalmanSettings(StartSettings):
    """Kalman filter on the logit of each prompt's success (KGPS, arXiv 2607.27610)."""

    name: Literal["kalman"] = "kalman"
    """Predictor."""
    process_sd: Annotated[float, Ge(0.0)] = 0.1
    """Standard deviation of a logit's move in one step; 0 takes the policy for unchanging."""
    prior_mean: float = 0.0
    """Logit of a prompt that was never visited."""
    prior_sd: Annotated[float, Gt(0.0)] = 2.0
    """Standard deviation of that logit, which no prompt's doubt exceeds."""


@dataclass(frozen=True, kw_only=True)
class DpsSettings(StartSettings):
    """Three-state hidden Markov model for each prompt (DPS, arXiv 2603.10887)."""

    name: Literal["dps"] = "dps"
    """Predictor."""
    decay: Share = 0.5
    """Lambda: how much of the old transition counts is kept at each visit; 1 forgets nothing."""
    prior: Annotated[float, Gt(0.0)] = 1.0
    """Count of each transition before anything is seen."""


@dataclass(frozen=True, kw_only=True)
class GpSettings(StartSettings):
    """Gaussian process on embeddings, carried by reference prompts (VIP, arXiv 2602.01601)."""

    name: Literal["gp"] = "gp"
    """Predictor."""
    references: Annotated[int, Ge(1)] = 128
    """Reference prompts (M); memory is 4 M bytes for each prompt of the pool."""
    amplitude: Annotated[float, Gt(0.0)] = 1.5
    """Standard deviation of what sets a prompt's logit apart from the mean of all."""
    bias_sd: Annotated[float, Ge(0.0)] = 1.5
    """Standard deviation of the mean of all logits."""
    keep: Annotated[float, Gt(0.0), Le(1.0)] = 0.99
    """Share of its information that the belief keeps in each step; 1 takes the policy for unchanging."""


@dataclass(frozen=True, kw_only=True)
class GresoSettings(StartSettings):
    """Streaks of groups that all agreed (GRESO, arXiv 2506.02177)."""

    name: Literal["greso"] = "greso"
    """Predictor."""
    keep: Annotated[float, Ge(0.05), Le(0.95)] = 0.5
    """Chance to be kept after one visit whose rollouts all agreed, at the start; it adapts after an epoch."""
    agreeing: Share = 0.25
    """Share of groups that may agree: a third of it all right, the rest all wrong."""


@dataclass(frozen=True, kw_only=True)
class SecSettings(StartSettings):
    """Categories of prompts as the arms of a bandit (SEC, arXiv 2505.14970)."""

    name: Literal["sec"] = "sec"
    """Predictor."""
    category: str = "category"
    """Tag of the prompts that names their category."""
    rate: Annotated[float, Gt(0.0), Le(1.0)] = 0.3
    """Alpha: how far a category's value moves towards what a step saw."""


@dataclass(frozen=True, kw_only=True)
class ForerollSettings(StartSettings):
    """Shared model of texts and past runs, sharpened by each prompt's own record."""

    name: Literal["foreroll"] = "foreroll"
    """Predictor."""
    past: str = "all"
    """Which other runs of the store are learned from, as they stand when this run is created: `all`, `none`, or names
    and globs, as in `math-*,first`."""
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


PredictorSettings = (
    MoppsSettings
    | GpsSettings
    | DepoSettings
    | DotsSettings
    | PclSettings
    | LastSettings
    | MeanSettings
    | KalmanSettings
    | DpsSettings
    | GpSettings
    | GresoSettings
    | SecSettings
    | ForerollSettings
)


@dataclass(frozen=True, kw_only=True)
class AcquisitionSettings:
    """How forecasts become a batch."""

    __pydantic_config__ = _STRICT

    name: Literal["uniform", "thompson", "nearest", "band", "informative", "per_token", "greso", "boltzmann", "gps"] = (
        "informative"
    )
    """`uniform` draws; `thompson` ranks a posterior draw; `nearest` ranks the mean; `gps` adds diversity; `band` takes
    the first inside [low, high]; `informative` ranks the chance of an informative group, `per_token` that chance for
    each token; `greso` skips and `boltzmann` draws by how far a prompt is from certain."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Prompts in a batch (B)."""
    candidates: Annotated[int, Ge(0)] = 0
    """Prompts considered in a step, drawn uniformly from the pool; 0 considers all."""
    target: Annotated[float, Gt(0.0), Lt(1.0)] = 0.5
    """The p_success that utility prefers: `uniform`, `thompson`, `nearest` and `gps`."""
    diversity: Annotated[float, Ge(0.0)] = 0.2
    """`gps` only: spread of diversity's gains relative to the spread of utility among the best candidates."""
    low: Share = 0.15
    """`band` only: prompts of a lower p_success are too hard."""
    high: Share = 0.85
    """`band` only: prompts of a higher p_success are too easy."""
    scan: Annotated[int, Ge(0)] = 0
    """`band` only: candidates looked at before the batch is filled with what is nearest to the band; 0 is no limit."""
    lookahead: Annotated[float, Ge(0.0)] = 1.0
    """`informative` and `per_token` only: later visits that what a group teaches is counted for; 0 counts none."""
    longest: Share = 0.95
    """`per_token` only: candidates expected to be longer than this quantile of all are chosen last; 1 is no limit."""
    temperature: Annotated[float, Gt(0.0)] = 0.2
    """`boltzmann` only: T, in mean absolute advantage; small values draw the best only."""
    explore: Annotated[float, Gt(0.0), Le(1.0)] = 0.05
    """Share of the batch drawn uniformly, at least one prompt, so that forecasts can be judged unbiased."""
    cooldown: Annotated[int, Ge(0)] = 5
    """Steps for which an acquired prompt is not considered again, unless too few others are left."""
    cap: Annotated[int, Ge(0)] = 0
    """Visits after which a prompt is not considered again, unless too few others are left; 0 is no limit."""
    retain: Share = 0.0
    """Share of the batch drawn from prompts that are forecast easy, at least one where there is any; 0 tests none."""
    retain_above: Share = 0.9
    """The p_success from which a prompt counts as easy for `retain`; a rule then chooses among the others."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")


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
    overlong: OverlongSettings = field(default_factory=OverlongSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    predictor: PredictorSettings = field(default_factory=ForerollSettings)
    acquisition: AcquisitionSettings = field(default_factory=AcquisitionSettings)
    dynamic_sampling: DynamicSamplingSettings = field(default_factory=DynamicSamplingSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
