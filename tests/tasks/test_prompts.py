"""The prompts of a run: what is cached of them."""

import logging
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pyarrow as pa
import pytest

from flows.config import build_config
from models.difficulty import PREDICTORS, build_predictor
from models.embeddings import WordllamaEncoder
from models.errors import ModelError
from models.policy.loading import Policy, load_policy
from models.records import Pool, Prompt
from models.settings import AcquisitionSettings, MoppsSettings, PredictorSettings, TrainSettings
from storage.layout import Layout
from storage.prompts import write_dataset
from storage.schemas import PAST
from storage.store import open_store
from tasks.prompts import make_pool, read_or_make_embeddings, tokenise
from tasks.workbench import TokenisedPrompts


def make_prompts(*texts: str) -> TokenisedPrompts:
    prompts = [Prompt(f"id of {text}", (("user", text),), answer="", reward="countdown") for text in texts]
    return TokenisedPrompts("toy", prompts, [(1,)] * len(texts))


@pytest.mark.parametrize("other", [("3 4 -> 7", "1 2 -> 3"), ("1 2 -> 3",), ("1 2 -> 3", "5 6 -> 11")])
def test_cached_embeddings_of_other_prompts_or_another_order_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: tuple[str, ...]
) -> None:
    layout, settings, ours = Layout(tmp_path), TrainSettings(), make_prompts("1 2 -> 3", "3 4 -> 7")
    expected = WordllamaEncoder().encode(["1 2 -> 3", "3 4 -> 7"])
    read_or_make_embeddings(layout, settings, make_prompts(*other))
    with caplog.at_level(logging.WARNING):
        made = read_or_make_embeddings(layout, settings, ours)
        assert len(caplog.messages) == 1
        cached = read_or_make_embeddings(layout, settings, ours)
    file = layout.embeddings(WordllamaEncoder().name, "toy")
    assert caplog.messages == [f"{file} is of other prompts; set aside as toy.parquet.unreadable and made again"]
    assert made is not None and cached is not None and cached.dtype == np.float32
    assert made.tobytes() == cached.tobytes() == expected.tobytes()
    cached[0, 0] = 0.0  # torch wants memory that it may write to


def test_embeddings_are_made_only_where_they_are_read(tmp_path: Path) -> None:
    prompts, mopps = make_prompts("1 2 -> 3"), MoppsSettings()
    blind = TrainSettings(predictor=mopps, acquisition=AcquisitionSettings(name="uniform"))
    assert read_or_make_embeddings(Layout(tmp_path), blind, prompts) is None
    assert list(tmp_path.rglob("*.parquet")) == []
    diverse = TrainSettings(predictor=mopps, acquisition=AcquisitionSettings(name="gps"))
    assert read_or_make_embeddings(Layout(tmp_path), diverse, prompts) is not None


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_predictors_are_given_all_that_they_are_built_from(tmp_path: Path, predictor: str) -> None:
    settings = build_config({"predictor": predictor, "acquisition": {"name": "uniform"}}).settings()
    embeddings = read_or_make_embeddings(Layout(tmp_path), settings, make_prompts("1 2 -> 3", "3 4 -> 7"))
    assert (embeddings is not None) == (predictor in ("depo", "dots", "foreroll", "gp", "gps"))
    pool = Pool(("a", "b"), embeddings, ("x", "y"), hidden=lambda rows: np.zeros((len(rows), 4), np.float32))
    forecast = build_predictor(settings.predictor, pool, seed=0).forecast(np.arange(2), seed=0)
    assert np.isfinite(forecast.p_success).all()


@pytest.mark.parametrize("predictor", [name for name in PREDICTORS if name != "sec"])  # whose dataset must be stored
def test_only_a_predictor_that_reads_the_past_is_given_it(tmp_path: Path, predictor: str) -> None:
    settings = build_config({"predictor": predictor, "acquisition": {"name": "uniform"}}).settings()
    row = {"run_id": "a", "step": 1, "prompt_id": "id of 3 4 -> 7", "successes": 1, "valid": 4, "mean_tokens": 2.0}
    past = pa.Table.from_pylist([row], PAST)
    prompts, policy = make_prompts("1 2 -> 3", "3 4 -> 7"), cast(Policy, None)
    pool = make_pool(Layout(tmp_path), settings, prompts, policy, past)
    if predictor == "foreroll":
        assert pool.past is not None and pool.past.row.tolist() == [1]
    else:
        assert pool.past is None


def test_every_predictor_that_settings_can_name_can_be_built() -> None:
    assert sorted(PREDICTORS) == sorted(one().name for one in get_args(PredictorSettings))


def test_a_prompt_without_a_token_is_named(tmp_path: Path) -> None:
    tiny = load_policy("countdown-tiny")
    tiny.tokenizer.chat_template = "{{ messages[0].content }}"
    row = {
        "messages": [("user", "")],
        "answer": "3",
        "reward": "countdown",
        "system": "",
        "instruction": "",
        "tags": "{}",
    }
    layout = open_store(tmp_path / "store", create=True)
    write_dataset(layout, "toy", [row])
    settings = build_config({"prompts": {"train": "toy", "template": "chat"}}).settings()
    with pytest.raises(ModelError, match=r"dataset toy: prompt \w+ is empty"):
        tokenise(layout, settings, "toy", tiny)
