"""The questions that the program itself asks of the history."""

from typing import Any

import pyarrow as pa

from storage.catalog import query
from storage.layout import Layout

_TOTALS = """
select max(step) as steps, sum(groups)::bigint as groups, sum(informative_groups)::bigint as informative_groups,
       sum(rollouts)::bigint as rollouts, sum(successes)::bigint as successes,
       sum(prompt_tokens)::bigint as prompt_tokens, sum(response_tokens)::bigint as response_tokens,
       sum(predict_seconds + acquire_seconds + generate_seconds + score_seconds + update_policy_seconds
           + update_predictor_seconds + evaluate_seconds) as seconds
from steps where run_id = $run
"""
_JUDGED = """
select p_success, successes, valid, propensity, round from groups
where run_id = $run and valid > 0 and p_success is not null order by step, round, group_id
"""
_HELDOUT = """
with ends as (select min(step) as first, max(step) as last from evaluations where run_id = $run)
select prompt_id, before.samples as samples_before, before.successes as successes_before,
       after.samples as samples_after, after.successes as successes_after, ends.last as last_step
from ends, evaluations before join evaluations after using (run_id, prompts, prompt_id)
where run_id = $run and before.step = ends.first and after.step = ends.last order by prompt_id
"""
_PROMPT = "select * from prompts where starts_with(prompt_id, $beginning) order by dataset"
_VISITS = """
select run_id, count(*) as visits, min(step) as first, max(step) as last, sum(rollouts)::bigint as rollouts,
       sum(successes)::bigint as successes
from groups where prompt_id = $prompt_id group by run_id order by run_id
"""
_LATEST = """
select step, sample, success, response from rollouts
where prompt_id = $prompt_id and run_id = $run
qualify step = max(step) over () order by sample
"""


def run_totals(layout: Layout, run: str) -> dict[str, Any]:
    """Sums over the committed steps of a run; all None when there is none."""
    totals: dict[str, Any] = query(layout, _TOTALS, {"run": run}, run).to_pylist()[0]
    return totals


def judged_groups(layout: Layout, run: str) -> pa.Table:
    """Forecast, outcome, propensity and round of every group of a run."""
    return query(layout, _JUDGED, {"run": run}, run)


def heldout_ends(layout: Layout, run: str) -> list[dict[str, Any]]:
    """Samples and successes of each prompt that both the first and the last evaluation of a run hold."""
    rows: list[dict[str, Any]] = query(layout, _HELDOUT, {"run": run}, run).to_pylist()
    return rows


def prompts_beginning_with(layout: Layout, beginning: str) -> list[dict[str, Any]]:
    """Rows of all datasets whose `prompt_id` begins so."""
    rows: list[dict[str, Any]] = query(layout, _PROMPT, {"beginning": beginning}).to_pylist()
    return rows


def prompt_visits(layout: Layout, prompt_id: str) -> list[dict[str, Any]]:
    """How often each run rolled a prompt out, and with what success."""
    rows: list[dict[str, Any]] = query(layout, _VISITS, {"prompt_id": prompt_id}).to_pylist()
    return rows


def latest_responses(layout: Layout, prompt_id: str, run: str) -> list[dict[str, Any]]:
    """The responses of a run to a prompt when it last met it."""
    rows: list[dict[str, Any]] = query(layout, _LATEST, {"prompt_id": prompt_id, "run": run}, run).to_pylist()
    return rows
