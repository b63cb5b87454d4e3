"""How a bench ends: its figures as one JSON line, and as a page under `docs/benchmarks`."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[1] / "docs" / "benchmarks"
LIBRARIES = ("torch", "prefect", "duckdb", "pyarrow", "numpy")


def finish(name: str, figures: dict[str, Any], *, write_page: bool, text: str = "") -> None:
    """Write the page if asked to, and print the JSON line last.

    Args:
        text: Markdown between the head and the figures.
    """
    if write_page:
        PAGES.mkdir(parents=True, exist_ok=True)
        body = f"{text}\n" if text else ""
        figures_text = json.dumps(figures, indent=2)
        (PAGES / f"{name}.md").write_text(f"{_head(name)}\n{body}\n```json\n{figures_text}\n```\n")
    print(json.dumps(figures))


def _head(name: str) -> str:
    versions = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
    return (
        f"# {name}\n\n    python bench/{name}.py\n\n"
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, {versions}.\n"
    )
