"""Stage 4: let the verifiers judge every rollout, and decide which groups are trained on."""

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from models.acquisition.dynamic_sampling import Outcome, reject_reasons, wants_another_round
from models.records import RewardStatus, Verdict
from models.rewards import VERIFIERS
from models.rewards.base import score
from models.rewards.overlong import overlong_penalty
from tasks.acquire import remaining_candidates
from tasks.stage import stage
from tasks.workbench import Workbench, workbench

SCORED = ("prompt_id", "response", "response_tokens")
Scored = tuple[Verdict | None, RewardStatus]


@stage
def score_rewards(run: str, step: int, round_: int = 0) -> bool:
    """Write `rewards` of the round; says whether the step wants another round."""
    bench = workbench(run)
    with bench.timed("score"):
        if not bench.history.holds("rewards", step, round_):
            _write_rewards(bench, step, round_)
        return wants_another_round(
            bench.settings.dynamic_sampling,
            informative=sum(outcome.informative for outcome in read_outcomes(bench, step, range(round_ + 1))),
            batch_size=bench.settings.acquisition.batch_size,
            rounds=round_ + 1,
            remaining=remaining_candidates(bench, step, range(round_ + 1)),
        )


def read_outcomes(bench: Workbench, step: int, rounds: Iterable[int] | None = None) -> list[Outcome]:
    """Outcomes of the groups of some rounds of a step, in order of round and rank; of all rounds by default."""
    outcomes: dict[str, Outcome] = {}
    for round_ in bench.history.rounds("rewards", step) if rounds is None else rounds:
        rewards = bench.history.read("rewards", step, round_)
        outcomes |= _outcomes(rewards["group_id"].to_pylist(), rewards["success"].to_pylist())
    return list(outcomes.values())


def _write_rewards(bench: Workbench, step: int, round_: int) -> None:
    rollouts = bench.history.read("rollouts", step, round_)
    scored = [_score(bench, *row) for row in zip(*(rollouts[name].to_pylist() for name in SCORED), strict=True)]
    reasons = _group_reasons(bench, step, round_, rollouts, scored)
    groups = rollouts["group_id"].to_pylist()
    columns = {
        "group_id": groups,
        "sample": rollouts["sample"],
        "reward": [verdict.reward if verdict else None for verdict, _ in scored],
        "success": [verdict.success if verdict else None for verdict, _ in scored],
        "reward_status": [status for _, status in scored],
        "reward_parts": [json.dumps(dict(verdict.parts)) if verdict else None for verdict, _ in scored],
        "admitted": [reasons[group] is None for group in groups],
        "reject_reason": [reasons[group] for group in groups],
    }
    bench.history.write("rewards", step, columns, round_, round=round_)


def _score(bench: Workbench, prompt_id: str, response: str, tokens: int) -> Scored:
    """Verdict on one response; a penalty for its length changes the reward, never the success."""
    prompt = bench.train.prompts[bench.row_of[prompt_id]]
    verdict, status = score(VERIFIERS[prompt.reward], response, prompt.answer)
    overlong = bench.settings.overlong
    if verdict is None or overlong.responses != "penalise":
        return verdict, status
    penalty = overlong_penalty(tokens, max_tokens=bench.settings.sampling.max_tokens, buffer=overlong.buffer)
    return Verdict(verdict.reward + penalty, verdict.success, {**verdict.parts, "overlong": penalty}), status


def _group_reasons(
    bench: Workbench, step: int, round_: int, rollouts: pa.Table, scored: Sequence[Scored]
) -> dict[str, str | None]:
    outcomes = _outcomes(
        rollouts["group_id"].to_pylist(), [verdict.success if verdict else None for verdict, _ in scored]
    )
    informative_before = sum(outcome.informative for outcome in read_outcomes(bench, step, range(round_)))
    reasons = reject_reasons(
        list(outcomes.values()),
        filtering=bench.settings.dynamic_sampling.enabled,
        room=bench.settings.acquisition.batch_size - informative_before,
    )
    return dict(zip(outcomes, reasons, strict=True))


def _outcomes(groups: Sequence[str], successes: Sequence[bool | None]) -> dict[str, Outcome]:
    """Outcome of each group, in order of first appearance."""
    outcomes: dict[str, Outcome] = {}
    for group, success in zip(groups, successes, strict=True):
        before = outcomes.get(group, Outcome(0, 0))
        outcomes[group] = Outcome(before.successes + bool(success), before.valid + (success is not None))
    return outcomes
