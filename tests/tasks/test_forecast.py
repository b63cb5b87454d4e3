"""Forecasts of a dataset by a published predictor, and what is said where there can be none."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from flows.cli import main
from models.difficulty import PREDICTORS, build_predictor
from models.difficulty.base import State
from models.errors import ModelError
from models.records import Observation, Pool
from models.settings import ForerollSettings, MoppsSettings, PredictorSettings, SecSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.prompts import read_dataset, write_dataset
from storage.registry import publish, read_version
from storage.schemas import PAST
from storage.store import open_store
from tasks.forecast import forecast_dataset
from tasks.registry import lineage_of, make_version
from tests.storage.small_history import make_prompt

HEAVY = ("torch", "prefect", "transformers")
ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, PredictorSettings] = {one().name: one() for one in get_args(PredictorSettings)}
EASY, HARD, UNSEEN = "easy: 1 + 1", "hard: 93 * 71 - 5", "unseen: 2 + 2"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with two datasets that share prompts, in different orders."""
    layout = open_store(tmp_path / "store", create=True)
    write_dataset(layout, "known", [make_prompt(text, tags='{"category": "sums"}') for text in (EASY, HARD)])
    write_dataset(layout, "mixed", [make_prompt(text, tags='{"category": "sums"}') for text in (UNSEEN, HARD, EASY)])
    return layout


def groups(layout: Layout, runs: Sequence[str] = ("a", "b")) -> pa.Table:
    """Ten steps of each run: the easy prompt always succeeds, the hard one never."""
    easy, hard = read_dataset(layout, "known")["prompt_id"].to_pylist()
    rows = [
        {"run_id": run, "step": step, "prompt_id": prompt, "successes": solved, "valid": 8, "mean_tokens": tokens}
        for run in runs
        for step in range(1, 11)
        for prompt, solved, tokens in ((easy, 8, 10.0), (hard, 0, 90.0))
    ]
    return pa.Table.from_pylist(rows, PAST)


def publish_from(layout: Layout, settings: PredictorSettings, past: pa.Table, state: State | None = None) -> int:
    lineage = lineage_of(layout, {}, ["known"])
    version = make_version(settings, state or {}, past=past, lineage=lineage, scores={})
    return publish(layout, "base", version)


def learned(layout: Layout, settings: PredictorSettings) -> State:
    """The state of a predictor of dataset `known` that saw one step."""
    ids = read_dataset(layout, "known")["prompt_id"].to_pylist()
    embeddings = np.eye(2, 256, dtype=np.float32)
    predictor = build_predictor(settings, Pool(tuple(ids), embeddings, ("sums", "sums")), seed=3)
    one = Observation(np.arange(2), np.array([8, 0]), np.array([8, 8]), np.array([10.0, 90.0]), np.full(2, -0.5))
    predictor.observe(one, seed=1)
    return predictor.state_dict()


def test_forecasts_come_in_the_datasets_own_order_for_known_and_unseen_prompts(layout: Layout) -> None:
    publish_from(layout, MoppsSettings(), groups(layout), learned(layout, MoppsSettings()))
    table = forecast_dataset(layout, "mixed", "base")
    assert table.column_names == ["prompt_id", "p_success", "p_sd", "expected_tokens"]
    assert table["prompt_id"].to_pylist() == read_dataset(layout, "mixed")["prompt_id"].to_pylist()
    assert table["p_success"].to_pylist() == pytest.approx([1 / 2, 1 / 10, 9 / 10])
    assert table["expected_tokens"].to_pylist() == pytest.approx([50.0, 70.0, 30.0])


def test_foreroll_forecasts_from_the_groups_of_a_version(layout: Layout) -> None:
    publish_from(layout, ForerollSettings(past="none", start="other@1"), groups(layout))
    table = forecast_dataset(layout, "mixed", "base@1")
    unseen, hard, easy = table["p_success"].to_pylist()
    assert easy > 0.8 and hard < 0.2 and hard < unseen < easy
    assert table["p_sd"].to_pylist()[0] > max(table["p_sd"].to_pylist()[1:])
    assert forecast_dataset(layout, "mixed", "base@latest").equals(table)


@pytest.mark.parametrize("name", [name for name in PREDICTORS if name != "pcl"])
def test_every_predictor_but_one_can_be_published_and_forecast_with(layout: Layout, name: str) -> None:
    settings = SETTINGS[name]
    state = {} if name == "foreroll" else learned(layout, settings)
    publish_from(layout, settings, groups(layout), state)
    table = forecast_dataset(layout, "mixed", "base")
    for column in ("p_success", "p_sd"):
        assert np.isfinite(table[column].to_numpy()).all()
    assert len(set(table["p_success"].to_pylist())) > 1 or name in ("depo", "sec", "dots")


@pytest.mark.parametrize("settings", [MoppsSettings(), ForerollSettings()])
def test_a_version_without_history_forecasts_too(layout: Layout, settings: PredictorSettings) -> None:
    fresh = build_predictor(settings, Pool(("0" * 32,)), seed=0).state_dict()
    publish_from(layout, settings, PAST.empty_table(), {} if settings.name == "foreroll" else fresh)
    table = forecast_dataset(layout, "known", "base")
    assert table["p_success"].to_pylist() == pytest.approx([0.5, 0.5])
    assert table["expected_tokens"].to_pylist() == [None, None]


def test_what_cannot_be_forecast_is_refused(layout: Layout) -> None:
    publish_from(layout, SETTINGS["pcl"], groups(layout))
    with pytest.raises(ModelError, match="only a run can forecast with it"):
        forecast_dataset(layout, "known", "base@1")
    publish_from(layout, SecSettings(), groups(layout), {"visits": np.ones(3)})
    with pytest.raises(StoreError, match=r"^predictor base@2 holds a state that its own settings do not fit: KeyError"):
        forecast_dataset(layout, "known", "base@2")
    version = read_version(layout, "base", 2)
    for predictor in ({"name": "oracle"}, {"name": "mopps", "sight": 2}, {}):
        number = publish(layout, "base", replace(version, config={**version.config, "predictor": predictor}))
        with pytest.raises(
            StoreError, match=rf"^predictor base@{number} has settings that this Foreroll does not know"
        ):
            forecast_dataset(layout, "known", f"base@{number}")
    for key in ("schema_version", "encoder"):
        config = {**version.config, "predictor": {"name": "gps"}}
        del config[key]
        number = publish(layout, "base", replace(version, config=config))
        with pytest.raises(StoreError, match=rf"^predictor base@{number} was trained with .* (None|none), and "):
            forecast_dataset(layout, "known", f"base@{number}")
    with pytest.raises(StoreError, match="no dataset nowhere in"):
        forecast_dataset(layout, "nowhere", "base")
    with pytest.raises(StoreError, match="no predictor 'other' is published"):
        forecast_dataset(layout, "known", "other")


def invoke(layout: Layout, *words: str) -> Result:
    return CliRunner().invoke(main, ["forecast", "--store", str(layout.root), *words])


def test_the_command_writes_what_the_function_says(layout: Layout, tmp_path: Path) -> None:
    publish_from(layout, MoppsSettings(), groups(layout), learned(layout, MoppsSettings()))
    expected = forecast_dataset(layout, "mixed", "base")
    words = ["--prompts", "mixed", "--predictor", "base@1"]
    printed = invoke(layout, *words, "--format", "json").output
    assert [json.loads(line) for line in printed.splitlines()] == expected.to_pylist()
    assert "p_success" in invoke(layout, *words).output and "{" not in invoke(layout, *words).output
    for file, options in (("out.parquet", ()), ("out", ("--format", "parquet"))):
        done = invoke(layout, *words, "-o", str(tmp_path / file), *options)
        assert done.stdout == "" and done.stderr == f"3 forecasts of mixed by base@1 in {tmp_path / file}\n"
        assert pq.ParquetFile(tmp_path / file).read().equals(expected)
    invoke(layout, *words, "-o", str(tmp_path / "out.csv"))
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "prompt_id,p_success,p_sd,expected_tokens" and len(lines) == 4


def test_a_predictor_that_needs_no_torch_forecasts_without_it(layout: Layout, tmp_path: Path) -> None:
    publish_from(layout, ForerollSettings(), groups(layout))
    words = ["forecast", "--store", str(layout.root), "--prompts", "mixed", "--predictor", "base"]
    code = (
        "import sys; from flows.cli import main\n"
        f"try: main({[*words, '-o', str(tmp_path / 'out.json')]!r})\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    assert len((tmp_path / "out.json").read_text().splitlines()) == 3


def test_the_command_refuses_in_one_line(layout: Layout) -> None:
    publish_from(layout, MoppsSettings(), groups(layout), learned(layout, MoppsSettings()))
    for words, message in (
        (["--prompts", "mixed", "--predictor", "base@7"], "predictor base has no version 7"),
        (["--prompts", "mixed", "--predictor", "base@best"], "predictor base has no @best"),
        (["--prompts", "other", "--predictor", "base"], "no dataset other in"),
        (["--prompts", "mixed", "--predictor", "base", "-o", str(layout.root / "x.csv")], "lies inside the store"),
        (["--prompts", "mixed", "--predictor", "base", "--format", "parquet"], "--format parquet needs a file"),
    ):
        result = invoke(layout, *words)
        assert result.exit_code == 2 and message in result.output
        assert len(result.output.strip().splitlines()) == 1
    (layout.predictor_version("base", 1) / "past.parquet").write_bytes(b"")
    result = invoke(layout, "--prompts", "mixed", "--predictor", "base")
    assert result.exit_code == 2 and "foreroll: version 1 of predictor base is damaged (past.parquet" in result.output


def test_prompts_that_no_run_has_seen_are_judged_by_what_the_version_learned_of_other_texts(layout: Layout) -> None:
    """Sums are always solved, essays never; the dataset to forecast has none of those prompts."""
    sums, essays = (
        [f"{what} {one}" for one in range(40)] for what in ("what is the sum of 3 and", "write an essay on")
    )
    write_dataset(layout, "past", [make_prompt(text) for text in (*sums[:30], *essays[:30])])
    write_dataset(layout, "others", [make_prompt(text) for text in (*sums[30:], *essays[30:])])
    ids = read_dataset(layout, "past")["prompt_id"].to_pylist()
    rows = [
        {"run_id": "a", "step": 1, "prompt_id": one, "successes": 8 * (at < 30), "valid": 8, "mean_tokens": 10.0}
        for at, one in enumerate(ids)
    ]
    settings = ForerollSettings()
    lineage = lineage_of(layout, {}, ["past"])
    past = pa.Table.from_pylist(rows, PAST)
    publish(layout, "texts", make_version(settings, {}, past=past, lineage=lineage, scores={}))
    p = forecast_dataset(layout, "others", "texts")["p_success"].to_numpy()
    assert len(p) == 20 and p[:10].min() > p[10:].max() + 0.2
