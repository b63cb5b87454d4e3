"""Published predictors: what a version says of itself, and whether a run can begin with it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field, TypeAdapter, ValidationError

from models.difficulty.base import State
from models.difficulty.inputs import encoder_of
from models.embeddings import encoder_name
from models.settings import PredictorSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import commits_digest
from storage.prompts import dataset_digest
from storage.registry import Version
from storage.schemas import SCHEMA_VERSION
from tasks.versions import library_versions

_SETTINGS: TypeAdapter[PredictorSettings] = TypeAdapter(Annotated[PredictorSettings, Field(discriminator="name")])


def make_version(
    settings: PredictorSettings,
    state: State,
    *,
    past: pa.Table,
    lineage: Mapping[str, Any],
    scores: Mapping[str, Any],
) -> Version:
    """A version, ready to be published.

    Args:
        state: what the predictor learned.
        past: the groups that it learned from, rows of `schemas.PAST`.
        lineage: what these are from, as `lineage_of` tells.
    """
    return Version(
        config={
            "predictor": settings_of(settings),
            "schema_version": SCHEMA_VERSION,
            "encoder": encoder_of(settings, encoder_name()),
            "libraries": library_versions(),
        },
        lineage={**lineage, "groups": len(past)},
        scores=scores,
        state=state,
        past=past,
    )


def lineage_of(layout: Layout, snapshot: Mapping[str, int], datasets: Sequence[str]) -> dict[str, Any]:
    """What a version is trained on, with digests.

    Args:
        snapshot: runs, each with the last of its steps that is read.
        datasets: those of their prompts.
    """
    return {
        "runs": {run: {"step": step, "sha256": commits_digest(layout, run, step)} for run, step in snapshot.items()},
        "datasets": {name: dataset_digest(layout, name) for name in datasets},
    }


def settings_of(settings: PredictorSettings) -> dict[str, Any]:
    """The settings that what a predictor has learned goes with: all but where it began, and with which past runs."""
    return {name: value for name, value in asdict(settings).items() if name not in ("start", "past")}


def usable_settings(version: Version, reference: str) -> PredictorSettings:
    """The settings that a version was trained with.

    Raises:
        StoreError: this Foreroll does not know them, or has another encoder or history schema.
    """
    try:
        found: PredictorSettings = _SETTINGS.validate_python(version.config["predictor"])
    except (KeyError, ValidationError):
        raise StoreError(
            f"predictor {reference} has settings that this Foreroll does not know: use the one that published it, or "
            "train it anew with `foreroll replay`"
        ) from None
    check_version(version, reference, found)
    return found


def check_version(version: Version, reference: str, settings: PredictorSettings) -> None:
    """Refuse a version that is of another kind than the predictor that is to begin with it.

    Args:
        reference: how the user named it.

    Raises:
        StoreError: names what the version has, and what is wanted.
    """
    config = version.config
    ours = {
        "predictor": settings.name,
        "history schema": SCHEMA_VERSION,
        "encoder": encoder_of(settings, encoder_name()) or "none",
    }
    theirs = {
        "predictor": config.get("predictor", {}).get("name"),
        "history schema": config.get("schema_version"),
        "encoder": config.get("encoder") or "none",
    }
    for what, wanted in ours.items():
        if theirs[what] != wanted:
            raise StoreError(
                f"predictor {reference} was trained with {what} {theirs[what]}, and {what} {wanted} is wanted here: "
                f"{_MEND[what]}"
            )


_MEND = {
    "predictor": "name the same with --set predictor=NAME, or begin with another version",
    "history schema": "train it anew with `foreroll replay`",
    "encoder": "use the same one, or begin with another version",
}
