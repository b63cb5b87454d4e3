"""Held-out success of the live policy, measured before a step is committed."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from models.rewards import VERIFIERS
from models.rewards.base import score
from storage.unfinished import UnfinishedPart
from tasks.generate import decode, make_request
from tasks.rolling import Group, generate_columns
from tasks.stage import stage
from tasks.workbench import Workbench, workbench


@stage
def evaluate_policy(run: str, step: int) -> None:
    """Write `evaluations` of the step: the held-out prompts, sampled as in training.

    The seeds leave the step out, so that two evaluations of one run differ by
    the policy alone, and their difference is a paired one.
    """
    bench = workbench(run)
    with bench.timed("evaluate"):
        settings, heldout = bench.settings.evaluation, bench.heldout
        constants: dict[str, Any] = {"prompts": heldout.dataset, "samples": settings.samples}
        unfinished = UnfinishedPart(bench.layout, "evaluations", bench.run, step, **constants)
        if not bench.history.holds("evaluations", step):
            fitting = [row for row in range(len(heldout.prompts)) if heldout.fits[row]]
            rows = {heldout.prompts[row].prompt_id: row for row in fitting[: settings.prompts or None]}
            requests = {name: make_request(bench, heldout, row, 0, settings.samples) for name, row in rows.items()}
            columns = generate_columns(bench, requests, unfinished, partial(_columns, bench, rows), ("prompt_id",))
            bench.history.write("evaluations", step, columns, **constants)
        unfinished.remove()


def _columns(bench: Workbench, rows: Mapping[str, int], groups: Iterable[Group]) -> dict[str, Any]:
    """One row a prompt.

    Args:
        rows: the held-out row of each `prompt_id`.
    """
    listed = list(groups)
    return {
        "prompt_id": [name for name, _, _ in listed],
        "successes": [
            sum(_succeeds(bench, rows[name], decode(bench, one.token_ids)) for one in generations)
            for name, _, generations in listed
        ],
        "tokens": [sum(len(one.token_ids) for one in generations) for _, _, generations in listed],
    }


def _succeeds(bench: Workbench, row: int, response: str) -> bool:
    prompt = bench.heldout.prompts[row]
    verdict, _ = score(VERIFIERS[prompt.reward], response, prompt.answer)
    return verdict is not None and verdict.success
