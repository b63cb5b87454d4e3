"""Imports run one way: flows -> tasks -> models and storage; and `--help` loads nothing heavy."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from storage.runs import write_run
from storage.store import open_store
from tests.storage.small_history import make_run

ROOT = Path(__file__).parents[1]
HOUSE = ("flows", "tasks", "models", "storage")
MAY_IMPORT = {
    "flows": {"flows", "tasks", "models", "storage"},
    "tasks": {"tasks", "models", "storage"},
    "models": {"models"},
    "storage": {"storage"},
}
HEAVY = ("torch", "prefect", "vllm", "transformers")
HEAVY_FOR_HELP = (*HEAVY, "duckdb")


def imported_packages(file: Path) -> set[str]:
    """Top-level packages that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            found.add((node.module or "").split(".")[0])
    return found


def test_imports_run_one_way() -> None:
    for room in HOUSE:
        for file in (ROOT / room).rglob("*.py"):
            forbidden = (imported_packages(file) & set(HOUSE)) - MAY_IMPORT[room]
            assert not forbidden, f"{file} imports {forbidden}"


def test_models_and_storage_know_nothing_of_prefect_and_storage_nothing_of_torch() -> None:
    for room, unknown in (
        ("models", {"prefect", "pyarrow", "duckdb"}),
        ("storage", {"prefect", "torch", "transformers"}),
    ):
        for file in (ROOT / room).rglob("*.py"):
            assert not imported_packages(file) & unknown, file


def test_no_flow_file_hides_a_top_level_folder() -> None:
    assert not {file.stem for file in (ROOT / "flows").glob("*.py")} & {*HOUSE, "tests", "bench"}


def test_every_library_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[^A-Za-z0-9_.-]", one)[0].lower().replace("-", "_") for one in declared}
    imported = {name for room in HOUSE for file in (ROOT / room).rglob("*.py") for name in imported_packages(file)}
    assert imported - set(HOUSE) - sys.stdlib_module_names - names == set()


def test_help_and_configuration_import_nothing_heavy() -> None:
    for module in ("flows.cli", "flows.config", "flows.replay_config", "models.settings", "tasks.plan"):
        code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", module


def test_every_help_text_comes_without_heavy_imports() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from flows.cli import main\n"
        "for words in ('', 'train', 'runs', 'sql', 'forecast', 'prompts', 'prompts add', 'prompts check', "
        "'prompts list', 'prompts show', 'history', 'history import', 'doctor', 'replay'):\n"
        "    result = CliRunner().invoke(main, [*words.split(), '--help'])\n"
        "    assert result.exit_code == 0 and 'Usage' in result.output, words\n"
        f"print([name for name in {HEAVY_FOR_HELP} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_describing_a_run_loads_no_torch(tmp_path: Path) -> None:
    layout = open_store(tmp_path, create=True)
    write_run(layout, make_run("first"))
    code = (
        "import sys; from click.testing import CliRunner; from flows.cli import main\n"
        f"result = CliRunner().invoke(main, ['runs', 'first', '--store', {str(tmp_path)!r}])\n"
        "assert result.exit_code == 0, result.output\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
