"""Categories of prompts: read from a tag, and one clear line where it is missing."""

from pathlib import Path
from typing import Any

import pytest

from models.errors import ModelError
from models.records import Prompt
from models.settings import MoppsSettings, PredictorSettings, SecSettings, TrainSettings
from storage.layout import Layout
from storage.prompts import prompt_id, write_dataset
from storage.store import open_store
from tasks.prompts import read_categories
from tasks.workbench import TokenisedPrompts


def make_dataset(store: Path, *tags: str | None) -> tuple[Layout, TokenisedPrompts]:
    layout = open_store(store, create=True)
    rows: list[dict[str, Any]] = [
        {
            "messages": [("user", f"problem {index}")],
            "answer": "1",
            "reward": "countdown",
            "system": "",
            "instruction": "",
            "tags": text,
        }
        for index, text in enumerate(tags)
    ]
    write_dataset(layout, "tagged", rows)
    prompts = [Prompt(prompt_id(row["messages"]), tuple(row["messages"]), "1", "countdown") for row in rows]
    return layout, TokenisedPrompts("tagged", prompts, [(1,)] * len(prompts))


def read(predictor: PredictorSettings, made: tuple[Layout, TokenisedPrompts]) -> tuple[str, ...]:
    return read_categories(made[0], TrainSettings(predictor=predictor), made[1])


def test_categories_are_the_values_of_the_tag_in_the_datasets_order(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, '{"subject": "Algebra", "level": 3}', '{"level": 5, "subject": "Geometry"}')
    assert read(SecSettings(category="subject"), made) == ("Algebra", "Geometry")
    assert read(SecSettings(category="level"), made) == ("3", "5")


def test_other_predictors_read_none(tmp_path: Path) -> None:
    assert read(MoppsSettings(), make_dataset(tmp_path, "{}", "{}")) == ()


@pytest.mark.parametrize("text", ["{}", None, '{"level": 3}'])
def test_a_prompt_without_the_tag_is_named_in_one_line(tmp_path: Path, text: str | None) -> None:
    made = make_dataset(tmp_path, '{"subject": "Algebra"}', text)
    with pytest.raises(ModelError, match=r"^dataset tagged: prompt .* has no tag 'subject'.*--set predictor.category"):
        read(SecSettings(category="subject"), made)
