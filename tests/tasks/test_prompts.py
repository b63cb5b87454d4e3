"""The prompts of a run: what is cached of them."""

import logging
from pathlib import Path

import numpy as np
import pytest

from models.embeddings import WordllamaEncoder
from models.records import Prompt
from models.settings import AcquisitionSettings, MoppsSettings, TrainSettings
from storage.layout import Layout
from tasks.prompts import read_or_make_embeddings
from tasks.workbench import TokenisedPrompts


def make_prompts(*texts: str) -> TokenisedPrompts:
    prompts = [Prompt(f"id of {text}", (("user", text),), answer="", reward="countdown") for text in texts]
    return TokenisedPrompts("toy", prompts, [(1,)] * len(texts))


@pytest.mark.parametrize("other", [("3 4 -> 7", "1 2 -> 3"), ("1 2 -> 3",), ("1 2 -> 3", "5 6 -> 11")])
def test_cached_embeddings_of_other_prompts_or_another_order_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: tuple[str, ...]
) -> None:
    layout, settings, ours = Layout(tmp_path), TrainSettings(), make_prompts("1 2 -> 3", "3 4 -> 7")
    expected = WordllamaEncoder().encode(["1 2 -> 3", "3 4 -> 7"])
    read_or_make_embeddings(layout, settings, make_prompts(*other))
    with caplog.at_level(logging.WARNING):
        made = read_or_make_embeddings(layout, settings, ours)
        assert len(caplog.messages) == 1
        cached = read_or_make_embeddings(layout, settings, ours)
    file = layout.embeddings(WordllamaEncoder().name, "toy")
    assert caplog.messages == [f"{file} is of other prompts; set aside as toy.parquet.unreadable and made again"]
    assert made is not None and cached is not None and cached.dtype == np.float32
    assert made.tobytes() == cached.tobytes() == expected.tobytes()
    cached[0, 0] = 0.0  # torch wants memory that it may write to


def test_embeddings_are_made_only_where_they_are_read(tmp_path: Path) -> None:
    prompts, mopps = make_prompts("1 2 -> 3"), MoppsSettings()
    blind = TrainSettings(predictor=mopps, acquisition=AcquisitionSettings(name="uniform"))
    assert read_or_make_embeddings(Layout(tmp_path), blind, prompts) is None
    assert list(tmp_path.rglob("*.parquet")) == []
    diverse = TrainSettings(predictor=mopps, acquisition=AcquisitionSettings(name="gps"))
    assert read_or_make_embeddings(Layout(tmp_path), diverse, prompts) is not None
