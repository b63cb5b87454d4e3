"""The configuration of a replay: from TOML and the command line."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from flows.config import DEFAULT_STORE, ConfigError, merge, parse_assignments
from flows.explain import explain
from models.settings import (
    AcquisitionSettings,
    ForerollSettings,
    GpsSettings,
    KalmanSettings,
    MeanSettings,
    MoppsSettings,
    PredictorSettings,
)
from tasks.replay_plan import ReplayPlan

USUAL: tuple[PredictorSettings, ...] = (
    MeanSettings(),
    MoppsSettings(),
    KalmanSettings(),
    GpsSettings(),
    ForerollSettings(),
)
"""What is replayed where no predictor is named."""

_LABEL = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class ReplayConfig(BaseModel):
    """Everything that a replay is made of."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)

    store: Path = DEFAULT_STORE
    """Root folder of the store."""
    runs: str = "*"
    """Names or globs of the runs, as in `math-*,first`."""
    where: str = "true"
    """SQL condition on the columns of the views `runs` and `steps`, as in `step <= 100`."""
    predictors: Annotated[
        dict[str, Annotated[PredictorSettings, Field(discriminator="name")]], Field(min_length=1)
    ] = {settings.name: settings for settings in USUAL}  # fmt: skip
    """What is replayed, by the name it has in the leaderboard; `name` says which predictor it is, else the key does."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the bootstrap, and of which prompts are held out."""
    publish: str = ""
    """Name under which the best is published; empty publishes nothing."""
    margin: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.005
    """NLL by which the best must beat the published one, on runs and prompts that it did not learn, to be promoted."""
    heldout: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """Share of the prompts that are held out for that."""
    dense: bool = False
    """Let the predictors choose anew, from runs whose prompts were rolled out again and again, in place of judging."""
    rules: tuple[str, ...] = ()
    """Acquisition rules that each predictor is paired with: in place of `informative` where `dense`, else beside the
    rule that a run chose by."""
    batch: Annotated[int, Field(ge=1)] = 16
    """`dense` only: prompts in a batch."""
    markdown: Path | None = None
    """File that the leaderboard is written to."""
    plots: Path | None = None
    """Folder that the plots are written to."""

    @model_validator(mode="before")
    @classmethod
    def _name_predictors(cls, values: Any) -> Any:
        named = values.get("predictors") if isinstance(values, Mapping) else None
        if not isinstance(named, Mapping):
            return values
        sections = {label: {"name": label, **one} if isinstance(one, Mapping) else one for label, one in named.items()}
        return {**values, "predictors": sections}

    @model_validator(mode="after")
    def _check_names(self) -> "ReplayConfig":
        for label in self.predictors:
            if not _LABEL.fullmatch(label):
                raise ValueError(
                    f"predictor {label!r}: a label is up to 64 letters, digits, '_' and '-', with no sign first"
                )
        if "publish" in self.model_fields_set and not self.publish:
            raise ValueError("publish names nothing: leave it out, or give a name")
        return self

    @model_validator(mode="after")
    def _check_dense(self) -> "ReplayConfig":
        names = ("publish", "margin", "heldout", "markdown", "plots") if self.dense else ("batch",)
        given = sorted(self.model_fields_set.intersection(names))
        if given:
            kind = "a dense replay reads" if self.dense else "only a dense replay reads"
            raise ValueError(f"{kind} {'no ' if self.dense else ''}{', '.join(given)}: leave it out")
        return self

    def acquisitions(self) -> list[AcquisitionSettings]:
        """The rules, with the batch of a dense replay.

        Raises:
            ConfigError: there is no such rule.
        """
        adapter = TypeAdapter(AcquisitionSettings)
        try:
            return [
                adapter.validate_python({"name": rule, "batch_size": self.batch})
                for rule in self.rules or ("informative",)
            ]
        except ValidationError as error:
            raise ConfigError(f"--rule: {explain(error)}") from None

    def plan(self) -> ReplayPlan:
        """What the pipeline is asked for.

        Raises:
            ConfigError: there is no such rule.
        """
        return ReplayPlan(
            store=self.store,
            predictors=self.predictors,
            runs=self.runs,
            where=self.where,
            rules=[rule.name for rule in self.acquisitions()] if self.rules else [],
            seed=self.seed,
            publish=self.publish,
            margin=self.margin,
            heldout=self.heldout,
        )


def build_replay_config(values: Mapping[str, Any]) -> ReplayConfig:
    """Validate a configuration.

    Raises:
        ConfigError: one line for each value that is wrong.
    """
    try:
        return ReplayConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, ReplayConfig)) from None


def named_predictors(words: Sequence[str], assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Sections of the predictors that `--predictor` names, as NAME or LABEL=NAME, with what `--set` says of them.

    Raises:
        ConfigError: a word is none, or `--set` speaks of a predictor that is not replayed.
    """
    sections: dict[str, dict[str, Any]] = {}
    for word in words or [settings.name for settings in USUAL]:
        label, _, name = word.partition("=")
        if not label or label in sections:
            raise ConfigError(f"--predictor {word!r}: give each its own label, as in --predictor slow=mopps")
        sections[label] = {"name": name or label}
    changes = parse_assignments(assignments)
    for label in changes:
        if label not in sections or not isinstance(changes[label], dict):
            raise ConfigError(f"--set {label}...: write NAME.key=value, NAME being one of {', '.join(sections)}")
    return {label: merge(section, changes.get(label, {})) for label, section in sections.items()}
