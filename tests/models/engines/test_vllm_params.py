"""What vLLM returns in this process is checked as what servers return; no vLLM is needed for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from models.engines import build_engine
from models.engines.vllm_params import Expected, first_line, read_outputs, read_scores
from models.errors import EngineError
from models.settings import EngineSettings, SamplingSettings
from tests.models.engines.vllm_setup import tiny_policy

EXPECTED = Expected(samples=2, max_tokens=3, vocabulary=10, label="4", policy_version=4)


def make_output(index: int, token_ids: tuple[int, ...] = (7, 8), logprob: float = -1.0) -> Any:
    return SimpleNamespace(
        index=index,
        token_ids=list(token_ids),
        logprobs=[{token: SimpleNamespace(logprob=logprob)} for token in token_ids],
        finish_reason="length",
        weight_versions=[SimpleNamespace(version="4")],
    )


def test_samples_come_in_order_with_their_version() -> None:
    first, second = read_outputs([make_output(1, (5,)), make_output(0)], EXPECTED)
    assert first.token_ids == (7, 8) and first.logprobs == (-1.0, -1.0)
    assert second.token_ids == (5,) and second.policy_version == 4


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a token beyond the vocabulary": (lambda _: make_output(0, (10,)), "not among the policy's 10"),
    "a negative token": (lambda _: make_output(0, (-1,)), "not among the policy's 10"),
    "no token": (lambda _: make_output(0, ()), "returned 0 tokens, and sampling.max_tokens is 3"),
    "too many tokens": (lambda _: make_output(0, (1, 2, 3, 4)), "returned 4 tokens"),
    "a log-probability that is NaN": (lambda _: make_output(0, logprob=float("nan")), "as many finite"),
    "too few log-probabilities": (lambda one: one.logprobs.pop(), "cannot be read"),
    "no log-probabilities": (lambda one: setattr(one, "logprobs", None), "cannot be read"),
    "an index twice": (lambda _: make_output(1), r"returned responses \[1\] of 2"),
    "other weights": (lambda one: one.weight_versions.append(SimpleNamespace(version="3")), "version 3, 4, not 4"),
    "no end": (lambda one: setattr(one, "finish_reason", "abort"), "ended a response with 'abort'"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_anything_wrong_is_one_line(change: Callable[[Any], Any], message: str) -> None:
    first = make_output(0)
    changed = change(first)
    outputs = [changed if isinstance(changed, SimpleNamespace) and hasattr(changed, "index") else first, make_output(1)]
    with pytest.raises(EngineError, match=message):
        read_outputs(outputs, EXPECTED)


def test_scores_are_of_the_tokens_after_the_first() -> None:
    entries = [None, {6: SimpleNamespace(logprob=-2.0), 5: SimpleNamespace(logprob=-1.0)}]
    assert read_scores(entries, (5, 6), served=False) == [-2.0]
    assert read_scores([None, {"6": {"logprob": -2.0}}], (5, 6), served=True) == [-2.0]
    for answer in (None, entries[:1], [None, {6: SimpleNamespace(logprob=None)}]):
        with pytest.raises(EngineError, match="cannot be read"):
            read_scores(answer, (5, 6), served=False)


class Settings(BaseModel):
    length: int

    @field_validator("length")
    @classmethod
    def _check(cls, _: int) -> int:
        raise ValueError("the length is wrong")


def test_the_line_of_a_validation_error_that_says_something_is_told() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(length=3)
    assert first_line(caught.value).startswith("ValidationError: the length is wrong")
    assert first_line(RuntimeError("\n\nfirst\nsecond")) == "RuntimeError: first"
    assert first_line(RuntimeError()) == "RuntimeError: "


@pytest.mark.parametrize("temperature", [0.001, 2.5, float("inf")])
def test_a_temperature_that_vllm_does_not_sample_at_is_one_line_and_auto_falls_back(temperature: float) -> None:
    sampling = SamplingSettings(max_tokens=16, temperature=temperature)
    with pytest.raises(EngineError, match=r"temperatures of 0\.01 to 2, and sampling\.temperature is"):
        build_engine(tiny_policy(), EngineSettings(name="vllm"), sampling, longest_prompt=32)
    engine, reason = build_engine(tiny_policy(), EngineSettings(name="auto"), sampling, longest_prompt=32)
    assert engine.name == "transformers" and "temperatures" in reason
