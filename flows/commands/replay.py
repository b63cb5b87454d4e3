"""`foreroll replay`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flows.commands.tables import format_table
from flows.commands.watching import show_steps
from flows.config import merge, read_toml
from flows.environment import apply_defaults
from flows.replay_config import ReplayConfig, build_replay_config, named_predictors


def replay_from_command_line(
    *,
    config_file: Path | None,
    predictors: Sequence[str],
    assignments: Sequence[str],
    format_: str,
    rules: Sequence[str],
    runs: Sequence[str],
    **options: Any,
) -> None:
    """Resolve the configuration, replay, and print the leaderboard."""
    given: dict[str, Any] = {name: str(value) for name, value in options.items() if value not in (None, False)}
    if runs:
        given["runs"] = ",".join(runs)
    if rules:
        given["rules"] = list(rules)
    config = resolve_replay(read_toml(config_file) if config_file else {}, given, predictors, assignments)
    apply_defaults()
    if config.dense:
        _dense(config, format_)
    else:
        _replay(config, format_)


def resolve_replay(
    from_file: dict[str, Any], given: dict[str, Any], predictors: Sequence[str], assignments: Sequence[str]
) -> ReplayConfig:
    """What the options mean; predictors named on the command line take the place of the file's.

    Raises:
        ConfigError: a value is wrong.
    """
    if predictors or assignments or "predictors" not in from_file:
        given = {**given, "predictors": named_predictors(predictors, assignments)}
        from_file = {key: value for key, value in from_file.items() if key != "predictors"}
    return build_replay_config(merge(from_file, given))


def _replay(config: ReplayConfig, format_: str) -> None:
    from tasks.leaderboard import report_json
    from tasks.leaderboard_text import report_lines
    from tasks.replay import replay_history
    from tasks.replay_files import write_files

    report = replay_history(config.plan(), show_steps)
    write_files(report, markdown=config.markdown, plots=config.plots)
    click.echo(json.dumps(report_json(report)) if format_ == "json" else "\n".join(report_lines(report)))


def _dense(config: ReplayConfig, format_: str) -> None:
    rules = config.acquisitions()

    from tasks.dense import dense_json, dense_replay, dense_rows

    lines, faults = dense_replay(config.plan(), rules)
    if format_ == "json":
        click.echo(json.dumps({"lines": dense_json(lines), "faults": faults}))
        return
    for fault in faults:
        click.echo(f"note: {fault}")
    head, *rows = dense_rows(lines)
    click.echo(format_table(head, rows))
