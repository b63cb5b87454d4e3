"""Stage 2: turn the forecasts into a batch, and store the decision on every candidate."""

import numpy as np

from models.acquisition import select
from models.records import Decision, Floats, Ints, Selection
from models.seeding import derive_rng
from tasks.predict import read_forecasts
from tasks.stage import stage
from tasks.visits import chosen_rows
from tasks.workbench import Workbench, workbench


@stage
def acquire_batch(run: str, step: int, round_: int = 0) -> None:
    """Write `acquisitions` of the round: candidates of earlier rounds that were chosen are not considered again."""
    bench = workbench(run)
    with bench.timed("acquire"):
        if bench.history.holds("acquisitions", step, round_):
            return
        rows, forecast = read_forecasts(bench, step)
        taken = np.isin(rows, chosen_rows(bench, step, range(round_)))
        fits = bench.train.fits[rows]
        selection = select(
            forecast.at(fits & ~taken),
            rows[fits & ~taken],
            pool=bench.pool,
            previous=chosen_rows(bench, step - 1),
            settings=bench.settings.acquisition,
            rng=derive_rng(bench.settings.seed, step, "acquire", round_),
            group_size=bench.settings.sampling.group_size,
        )
        _write_selection(bench, step, round_, _with_overlong(selection, rows[~fits]))


def remaining_candidates(bench: Workbench, step: int, rounds: range) -> int:
    """Candidates of a step that fit the context and that none of the rounds has chosen."""
    considered, _ = read_forecasts(bench, step)
    return int(bench.train.fits[considered].sum()) - len(chosen_rows(bench, step, rounds))


def _with_overlong(selection: Selection, rows: Ints) -> Selection:
    """The selection, and the candidates that no engine could roll out."""
    nothing = np.full(len(rows), np.nan)
    decisions: list[Decision] = ["too_long"] * len(rows)
    return Selection(
        rows=np.concatenate([selection.rows, rows]),
        utility=np.concatenate([selection.utility, nothing]),
        diversity=np.concatenate([selection.diversity, nothing]),
        propensity=np.concatenate([selection.propensity, np.zeros(len(rows))]),
        decision=(*selection.decision, *decisions),
        rank=np.concatenate([selection.rank, np.full(len(rows), -1)]),
    )


def _nan_to_null(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values]


def _write_selection(bench: Workbench, step: int, round_: int, selection: Selection) -> None:
    columns = {
        "prompt_id": [bench.pool.prompt_ids[row] for row in selection.rows],
        "utility": _nan_to_null(selection.utility),
        "diversity": _nan_to_null(selection.diversity),
        "propensity": selection.propensity,
        "decision": selection.decision,
        "rank": [None if rank < 0 else rank for rank in selection.rank],
    }
    bench.history.write("acquisitions", step, columns, round_, round=round_)
