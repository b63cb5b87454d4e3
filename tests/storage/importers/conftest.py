"""A dataset, and a history of it, for the tests of imports."""

from pathlib import Path

import pytest

from storage.layout import Layout
from tests.storage.importers.files import TEXTS, make_dataset, write_lines


@pytest.fixture
def ids(layout: Layout) -> list[str]:
    """The prompts of dataset `toy`."""
    return make_dataset(layout)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two steps: at the first, prompts 0 and 2 succeed 1 of 4 and 4 of 4 times; at the third, prompt 0 3 of 4 times."""
    rows = [(3, TEXTS[0], 3), (1, TEXTS[2], 4), (1, TEXTS[0], 1)]
    return write_lines(
        tmp_path / "table.jsonl",
        [{"step": step, "question": text, "successes": count, "attempts": 4} for step, text, count in rows],
    )
