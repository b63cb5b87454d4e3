"""Replay from the outside: it agrees with what runs forecast, and shows and publishes what it found."""

import io
import json
import os
import shutil
import signal
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from flows.cli import main
from flows.commands.watching import show_steps
from flows.replay import replay
from flows.replay_config import ReplayConfig, build_replay_config
from storage.layout import Layout
from storage.prompts import read_dataset
from storage.registry import versions
from storage.store import open_store
from tasks.leaderboard import ReplayReport
from tasks.replay import replay_history
from tests.flows.small_run import KillPoint, make_store, small_config, train_small, train_until_killed, with_server
from tests.tasks.past_history import random_steps, write_past, write_pool

GPS = {"width": 16, "latent": 4, "z_samples": 4, "gradient_steps": 2}
OWN: dict[str, dict[str, Any]] = {
    "mopps": {"name": "mopps", "decay": 0.7},
    "gps": {"name": "gps", **GPS},
    "foreroll": {"name": "foreroll", "latent": 2},
}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two small histories of outcomes alone; it is read only."""
    layout = open_store(tmp_path_factory.mktemp("past") / "store", create=True)
    ids = write_pool(layout, "toy", [f"what is {one} + {one}?" for one in range(20)])
    for number, run in enumerate(("first", "second")):
        write_past(layout, run, random_steps(ids, 4, 8, seed=number), created_at=f"202{number}")
    return layout.root


@pytest.fixture
def past_copy(past: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    shutil.copytree(past, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Path:
    """A store with a run of each predictor but `gps`, and `fork`, which goes on with what that of `mopps` learned."""
    store = make_store(tmp_path_factory.mktemp("trained") / "store")
    quiet = {"evaluation": {"every": 0}, "acquisition": {"name": "uniform", "batch_size": 4}}
    for name in ("mopps", "foreroll"):
        train_small(small_config(store, name, predictor=OWN[name], steps=2, **quiet))
    train_small(small_config(store, "fork", predictor=OWN["mopps"], steps=1, fork_from="mopps@2", **quiet))
    return store


def foreroll(store: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["replay", "--store", str(store), *words])


def replayed(store: Path, run: str, settings: dict[str, Any]) -> ReplayReport:
    config = build_replay_config({"store": str(store), "runs": run, "predictors": {"own": settings}})
    return replay_history(config.plan())


def test_a_run_replayed_with_its_own_predictor_gives_its_stored_forecasts(trained: Path) -> None:
    """Also one that reads the runs before it."""
    for name in ("mopps", "foreroll"):
        report = replayed(trained, name, OWN[name])
        assert report.lines[0].reproduced == report.stored_forecasts > 0, name
    other = replayed(trained, "mopps", {**OWN["mopps"], "decay": 0.6})
    assert other.lines[0].reproduced is None
    cold = replayed(trained, "foreroll", {**OWN["foreroll"], "past": "none"})
    assert cold.lines[0].reproduced is None and cold.lines[0].score != report.lines[0].score


def test_a_fork_begins_with_what_its_parent_had_learned_or_the_report_says_that_it_cannot(
    trained: Path, tmp_path: Path
) -> None:
    store = tmp_path / "copy"
    shutil.copytree(trained, store)
    for gone in (None, ("fork", 0), ("mopps", 2)):
        if gone:
            shutil.rmtree(Layout(store).checkpoint(*gone))
        report = replayed(store, "fork", OWN["mopps"])
        if gone != ("mopps", 2):
            assert report.lines[0].reproduced == report.stored_forecasts > 0 and not report.faults
    assert report.lines[0].reproduced is not None and report.lines[0].reproduced < report.stored_forecasts
    assert report.faults == [
        "run fork begins anew here, because what run mopps had learned by step 2, where it was forked, is in no "
        "checkpoint any more"
    ]


def test_a_run_that_trained_here_gets_counterfactual_values_or_a_reason(trained: Path) -> None:
    found = json.loads(foreroll(trained, "--predictor", "mean", "--rule", "thompson", "--format", "json").output)
    assert [(one["run"], one["rule"]) for one in found["values"]] == [
        (run, rule) for run in ("mopps", "foreroll", "fork") for rule in ("uniform", "thompson")
    ]
    steps = {one["run"]: one["value"]["steps"] for one in found["values"]}
    assert steps == {"mopps": 2, "foreroll": 2, "fork": 1}
    assert all("logged steps are too few" in one["value"]["refusal"] for one in found["values"])


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_a_run_that_was_killed_and_resumed_is_reproduced_too(name: str, tmp_path: Path, prefect_server: str) -> None:
    store = make_store(tmp_path / "store")
    killed = small_config(store, "killed", predictor=OWN[name], evaluation={"every": 0}, steps=3)
    point = KillPoint("before", "publish", "rewards/run_id=killed/step=00000002")
    process = get_context("spawn").Process(target=with_server, args=(train_until_killed, prefect_server, killed, point))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    train_small(killed)
    report = replayed(store, "killed", OWN[name])
    assert report.lines[0].reproduced == report.stored_forecasts > 0


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_leaves_files_and_artifacts_and_does_nothing_the_second_time(past_copy: Path, tmp_path: Path) -> None:
    config = ReplayConfig.model_validate(
        {
            "store": past_copy,
            "publish": "nightly",
            "predictors": {"mean": {}, "mopps": {}},
            "markdown": tmp_path / "page" / "leaderboard.md",
            "plots": tmp_path / "plots",
        }
    )
    first = replay(config, return_state=True)
    assert first.message is not None and "is version 1 of nightly, promoted to @best" in first.message
    page = config.markdown.read_text() if config.markdown else ""
    assert "| predictor | nll |" in page and "replayed 2 runs, 8 steps, 64 groups of 20 prompts" in page
    for name in ("calibration", "spearman", "informative"):
        assert (tmp_path / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    second = replay(config, return_state=True)
    assert second.is_completed() and second.message == "nothing new since version 1 of nightly: nothing done"
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == before
    assert versions(Layout(past_copy), "nightly") == [1]
    with get_client(sync_client=True) as client:
        keys = ArtifactFilter(key=ArtifactFilterKey(any_=["replay-leaderboard", "replay-report"]))
        kept = client.read_artifacts(artifact_filter=keys)
    tables = [json.loads(one.data) for one in kept if one.key == "replay-leaderboard"]  # type: ignore[arg-type]
    assert [len(table) for table in tables] == [2]
    assert ["## Candidates" in str(one.data) for one in kept if one.key == "replay-report"] == [True]


def test_the_command_prints_one_row_a_predictor(past: Path) -> None:
    done = foreroll(past, "--predictor", "mean", "--predictor", "slow=mopps", "--set", "slow.decay=0.9")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("replayed 2 runs, 8 steps, 64 groups of 20 prompts, ")
    assert lines[2] == (
        "all candidates: first rounds weighted by 1 / propensity, and groups that nobody selected (64 groups)"
    )
    assert lines[3].split() == ["predictor", "nll", "spearman", "auc", "brier", "ece", "best", "half"]
    assert sorted(line.split()[0] for line in lines[4:6]) == ["mean", "slow"]
    assert lines[-1].split("  ")[0] == "2 runs" and "no candidates with a logged propensity" in lines[-1]


def test_the_command_gives_json(past: Path) -> None:
    done = foreroll(past, "--predictor", "mean", "--runs", "first", "--format", "json")
    found = json.loads(done.output)
    assert found["runs"] == {"first": 4} and found["lines"][0]["label"] == "mean"
    nll = found["lines"][0]["scores"]["candidates"]["nll"]
    assert nll["low"] < nll["value"] < nll["high"]


def test_a_config_file_names_predictors_and_the_command_line_others(past: Path, tmp_path: Path) -> None:
    file = tmp_path / "replay.toml"
    file.write_text('runs = "first"\n[predictors.slow]\nname = "mopps"\ndecay = 0.9\n[predictors.mean]\nwindow = 2\n')
    done = foreroll(past, str(file), "--format", "json")
    settings = {line["label"]: line["settings"] for line in json.loads(done.output)["lines"]}
    assert settings["slow"]["decay"] == 0.9 and settings["mean"]["window"] == 2
    other = json.loads(foreroll(past, str(file), "--format", "json", "--predictor", "last").output)
    assert [line["label"] for line in other["lines"]] == ["last"] and other["runs"] == {"first": 4}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_shown_the_run_and_step_while_others_are_shown_nothing(
    past: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = build_replay_config({"store": str(past), "predictors": {"mean": {}}}).plan()
    for shown in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", shown)
        report = replay_history(plan, show_steps)
        assert len(report.steps) == 8
        assert ("/8" in shown.getvalue()) == shown.isatty()
    assert shown.getvalue() == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runs", "third"], "no committed step matches --runs 'third'"),
        (["--where", "stp > 1"], "is no condition on runs and steps"),
        (["--predictor", "mop"], "config predictors.mop: Input tag 'mop'"),
        (["--predictor", "pcl"], "predictor pcl reads the live policy's states"),
        (["--predictor", "mean", "--set", "mopps.decay=1"], "--set mopps...: write NAME.key=value"),
        (["--predictor", "mean", "--predictor", "mean"], "give each its own label"),
        (
            ["--predictor", "mean", "--set", "mean.windo=1"],
            "unknown config key 'predictors.mean.windo': did you mean ",
        ),
        (["--predictor", "mean", "--publish", "No Name"], "predictor name 'No Name' is not allowed"),
        (["--predictor", "$x_1^{$=mopps"], "predictor '$x_1^{$': a label is up to 64 letters, digits"),
        (["--predictor", "a|b=mopps"], "predictor 'a|b': a label is up to 64 letters, digits"),
        (["--predictor", "a.b=mopps"], "predictor 'a.b': a label is up to 64 letters, digits"),
        (["--publish", ""], "publish names nothing: leave it out, or give a name"),
        (["--margin", "nan"], "config margin"),
        (["--rule", "best"], "--rule: config name"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(past: Path, words: list[str], message: str) -> None:
    done = foreroll(past, *words)
    assert done.exit_code == 2 and message in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_a_damaged_step_and_a_lost_one_are_notes_and_no_errors(past_copy: Path) -> None:
    path = Layout(past_copy).part("rewards", "second", 2)
    path.write_bytes(path.read_bytes()[: os.stat(path).st_size // 2])
    Layout(past_copy).commit("second", 3).unlink()
    done = foreroll(past_copy, "--predictor", "mean")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:3] == [
        done.stdout.splitlines()[0],
        "note: run second: step 3 has no commit record: left out",
        "note: run second: step 2 is left out: history/rewards/run_id=second/step=00000002/part-0.parquet is damaged",
    ]
    assert "6 steps, 48 groups" in done.stdout


def test_runs_can_be_named_one_by_one(trained: Path) -> None:
    result = foreroll(trained, "--runs", "mopps", "--runs", "fork", "--predictor", "mean", "--format", "json")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["runs"]) == {"mopps", "fork"}


def test_a_dense_replay_pairs_predictors_with_rules(past_copy: Path) -> None:
    ids = read_dataset(Layout(past_copy), "toy")["prompt_id"].to_pylist()
    write_past(Layout(past_copy), "dense", random_steps(ids, 4, 20), created_at="2026")
    words = ("--dense", "--runs", "dense", "--predictor", "mean", "--rule", "uniform", "--rule", "nearest")
    done = foreroll(past_copy, *words, "--batch", "3", "--format", "json")
    found = json.loads(done.output)
    assert {(one["predictor"], one["rule"]) for one in found["lines"]} == {("mean", "uniform"), ("mean", "nearest")}
    assert all(one["groups"] == 12 and -1 <= one["regret"] <= 1 for one in found["lines"])
    assert found["faults"] == []
    table = foreroll(past_copy, *words).output.splitlines()
    assert table[0].split()[:3] == ["run", "predictor", "rule"] and len(table) == 3
    embedded = foreroll(past_copy, "--dense", "--runs", "dense", "--predictor", "mean", "--rule", "gps")
    assert embedded.exit_code == 0, embedded.output
    rarely = foreroll(past_copy, "--dense", "--runs", "first", "--predictor", "mean")
    assert rarely.exit_code == 2 and "a dense replay wants at least 2" in rarely.output
    for wrong in (("--dense", "--publish", "base"), ("--dense", "--margin", "0.1"), ("--batch", "3")):
        refused = foreroll(past_copy, *wrong)
        assert refused.exit_code == 2 and f"{wrong[-2].removeprefix('--')}: leave it out" in refused.output
    refused = foreroll(past_copy, "--dense", "--rule", "best")
    assert refused.exit_code == 2 and "--rule: config name" in refused.output
