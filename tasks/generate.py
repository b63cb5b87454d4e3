"""Stage 3: roll the batch out, and store tokens and responses."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from models.records import Request
from storage.history import group_id
from storage.unfinished import UnfinishedPart
from tasks.rolling import Group, generate_columns
from tasks.stage import stage
from tasks.visits import chosen_rows
from tasks.workbench import TokenisedPrompts, Workbench, workbench


@stage
def generate_rollouts(run: str, step: int, round_: int = 0) -> None:
    """Write `tokens`, then `rollouts`, of the round: k rollouts for each prompt that it acquired.

    `rollouts` is made from the stored tokens, so that nothing is sampled twice.
    """
    bench = workbench(run)
    with bench.timed("generate"):
        if bench.history.holds("rollouts", step, round_) and bench.history.holds("tokens", step, round_):
            return
        rows = [int(row) for row in chosen_rows(bench, step, range(round_, round_ + 1))]
        requests = {
            group_id(bench.run, step, bench.pool.prompt_ids[row]): make_request(
                bench, bench.train, row, step, bench.settings.sampling.group_size
            )
            for row in rows
        }
        unfinished = UnfinishedPart(bench.layout, "tokens", bench.run, step, round_, round=round_)
        if not bench.history.holds("tokens", step, round_):
            columns = generate_columns(bench, requests, unfinished, _token_columns, ("group_id", "sample"))
            bench.history.write("tokens", step, columns, round_, round=round_)
        unfinished.remove()
        _write_rollouts(bench, step, round_, rows, list(requests.values()))


def make_request(bench: Workbench, prompts: TokenisedPrompts, row: int, step: int, samples: int) -> Request:
    """A request whose seeds depend on the run's seed, the step, the prompt and the sample alone."""
    seed = bench.seed(step, prompts.dataset, prompts.prompts[row].prompt_id)
    return Request(prompt_token_ids=prompts.token_ids[row], seed=seed, samples=samples)


def decode(bench: Workbench, token_ids: Sequence[int]) -> str:
    """The response's text, special tokens left out."""
    text = bench.policy.tokenizer.decode(list(token_ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text


def _token_columns(groups: Iterable[Group]) -> dict[str, Any]:
    flat = [
        (group, sample, request, one)
        for group, request, generations in groups
        for sample, one in enumerate(generations)
    ]
    return {
        "group_id": [group for group, _, _, _ in flat],
        "sample": [sample for _, sample, _, _ in flat],
        "prompt_token_ids": [request.prompt_token_ids for _, _, request, _ in flat],
        "token_ids": [one.token_ids for _, _, _, one in flat],
        "logprobs": [one.logprobs for _, _, _, one in flat],
        "finish_reason": [one.finish_reason for _, _, _, one in flat],
        "policy_version": [one.policy_version for _, _, _, one in flat],
    }


def _write_rollouts(bench: Workbench, step: int, round_: int, rows: Sequence[int], requests: Sequence[Request]) -> None:
    tokens = bench.history.read("tokens", step, round_)
    prompt_of = {group_id(bench.run, step, bench.pool.prompt_ids[row]): bench.pool.prompt_ids[row] for row in rows}
    responses = tokens["token_ids"].to_pylist()
    columns = {
        "prompt_id": [prompt_of[group] for group in tokens["group_id"].to_pylist()],
        "group_id": tokens["group_id"],
        "sample": tokens["sample"],
        "policy_version": tokens["policy_version"],
        "response": [decode(bench, response) for response in responses],
        "prompt_tokens": [len(prompt) for prompt in tokens["prompt_token_ids"].to_pylist()],
        "response_tokens": [len(response) for response in responses],
        "finish_reason": tokens["finish_reason"],
        "sampling": [_sampling(bench, seed) for request in requests for seed in request.seeds],
    }
    bench.history.write("rollouts", step, columns, round_, round=round_, attempt=0, engine=bench.engine.name)


def _sampling(bench: Workbench, seed: int) -> str:
    sampling = bench.settings.sampling
    return json.dumps(
        {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed,
            "logprobs": "raw",
        }
    )
