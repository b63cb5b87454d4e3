"""`foreroll forecast`."""

from pathlib import Path

import click

from flows.commands.output import FORMATS, check_output, write_result
from storage.store import open_store
from tasks.forecast import forecast_dataset


def forecast_prompts(store: Path, dataset: str, predictor: str, format_: str | None, output: Path | None) -> None:
    """Forecast a dataset, and print the forecasts or write them to a file.

    Args:
        format_: None takes the file's ending where it names a format, else `table`.

    Raises:
        StoreError: the dataset or the version cannot be used.
        ConfigError: the output cannot go where it is sent.
        ModelError: the predictor needs a run.
    """
    layout = open_store(store)
    ending = output.suffix.removeprefix(".") if output else ""
    format_ = format_ or (ending if ending in FORMATS else "table")
    check_output(layout, format_, output)
    forecasts = forecast_dataset(layout, dataset, predictor)
    write_result(forecasts, format_, output)
    if output:
        click.echo(f"{len(forecasts):,} forecasts of {dataset} by {predictor} in {output}", err=True)
