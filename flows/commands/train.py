"""`foreroll train`."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flows.config import ConfigError, TrainConfig, build_config, merge, parse_assignments, read_toml
from flows.environment import apply_defaults
from flows.orphans import stop_orphans
from storage.layout import Layout
from storage.runs import check_trained_here, read_run


def train_from_command_line(
    *,
    config_file: Path | None,
    preset: str | None,
    run: str | None,
    steps: int | None,
    fork_from: str | None,
    assignments: Sequence[str],
    store: Path | None,
) -> int:
    """Resolve the configuration, refuse what cannot work, train, and print the summary; returns the exit code."""
    options = {"preset": preset, "run": run, "steps": steps, "fork_from": fork_from, "store": store}
    given = {
        key: str(value) if isinstance(value, Path) else value for key, value in options.items() if value is not None
    }
    given = merge(given, parse_assignments(assignments))
    config = resolve_config(read_toml(config_file) if config_file else {}, given)
    apply_defaults()
    stop_orphans()

    from storage.locks import check_free
    from tasks.runs import check_plan

    check_plan(config.plan())
    check_free(Layout(config.store.absolute()), config.run)
    check_server()
    return _train(config)


def resolve_config(from_file: dict[str, Any], given: dict[str, Any]) -> TrainConfig:
    """What the options mean. Where no file or preset is named, the stored config of the run, or of the run that
    is forked, stands behind them.

    Raises:
        ConfigError: a value is wrong.
    """
    if from_file or "preset" in given:
        return build_config(merge(from_file, given))
    place = build_config({key: given[key] for key in ("store", "run", "fork_from") if key in given})
    return build_config(merge(_stored_config(place), given))


def _stored_config(place: TrainConfig) -> dict[str, Any]:
    layout = Layout(place.store.absolute())
    known = read_run(layout, place.run)
    if known is None and place.fork_from:
        known = read_run(layout, place.fork_from.partition("@")[0])
    if known:
        check_trained_here(known)
    return merge(known.config, {"run": place.run, "store": str(place.store)}) if known else {}


def check_server() -> None:
    """Refuse a Prefect server that does not answer; where none is set, the flow starts a temporary one.

    Raises:
        ConfigError: names its URL.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        return
    try:
        with get_client(sync_client=True) as client:
            client.api_version()
    except Exception as error:  # what the client raises has no common type
        raise ConfigError(
            f"no Prefect server answers at {PREFECT_API_URL.value()} ({error}): start it, or mend PREFECT_API_URL, "
            "which ends in /api"
        ) from None


def _train(config: TrainConfig) -> int:
    from flows.train import train
    from tasks.opening import RunInterrupted, RunStopped
    from tasks.report import build_report, example_commands, report_lines

    click.echo(f"run {config.run} in {config.store}: {config.policy.model}, {config.predictor.name} forecasts, "
               f"{config.acquisition.name} acquires", err=True)  # fmt: skip
    try:
        train(config)
    except RunStopped as error:
        click.echo(f"foreroll: {error}", err=True)
        return 1
    except RunInterrupted as error:
        click.echo(f"foreroll: {error}; run the same command again to go on", err=True)
        return 128 + error.number
    report = build_report(Layout(config.store.absolute()), config.run)
    click.echo("\n".join([*report_lines(report), "", "try", *example_commands(report, _program())]))
    return 0


def _program() -> str:
    """How to call this program again: by its name where the shell finds it, else by its path."""
    return "foreroll" if shutil.which("foreroll") else sys.argv[0]
