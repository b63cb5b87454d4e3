"""What the views show, and which of them a query needs."""

import re
from dataclasses import dataclass

from storage.schemas import HISTORY


@dataclass(frozen=True)
class View:
    """A view over other views, or over the tables as they are stored."""

    needs: tuple[str, ...]
    sql: str


JOINED = {
    "forecasts": View(
        ("raw.forecasts", "raw.acquisitions"),
        """
        select f.run_id, f.step, f.prompt_id, f.predictor, f.p_success, f.p_sd, f.expected_tokens,
               a.utility, a.diversity, a.propensity, a.decision, a.rank, a.round
        from raw.forecasts f left join (
            select * from raw.acquisitions
            qualify row_number() over (partition by run_id, step, prompt_id order by round desc) = 1
        ) a using (run_id, step, prompt_id)
        """,
    ),
    "rollouts": View(
        ("raw.rollouts", "raw.rewards"),
        """
        select r.run_id, r.step, r.round, r.prompt_id, r.group_id, r.sample, r.attempt, r.policy_version, r.engine,
               r.response, r.prompt_tokens, r.response_tokens, r.finish_reason, w.reward, w.success,
               w.reward_status, w.reward_parts, w.admitted, w.reject_reason, r.sampling
        from raw.rollouts r left join raw.rewards w using (run_id, step, group_id, sample)
        """,
    ),
    "groups": View(
        ("rollouts", "forecasts"),
        """
        select g.*, g.successes > 0 and g.successes < g.valid as informative,
               g.successes / nullif(g.valid, 0) as success_rate,
               f.p_success, f.p_sd, f.expected_tokens, f.propensity, f.decision
        from (
            select run_id, step, any_value(round) as round, prompt_id, group_id, count(*) as rollouts,
                   count(success) as valid, count(*) filter (success) as successes, avg(reward) as mean_reward,
                   avg(response_tokens) as mean_tokens, bool_or(admitted) as admitted,
                   any_value(reject_reason) as reject_reason
            from rollouts group by run_id, step, prompt_id, group_id
        ) g left join forecasts f using (run_id, step, prompt_id)
        """,
    ),
    **{name: View((f"raw.{name}",), f"from raw.{name}") for name in HISTORY if name not in ("forecasts", "rollouts")},
}
VIEWS = (*JOINED, "predictors", "prompts", "runs")
"""Every view that a query can name, but those in the schema `raw`: one for each table as it is stored."""


def views_needed(sql: str) -> list[str]:
    """Views that a query reads, each after those that it needs itself."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name in ordered:
            return
        for needed in JOINED[name].needs if name in JOINED else ():
            add(needed)
        ordered.append(name)

    for name in _named(sql):
        add(name)
    return ordered


def _named(sql: str) -> list[str]:
    """Views whose names stand in the query's text; all when none does, so that `show tables` lists them.

    DuckDB's own list of a query's tables is no help: it binds columns, and fails before the views exist.
    """
    words = set(re.findall(r"[a-z_]+", sql.lower()))
    raw = [f"raw.{table}" for table in HISTORY if table in words] if "raw" in words else []
    return [name for name in VIEWS if name in words] + raw or list(VIEWS)
