"""The frozen records that travel between stages, in pipeline order.

Prompts are numbered by their row in the pool, so that stages pass arrays of
rows and only the store speaks of `prompt_id`s. N is the number of candidates
of a step, G of groups, k of rollouts in a group.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FinishReason = Literal["stop", "length"]
Decision = Literal["acquired", "explored", "too_easy", "too_hard", "too_long", "not_chosen"]
RewardStatus = Literal["ok", "timeout", "error", "unparsable"]


@dataclass(frozen=True)
class Problem:
    """A problem as its maker words it; the store gives it its `prompt_id`."""

    text: str
    """Canonical problem text, one user message."""
    answer: str
    """Reference answer, in the form that `reward` reads."""
    reward: str
    """Name of the verifier that checks a response."""
    instruction: str = ""
    """How to answer; a template appends it, and it is no part of the problem's identity."""
    tags: Mapping[str, str | int | float] = field(default_factory=dict)
    """Facts to query by; nothing reads them."""


@dataclass(frozen=True)
class Prompt:
    """A stored problem."""

    prompt_id: str
    messages: tuple[tuple[str, str], ...]
    """(role, content) pairs, without the system prompt."""
    answer: str
    reward: str
    system: str = ""
    instruction: str = ""

    @property
    def text(self) -> str:
        """The contents of all messages; what embeddings read."""
        return "\n\n".join(content for _, content in self.messages)


def is_informative(successes: NDArray[Any], valid: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether some of a group's valid rollouts succeed and some fail; arrays of one shape."""
    found: NDArray[np.bool_] = (successes > 0) & (successes < valid)
    return found


@dataclass(frozen=True)
class PastRuns:
    """The groups that other runs rolled out on the prompts of a pool; arrays of one length."""

    run: Ints
    """Which run, numbered from 0 on."""
    step: Ints
    row: Ints
    successes: Ints
    valid: Ints
    """Rollouts with a verdict; at least 1."""
    mean_tokens: Floats

    def __len__(self) -> int:
        return len(self.run)


@dataclass(frozen=True)
class Pool:
    """The prompts that a run may train on, in row order."""

    prompt_ids: tuple[str, ...]
    embeddings: NDArray[np.float32] | None = None
    """[pool, dim], rows of unit length; None where no method of the run reads them."""
    categories: tuple[str, ...] = ()
    """[pool] category of each prompt; empty where no method of the run reads them."""
    texts: tuple[str, ...] = ()
    """The problems in words; empty where the run's predictor does not read them."""
    hidden: Callable[[Ints], NDArray[np.float32]] | None = None
    """The live policy's states [N, size] at the last prompt token of N rows; None where there is no policy."""
    past: PastRuns | None = None
    """What other runs did on these prompts; None where the run's predictor does not read it."""

    def __len__(self) -> int:
        return len(self.prompt_ids)


@dataclass(frozen=True)
class Forecast:
    """What a predictor expects of N prompts before any of their rollouts."""

    p_success: Floats
    """[N] mean of the probability that one rollout succeeds."""
    p_sd: Floats
    """[N] standard deviation of that probability: the predictor's own doubt, not the spread of outcomes."""
    expected_tokens: Floats
    """[N] response tokens; NaN before anything was observed."""

    def at(self, chosen: Ints | NDArray[np.bool_]) -> "Forecast":
        """That of some of the prompts, by position or by mask."""
        return Forecast(self.p_success[chosen], self.p_sd[chosen], self.expected_tokens[chosen])

    def as_stored(self) -> "Forecast":
        """The values that the history keeps, and a batch is chosen by: of single precision."""
        kept = (values.astype(np.float32).astype(np.float64) for values in vars(self).values())
        return Forecast(*kept)


@dataclass(frozen=True)
class Ranking:
    """What an acquisition rule makes of N available candidates."""

    chosen: Ints
    """[size] positions of the candidates chosen, best first."""
    utility: Floats
    """[N] the rule's score by itself, larger is better."""
    diversity: Floats
    """[N] what diversity added when the candidate was last looked at; NaN where the rule has none."""
    inclusion: Floats | None = None
    """[N] probability that a rule which draws would have chosen the candidate; None where it ranks."""
    side: NDArray[np.int8] | None = None
    """[N] 1 where a candidate is left out as too easy, -1 as too hard, else 0; None where a rule filters none."""


@dataclass(frozen=True)
class Selection:
    """The decision on every available candidate of one round; arrays of length N."""

    rows: Ints
    utility: Floats
    diversity: Floats
    propensity: Floats
    decision: tuple[Decision, ...]
    rank: Ints
    """0 for the first prompt chosen, and so on; -1 for prompts not chosen."""

    @property
    def chosen(self) -> Ints:
        """[G] positions of the prompts chosen, in order of rank."""
        chosen = np.flatnonzero(self.rank >= 0)
        return chosen[np.argsort(self.rank[chosen])]

    @property
    def explored(self) -> NDArray[np.bool_]:
        """[G] which of the chosen were drawn at random and not by the rule, in order of rank."""
        return np.array([self.decision[at] == "explored" for at in self.chosen], np.bool_)


@dataclass(frozen=True)
class Request:
    """k rollouts asked of an engine for one prompt."""

    prompt_token_ids: tuple[int, ...]
    seed: int
    """Of the first rollout; the i-th is drawn from seed + i."""
    samples: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """[k] one a rollout: with the same weights it gives the same response, but for the float noise of batching."""
        return tuple(range(self.seed, self.seed + self.samples))


@dataclass(frozen=True)
class Generation:
    """One response as an engine returns it."""

    token_ids: tuple[int, ...]
    """Response tokens, the end-of-sequence token included when it was sampled."""
    logprobs: tuple[float, ...]
    """Log-probability of each response token under the raw model (T = 1, no nucleus)."""
    finish_reason: FinishReason
    policy_version: int
    """Updates behind the weights that sampled it, as the engine reports them."""


@dataclass(frozen=True)
class Verdict:
    """A verifier's word on one response."""

    reward: float
    success: bool
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """The outcomes of G groups, from which a predictor learns; arrays of length G."""

    rows: Ints
    successes: Ints
    valid: Ints
    """Rollouts with a verdict; at least 1."""
    mean_tokens: Floats
    mean_logprobs: Floats | None = None
    """Mean over rollouts of the mean log-probability of their tokens; NaN or None where it was not stored."""
    explored: NDArray[np.bool_] | None = None
    """Which were drawn at random, from what the rule passed over or from the easy prompts kept from it; None where
    that is not known."""


@dataclass(frozen=True)
class Sample:
    """One rollout as the policy update reads it."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    advantage: float
    logprobs: tuple[float, ...] = ()
    """What the engine reported for each response token (T = 1)."""


@dataclass(frozen=True)
class UpdateStats:
    """What one policy update did; all NaN but `tokens` and `skipped` when it was skipped."""

    loss: float
    kl: float
    """Estimated KL(old ‖ new) per response token (k3), each at the time it was trained on: 0 with one minibatch."""
    entropy: float
    """Mean entropy of the token distribution over response positions, in nats."""
    grad_norm: float
    clip_fraction: float
    """Share of response tokens whose ratio was clipped."""
    lr: float
    tokens: int
    """Response tokens trained on."""
    logprob_gap: float
    """Mean |trainer - engine| log-probability of a response token before the update; NaN unless T = 1."""
    importance_mean: float
    """Mean ratio trainer / engine probability of a response token, before it is capped; NaN where it is not used."""
    importance_capped: float
    """Share of response tokens whose ratio was capped; NaN where it is not used."""
    skipped: str
    """Why the update was not applied, or the empty string."""
