"""Trains a predictor on past groups: the one recipe of a published version, and of what is compared with it."""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.inputs import reads_past
from models.records import Observation, Pool
from models.seeding import derive_seed
from models.settings import PredictorSettings
from tasks.past import past_runs


def train_on(settings: PredictorSettings, pool: Pool, groups: pa.Table) -> Predictor:
    """A predictor that has learned from groups, in their order; past groups tell no log-probabilities.

    Args:
        groups: rows of `schemas.PAST`; those of prompts that are not in the pool are passed over.
    """
    past = past_runs(groups, pool.prompt_ids)
    if reads_past(settings):
        return build_predictor(settings, replace(pool, past=past), seed=derive_seed(0, "predictor"))
    predictor = build_predictor(settings, pool, seed=derive_seed(0, "predictor"))
    for (_, step), places in groupby(range(len(past)), key=lambda at: (past.run[at], past.step[at])):
        part = np.array(list(places))
        observation = Observation(past.row[part], past.successes[part], past.valid[part], past.mean_tokens[part])
        predictor.observe(observation, seed=derive_seed(0, int(step), "observe"))
    return predictor
