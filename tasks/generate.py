"""Stage 3: roll the batch out, and store tokens and responses."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from models.records import Generation, Request
from storage.history import group_id
from storage.unfinished import UnfinishedRound
from tasks.stage import stage
from tasks.sync import ensure_synced
from tasks.visits import chosen_rows
from tasks.workbench import TokenisedPrompts, Workbench, workbench

SAVE_SECONDS = 20.0
"""Time between savings of finished groups: so much of a round is lost when the process dies."""

Group = tuple[str, Request, list[Generation]]
"""group_id, what was asked, and its rollouts."""


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
        unfinished = UnfinishedRound(bench.layout, "tokens", bench.run, step, round_)
        if not bench.history.holds("tokens", step, round_):
            _write_tokens(bench, step, round_, requests, unfinished)
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


def _write_tokens(
    bench: Workbench, step: int, round_: int, requests: dict[str, Request], unfinished: UnfinishedRound
) -> None:
    """Generate what is missing. Engines whose batches decide the last digits do a round in one piece."""
    ensure_synced(bench)
    if bench.engine.whole_rounds:
        columns = _token_columns(_generate(bench, requests))
        bench.history.write("tokens", step, columns, round_, round=round_)
        return
    done = set(unfinished.read()["group_id"].to_pylist())
    missing = {group: request for group, request in requests.items() if group not in done}
    fresh = _generate_and_save(bench, missing, unfinished)
    tokens = pa.concat_tables([unfinished.read(), unfinished.table(_token_columns(fresh))])
    bench.history.write("tokens", step, _in_order(tokens, requests), round_, round=round_)


def _generate(bench: Workbench, requests: dict[str, Request]) -> Iterable[Group]:
    """Groups as they finish."""
    groups = list(requests)
    for position, generations in bench.engine.generate(list(requests.values())):
        yield groups[position], requests[groups[position]], generations


def _generate_and_save(bench: Workbench, requests: dict[str, Request], unfinished: UnfinishedRound) -> list[Group]:
    """Save groups now and then, and when the engine fails; returns those that came since the last saving."""
    fresh: list[Group] = []
    saved_at = time.monotonic()
    try:
        for group in _generate(bench, requests):
            fresh.append(group)
            if time.monotonic() - saved_at > SAVE_SECONDS:
                unfinished.save(_token_columns(fresh))
                fresh, saved_at = [], time.monotonic()
    except BaseException:
        if fresh:
            unfinished.save(_token_columns(fresh))
        raise
    return fresh


def _in_order(tokens: pa.Table, requests: dict[str, Request]) -> dict[str, Any]:
    """Columns of saved tokens in the order of the requests."""
    rank = {group: position for position, group in enumerate(requests)}
    keys = zip(tokens["group_id"].to_pylist(), tokens["sample"].to_pylist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}  # a save that was broken off may have been made twice
    order = pa.array([row_of[key] for key in sorted(row_of, key=lambda key: (rank[key[0]], key[1]))], pa.int64())
    return {name: tokens[name].take(order) for name in tokens.column_names if name not in ("run_id", "step", "round")}


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
