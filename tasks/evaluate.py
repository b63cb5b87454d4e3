"""Held-out success of the live policy, measured before a step is committed."""

from models.engines.base import generate_all
from models.rewards import VERIFIERS
from models.rewards.base import score
from tasks.generate import decode, make_request
from tasks.stage import stage
from tasks.sync import ensure_synced
from tasks.workbench import Workbench, workbench


@stage
def evaluate_policy(run: str, step: int) -> None:
    """Write `evaluations` of the step: the held-out prompts, sampled as in training.

    The seeds leave the step out, so that two evaluations of one run differ by
    the policy alone, and their difference is a paired one.
    """
    bench = workbench(run)
    with bench.timed("evaluate"):
        if bench.history.holds("evaluations", step):
            return
        settings, heldout = bench.settings.evaluation, bench.heldout
        fitting = [row for row in range(len(heldout.prompts)) if heldout.fits[row]]
        rows = fitting[: settings.prompts or None]
        ensure_synced(bench)
        requests = [make_request(bench, heldout, row, 0, settings.samples) for row in rows]
        groups = generate_all(bench.engine, requests)
        columns = {
            "prompt_id": [heldout.prompts[row].prompt_id for row in rows],
            "successes": [
                sum(_succeeds(bench, row, decode(bench, one.token_ids)) for one in group)
                for row, group in zip(rows, groups, strict=True)
            ],
            "tokens": [sum(len(one.token_ids) for one in group) for group in groups],
        }
        bench.history.write("evaluations", step, columns, prompts=heldout.dataset, samples=settings.samples)


def _succeeds(bench: Workbench, row: int, response: str) -> bool:
    prompt = bench.heldout.prompts[row]
    verdict, _ = score(VERIFIERS[prompt.reward], response, prompt.answer)
    return verdict is not None and verdict.success
