"""The real history of `selection.py`: forecasts of a GRPO run's next visit, where each visit is to every prompt."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from selection_world import TOKENS

from models.difficulty import build_predictor
from models.difficulty.metrics import forecast_quality, weighted_spearman
from models.embeddings import WordllamaEncoder
from models.records import Observation, Pool
from models.settings import PredictorSettings

VISITS = 44


def replay(data: Path, settings: PredictorSettings, visits: int) -> dict[str, Any]:
    """Quality of the forecasts in thirds of the visits, early to late.

    Many prompts are always solved, and a forecast that ties them agrees with
    outcomes that tie: `spearman_untied` breaks ties of the forecasts at random.
    """
    history = pl.read_parquet(data / "rl_history_1p5b.parquet").filter(pl.col("visit") < visits).sort("visit", "index")
    told = pl.read_parquet(data / "rl_history_1p5b_prompts_verl.parquet").rows(named=True)
    text_of = {one["extra_info"]["index"]: one["prompt"][0]["content"] for one in told}
    indices = history["index"].unique().sort().to_list()
    texts = tuple(text_of[index] for index in indices)
    pool = Pool(tuple(f"{index:032x}" for index in indices), WordllamaEncoder().encode(texts), texts=texts)
    predictor, rng, judged = build_predictor(settings, pool, seed=0), np.random.default_rng(0), []
    for visit, groups in enumerate(history.partition_by("visit", maintain_order=True)):
        rows = np.searchsorted(indices, groups["index"].to_numpy())
        solved, tried = (groups[column].to_numpy().astype(np.int64) for column in ("n_correct", "n"))
        if visit:
            p_success = predictor.forecast(rows, seed=visit).p_success
            untied = weighted_spearman(p_success + 1e-9 * rng.random(len(rows)), solved / tried, np.ones(len(rows)))
            judged.append({**forecast_quality(p_success, solved, tried), "spearman_untied": untied})
        predictor.observe(Observation(rows, solved, tried, np.full(len(rows), TOKENS)), seed=visit)
    thirds = [judged[part[0] : part[-1] + 1] for part in np.array_split(np.arange(len(judged)), 3)]
    return {key: [float(np.nanmean([one[key] for one in third])) for third in thirds] for key in judged[0]}
