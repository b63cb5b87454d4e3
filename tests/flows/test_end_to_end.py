"""From prompt files and five models' outcomes to a run that begins with what they teach: by commands alone."""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from scipy.special import expit
from scipy.stats import spearmanr

from flows.cli import main
from models.problems.countdown import make_problems

DATA = Path(os.environ.get("FOREROLL_DATA", Path(__file__).parents[3] / "shared" / "data"))
ATTEMPTS = 8
LEVEL = 0.8
"""Least Spearman of a forecast made from five other models; the latent difficulty itself would have about 0.95."""
REAL_MODELS = ("Qwen2-1.5B", "Qwen2-1.5B-Instruct", "Qwen2.5-1.5B", "Qwen2.5-Math-1.5B-Instruct")
UNSEEN = "Qwen2.5-Math-1.5B"


def foreroll(*words: str | Path) -> str:
    """What a command prints; it must succeed."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def table(*words: str | Path) -> list[dict[str, str]]:
    """The rows that a command prints as CSV."""
    return list(csv.DictReader(foreroll(*words, "--format", "csv").splitlines()))


def made_world() -> tuple[list[str], list[str], np.ndarray]:
    """Texts and answers of 100 games, and [model, game] how often each of six models wins: five, and the unseen one.

    What makes a game hard is the same for all, but for a part of its own that each model adds.
    """
    rng = np.random.default_rng(3)
    games = make_problems(100, split="pool", min_numbers=3, max_numbers=4, seed=5)
    difficulty = rng.normal(0.0, 1.5, len(games))
    abilities = np.array([0.8, -1.5, 1.5, -0.5, 0.0, 0.3])[:, None]
    rates = expit(abilities - difficulty + rng.normal(0.0, 0.4, (6, len(games))))
    return [game.text for game in games], [game.answer for game in games], rates


def add_games(store: Path, folder: Path, name: str, texts: Sequence[str], answers: Sequence[str]) -> None:
    file = folder / f"{name}.jsonl"
    rows = [{"question": text, "answer": answer} for text, answer in zip(texts, answers, strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "reward countdown" in foreroll("prompts", "add", file, "--name", name, "--store", store)


def spearman_of(rows: Sequence[dict[str, str]], truth: dict[str, float]) -> float:
    """Of forecasts with true rates; 0 where all forecasts are one."""
    p = [float(row["p_success"]) for row in rows]
    assert len(p) == len(truth)
    return float(spearmanr(p, [truth[row["prompt_id"]] for row in rows]).statistic) if np.ptp(p) > 0 else 0.0


@pytest.mark.usefixtures("prefect_server")
def test_five_models_outcomes_teach_what_is_hard_for_a_sixth(tmp_path: Path) -> None:
    store, (texts, answers, rates) = tmp_path / "store", made_world()
    add_games(store, tmp_path, "games", texts, answers)
    add_games(store, tmp_path, "others", ["1 2 3 -> 6"], ['{"numbers": [1, 2, 3], "target": 6}'])
    for model, successes in enumerate(np.random.default_rng(4).binomial(ATTEMPTS, rates[:5])):
        file = tmp_path / f"model-{model}.csv"
        lines = [f"{text},{won},{ATTEMPTS}" for text, won in zip(texts, successes, strict=True)]
        file.write_text("\n".join(["question,successes,attempts", *lines]) + "\n")
        words = ("--dataset", "games", "--run", file.stem, "--store", store)
        assert "imported run" in foreroll("history", "import", file, *words)
    named = ("--predictor", "foreroll", "--predictor", "last", "--publish", "base", "--store", store)
    assert "foreroll is version 1 of base, promoted to @best: it is the first" in foreroll("replay", *named)

    told = table("sql", "--store", store, "select prompt_id, text from prompts where dataset = 'games'")
    unseen = dict(zip(texts, rates[5].tolist(), strict=True))
    truth = {row["prompt_id"]: unseen[row["text"]] for row in told}
    forecast = table("forecast", "--prompts", "games", "--predictor", "base@best", "--store", store)
    assert spearman_of(forecast, truth) > LEVEL

    for run, start in (("warm", ["--set", "predictor.from=base@best"]), ("cold", [])):
        foreroll("train", "--store", store, "--run", run, "--steps", "1", *SMALL, *start)
    first = "select prompt_id, p_success from forecasts where step = 1 and run_id ="
    warm, cold = (table("sql", "--store", store, f"{first} '{run}'") for run in ("warm", "cold"))
    assert {row["prompt_id"]: float(row["p_success"]) for row in warm} == pytest.approx(
        {row["prompt_id"]: float(row["p_success"]) for row in forecast}, abs=1e-6
    )
    assert spearman_of(cold, truth) < LEVEL / 2 < LEVEL < spearman_of(warm, truth)


SMALL = [
    word
    for value in (
        "threads=1",
        "prompts.train=games",
        "prompts.heldout=others",
        "sampling.group_size=4",
        "sampling.max_tokens=16",
        "evaluation.every=0",
        "predictor=foreroll",
        "predictor.past=none",
        "acquisition.batch_size=4",
    )
    for word in ("--set", value)
]
"""Options of a small run that reads no other run, so that all it knows is what it begins with."""


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no {DATA}: set FOREROLL_DATA to the public test data")
def test_four_real_models_outcomes_teach_what_is_hard_for_a_fifth(tmp_path: Path) -> None:
    """Success rates of MATH's test problems."""
    store, rates = tmp_path / "store", DATA / "math_success_rates.parquet"
    chosen = ("--where", "split=test", "--store", store)
    foreroll("prompts", "add", DATA / "math_prompts.parquet", "--name", "math", "--skip-bad", *chosen)
    for model in REAL_MODELS:
        words = ("--dataset", "math", "--run", model.lower().replace(".", "-"))
        only = ("--where", f"model=Qwen/{model}", "--where", "temperature=1.0")
        foreroll("history", "import", rates, *words, *only, *chosen)
    replayed = foreroll("replay", "--predictor", "foreroll", "--publish", "math", "--store", store)
    assert "foreroll is version 1 of math, promoted to @best: it is the first" in replayed
    unseen = pl.read_parquet(rates).filter(
        pl.col("model") == f"Qwen/{UNSEEN}", pl.col("split") == "test", (pl.col("temperature") - 1.0).abs() < 1e-6
    )
    share = dict(zip(unseen["index"].to_list(), (unseen["n_correct"] / unseen["k"]).to_list(), strict=True))
    query = "select prompt_id, tags->>'index' as place from prompts where dataset = 'math'"
    truth = {row["prompt_id"]: share[int(row["place"])] for row in table("sql", "--store", store, query)}
    forecast = table("forecast", "--prompts", "math", "--predictor", "math@best", "--store", store)
    assert spearman_of(forecast, truth) > 0.75
