"""The command line: what a user can get wrong is one line and exit code 2, and changes nothing."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from flows.cli import main
from flows.commands.train import check_server
from flows.config import ConfigError
from flows.environment import apply_defaults
from storage.files import file_digest

ROOT = Path(__file__).parents[2]


def foreroll(*words: str | Path) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def snapshot(folder: Path) -> dict[str, str]:
    """Every path below a folder, with the digest of its content."""
    return {str(path): file_digest(path) if path.is_file() else "" for path in sorted(folder.rglob("*"))}


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1, result.output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """An empty store of the current format."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "store.json").write_text('{"format_version": 1}\n')
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "update.learning_rate=1"], "foreroll: unknown config key 'update.learning_rate'"),
        (["--set", "prompts.train=nothing-there"], "foreroll: no dataset 'nothing-there'"),
        (["--set", "policy.model=/no/such/model"], "foreroll: model folder /no/such/model does not exist"),
        (["--steps", "0"], "foreroll: config steps: Input should be greater than or equal to 1, not 0"),
        (["--run", "../escape"], "foreroll: run name '../escape' is not allowed"),
        (["--from", "nobody"], "foreroll: cannot fork nobody: run nobody has no checkpoint"),
        (["--preset", "nope"], "foreroll: no preset 'nope'"),
        (["--set", "predictor.from=base@best"], "foreroll: no predictor 'base' is published in"),
        (
            ["--set", "predictor=foreroll", "--set", "predictor.past=a*"],
            "foreroll: predictor.past: no run is called 'a*'",
        ),
        (["missing.toml"], "foreroll: config missing.toml: [Errno 2] No such file"),
    ],
)
def test_train_refuses_bad_input_and_changes_nothing(store: Path, words: list[str], message: str) -> None:
    before = snapshot(store)
    assert_refused(foreroll("train", "--store", store, *words), message)
    assert snapshot(store) == before


def test_a_prefect_home_is_made_with_its_parents_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "not" / "there"))
    apply_defaults()
    assert (tmp_path / "not" / "there" / "foreroll" / "prefect").is_dir()
    (tmp_path / "file").touch()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ConfigError, match=r"Not a directory\): set PREFECT_HOME to a folder of your own"):
        apply_defaults()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/api", "nonsense"])
def test_a_prefect_server_that_does_not_answer_is_one_clear_line(url: str) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: url}),
        pytest.raises(ConfigError, match=f"^no Prefect server answers at {url} .*: start it, or mend PREFECT_API_URL"),
    ):
        check_server()


def test_bad_input_does_not_even_create_a_store(tmp_path: Path) -> None:
    result = foreroll("train", "--store", tmp_path / "new", "--set", "prompts.train=nothing-there")
    assert_refused(result, "no dataset 'nothing-there'")
    assert not (tmp_path / "new").exists()


FORECAST = ["forecast", "--prompts", "pool", "--predictor", "base"]


@pytest.mark.parametrize("words", [["train"], ["runs"], ["sql", "select 1"], ["prompts", "list"], FORECAST])
def test_a_store_of_a_newer_version_is_refused_by_every_command(store: Path, words: list[str]) -> None:
    (store / "store.json").write_text('{"format_version": 7}\n')
    before = snapshot(store)
    assert_refused(foreroll(*words, "--store", store), "has format version 7, and this Foreroll reads up to version 1")
    assert snapshot(store) == before


@pytest.mark.parametrize(
    "words", [["runs"], ["sql", "select 1"], ["prompts", "list"], ["prompts", "show", "ab"], FORECAST]
)
def test_reading_where_there_is_no_store_is_refused(tmp_path: Path, words: list[str]) -> None:
    assert_refused(foreroll(*words, "--store", tmp_path / "none"), "no store at")
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to give up root's right to write anywhere")
def test_a_store_on_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    command = [sys.executable, "-m", "flows.cli", "train", "--store", str(tmp_path / "locked" / "store")]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"foreroll: cannot write in {tmp_path / 'locked'}: make it writable, or use another --store"
    )


def test_a_run_held_by_another_process_is_refused_with_its_holder(store: Path) -> None:
    holder = psutil.Process(os.getppid())
    (store / "runs").mkdir()
    lock = {"host": socket.gethostname(), "pid": holder.pid, "started": holder.create_time(), "epoch": 3}
    (store / "runs" / "main.lock").write_text(json.dumps({**lock, "heartbeat": time.time()}))
    before = snapshot(store)
    result = foreroll("train", "--store", store)
    assert_refused(result, f"run main is held by process {holder.pid} on {socket.gethostname()}")
    assert snapshot(store) == before


def test_a_wrong_query_is_one_clear_error(store: Path) -> None:
    result = foreroll("sql", "--store", store, "select nothing from rollouts")
    assert result.exit_code == 2
    assert 'Referenced column "nothing" not found' in result.output
    assert_refused(foreroll("sql", "--store", store, "drop table rollouts"), "only one SELECT is allowed, not: DROP")


def test_results_can_be_written_to_files_but_not_into_the_store(store: Path, tmp_path: Path) -> None:
    query = "select 1 as a, 'x,y' as b, [1, 2] as c"
    assert_refused(foreroll("sql", "--store", store, query, "-o", store / "out.csv"), "lies inside the store")
    assert_refused(foreroll("sql", "--store", store, query, "--format", "parquet"), "needs a file")
    assert foreroll("sql", "--store", store, query, "--format", "csv").output == 'a,b,c\n1,"x,y","[1, 2]"\n'
    assert json.loads(foreroll("sql", "--store", store, query, "--format", "json").output) == {
        "a": 1, "b": "x,y", "c": [1, 2]
    }  # fmt: skip
    result = foreroll("sql", "--store", store, query, "--format", "parquet", "-o", tmp_path / "out.parquet")
    assert result.exit_code == 0 and (tmp_path / "out.parquet").read_bytes().startswith(b"PAR1")
    assert "│ x,y" in foreroll("sql", "--store", store, query).output


def test_empty_stores_have_typed_views(store: Path) -> None:
    result = foreroll("sql", "--store", store, "--format", "csv", "select count(*), sum(success::int) from rollouts")
    assert result.output == "count_star(),sum(CAST(success AS INTEGER))\n0,\n"


def test_doctor_names_versions_and_damaged_stores(store: Path) -> None:
    healthy = foreroll("doctor", "--store", store)
    assert healthy.exit_code == 0
    assert "engines        transformers" in healthy.output and "0 problems" in healthy.output
    (store / "store.json").write_text("{")
    damaged = foreroll("doctor", "--store", store)
    assert damaged.exit_code == 1 and "is not readable" in damaged.output
