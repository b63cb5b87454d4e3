"""What earlier stages and steps acquired, read from the history."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.acquisition.rest import Visits
from models.records import Ints
from tasks.workbench import Workbench

CHOSEN = ("acquired", "explored")


def chosen_rows(bench: Workbench, step: int, rounds: range | None = None) -> Ints:
    """Pool rows acquired in a step, in order of rank within each round; none before step 1."""
    rows: list[int] = []
    for round_ in bench.history.rounds("acquisitions", step) if rounds is None else rounds:
        table = bench.history.read("acquisitions", step, round_)
        chosen = table.filter(pc.is_in(table["decision"], pa.array(CHOSEN))).sort_by("rank")
        rows += [bench.row_of[prompt_id] for prompt_id in chosen["prompt_id"].to_pylist()]
    return np.array(rows, dtype=np.int64)


def visits_before(bench: Workbench, step: int) -> Visits:
    """When and how often each prompt was acquired before a step, as far back as it matters.

    Each earlier step is read once by a process. Without a cap only those count that acquired prompts still rest from.
    """
    visits, acquisition = bench.visits, bench.settings.acquisition
    if not acquisition.cap:
        visits.through = max(visits.through, step - 1 - acquisition.cooldown)
    while visits.through < step - 1:
        visits.add(chosen_rows(bench, visits.through + 1))
    assert visits.through == step - 1
    return visits
