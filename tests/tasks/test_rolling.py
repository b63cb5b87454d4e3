"""Groups that were finished are generated once, whatever became of the rest."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.errors import EngineError
from models.records import Generation, Request
from storage.layout import Layout
from storage.unfinished import UnfinishedPart
from tasks.rolling import Group, generate_columns

REQUESTS = {name: Request((1, 2), seed=10 * index, samples=2) for index, name in enumerate("abcde")}


class FailingEngine:
    """Answers backwards, and fails after so many groups."""

    whole_rounds = False
    policy_version = 0

    def __init__(self, groups: int) -> None:
        self.left = groups
        self.asked: list[int] = []

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[Generation]]]:
        for position, request in reversed(list(enumerate(requests))):
            if self.left == 0:
                raise EngineError("gone")
            self.left -= 1
            self.asked.append(request.seed)
            yield position, [Generation((seed,), (-1.0,), "stop", 0) for seed in request.seeds]


def tokens_of(groups: Iterable[Group]) -> dict[str, Any]:
    rows = [(name, sample, one) for name, _, ones in groups for sample, one in enumerate(ones)]
    return {
        "group_id": [name for name, _, _ in rows],
        "sample": [sample for _, sample, _ in rows],
        "prompt_token_ids": [[1, 2]] * len(rows),
        "token_ids": [one.token_ids for _, _, one in rows],
        "logprobs": [one.logprobs for _, _, one in rows],
        "finish_reason": [one.finish_reason for _, _, one in rows],
        "policy_version": [0] * len(rows),
    }


def evaluations_of(groups: Iterable[Group]) -> dict[str, Any]:
    listed = list(groups)
    return {
        "prompt_id": [name for name, _, _ in listed],
        "successes": [len(ones) for _, _, ones in listed],
        "tokens": [ones[0].token_ids[0] for _, _, ones in listed],
    }


def roll(engine: FailingEngine, unfinished: UnfinishedPart) -> Any:
    bench: Any = SimpleNamespace(engine=engine, policy_version=0, run="r")
    return generate_columns(bench, REQUESTS, unfinished, tokens_of, ("group_id", "sample"))


@pytest.fixture
def unfinished(tmp_path: Path) -> UnfinishedPart:
    return UnfinishedPart(Layout(tmp_path), "tokens", "r", 1, 0, round=0)


EXPECTED = [("a", 0, 0), ("a", 1, 1), ("b", 0, 10), ("b", 1, 11), ("c", 0, 20), ("c", 1, 21)]
EXPECTED += [("d", 0, 30), ("d", 1, 31), ("e", 0, 40), ("e", 1, 41)]


def read(columns: Any) -> list[tuple[str, int, int]]:
    tokens = [token for (token,) in columns["token_ids"].to_pylist()]
    return list(zip(columns["group_id"].to_pylist(), columns["sample"].to_pylist(), tokens, strict=True))


@pytest.mark.parametrize("seconds", [0.0, 20.0], ids=["saved one by one", "saved at the failure"])
def test_finished_groups_are_not_asked_again(
    unfinished: UnfinishedPart, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.rolling.SAVE_SECONDS", seconds)
    with pytest.raises(EngineError, match="gone"):
        roll(FailingEngine(3), unfinished)
    engine = FailingEngine(9)
    columns = roll(engine, unfinished)
    assert engine.asked == [10, 0]
    assert read(columns) == EXPECTED
    assert set(columns) == set(tokens_of([]))


def test_groups_that_are_not_whole_are_made_again_and_foreign_ones_passed_over(
    unfinished: UnfinishedPart, caplog: pytest.LogCaptureFixture
) -> None:
    ones = [Generation((seed,), (-1.0,), "stop", 0) for seed in (90, 91)]
    unfinished.save(tokens_of([("a", REQUESTS["a"], ones[:1]), ("other", REQUESTS["a"], ones)]))
    engine = FailingEngine(9)
    assert read(roll(engine, unfinished)) == EXPECTED
    assert sorted(engine.asked) == [0, 10, 20, 30, 40]
    assert "3 saved rows of r are of no whole group here" in caplog.text


def test_rows_that_were_saved_twice_count_once(unfinished: UnfinishedPart) -> None:
    with pytest.raises(EngineError):
        roll(FailingEngine(2), unfinished)
    saved = unfinished.read()
    unfinished.save({name: saved[name] for name in saved.column_names if name not in unfinished.constants})
    assert read(roll(FailingEngine(9), unfinished)) == EXPECTED


def test_evaluations_keep_finished_prompts_too(tmp_path: Path) -> None:
    unfinished = UnfinishedPart(Layout(tmp_path), "evaluations", "r", 1, prompts="held", samples=2)

    def evaluate(engine: FailingEngine) -> Any:
        bench: Any = SimpleNamespace(engine=engine, policy_version=0, run="r")
        return generate_columns(bench, REQUESTS, unfinished, evaluations_of, ("prompt_id",))

    with pytest.raises(EngineError, match="gone"):
        evaluate(FailingEngine(4))
    engine = FailingEngine(9)
    columns = evaluate(engine)
    assert engine.asked == [0]
    assert columns["prompt_id"].to_pylist() == list("abcde")
    assert columns["tokens"].to_pylist() == [0, 10, 20, 30, 40]
    asked_for_more = UnfinishedPart(Layout(tmp_path), "evaluations", "r", 1, prompts="held", samples=4)
    assert len(asked_for_more.read()) == 0
