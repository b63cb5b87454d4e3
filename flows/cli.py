"""The command line: each command tidies its arguments and calls the library.

Heavy imports (torch, Prefect, vLLM, DuckDB) live inside the commands, so that
`--help` answers at once.
"""

import logging
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

STORE_HELP = "Root folder of the store."
R = TypeVar("R")


def one_line_errors(command: Callable[..., R]) -> Callable[..., R]:
    """Errors that a user can cause: one line and exit code 2. A run that gave up: exit code 1."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> R:
        from flows.config import ConfigError
        from models.errors import ModelError
        from storage.errors import StoreError

        try:
            return command(*args, **kwargs)
        except (ConfigError, ModelError, StoreError) as error:
            click.echo(f"foreroll: {error}", err=True)
            sys.exit(2)

    return guarded


store_option = click.option(
    "--store", envvar="FOREROLL_STORE", type=click.Path(path_type=Path), default="foreroll-store", help=STORE_HELP
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="foreroll")
def main() -> None:
    """Forecast before you roll out: reinforcement learning that samples only what can still be learned."""
    _show_messages()


@main.command()
@click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--preset", help="Start from a preset: countdown, smollm2.")
@click.option("--run", help="Name of the run; one that exists is continued.")
@click.option("--steps", type=int, help="Steps to add; while an earlier target is unreached, that is finished.")
@click.option("--from", "fork_from", metavar="RUN[@STEP]", help="Begin a new run with this run's checkpoint.")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Set one config value; repeatable.")
@click.option("--store", envvar="FOREROLL_STORE", type=click.Path(path_type=Path), help=STORE_HELP)
@one_line_errors
def train(assignments: tuple[str, ...], **options: Any) -> None:
    """Train a policy, or go on with a run.

    Example: foreroll train --preset countdown --run first --steps 50 --set update.lr=3e-5
    """
    from flows.commands.train import train_from_command_line

    sys.exit(train_from_command_line(assignments=assignments, **options))


@main.command()
@click.argument("run", required=False)
@store_option
@one_line_errors
def runs(run: str | None, store: Path) -> None:
    """List the runs, or tell one in detail.

    Example: foreroll runs countdown
    """
    from flows.commands.runs import describe_run, list_table

    click.echo(describe_run(store, run) if run else list_table(store))


@main.command()
@click.argument("query")
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json", "parquet"]), default="table")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write instead of the terminal.")
@store_option
@one_line_errors
def sql(query: str, format_: str, output: Path | None, store: Path) -> None:
    """Query the history: views forecasts, rollouts, groups, tokens, updates, predictor_updates, evaluations,
    steps, runs, predictors, prompts. Read-only: one SELECT, which sees committed steps only.

    Example: foreroll sql "select step, avg(reward) from rollouts group by step order by step"
    """
    from flows.commands.sql import run_query

    run_query(store, query, format_, output)


@main.command()
@click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--runs", multiple=True, help="Name or glob of runs to replay, repeatable; all where it is left out.")
@click.option("--where", help="SQL condition on the columns of the views runs and steps, as in 'step <= 100'.")
@click.option("--predictor", "predictors", metavar="[LABEL=]NAME", multiple=True, help="What to replay; repeatable.")
@click.option("--set", "assignments", metavar="NAME.KEY=VALUE", multiple=True, help="Set one value of a predictor.")
@click.option("--publish", metavar="NAME", help="Publish the best, trained on everything, under this name.")
@click.option("--margin", type=float, help="NLL by which it must beat the published one to be promoted.")
@click.option("--dense", is_flag=True, help="Let predictors and rules choose anew from runs that repeat their prompts.")
@click.option("--rule", "rules", multiple=True, help="Acquisition rule to pair predictors with; repeatable.")
@click.option("--batch", type=int, help="--dense only: prompts in a batch.")
@click.option("--markdown", type=click.Path(path_type=Path), help="File to write the leaderboard to, as Markdown.")
@click.option("--plots", type=click.Path(path_type=Path), help="Folder to write plots to, as PNG.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table")
@click.option("--store", envvar="FOREROLL_STORE", type=click.Path(path_type=Path), help=STORE_HELP)
@one_line_errors
def replay(**options: Any) -> None:
    """Replay past runs: which predictor would have forecast best? Needs no GPU, and rolls nothing out.

    Example: foreroll replay --runs 'math-*' --predictor kalman --predictor slow=mopps --set slow.decay=0.9
    """
    from flows.commands.replay import replay_from_command_line

    replay_from_command_line(**options)


@main.command()
@click.option("--prompts", "dataset", metavar="DATASET", required=True, help="Dataset of the store to forecast.")
@click.option("--predictor", metavar="NAME[@VERSION]", required=True,
              help="Published predictor; VERSION is a number, latest (if left out) or best.")  # fmt: skip
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json", "parquet"]),
              help="Default: as the file's name ends, else table.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write instead of the terminal.")
@store_option
@one_line_errors
def forecast(dataset: str, predictor: str, format_: str | None, output: Path | None, store: Path) -> None:
    """Forecast the prompts of a dataset with a published predictor: prompt_id, p_success, p_sd, expected_tokens, in the
    dataset's own order. Rolls nothing out.

    Example: foreroll forecast --prompts countdown-pool --predictor base@best -o forecasts.csv
    """
    from flows.commands.forecast import forecast_prompts

    forecast_prompts(store, dataset, predictor, format_, output)


@main.group()
def prompts() -> None:
    """Add, look at and check the prompts of the store."""


map_option = click.option(
    "--map", "columns", metavar="FIELD=COLUMN", multiple=True, help="Say which column holds a field; repeatable."
)
where_option = click.option(
    "--where", metavar="COLUMN=VALUE", multiple=True, help="Take only rows with this value; repeatable."
)


@prompts.command("add")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", required=True, metavar="DATASET", help="Name of the new dataset.")
@map_option
@where_option
@click.option("--tag", "tags", metavar="COLUMN", multiple=True, help="Keep one more column as a tag; repeatable.")
@click.option("--reward", help="What checks answers; told from the answers where it is not given.")
@click.option(
    "--heldout",
    metavar="SHARE",
    type=float,
    default=0.0,
    help="Keep this share apart, as the dataset DATASET-heldout.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out rows that cannot be used, instead of refusing.")
@store_option
@one_line_errors
def add_prompts(files: tuple[Path, ...], store: Path, **options: Any) -> None:
    """Add prompt files as a dataset: JSON lines, JSON arrays, CSV or Parquet, in the layouts of verl, TRL and others.

    Fields are prompt, answer, system and instruction.

    Example: foreroll prompts add train.parquet --name math --map answer=solution
    """
    from flows.commands.prompt_files import add_prompts

    add_prompts(store, files, **options)


@prompts.command("check")
@click.argument("target", metavar="DATASET|FILE")
@map_option
@where_option
@click.option("--reward", help="What is to check answers; told from the answers where it is not given.")
@store_option
@one_line_errors
def check_prompts(target: str, store: Path, **options: Any) -> None:
    """Name all that is wrong with a prompt file, or with a dataset of the store; exit code 1 when something is.

    Example: foreroll prompts check train.jsonl
    """
    from flows.commands.prompt_files import check_prompts

    sys.exit(check_prompts(store, target, **options))


@prompts.command("list")
@click.argument("dataset", required=False)
@store_option
@one_line_errors
def list_prompts(dataset: str | None, store: Path) -> None:
    """List the datasets, or the prompts of one.

    Example: foreroll prompts list countdown-pool
    """
    from flows.commands.prompts import datasets_table, prompts_table

    click.echo(prompts_table(store, dataset) if dataset else datasets_table(store))


@prompts.command("show")
@click.argument("prompt_id")
@store_option
@one_line_errors
def show_prompt(prompt_id: str, store: Path) -> None:
    """Show one prompt, and what the runs made of it. A unique beginning of its id is enough.

    Example: foreroll prompts show 3f2a
    """
    from flows.commands.prompts import describe_prompt

    click.echo(describe_prompt(store, prompt_id))


@main.group()
def history() -> None:
    """Bring in histories that were not made here."""


@history.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dataset", required=True, help="Dataset whose prompts were rolled out.")
@click.option("--run", required=True, help="Name of the new run.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["auto", "table", "trl", "verl", "lm-eval"]),
    default="auto",
    help="What wrote the files; auto tells it from their columns.",
)
@map_option
@where_option
@click.option(
    "--match", metavar="TAG[=COLUMN]", multiple=True, help="Match prompts by a tag that a column has; repeatable."
)
@click.option("--success-threshold", "threshold", type=float, help="Least score that is a success; else 0 or 1 only.")
@click.option("--model", help="Name of the model that was rolled out.")
@click.option("--temperature", type=float, help="Sampling temperature.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows that cannot be used, instead of refusing.")
@store_option
@one_line_errors
def import_history(files: tuple[Path, ...], store: Path, **options: Any) -> None:
    """Import outcomes as a finished run: a table of successes and attempts (CSV, JSON lines, Parquet), completions of
    TRL, rollout_data_dir of verl, or sample logs of lm-evaluation-harness. A folder stands for its files.

    Fields are prompt, prompt_id, position, step, successes, attempts, rate, score, reward, response, tokens,
    prompt_tokens, model, temperature and filter.

    Example: foreroll history import rates.csv --dataset math --run qwen --map successes=n_correct --map attempts=k
    """
    from flows.commands.history import import_files

    import_files(store, files, **options)


@main.command()
@store_option
@one_line_errors
def doctor(store: Path) -> None:
    """Tell versions, engines, and the health of the store; exit code 1 when something is wrong.

    Example: foreroll doctor
    """
    from flows.commands.doctor import examine

    sys.exit(examine(store))


def _show_messages() -> None:
    """Let our own packages, and no others, speak to the terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("foreroll: %(message)s"))
    for package in ("flows", "tasks", "models", "storage"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.INFO)
        logger.handlers = [handler]
        logger.propagate = False  # Prefect gives the root logger a handler of its own


if __name__ == "__main__":
    main()
