"""The configuration of a training run: one pydantic model, from TOML, presets and `--set`."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from flows.explain import explain
from models.settings import (
    AcquisitionSettings,
    CheckpointSettings,
    DynamicSamplingSettings,
    EngineSettings,
    EvaluationSettings,
    ForerollSettings,
    OverlongSettings,
    PolicySettings,
    PredictorSettings,
    PromptSettings,
    SamplingSettings,
    TrainSettings,
    UpdateSettings,
)
from tasks.plan import RunPlan, flatten

ENGINE_IDENTITY = ("engine.name", "engine.batch_size")
"""What decides rollouts to the last digit; where servers stand, and how long they may take, can change on resume."""
PRESETS = Path(__file__).parent / "presets"
DEFAULT_STORE = Path("foreroll-store")


class ConfigError(Exception):
    """A configuration that cannot be used; its message is meant for the user."""


class TrainConfig(BaseModel):
    """Everything that a training run is made of."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, serialize_by_alias=True)

    preset: str | None = None
    """Preset whose values stand where this config says nothing."""
    store: Path = DEFAULT_STORE
    """Root folder of the store."""
    run: str = "main"
    """Name of the run; one that exists is continued."""
    steps: Annotated[int, Field(ge=1)] = 300
    """Steps to add, unless an earlier target is unreached: then that is finished. May change on resume."""
    fork_from: str = ""
    """`RUN` or `RUN@STEP`: begin a new run with that run's checkpoint."""
    seed: Annotated[int, Field(ge=0)] = 0
    """All randomness of the run comes from it."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads of torch; 0 takes all cores. Fixed when the run is created, because sums depend on it."""
    prompts: PromptSettings = PromptSettings()
    """What is trained on, and what is measured."""
    policy: PolicySettings = PolicySettings()
    """The language model."""
    sampling: SamplingSettings = SamplingSettings()
    """Rollouts: how many, how long, how random."""
    engine: EngineSettings = EngineSettings()
    """What generates rollouts."""
    overlong: OverlongSettings = OverlongSettings()
    """What becomes of responses that were cut off."""
    update: UpdateSettings = UpdateSettings()
    """How the policy learns."""
    predictor: Annotated[PredictorSettings, Field(discriminator="name")] = ForerollSettings()
    """What forecasts success; `name` says which."""
    acquisition: AcquisitionSettings = AcquisitionSettings()
    """Which candidates make the batch."""
    dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
    """Whether uninformative groups are replaced after the rollout."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """Held-out success. May change on resume."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """Checkpoints. May change on resume."""

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("preset"):
            return merge(read_preset(values["preset"]), values)
        return values

    @model_validator(mode="after")
    def _check_overlong(self) -> "TrainConfig":
        if self.overlong.responses == "penalise" and self.overlong.buffer > self.sampling.max_tokens:
            raise ValueError(
                f"overlong.buffer = {self.overlong.buffer} is longer than sampling.max_tokens = "
                f"{self.sampling.max_tokens}: every response would be punished"
            )
        return self

    @model_validator(mode="after")
    def _check_servers(self) -> "TrainConfig":
        wrong = [address for address in self.engine.servers if not address.startswith(("http://", "https://"))]
        if wrong:
            raise ValueError(f"engine.servers: {wrong[0]!r} is no address: write http://HOST:PORT")
        if self.engine.name == "vllm-server" and not self.engine.servers:
            raise ValueError("engine vllm-server has no servers: --set engine.servers='[\"http://localhost:8000\"]'")
        return self

    @model_validator(mode="after")
    def _check_importance(self) -> "TrainConfig":
        if self.update.importance_cap and (self.sampling.temperature, self.sampling.top_p) != (1.0, 1.0):
            raise ValueError(
                "update.importance_cap wants sampling.temperature = 1 and sampling.top_p = 1, since engines report "
                "log-probabilities of the raw model: set those, or importance_cap = 0"
            )
        return self

    @field_validator("engine", mode="before")
    @classmethod
    def _name_engine(cls, value: Any) -> Any:
        return _named(value)

    @field_validator("predictor", mode="before")
    @classmethod
    def _name_predictor(cls, value: Any) -> Any:
        value = _named(value)
        return {"name": ForerollSettings().name, **value} if isinstance(value, Mapping) else value

    def settings(self) -> TrainSettings:
        """The part that decides what is computed."""
        return TrainSettings(**{part.name: getattr(self, part.name) for part in fields(TrainSettings)})

    def identity(self) -> dict[str, Any]:
        """What must stay the same while a run is continued: JSON values under dotted keys."""
        kept = {part.name for part in fields(TrainSettings)} - {"threads", "evaluation", "checkpoint"}
        flat = flatten(self.model_dump(mode="json", include=kept))
        return {key: value for key, value in flat.items() if not key.startswith("engine.") or key in ENGINE_IDENTITY}

    def plan(self) -> RunPlan:
        """What the pipeline is asked for."""
        return RunPlan(
            run=self.run,
            store=self.store,
            steps=self.steps,
            settings=self.settings(),
            config=self.model_dump(mode="json"),
            identity=self.identity(),
            fork_from=self.fork_from,
        )


def build_config(values: Mapping[str, Any]) -> TrainConfig:
    """Validate a configuration.

    Raises:
        ConfigError: one line for each value that is wrong.
    """
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, TrainConfig)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a config file.

    Raises:
        ConfigError: the file is missing or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"config {path}: {error}") from None


def read_preset(name: str) -> dict[str, Any]:
    """The values of a preset.

    Raises:
        ConfigError: there is no such preset.
    """
    names = sorted(path.stem for path in PRESETS.glob("*.toml"))
    if name not in names:
        raise ConfigError(f"no preset {name!r}: there are {', '.join(names)}")
    return read_toml(PRESETS / f"{name}.toml")


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """`key=value` words as nested values; a value is read as TOML, and as text where it is none.

    Raises:
        ConfigError: a word has no `=` or no key.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not all(key.split(".")):
            raise ConfigError(f"--set {assignment!r} is not key=value, as in --set update.lr=1e-5")
        nested: Any = _parse_value(text)
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        values = merge(values, nested)
    return values


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, section by section; a predictor of another name brings its own section."""
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        if key in ("predictor", "engine"):
            before, value = _named(before), _named(value)
        if isinstance(value, Mapping) and isinstance(before, Mapping) and not _renames(key, before, value):
            merged[key] = merge(before, value)
        else:
            merged[key] = value
    return merged


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _renames(key: str, before: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return key == "predictor" and "name" in value and value["name"] != before.get("name")


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
