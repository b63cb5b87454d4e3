"""What both vLLM engines ask, and how they read the answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from models.errors import EngineError
from models.policy.loading import Policy
from models.records import FinishReason, Generation, Request
from models.settings import SamplingSettings

Options = dict[str, Any]
TEMPERATURES = (0.01, 2.0)
"""vLLM refuses higher ones, and silently raises lower ones."""


def check_sampling(sampling: SamplingSettings) -> None:
    """Refuse what vLLM does not sample.

    Raises:
        EngineError: a temperature outside its range.
    """
    lowest, highest = TEMPERATURES
    if not lowest <= sampling.temperature <= highest:
        raise EngineError(
            f"vLLM samples at temperatures of {lowest:g} to {highest:g}, and sampling.temperature is "
            f"{sampling.temperature:g}: change it, or use engine transformers"
        )


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


@dataclass(frozen=True)
class Expected:
    """What every response to one request must be like."""

    samples: int
    max_tokens: int
    vocabulary: int
    """Token ids lie below it."""
    label: str
    """Of the weights that are to have sampled it."""
    policy_version: int
    """What the label stands for."""


def expect(sampling: SamplingSettings, request: Request, policy: Policy, label: str, policy_version: int) -> Expected:
    """What is asked for by a request."""
    embedding: Any = policy.model.get_input_embeddings()
    return Expected(request.samples, sampling.max_tokens, len(embedding.weight), label, policy_version)


@contextmanager
def readable() -> Iterator[None]:
    """Turn an answer that is not what vLLM gives into an error of the engine.

    Raises:
        EngineError: a part is missing, or of another kind.
    """
    try:
        yield
    except EngineError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise EngineError(f"vLLM's answer cannot be read ({first_line(error)}): is it vLLM 0.32?") from error


def first_line(error: Exception) -> str:
    """An error in one line; of a validation error, the line that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    informative = next((line for line in lines if line.startswith("Value error, ")), lines[0])
    return f"{type(error).__name__}: {informative.removeprefix('Value error, ')}"


def read_outputs(outputs: Iterable[Any], expected: Expected) -> list[Generation]:
    """The samples of one group as `vllm.LLM` returns them."""
    with readable():
        return _in_order(
            {
                output.index: _checked(
                    output.token_ids,
                    [entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs, strict=True)],
                    output.finish_reason,
                    {span.version for span in output.weight_versions or ()},
                    expected,
                )
                for output in outputs
            },
            expected.samples,
        )


def read_choices(answer: Any, expected: Expected) -> list[Generation]:
    """The samples of one group as `vllm serve` returns them."""
    with readable():
        return _in_order(
            {
                choice["index"]: _checked(
                    choice["token_ids"],
                    [entry["logprob"] for entry in choice["logprobs"]["content"]],
                    choice["finish_reason"],
                    {span["version"] for span in choice["weight_versions"] or ()},
                    expected,
                )
                for choice in answer["choices"]
            },
            expected.samples,
        )


def read_scores(prompt_logprobs: Any, token_ids: Sequence[int], *, served: bool) -> list[float]:
    """[len - 1] log-probabilities of the prompt's own tokens, the first left out.

    Args:
        served: whether `vllm serve` returned them, which has JSON's keys.
    """
    with readable():
        entries = list(zip(token_ids[1:], prompt_logprobs[1:], strict=True))
        scores = [float(entry[str(token)]["logprob"] if served else entry[token].logprob) for token, entry in entries]
    if not np.isfinite(scores).all():
        raise EngineError("vLLM's log-probabilities of a prompt are not finite")
    return scores


def _in_order(generations: Mapping[Any, Generation], samples: int) -> list[Generation]:
    if set(generations) != set(range(samples)):
        raise EngineError(f"vLLM returned responses {sorted(generations)} of {samples}")
    return [generations[index] for index in range(samples)]


def _checked(
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    finish_reason: str | None,
    labels: set[str],
    expected: Expected,
) -> Generation:
    """One response.

    Args:
        labels: of the weights that sampled its tokens.

    Raises:
        EngineError: it is not as expected.
    """
    if labels != {expected.label}:
        found = ", ".join(sorted(map(str, labels))) or "none"
        raise EngineError(f"vLLM sampled with weights of version {found}, not {expected.label}: it was not synced")
    if finish_reason not in ("stop", "length"):
        raise EngineError(f"vLLM ended a response with {finish_reason!r}: see its log")
    if not 1 <= len(token_ids) <= expected.max_tokens:
        raise EngineError(f"vLLM returned {len(token_ids)} tokens, and sampling.max_tokens is {expected.max_tokens}")
    if not all(type(token) is int and 0 <= token < expected.vocabulary for token in token_ids):
        raise EngineError(f"vLLM returned a token that is not among the policy's {expected.vocabulary}")
    if len(logprobs) != len(token_ids) or not np.isfinite(logprobs).all():
        raise EngineError(f"vLLM returned {len(token_ids)} tokens without as many finite log-probabilities")
    return Generation(
        token_ids=tuple(token_ids),
        logprobs=tuple(map(float, logprobs)),
        finish_reason=cast(FinishReason, finish_reason),
        policy_version=expected.policy_version,
    )
