"""Stage 3: roll the batch out, and store tokens and responses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from models.records import Generation, Request
from tasks.acquire import chosen_rows, group_id
from tasks.stage import stage
from tasks.workbench import TokenisedPrompts, Workbench, workbench


@stage
def generate_rollouts(run: str, step: int, round_: int = 0) -> None:
    """Write `tokens`, then `rollouts`, of the round: k rollouts for each prompt that it acquired."""
    bench = workbench(run)
    with bench.timed("generate"):
        if bench.history.holds("rollouts", step, round_) and bench.history.holds("tokens", step, round_):
            return
        rows = [int(row) for row in chosen_rows(bench, step, range(round_, round_ + 1))]
        requests = [make_request(bench, bench.train, row, step, bench.settings.sampling.group_size) for row in rows]
        rollouts = _flatten(bench, step, rows, requests, bench.engine.generate(requests))
        _write_tokens(bench, step, round_, rollouts)
        _write_rollouts(bench, step, round_, rollouts)


def make_request(bench: Workbench, prompts: TokenisedPrompts, row: int, step: int, samples: int) -> Request:
    """A request whose seeds depend on the run's seed, the step, the prompt and the sample alone."""
    prompt_id = prompts.prompts[row].prompt_id
    seeds = tuple(bench.seed(step, prompts.dataset, prompt_id, sample) for sample in range(samples))
    return Request(prompt_token_ids=prompts.token_ids[row], seeds=seeds)


def decode(bench: Workbench, generation: Generation) -> str:
    """The response's text, special tokens left out."""
    text = bench.policy.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text


@dataclass(frozen=True)
class _Rollout:
    prompt_id: str
    group_id: str
    sample: int
    request: Request
    generation: Generation


def _flatten(
    bench: Workbench, step: int, rows: Sequence[int], requests: Sequence[Request], groups: list[list[Generation]]
) -> list[_Rollout]:
    rollouts = []
    for row, request, group in zip(rows, requests, groups, strict=True):
        prompt_id = bench.pool.prompt_ids[row]
        group_key = group_id(bench.run, step, prompt_id)
        rollouts += [_Rollout(prompt_id, group_key, sample, request, one) for sample, one in enumerate(group)]
    return rollouts


def _write_tokens(bench: Workbench, step: int, round_: int, rollouts: Sequence[_Rollout]) -> None:
    columns = {
        "group_id": [one.group_id for one in rollouts],
        "sample": [one.sample for one in rollouts],
        "prompt_token_ids": [one.request.prompt_token_ids for one in rollouts],
        "token_ids": [one.generation.token_ids for one in rollouts],
        "logprobs": [one.generation.logprobs for one in rollouts],
    }
    bench.history.write("tokens", step, columns, round_, round=round_)


def _write_rollouts(bench: Workbench, step: int, round_: int, rollouts: Sequence[_Rollout]) -> None:
    columns = {
        "prompt_id": [one.prompt_id for one in rollouts],
        "group_id": [one.group_id for one in rollouts],
        "sample": [one.sample for one in rollouts],
        "response": [decode(bench, one.generation) for one in rollouts],
        "prompt_tokens": [len(one.request.prompt_token_ids) for one in rollouts],
        "response_tokens": [len(one.generation.token_ids) for one in rollouts],
        "finish_reason": [one.generation.finish_reason for one in rollouts],
        "sampling": [_sampling(bench, one.request.seeds[one.sample]) for one in rollouts],
    }
    constants = {
        "round": round_,
        "attempt": 0,
        "policy_version": bench.policy_version,
        "engine": bench.engine.name,
    }
    bench.history.write("rollouts", step, columns, round_, **constants)


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
