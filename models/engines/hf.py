"""The `transformers` engine: Hugging Face's `generate` on the trainer's own module."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel

from models.engines.base import check_context
from models.engines.sampler import SeededSampler
from models.policy.loading import Policy
from models.records import Generation, Request
from models.settings import EngineSettings, SamplingSettings


class TransformersEngine:
    """Samples from the module that the trainer updates, so its weights are never stale."""

    name = "transformers"
    whole_rounds = True

    def __init__(self, policy: Policy, engine: EngineSettings, sampling: SamplingSettings) -> None:
        self._policy = policy
        self._batch_size = engine.batch_size
        self._sampling = sampling
        self.policy_version: int | None = None

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[Generation]]]:
        """The groups, all at the end: rows are batched by prompt length, across groups.

        A row depends on weights, prompt and seed alone, up to the float32 noise of batching.
        """
        check_context(requests, self._sampling.max_tokens, self._policy.context)
        rows = [(request, seed) for request in requests for seed in request.seeds]
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row][0].prompt_token_ids))
        done: dict[int, Generation] = {}
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            prompts = [rows[row][0].prompt_token_ids for row in batch]
            seeds = [rows[row][1] for row in batch]
            done.update(zip(batch, self._generate_batch(prompts, seeds), strict=True))
        ordered = iter(range(len(rows)))
        for position, request in enumerate(requests):
            yield position, [done[next(ordered)] for _ in request.seeds]

    def sync(self, policy_version: int) -> None:
        """Note the version: engine and trainer share their weights."""
        self.policy_version = policy_version

    def suspend(self) -> None:
        """Nothing is held beside the policy."""

    def score(self, token_ids: Sequence[int]) -> list[list[float]]:
        """Engine and trainer are one module."""
        return []

    def close(self) -> None:
        """Nothing is held beside the policy."""

    def _generate_batch(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Generation]:
        policy, sampling = self._policy, self._sampling
        ids, attention = _pad_left(prompts, policy.pad_id, policy.model.device)
        sampler = SeededSampler(
            seeds,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            eos_ids=policy.eos_ids,
            device=policy.model.device,
        )
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=list(policy.eos_ids),
            pad_token_id=policy.pad_id,
        )
        with policy.autocast(), _bare_generation(policy.model):
            output = cast(Any, policy.model).generate(
                input_ids=ids,
                attention_mask=attention,
                generation_config=config,
                logits_processor=LogitsProcessorList([sampler]),
            )
        assert self.policy_version is not None
        return _collect(output[:, ids.shape[1] :], sampler, frozenset(policy.eos_ids), self.policy_version)


@contextmanager
def _bare_generation(model: PreTrainedModel) -> Iterator[None]:
    """Hide the model's own generation defaults: a repetition penalty would change the raw logits."""
    defaults, model.generation_config = model.generation_config, GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        model.generation_config = defaults


def _pad_left(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, [rows, longest prompt]."""
    longest = max(map(len, prompts))
    ids = [[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    attention = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(attention, device=device)


def _collect(tokens: Tensor, sampler: SeededSampler, eos_ids: frozenset[int], policy_version: int) -> list[Generation]:
    generations = []
    lengths = sampler.lengths_N.tolist()
    for row, logprobs, length in zip(tokens.tolist(), sampler.logprobs_NT.tolist(), lengths, strict=True):
        generations.append(
            Generation(
                token_ids=tuple(row[:length]),
                logprobs=tuple(logprobs[:length]),
                finish_reason="stop" if row[length - 1] in eos_ids else "length",
                policy_version=policy_version,
            )
        )
    return generations
