import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from models.settings import MoppsSettings

BENCH = Path(__file__).parents[2] / "bench"
MODELS = ["a", "a", "b", "c", "b", "Qwen2-1.5B", "Qwen2-1.5B-Instruct"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    import selection
    import selection_labelled
    import selection_warm
    import selection_world

    yield SimpleNamespace(main=selection, labelled=selection_labelled, warm=selection_warm, world=selection_world)
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


def test_who_is_told_the_labels_reads_other_models_and_train_rates_of_its_own_alone(bench: SimpleNamespace) -> None:
    """The model left out is another one with noise, but for its test rates, which are drawn apart in one world."""
    rng, size = np.random.default_rng(0), 400
    world = make_world(bench)
    world.models, world.temperatures = ["a", "b"], [1.0, 1.0]
    world.texts = tuple(f"what is {rng.integers(100)} + {row}?" for row in range(size))
    world.embeddings, world.categories = rng.normal(size=(size, 4)).astype(np.float32), ("",) * size
    world.split = np.arange(size) % 2
    shared = rng.integers(0, 46, size)
    world.solved = np.stack([shared + rng.integers(0, 5, size), shared + rng.integers(0, 5, size)])
    assert bench.labelled.judge_labelled(world, "siblings", "a")[0]["labelled"] > 0.9
    assert abs(bench.labelled.judge_labelled(world, "new", "a")[0]["labelled"]) < 0.3
    world.solved[0, world.split == bench.warm.TEST] = rng.integers(0, 50, size // 2)
    assert abs(bench.labelled.judge_labelled(world, "siblings", "a")[0]["labelled"]) < 0.3


def test_a_kept_result_is_shown_for_its_own_setting_alone(bench: SimpleNamespace, tmp_path: Path) -> None:
    kept = bench.main.Kept(tmp_path, float("inf"))
    assert kept.do(("run", 1), (600, 12), lambda: "short") == "short"
    assert kept.do(("run", 1), (7500, 60), lambda: "long") == "long"
    assert kept.do(("run", 1), (600, 12), lambda: "anew") == "short"


@pytest.mark.parametrize(
    "change",
    [{"prompts": 9}, {"steps": 9}, {"quick": True}, {"rule": "uniform"}, {"predictor": "mean"}, {"start": "selected"}],
)
def test_whatever_decides_a_run_is_part_of_its_setting(bench: SimpleNamespace, change: dict[str, object]) -> None:
    def setting(changes: dict[str, object]) -> str:
        run = bench.main.Run(0, "cold", "foreroll", "informative", 0)
        run = run._replace(**{name: value for name, value in changes.items() if name in run._fields})
        sizes = {"prompts": 600, "steps": 12, "quick": False}
        sizes |= {name: value for name, value in changes.items() if name in sizes}
        return repr(bench.main.Simulator(Path(), None, **sizes).setting(run))

    assert setting(change) != setting({}) == setting({})


def test_a_default_that_changes_is_another_setting(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = bench.main.Simulator(Path(), None, prompts=600, steps=12, quick=True)
    run = bench.main.Run(0, "cold", "mopps", "thompson", 0)
    before = repr(simulator.setting(run))
    monkeypatch.setattr(bench.main, "predictors", lambda: {"mopps": MoppsSettings(decay=0.25)})
    assert repr(simulator.setting(run)) != before
