"""What a run logged of its selections: the candidates of each step's first round, and what was acquired.

It is read through the views, which leave out single damaged files. A replay asks only about steps that it has read
whole itself (`storage.steps`), so a step in which something is missing weighs nothing.
"""

import pyarrow as pa

from storage.catalog import query
from storage.layout import Layout

_SIZES = "select step, candidates from steps where run_id = $run and step > 0 order by step"
_CANDIDATES = """
select a.step, a.prompt_id, a.propensity, a.decision, f.p_success, f.p_sd, f.expected_tokens,
       g.successes, g.valid
from raw.acquisitions a
left join (
    select step, prompt_id, p_success, p_sd, expected_tokens from raw.forecasts
    where step between $first and $last
) f on a.step = f.step and a.prompt_id = f.prompt_id
left join (
    select step, prompt_id, count(success) as valid, count(*) filter (success) as successes from rollouts
    where round = 0 and step between $first and $last group by step, prompt_id
) g on a.step = g.step and a.prompt_id = g.prompt_id
where a.round = 0 and a.step between $first and $last
order by a.step
"""
_ACQUIRED = """
select step, prompt_id from raw.acquisitions
where decision in ('acquired', 'explored') and step between $first and $last
order by step, round, rank
"""


def candidate_counts(layout: Layout, run: str) -> list[tuple[int, int]]:
    """Committed steps of a run that had candidates, in order, and how many."""
    table = query(layout, _SIZES, {"run": run}, run)
    counts = zip(table["step"].to_pylist(), table["candidates"].to_pylist(), strict=True)
    return [(step, candidates) for step, candidates in counts if candidates]


def read_candidates(layout: Layout, run: str, first: int, last: int) -> pa.Table:
    """Forecast, propensity, decision and outcome of each candidate in the first rounds of steps first..last.

    In order of step. `successes` and `valid` are null where the candidate was not rolled out.
    """
    return query(layout, _CANDIDATES, {"first": first, "last": last}, run)


def read_acquired(layout: Layout, run: str, first: int, last: int) -> pa.Table:
    """`step` and `prompt_id` of all that steps first..last acquired, in order of step, round and rank."""
    return query(layout, _ACQUIRED, {"first": first, "last": last}, run)
