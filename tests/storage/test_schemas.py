"""Columns that are stored once keep their names and types for ever."""

import pyarrow as pa
import pytest

from storage.schemas import EMBEDDINGS, HISTORY, PROMPTS, SCHEMA_VERSION

KEYS = "run_id string, step int64"
VERSION_1 = {
    "forecasts": f"{KEYS}, prompt_id string, predictor string, p_success float, p_sd float, expected_tokens float",
    "acquisitions": f"{KEYS}, round int32, prompt_id string, utility float, diversity float, propensity double, "
    "decision string, rank int32",
    "tokens": f"{KEYS}, round int32, group_id string, sample int32, prompt_token_ids list<item: int32>, "
    "token_ids list<item: int32>, logprobs list<item: float>",
    "rollouts": f"{KEYS}, round int32, prompt_id string, group_id string, sample int32, attempt int32, "
    "policy_version int64, engine string, response string, prompt_tokens int32, response_tokens int32, "
    "finish_reason string, sampling string",
    "rewards": f"{KEYS}, round int32, group_id string, sample int32, reward double, success bool, "
    "reward_status string, reward_parts string, admitted bool, reject_reason string",
    "updates": f"{KEYS}, policy_version int64, loss double, kl double, entropy double, grad_norm double, "
    "clip_fraction double, lr double, tokens int64, groups int32, informative_groups int32, skipped string",
    "predictor_updates": f"{KEYS}, predictor string, groups int32, spearman double, brier double, nll double, "
    "ece double, loss_parts string",
    "evaluations": f"{KEYS}, prompts string, prompt_id string, samples int32, successes int32, tokens int64",
    "steps": f"{KEYS}, epoch int64, committed_at timestamp[us, tz=UTC], policy_version int64, rounds int32, "
    "candidates int64, groups int32, informative_groups int32, rollouts int64, successes int64, "
    "prompt_tokens int64, response_tokens int64, predict_seconds double, acquire_seconds double, "
    "generate_seconds double, score_seconds double, update_policy_seconds double, update_predictor_seconds double, "
    "evaluate_seconds double, "
    "files list<item: struct<path: string, rows: int64, bytes: int64, sha256: string>>",
}


def described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


@pytest.mark.parametrize("name", VERSION_1)
def test_the_columns_of_version_1_keep_their_names_and_types(name: str) -> None:
    assert described(HISTORY[name]).startswith(VERSION_1[name])


def test_the_commit_record_comes_last() -> None:
    assert list(HISTORY)[-1] == "steps"
    assert set(HISTORY) == set(VERSION_1)


def test_every_file_says_by_which_version_it_was_written() -> None:
    for schema in (*HISTORY.values(), PROMPTS, EMBEDDINGS):
        assert schema.metadata == {b"foreroll.schema_version": str(SCHEMA_VERSION).encode()}
