"""Stage 1: forecast every candidate of a step, and store the forecasts before anything is sampled."""

import numpy as np

from models.acquisition.rest import candidates_wanted, rested
from models.records import Forecast, Ints
from models.seeding import derive_rng
from tasks.stage import stage
from tasks.visits import visits_before
from tasks.workbench import Workbench, workbench


@stage
def predict_difficulty(run: str, step: int) -> None:
    """Write `forecasts` of the step."""
    bench = workbench(run)
    with bench.timed("predict"):
        if bench.history.holds("forecasts", step):
            return
        rows = candidate_rows(bench, step)
        write_forecasts(bench, step, rows, bench.predictor.forecast(rows, seed=bench.seed(step, "forecast")))


def candidate_rows(bench: Workbench, step: int) -> Ints:
    """Pool rows that are considered in a step, ascending: of those that need no rest all, or a uniform draw.

    Prompts that do not fit the context never need rest, and leave those that fit as many as a step wants.
    """
    acquisition, rounds = bench.settings.acquisition, bench.settings.dynamic_sampling
    wanted = candidates_wanted(acquisition, rounds.max_rounds if rounds.enabled else 1)
    overlong = int(np.count_nonzero(~bench.train.fits))
    rows = rested(visits_before(bench, step), wanted + overlong, acquisition)
    if acquisition.candidates == 0 or acquisition.candidates >= len(rows):
        return rows
    rng = derive_rng(bench.settings.seed, step, "candidates")
    return np.sort(rng.choice(rows, acquisition.candidates, replace=False))


def write_forecasts(bench: Workbench, step: int, rows: Ints, forecast: Forecast) -> None:
    """Store one row a candidate, in row order; NaN becomes null."""
    columns = {
        "prompt_id": [bench.pool.prompt_ids[row] for row in rows],
        "p_success": forecast.p_success,
        "p_sd": forecast.p_sd,
        "expected_tokens": [None if np.isnan(value) else value for value in forecast.expected_tokens],
    }
    bench.history.write("forecasts", step, columns, predictor=bench.settings.predictor.name)


def read_forecasts(bench: Workbench, step: int) -> tuple[Ints, Forecast]:
    """Pool rows of the step's candidates, and the forecasts as they were stored."""
    table = bench.history.read("forecasts", step)
    row_of = bench.row_of
    rows = np.array([row_of[prompt_id] for prompt_id in table["prompt_id"].to_pylist()], dtype=np.int64)
    forecast = Forecast(
        p_success=table["p_success"].to_numpy().astype(np.float64),
        p_sd=table["p_sd"].to_numpy().astype(np.float64),
        expected_tokens=table["expected_tokens"].to_numpy(zero_copy_only=False).astype(np.float64),
    )
    return rows, forecast
