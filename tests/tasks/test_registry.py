"""What a published version says of itself, and which predictors can begin with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.settings import DepoSettings, ForerollSettings, GpsSettings, MoppsSettings, PredictorSettings
from storage.errors import StoreError
from storage.files import file_digest
from storage.layout import Layout
from storage.past import read_groups, snapshot
from storage.registry import Version, publish, read_version
from storage.store import open_store
from tasks.registry import check_version, lineage_of, make_version
from tests.storage.small_history import make_small_store


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = open_store(tmp_path / "store", create=True)
    make_small_store(layout)
    return layout


def make(layout: Layout, settings: PredictorSettings) -> Version:
    steps = snapshot(layout, ["first", "second"])
    past = read_groups(layout, steps)
    lineage = lineage_of(layout, steps, ["toy"])
    return make_version(settings, {"a": np.ones(1)}, past=past, lineage=lineage, scores={"brier": 0.1})


def test_a_version_names_what_it_was_trained_on_with_digests(layout: Layout) -> None:
    publish(layout, "base", make(layout, MoppsSettings(decay=0.75)))
    found = read_version(layout, "base", 1)
    assert MoppsSettings(**found.config["predictor"]) == MoppsSettings(decay=0.75)
    assert "past" not in make(layout, ForerollSettings(past="first")).config["predictor"]
    assert found.lineage["groups"] == len(found.past) == 14
    assert found.lineage["datasets"] == {"toy": file_digest(layout.dataset("toy"))}
    runs = found.lineage["runs"]
    assert {run: about["step"] for run, about in runs.items()} == {"first": 3, "second": 3}
    assert len({about["sha256"] for about in runs.values()}) == 2


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        (
            MoppsSettings(),
            GpsSettings(),
            "trained with predictor mopps, and predictor gps is wanted here: name the same",
        ),
        (DepoSettings(encoder="/a"), DepoSettings(encoder="/b"), "with encoder /a, and encoder /b is wanted here: use"),
        (DepoSettings(), DepoSettings(encoder="/b"), "-256, and encoder /b is wanted here: use"),
    ],
)
def test_a_version_of_another_predictor_or_encoder_is_refused(
    layout: Layout, theirs: Any, ours: PredictorSettings, message: str
) -> None:
    version = make(layout, theirs)
    check_version(version, "base@1", theirs)
    with pytest.raises(StoreError) as refused:
        check_version(version, "base@1", ours)
    assert str(refused.value).startswith("predictor base@1 was trained with ") and message in str(refused.value)


def test_a_version_of_another_schema_or_another_release_of_the_encoder_is_refused(layout: Layout) -> None:
    version = make(layout, ForerollSettings())
    older = replace(version, config={**version.config, "schema_version": 0})
    with pytest.raises(StoreError, match=r"with history schema 0, and history schema 1 is wanted here: train it anew"):
        check_version(older, "base@1", ForerollSettings())
    other = replace(version, config={**version.config, "encoder": "wordllama-0.1-64"})
    with pytest.raises(
        StoreError, match=r"with encoder wordllama-0\.1-64, and encoder wordllama-.*-256 is wanted here"
    ):
        check_version(other, "base@1", ForerollSettings())
