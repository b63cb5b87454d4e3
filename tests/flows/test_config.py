"""The configuration: presets, files, assignments, and what is said about wrong ones."""

from pathlib import Path

import pytest
import yaml

from flows.commands.train import resolve_config
from flows.config import (
    PRESETS,
    ConfigError,
    TrainConfig,
    build_config,
    merge,
    parse_assignments,
    read_preset,
    read_toml,
)
from flows.replay_config import ReplayConfig, build_replay_config
from models.settings import EngineSettings, ForerollSettings, GpsSettings, KalmanSettings, MoppsSettings, TrainSettings
from storage.runs import Run, write_run
from storage.store import open_store

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_every_shipped_preset_is_a_valid_config(name: str) -> None:
    config = build_config({"preset": name})
    assert config.run == read_preset(name)["run"]


def test_deployments_point_at_flows_and_their_parameters_are_valid() -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    builders = {"train": (build_config, "0 2 * * *"), "replay": (build_replay_config, "0 5 * * *")}
    assert [deployment["name"] for deployment in deployments] == list(builders)
    for deployment in deployments:
        build, cron = builders[deployment["name"]]
        file, function = deployment["entrypoint"].split(":")
        assert f"def {function}(" in (ROOT / file).read_text()
        build(deployment["parameters"]["config"])
        assert deployment["schedules"][0]["cron"] == cron


def test_every_field_is_documented_beneath_its_definition() -> None:
    train, replay = TrainConfig.model_json_schema(), ReplayConfig.model_json_schema()
    described = {"TrainConfig": train, "ReplayConfig": replay, **train["$defs"], **replay["$defs"]}
    for name, part in described.items():
        for field, about in part.get("properties", {}).items():
            assert about.get("description"), f"{name}.{field}"


def test_values_given_win_over_the_preset() -> None:
    config = build_config({"preset": "countdown", "steps": 7, "update": {"lr": 1e-5}})
    assert (config.steps, config.update.lr, config.sampling.group_size) == (7, 1e-5, 8)


def test_a_predictor_can_be_named_alone_and_then_brings_its_own_settings() -> None:
    config = build_config(
        merge(read_preset("countdown"), parse_assignments(["predictor=mopps", "predictor.decay=0.9"]))
    )
    assert config.predictor == MoppsSettings(decay=0.9)
    assert isinstance(build_config({"preset": "countdown"}).predictor, GpsSettings)


def test_a_published_predictor_to_begin_with_is_set_as_from_and_stored_as_from(tmp_path: Path) -> None:
    assigned = build_config(parse_assignments(["predictor=mopps", "predictor.from=base@best"]))
    (tmp_path / "run.toml").write_text('[predictor]\nname = "mopps"\nfrom = "base@best"\n')
    assert assigned == build_config(read_toml(tmp_path / "run.toml"))
    assert assigned.predictor == MoppsSettings(start="base@best")
    stored = assigned.model_dump(mode="json")
    assert stored["predictor"]["from"] == "base@best" and "start" not in stored["predictor"]
    assert build_config(stored) == assigned
    assert assigned.identity()["predictor.from"] == "base@best"
    over = merge(stored, parse_assignments(["predictor=kalman"]))
    assert build_config(over).predictor == KalmanSettings()
    with pytest.raises(ConfigError, match=r"unknown config key 'predictor\.start': there are from, name, "):
        build_config({"predictor": {"name": "mopps", "start": "base@best"}})


def test_an_engine_can_be_named_alone_or_not_at_all() -> None:
    assert build_config(parse_assignments(["engine=vllm"])).engine == EngineSettings(name="vllm")
    assert build_config(parse_assignments(["engine.batch_size=8"])).engine == EngineSettings(batch_size=8)


def test_a_predictor_that_is_not_named_is_the_default_one() -> None:
    assert build_config(parse_assignments(["predictor.own_sd=1.5"])).predictor == ForerollSettings(own_sd=1.5)
    config = build_config({"preset": "countdown", "predictor": {"z_samples": 3}})
    assert isinstance(config.predictor, GpsSettings) and config.predictor.z_samples == 3


def test_a_stored_config_stands_behind_the_options_before_they_are_judged(tmp_path: Path) -> None:
    layout = open_store(tmp_path / "store", create=True)
    stored = build_config({"store": "elsewhere", "run": "x", "predictor": {"name": "mopps", "decay": 0.7}})
    write_run(layout, Run("x", stored.model_dump(mode="json"), pins={}, created_at="", target=1, epoch=1))
    place = {"store": str(tmp_path / "store")}
    for given in ({"run": "x"}, {"run": "new", "fork_from": "x"}, {"run": "new", "fork_from": "x@3"}):
        config = resolve_config({}, {**place, **given, **parse_assignments(["predictor.prior_alpha=2"])})
        assert config.predictor == MoppsSettings(decay=0.7, prior_alpha=2.0)
        assert (config.run, str(config.store)) == (given["run"], place["store"])
        assert config.fork_from == given.get("fork_from", "")
    assert resolve_config({}, {**place, "run": "new"}).predictor == ForerollSettings()
    assert resolve_config({}, {**place, "run": "x", "preset": "countdown"}).predictor != stored.predictor
    with pytest.raises(ConfigError, match="config run: Input should be a valid string, not 3"):
        resolve_config({}, {**place, "run": 3, "predictor": {"decay": 0.9}})


def test_assignments_are_read_as_toml_and_else_as_text() -> None:
    values = parse_assignments(
        ["update.lr=1e-5", "dynamic_sampling.enabled=true", "policy.model=/some/folder", "run=a"]
    )
    assert values == {
        "update": {"lr": 1e-5},
        "dynamic_sampling": {"enabled": True},
        "policy": {"model": "/some/folder"},
        "run": "a",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"updates": {"lr": 1.0}}, "unknown config key 'updates': did you mean 'update'?"),
        ({"update": {"learning_rate": 1.0}}, "unknown config key 'update.learning_rate': there are lr, weight_decay, "),
        ({"predictor": {"name": "mopps", "decays": 1}}, "unknown config key 'predictor.decays': did you mean 'decay'?"),
        ({"predictor": {"name": "mopps", "decay": 2}}, "config predictor.decay: Input should be less than or equal to"),
        ({"steps": 0}, "config steps: Input should be greater than or equal to 1, not 0"),
        ({"update": {"lr": float("nan")}}, "config update.lr: Input should be greater than 0, not nan"),
        ({"predictor": "oracle"}, "config predictor: Input tag 'oracle'"),
        ({"acquisition": {"explore": 0.0}}, "config acquisition.explore: Input should be greater than 0, not 0.0"),
        ({"acquisition": {"low": 0.9}}, "config acquisition: Value error, low 0.9 must be below high 0.85, not"),
        ({"preset": "nope"}, "no preset 'nope': there are countdown, smollm2"),
    ],
)
def test_a_wrong_value_is_named_in_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_config(values)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("word", ["lr", "=3", "update..lr=3"])
def test_a_word_that_is_no_assignment_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="is not key=value"):
        parse_assignments([word])


def test_a_config_file_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("steps = = 3")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        read_toml(tmp_path / "broken.toml")


def test_cadence_steps_and_places_are_no_part_of_the_identity() -> None:
    one = build_config({"preset": "countdown", "steps": 3, "evaluation": {"every": 7}, "checkpoint": {"every": 9}})
    other = build_config({"preset": "countdown", "run": "b", "store": "elsewhere", "threads": 1})
    assert one.identity() == other.identity()
    assert one.identity() != build_config({"preset": "countdown", "seed": 1}).identity()


def test_settings_hold_every_section_of_the_config() -> None:
    config = build_config({"preset": "countdown", "seed": 5})
    settings = config.settings()
    assert isinstance(settings, TrainSettings)
    assert settings.seed == 5 and settings.predictor is config.predictor
