"""Real prompt files and histories, brought in by commands; their folder is FOREROLL_DATA."""

import json
import os
from pathlib import Path

import polars as pl
import pytest

from storage.prompts import read_dataset
from storage.queries import run_totals
from storage.store import open_store
from tests.flows.test_import_commands import foreroll

DATA = Path(os.environ.get("FOREROLL_DATA", Path(__file__).parents[3] / "shared" / "data"))
pytestmark = pytest.mark.skipif(
    not (DATA / "prompts").is_dir(), reason=f"no {DATA / 'prompts'}: set FOREROLL_DATA to the public test data"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the tests of this file add to."""
    folder = tmp_path_factory.mktemp("real") / "store"
    open_store(folder, create=True)
    return folder


def add(store: Path, file: str, name: str, *options: str) -> str:
    result = foreroll("prompts", "add", DATA / file, "--name", name, "--store", store, *options)
    assert result.exit_code == 0, result.output
    return result.output


def ids(store: Path, name: str) -> list[str]:
    found: list[str] = read_dataset(open_store(store), name)["prompt_id"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("file", "prompts", "reward"),
    [
        ("cmath.jsonl", 600, "none"),
        ("math500.jsonl", 500, "none"),
        ("mopps_test_amc.json", 83, "arithmetic"),
        ("verl_aime24.parquet", 30, "arithmetic"),
        ("verl_countdown_2k.parquet", 2000, "countdown"),
        ("verl_kk_test_chat_tokens.parquet", 700, "none"),
        ("verl_zebra_test.parquet", 276, "none"),
    ],
)
def test_prompt_files_of_many_layouts_are_added_without_being_told(
    store: Path, file: str, prompts: int, reward: str
) -> None:
    name = file.partition(".")[0].replace("_", "-")
    output = add(store, f"prompts/{file}", name)
    assert f"added dataset {name}: {prompts:,} prompts" in output and f"reward {reward}" in output
    table = read_dataset(open_store(store), name)
    assert not any("<|im_" in text or "Assistant: <think>" in text[-40:] for text in table["text"].to_pylist()) or (
        file == "verl_zebra_test.parquet"  # its puzzles have no `User:` to tell them from the rest
    )


def test_one_problem_has_one_identity_in_every_layout(store: Path) -> None:
    add(store, "prompts/gsm8k_test.jsonl", "gsm8k")
    add(store, "prompts/verl_gsm8k_test.parquet", "gsm8k-verl")
    assert ids(store, "gsm8k") == ids(store, "gsm8k-verl")
    answers = [read_dataset(open_store(store), name)["answer"].to_pylist() for name in ("gsm8k", "gsm8k-verl")]
    assert [one.replace(",", "") for one in answers[0]] == [one.replace(",", "") for one in answers[1]]


def test_countdown_of_verl_is_what_its_verifier_reads(store: Path) -> None:
    from models.rewards.countdown import verify_countdown

    add(store, "prompts/verl_countdown_2k.parquet", "games")
    rows = read_dataset(open_store(store), "games").to_pylist()
    assert rows[0]["text"].startswith("Using the numbers [44, 19, 35], create an equation that equals 98.")
    assert rows[0]["system"].startswith("A conversation between User and Assistant.")
    assert verify_countdown("<answer>44 + 19 + 35</answer>", rows[0]["answer"]).success
    assert json.loads(rows[0]["tags"])["index"] == 0


def test_rows_that_break_loaders_are_kept_or_named_and_none_is_lost(store: Path) -> None:
    result = foreroll("prompts", "check", DATA / "nasty_prompts.jsonl", "--store", store)
    assert result.exit_code == 1
    rows = [json.loads(line) for line in (DATA / "nasty_prompts.jsonl").read_text().split("\n") if line]
    kinds = {number: row["kind"] for number, row in enumerate(rows, start=1)}
    section = result.output.partition("rows cannot be used:\n")[2].splitlines()
    named = {int(line.split(":")[1]): line.split(": ", 1)[1] for line in section}
    assert {kinds[number] for number, reason in named.items() if reason == "the answer is empty"} == {"answer_empty"}
    assert {kinds[number] for number, reason in named.items() if reason == "the answer is null"} == {"answer_none"}
    unusable = {"answer_empty", "answer_none", "control_char", "duplicate_prompt_conflicting_answer"}
    assert all(number in named for number, kind in kinds.items() if kind in unusable)
    assert {kinds[number] for number in named} <= {*unusable, "answer_list", "prompt_long"}
    added = add(store, "nasty_prompts.jsonl", "nasty", "--skip-bad")
    stored = len(ids(store, "nasty"))
    repeats = int(added.partition(" rows repeat a problem")[0].rpartition("\n")[2]) if "rows repeat" in added else 0
    assert stored + repeats + len(named) == len(rows) == 150


def test_success_rates_of_a_model_are_what_the_file_says(store: Path) -> None:
    output = add(store, "math_prompts.parquet", "math", "--skip-bad", "--where", "split=test")
    assert "5,000 rows" in output
    model = "Qwen/Qwen2.5-Math-1.5B"
    result = foreroll(
        "history", "import", DATA / "math_success_rates.parquet", "--dataset", "math", "--run", "qwen",
        "--where", "split=test", "--where", f"model={model}", "--where", "temperature=0.6", "--store", store,
    )  # fmt: skip
    assert result.exit_code == 0 and "prompt's tag index <- index" in result.output
    prompts = (
        pl.read_parquet(DATA / "math_prompts.parquet")
        .filter(split="test")
        .with_columns(pl.col("prompt").str.strip_chars())
    )
    prompts = prompts.unique("prompt", keep="first").filter(pl.col("answer").str.strip_chars() != "")
    rates = pl.read_parquet(DATA / "math_success_rates.parquet").filter(
        pl.col("model") == model, (pl.col("temperature") - 0.6).abs() < 1e-6
    )
    truth = rates.join(prompts, on=["split", "index"])
    totals = run_totals(open_store(store), "qwen")
    assert totals["groups"] == len(truth)
    assert totals["rollouts"] == truth["k"].sum() and totals["successes"] == truth["n_correct"].sum()
    several = foreroll(
        "history", "import", DATA / "math_success_rates.parquet", "--dataset", "math", "--run", "all", "--store", store
    )
    assert several.exit_code == 2 and "values of model" in several.output


def test_a_reinforcement_learning_history_is_matched_by_index(store: Path) -> None:
    add(store, "rl_history_1p5b_prompts_verl.parquet", "dsr", "--skip-bad")
    result = foreroll(
        "history", "import", DATA / "rl_history_1p5b.parquet", "--dataset", "dsr", "--run", "grpo",
        "--map", "step=visit", "--store", store,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "steps count from 0 in the file, and from 1 here" in result.output
    kept = {json.loads(tags)["index"] for tags in read_dataset(open_store(store), "dsr")["tags"].to_pylist()}
    truth = pl.read_parquet(DATA / "rl_history_1p5b.parquet").filter(pl.col("index").is_in(kept))
    totals = run_totals(open_store(store), "grpo")
    assert (totals["groups"], totals["successes"]) == (len(truth), truth["n_correct"].cast(pl.Int64).sum())
    assert totals["steps"] == truth["visit"].max() + 1


def test_responses_of_whole_groups_are_matched_by_text(store: Path) -> None:
    add(store, "math_prompts.parquet", "math-all", "--skip-bad")
    result = foreroll(
        "history", "import", DATA / "rollouts" / "math_cot_100x8.jsonl", "--dataset", "math-all", "--run", "cot",
        "--store", store,
    )  # fmt: skip
    assert "100 rows, 100 matched to prompts of math-all" in result.output, result.output
    rows = [json.loads(line) for line in (DATA / "rollouts" / "math_cot_100x8.jsonl").read_text().split("\n") if line]
    totals = run_totals(open_store(store), "cot")
    assert (totals["rollouts"], totals["successes"]) == (800, sum(sum(row["score"]) for row in rows))
