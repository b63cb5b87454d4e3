import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"
MODELS = ["a", "a", "b", "c", "b", "Qwen2-1.5B", "Qwen2-1.5B-Instruct"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    import selection
    import selection_warm
    import selection_world

    yield SimpleNamespace(main=selection, warm=selection_warm, world=selection_world)
    for name in set(sys.modules) - before:
        if name.startswith(("selection", "bench_pages")):
            del sys.modules[name]


def make_world(bench: SimpleNamespace) -> object:
    """Prompts 0 and 1, of which 1 is judged; configuration i solved prompt j 10 i + j times."""
    world = object.__new__(bench.world.World)
    world.models, world.texts, world.split = MODELS, ("x", "y"), np.array([0, bench.warm.TEST])
    world.solved = np.array([[10 * at, 10 * at + 1] for at in range(len(MODELS))])
    return world


def test_warm_rows_never_come_from_either_end_at_any_temperature(bench: SimpleNamespace) -> None:
    assert bench.world.others(MODELS, ("a", "b")) == [3, 5, 6]
    simulator = object.__new__(bench.main.Simulator)
    for drift, (first, last) in enumerate(bench.main.DRIFTS):
        world = make_world(bench)
        world.models = [first, last, "c", first, last, "d"]
        simulator.world = world
        assert simulator._past(drift, "warm").successes.tolist() == [20, 21, 50, 51]
        assert simulator._past(drift, "cold") is None


OTHERS = [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]


@pytest.mark.parametrize(
    ("setting", "solved"),
    [("siblings", [*OTHERS, 60, 61]), ("strangers", OTHERS), ("new", [0, 10, 20, 30, 40, 60])],
)
def test_what_a_model_may_learn_from_leaves_itself_its_family_or_the_prompts_out(
    bench: SimpleNamespace, setting: str, solved: list[int]
) -> None:
    past = bench.warm.past_of(make_world(bench), setting, "dense", "Qwen2-1.5B", [])
    assert past.successes.tolist() == solved
