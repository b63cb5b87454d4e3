"""A run that begins with a published predictor: which version, what of it, and that a resumed run keeps to it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flows.commands.train import resolve_config
from flows.config import TrainConfig, build_config, parse_assignments
from flows.train import train
from models.difficulty import build_predictor
from models.difficulty.base import State
from models.records import Observation, Pool
from models.settings import ForerollSettings, GpsSettings, MoppsSettings, PredictorSettings
from storage.checkpoints import load_arrays, save_arrays
from storage.errors import StoreError
from storage.layout import Layout
from storage.prompts import read_dataset
from storage.registry import promote, publish
from storage.runs import read_run
from storage.schemas import PAST
from storage.store import open_store
from tasks.opening import open_workbench
from tasks.registry import lineage_of, make_version
from tasks.runs import check_plan
from tasks.start import join_past
from tests.flows.small_run import POOL, make_store, small_config
from tests.storage.small_history import make_run

pytestmark = pytest.mark.usefixtures("prefect_server")

QUIET = {"evaluation": {"every": 0}, "checkpoint": {"every": 100}, "dynamic_sampling": {"enabled": False}}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return open_store(make_store(tmp_path / "store"))


def config(layout: Layout, predictor: dict[str, Any], run: str = "new", **changes: Any) -> TrainConfig:
    acquisition = {"name": "thompson", "batch_size": 4}
    given = {"steps": 1, "acquisition": acquisition, **QUIET, **changes}
    return build_config(small_config(layout.root, run, predictor=predictor, **given))


def publish_mopps(layout: Layout, solved: int) -> int:
    """A version that saw the first ten prompts of the pool once, with so many successes of 8 each."""
    ids = read_dataset(layout, POOL)["prompt_id"].to_pylist()[:10]
    predictor = build_predictor(MoppsSettings(), Pool(tuple(ids)), seed=0)
    ten = (np.full(10, number) for number in (solved, 8))
    predictor.observe(Observation(np.arange(10), *ten, np.full(10, 5.0)), seed=0)
    return publish_from(layout, MoppsSettings(), predictor.state_dict())


def publish_from(layout: Layout, settings: PredictorSettings, state: State, past: pa.Table | None = None) -> int:
    groups = PAST.empty_table() if past is None else past
    version = make_version(settings, state, past=groups, lineage=lineage_of(layout, {}, [POOL]), scores={})
    return publish(layout, "base", version)


def past_groups(layout: Layout, runs: dict[str, int]) -> pa.Table:
    """A group of each of the runs on the first prompts of the pool, as many as said."""
    ids = read_dataset(layout, POOL)["prompt_id"].to_pylist()
    rows = [
        {"run_id": run, "step": 1, "prompt_id": prompt, "successes": 1, "valid": 4, "mean_tokens": 3.0}
        for run, count in runs.items()
        for prompt in ids[:count]
    ]
    return pa.Table.from_pylist(rows, PAST)


def alphas(config: TrainConfig) -> list[float]:
    """What a run's mopps thinks of the first prompt and the last, when it is opened."""
    with open_workbench(config.plan()) as (bench, _):
        return [float(alpha) for alpha in bench.predictor.state_dict()["alpha"][[0, -1]]]


def pinned(layout: Layout, run: str = "new") -> Any:
    found = read_run(layout, run)
    assert found is not None
    return found.pins["predictor"]


def test_a_run_begins_with_the_best_version_and_keeps_to_its_number(layout: Layout) -> None:
    for solved in (2, 4, 6):
        publish_mopps(layout, solved)
    promote(layout, "base", 2, "first")
    wanted = config(layout, {"name": "mopps", "from": "base@best"})
    assert alphas(wanted) == [5.0, 1.0]
    assert (pinned(layout)["name"], pinned(layout)["version"]) == ("base", 2)
    promote(layout, "base", 3, "better")
    shutil.rmtree(layout.checkpoints("new"))
    assert alphas(wanted) == [5.0, 1.0]
    assert alphas(config(layout, {"name": "mopps", "from": "base@best"}, run="later")) == [7.0, 1.0]
    stored = resolve_config({}, {"store": str(layout.root), "run": "new"})
    assert stored.predictor == MoppsSettings(start="base@best")
    check_plan(stored.plan())


@pytest.mark.slow
def test_a_resumed_run_goes_on_to_the_same_bytes_though_another_version_is_best_by_now(layout: Layout) -> None:
    publish_mopps(layout, 4)
    publish_mopps(layout, 7)
    promote(layout, "base", 1, "first")
    for run, interrupted in (("whole", False), ("broken", True)):
        train(config(layout, {"name": "mopps", "from": "base@best"}, run, steps=1))
        if interrupted:
            promote(layout, "base", 2, "better")
            shutil.rmtree(layout.checkpoints(run))
        train(config(layout, {"name": "mopps", "from": "base@best"}, run, steps=1))
    arrays = [layout.checkpoint(run, 2) / "predictor" / "arrays.safetensors" for run in ("whole", "broken")]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()


def test_foreroll_has_the_groups_of_its_version_and_counts_those_of_a_run_in_both_once(layout: Layout) -> None:
    train(config(layout, {"name": "mopps"}, "a"))
    publish_from(layout, ForerollSettings(), {}, past_groups(layout, {"a": 9, "elsewhere": 30, "new": 7}))
    for run, past, expected in (("new", "all", [4, 30]), ("other", "none", [9, 30, 7])):
        predictor = {"name": "foreroll", "components": 8, "past": past, "from": "base"}
        with open_workbench(config(layout, predictor, run).plan()) as (bench, _):
            assert bench.pool.past is not None
            assert np.bincount(bench.pool.past.run).tolist() == expected


def test_a_version_that_knows_none_of_the_pool_is_said_to(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    groups = past_groups(layout, {"elsewhere": 3})
    strangers = groups.set_column(2, "prompt_id", pa.array([f"{row:032x}" for row in range(3)])).cast(PAST)
    for run, past, said in (("cold", strangers, True), ("warm", groups, False)):
        publish_from(layout, ForerollSettings(), {}, past)
        with open_workbench(config(layout, {"name": "foreroll", "components": 8, "from": "base"}, run).plan()):
            told = [message for message in caplog.messages if "tells nothing here" in message]
        assert told == (
            ["predictor base@1 has learned of 3 prompts, none of which the run has: it tells nothing here"] * said
        )
        caplog.clear()


def test_a_run_whose_predictor_another_version_wrote_is_named_and_can_be_forked(layout: Layout) -> None:
    train(config(layout, {"name": "mopps"}))
    folder = layout.checkpoint("new", 1) / "predictor"
    arrays = load_arrays(folder)
    save_arrays(folder, {("gamma" if name == "alpha" else name): array for name, array in arrays.items()})
    with pytest.raises(StoreError, match="of another version of Foreroll: continue it there, or fork it"):
        train(config(layout, {"name": "mopps"}))
    train(resolve_config({}, {"store": str(layout.root), "run": "fork", "fork_from": "new", "steps": 1}))


def test_groups_of_a_run_in_both_count_once_and_a_run_is_never_its_own_past(layout: Layout) -> None:
    past = past_groups(layout, {"a": 1, "b": 2, "new": 3})
    version = make_version(ForerollSettings(), {}, past=past, lineage=lineage_of(layout, {}, []), scores={})
    read = past_groups(layout, {"a": 5, "c": 4})
    record = make_run("new", pins={"past": {"a": 9, "c": 9}})
    joined = join_past(read, version, record)
    assert joined["run_id"].to_pylist() == ["a"] * 5 + ["c"] * 4 + ["b"] * 2
    assert join_past(read, None, record).equals(read)


def test_a_fork_never_knows_what_its_parent_did_after_the_fork(layout: Layout) -> None:
    """A version was published long after, and the fork's own setting leaves its parent out."""
    train(config(layout, {"name": "mopps"}, "parent"))
    steps = [past_groups(layout, {"parent": 9}).set_column(1, "step", pa.array([step] * 9)) for step in (1, 2)]
    groups = pa.concat_tables([*(table.cast(PAST) for table in steps), past_groups(layout, {"elsewhere": 5})])
    publish_from(layout, ForerollSettings(), {}, groups)
    given = ("predictor.name=foreroll", "predictor.components=8", "predictor.past=none", "predictor.from=base")
    about = {"store": str(layout.root), "run": "fork", "fork_from": "parent@1", **parse_assignments(given)}
    with open_workbench(resolve_config({}, about).plan()) as (bench, _):
        assert bench.pool.past is not None
        found = sorted(zip(bench.pool.past.run.tolist(), bench.pool.past.step.tolist(), strict=True))
    assert found == [(0, 1)] * 9 + [(1, 1)] * 5


def test_a_version_that_cannot_be_begun_with_is_refused_and_leaves_no_run(layout: Layout) -> None:
    publish_mopps(layout, 4)
    gps = GpsSettings(width=8, latent=4)
    ids = tuple(read_dataset(layout, POOL)["prompt_id"].to_pylist())
    state = build_predictor(gps, Pool(ids, np.zeros((len(ids), 256), np.float32)), seed=0).state_dict()
    publish_from(layout, gps, state)
    for predictor, message in (
        ({"name": "gps", "from": "base@1"}, "predictor base@1 was trained with predictor mopps, and predictor gps is"),
        (
            {"name": "mopps", "from": "base@2"},
            "predictor base@2 was trained with predictor gps, and predictor mopps is",
        ),
        ({"name": "mopps", "from": "base@best"}, "predictor base has no @best, because no version was promoted"),
        ({"name": "mopps", "from": "base@3"}, "predictor base has no version 3"),
    ):
        with pytest.raises(StoreError, match=f"^{message}"):
            check_plan(config(layout, predictor).plan())
    wider = config(layout, {"name": "gps", "width": 16, "latent": 4, "from": "base@2"})
    with pytest.raises(StoreError) as refused, open_workbench(wider.plan()):
        pass
    assert str(refused.value) == (
        "no predictor of these settings can begin with base@2: predictor.width was 8 and is 16 here"
    )
    assert read_run(layout, "new") is None
    assert not layout.checkpoints("new").exists()


def test_a_version_that_is_gone_or_another_by_now_is_named(layout: Layout) -> None:
    publish_from(layout, ForerollSettings(), {}, past_groups(layout, {"elsewhere": 30}))
    wanted = config(layout, {"name": "foreroll", "components": 8, "from": "base@1"})
    with open_workbench(wanted.plan()):
        pass
    shutil.rmtree(layout.predictor_version("base", 1))
    with pytest.raises(StoreError, match=r"^predictor base has no version 1 in .*; it has: none"):
        train(wanted)
    publish_from(layout, ForerollSettings(), {}, past_groups(layout, {"elsewhere": 31}))
    with pytest.raises(StoreError, match=r"^run new began with predictor base@1, which is another one by now: restore"):
        train(wanted)


def test_a_fork_goes_on_with_its_parents_predictor_unless_it_names_another_start(layout: Layout) -> None:
    publish_mopps(layout, 4)
    publish_mopps(layout, 7)
    promote(layout, "base", 1, "first")
    train(config(layout, {"name": "mopps", "from": "base@best"}))
    with open_workbench(config(layout, {"name": "mopps", "from": "base@best"}).plan()) as (bench, _):
        parents = bench.predictor.state_dict()["alpha"]
    assert parents.tolist() != [5.0] * 10 + [1.0] * (len(parents) - 10)
    promote(layout, "base", 2, "better")

    def fork(name: str, *assignments: str) -> np.ndarray:
        given = {"store": str(layout.root), "run": name, "fork_from": "new", **parse_assignments(assignments)}
        with open_workbench(resolve_config({}, given).plan()) as (bench, _):
            return bench.predictor.state_dict()["alpha"]

    assert fork("same").tolist() == parents.tolist()
    assert pinned(layout, "same") == pinned(layout)
    other = fork("other", "predictor.from=base@2")
    assert other[:10].tolist() == [8.0] * 10 and set(other[10:]) == {1.0}
    assert pinned(layout, "other")["version"] == 2
