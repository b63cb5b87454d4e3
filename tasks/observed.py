"""A stored step in the terms of predictors: pool rows of its candidates, outcomes and weights of its groups."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from models.difficulty.metrics import candidate_weights
from models.records import Floats, Ints, Observation


def considered(candidates: pa.Table, groups: Ints, row_of: Mapping[str, int]) -> tuple[Ints, Floats]:
    """Ascending pool rows of a step's candidates, and the p_success that was stored of each.

    Args:
        candidates: of `StoredStep`; where there are none, the groups' own rows are taken, and no p_success.
        groups: [G] pool rows of the step's groups.
    """
    if len(candidates) == 0:
        return np.unique(groups), np.empty(0)
    known = [(row_of.get(prompt_id, -1), at) for at, prompt_id in enumerate(candidates["prompt_id"].to_pylist())]
    kept = np.array(sorted(pair for pair in known if pair[0] >= 0), np.int64).reshape(-1, 2)
    return kept[:, 0], candidates["p_success"].to_numpy()[kept[:, 1]]


def known_groups(groups: pa.Table, row_of: Mapping[str, int], unknown: dict[str, int]) -> pa.Table:
    """The groups of prompts that have a row; those of each other prompt are counted in `unknown`."""
    ids = groups["prompt_id"].to_pylist()
    kept = [prompt_id in row_of for prompt_id in ids]
    for prompt_id, known in zip(ids, kept, strict=True):
        if not known:
            unknown[prompt_id] = unknown.get(prompt_id, 0) + 1
    return groups if all(kept) else groups.filter(pa.array(kept, pa.bool_()))


def observed(groups: pa.Table, tokens: pa.Table | None, row_of: Mapping[str, int]) -> Observation:
    """What came of groups, all of prompts that have a row."""
    ids = groups["prompt_id"].to_pylist()
    return Observation(
        rows=np.array([row_of[prompt_id] for prompt_id in ids], np.int64),
        successes=groups["successes"].to_numpy().astype(np.int64),
        valid=groups["valid"].to_numpy().astype(np.int64),
        mean_tokens=groups["mean_tokens"].to_numpy(zero_copy_only=False).astype(np.float64),
        mean_logprobs=_mean_logprobs(ids, tokens) if tokens is not None else None,
        explored=explored(groups),
    )


def explored(groups: pa.Table) -> NDArray[np.bool_]:
    """[G] which groups were drawn at random and not by the rule, by their decision; none where nobody selected."""
    drawn: NDArray[np.bool_] = np.array(groups["decision"].to_pylist(), dtype=object) == "explored"
    return drawn


def group_weights(groups: pa.Table) -> Floats:
    """[G] what groups count for when all candidates are meant (`candidate_weights`), by their propensity and round."""
    propensity = groups["propensity"].to_numpy(zero_copy_only=False).astype(np.float64)
    return candidate_weights(propensity, groups["round"].to_numpy())


def _mean_logprobs(ids: Sequence[str], tokens: pa.Table) -> Floats:
    """[G] mean over rollouts of the mean log-probability of their tokens."""
    mean = pl.col("logprobs").list.mean().cast(pl.Float64).mean()
    means = pl.DataFrame(tokens).group_by("prompt_id", maintain_order=True).agg(mean).rows()
    found: Mapping[str, float | None] = dict(means)
    return np.array([found[one] if found[one] is not None else np.nan for one in ids], np.float64)
