"""What both vLLM engines ask, and how they read the answers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from models.errors import EngineError
from models.records import FinishReason, Generation, Request
from models.settings import SamplingSettings

Options = dict[str, Any]


def sampling_options(sampling: SamplingSettings, request: Request, eos_ids: Sequence[int]) -> Options:
    """Options of one group: vLLM draws its i-th sample from seed + i. All that a server could default is named."""
    return {
        "n": request.samples,
        "seed": request.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "max_tokens": sampling.max_tokens,
        "stop_token_ids": list(eos_ids),
        "logprobs": 0,
        "detokenize": False,
    }


def scoring_options() -> Options:
    """Options of a request for the log-probabilities of its own prompt."""
    return {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}


def read_generations(outputs: Iterable[Any], policy_version: int) -> list[Generation]:
    """The samples of one group as `vllm.LLM` returns them."""
    return [
        make_generation(
            token_ids=output.token_ids,
            logprobs=[entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs, strict=True)],
            finish_reason=output.finish_reason,
            labels={span.version for span in output.weight_versions or ()},
            expected=str(policy_version),
            policy_version=policy_version,
        )
        for output in sorted(outputs, key=lambda output: output.index)
    ]


def make_generation(
    *,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    finish_reason: str | None,
    labels: set[str],
    expected: str,
    policy_version: int,
) -> Generation:
    """One checked response.

    Args:
        labels: of the weights that sampled its tokens.
        expected: the label that there should be.

    Raises:
        EngineError: other weights sampled it, or it neither stopped nor grew too long.
    """
    if labels != {expected}:
        found = ", ".join(sorted(labels)) or "none"
        raise EngineError(f"vLLM sampled with weights of version {found}, not {expected}: it was not synced")
    if finish_reason not in ("stop", "length"):
        raise EngineError(f"vLLM ended a response with {finish_reason!r}: see its log")
    return Generation(
        token_ids=tuple(token_ids),
        logprobs=tuple(logprobs),
        finish_reason=cast(FinishReason, finish_reason),
        policy_version=policy_version,
    )


def read_scores(prompt_logprobs: Sequence[Mapping[Any, Any] | None] | None, token_ids: Sequence[int]) -> list[float]:
    """[len - 1] log-probabilities of the prompt's own tokens, the first left out."""
    if prompt_logprobs is None:
        raise EngineError("vLLM returned no log-probabilities of the prompt: see its log")
    entries = cast(Sequence[Mapping[Any, Any]], prompt_logprobs[1:])
    return [entry[token].logprob for token, entry in zip(token_ids[1:], entries, strict=True)]
