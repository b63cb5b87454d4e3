"""The training flow, for real: Prefect, policy, Parquet and DuckDB."""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from transformers import AutoModelForCausalLM

from flows.cli import main
from flows.commands.train import resolve_config
from flows.config import TrainConfig, build_config, parse_assignments
from flows.train import train
from models.acquisition.informative import chance_informative
from models.policy.update import PolicyTrainer, skipped_update
from models.records import Forecast
from storage.catalog import query
from storage.checkpoints import checkpoint_steps
from storage.errors import MismatchError, StoreError
from storage.layout import Layout
from storage.runs import Run, read_run, write_run
from tasks.opening import RunStopped, open_workbench
from tasks.report import build_report, example_commands, report_lines
from tasks.runs import check_plan
from tests.flows.small_run import POOL, STEPS, make_store, small_config

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Path:
    """A store with one finished run, `small`."""
    store = make_store(tmp_path_factory.mktemp("trained") / "store")
    train(build_config(small_config(store)))
    return store


@pytest.fixture
def store_copy(store: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    shutil.copytree(store, tmp_path / "copy")
    return tmp_path / "copy"


def open_and_close(config: TrainConfig) -> None:
    """Begin or continue a run, and train no step of it."""
    with open_workbench(config.plan()):
        pass


def rows(store: Path, sql: str) -> list[dict[str, Any]]:
    return query(Layout(store), sql).to_pylist()


def test_sql_agrees_with_the_runs_own_counts(store: Path) -> None:
    counted = rows(store, "select count(*) as n, sum(success::int)::bigint as s from rollouts where run_id = 'small'")
    own = rows(
        store, "select sum(rollouts)::bigint as n, sum(successes)::bigint as s from steps where run_id = 'small'"
    )
    assert counted == own
    assert counted[0]["n"] > 0


def test_every_candidate_has_its_forecast_and_its_decision(store: Path) -> None:
    found = rows(
        store,
        "select step, count(*) as n, count(distinct prompt_id) as ids, count(decision) as decided, "
        "count_if(propensity > 0)::bigint as possible, count_if(p_success between 0 and 1)::bigint as probable "
        "from forecasts group by step order by step",
    )
    assert found == [
        {"step": step, "n": 64, "ids": 64, "decided": 64, "possible": 64, "probable": 64}
        for step in range(1, STEPS + 1)
    ]


def test_every_acquired_prompt_has_exactly_k_rollouts_and_no_other_prompt_has_any(store: Path) -> None:
    acquired = rows(
        store, "select step, prompt_id from forecasts where decision in ('acquired', 'explored') order by all"
    )
    rolled_out = rows(store, "select step, prompt_id from groups order by all")
    assert acquired == rolled_out
    assert {row["rollouts"] for row in rows(store, "select rollouts from groups")} == {4}
    assert rows(store, "select 1 from rollouts group by group_id, sample having count(*) > 1") == []


def test_every_round_explores_and_rounds_never_repeat_a_prompt(store: Path) -> None:
    found = rows(
        store,
        "select step, round, count(*) as n, count_if(decision = 'explored')::bigint as explored "
        "from groups group by all order by all",
    )
    assert {(row["n"], row["explored"]) for row in found} == {(4, 1)}
    assert max(row["round"] for row in found) == 1


def test_an_acquired_prompt_rests_for_five_steps(store: Path) -> None:
    again = rows(
        store,
        "select 1 from groups a join groups b using (run_id, prompt_id) where b.step > a.step and b.step <= a.step + 5",
    )
    resting = rows(
        store,
        "select 1 from groups g join forecasts f using (run_id, prompt_id) "
        "where f.step > g.step and f.step <= g.step + 5",
    )
    assert again == resting == []


def test_dynamic_sampling_trains_on_informative_groups_alone_and_says_why_it_left_others(store: Path) -> None:
    found = rows(store, "select informative, admitted, reject_reason, successes, valid from groups")
    assert {row["reject_reason"] for row in found} & {"all_wrong", "all_correct", "surplus"}
    for row in found:
        assert row["admitted"] == (row["reject_reason"] is None)
        if row["reject_reason"] == "all_wrong":
            assert row["successes"] == 0
        elif row["reject_reason"] == "all_correct":
            assert row["successes"] == row["valid"]
        else:
            assert row["informative"]


def test_tokens_belong_to_their_rollouts(store: Path) -> None:
    found = rows(
        store,
        "select count(*) as n, count_if(len(token_ids) = response_tokens)::bigint as lengths, "
        "count_if(len(logprobs) = len(token_ids))::bigint as logprobs, "
        "count_if(len(prompt_token_ids) = prompt_tokens)::bigint as prompts "
        "from tokens join rollouts using (run_id, step, group_id, sample)",
    )[0]
    assert found["n"] == found["lengths"] == found["logprobs"] == found["prompts"] > 0


def test_the_k_seeds_of_a_group_differ_and_policy_versions_count_updates(store: Path) -> None:
    seeds = rows(store, "select count(distinct sampling->>'seed') as n from rollouts group by group_id")
    assert {row["n"] for row in seeds} == {4}
    versions = rows(
        store,
        "select r.step, max(policy_version) as sampled_by, "
        "(select count(*) from updates u where u.step < r.step and u.skipped = '') as applied "
        "from rollouts r group by r.step",
    )
    assert all(row["sampled_by"] == row["applied"] for row in versions)


def test_forecasts_are_judged_before_they_are_learned_from(store: Path) -> None:
    judged = rows(store, "select step, groups, brier from predictor_updates order by step")
    again = rows(
        store,
        "select step, count(*)::int as groups, sum(weight * valid * "
        "(success_rate * (1 - p_success) ** 2 + (1 - success_rate) * p_success ** 2)) / sum(weight * valid) as brier "
        "from (select *, if(round = 0, 1 / propensity, 0) as weight from groups) group by step order by step",
    )
    for stored, computed in zip(judged, again, strict=True):
        assert stored["groups"] == computed["groups"]
        assert stored["brier"] == pytest.approx(computed["brier"], abs=1e-6)


def test_evaluations_come_before_the_first_step_on_schedule_and_at_the_end(store: Path) -> None:
    found = rows(
        store,
        "select step, count(*) as n, sum(samples)::bigint as samples from evaluations group by step order by step",
    )
    assert found == [{"step": step, "n": 8, "samples": 16} for step in (0, 3, 6)]


def test_checkpoints_open_with_transformers_and_old_ones_are_pruned(store: Path) -> None:
    steps = checkpoint_steps(Layout(store), "small")
    assert steps[-2:] == [4, 6] and len(steps) <= 3
    model = AutoModelForCausalLM.from_pretrained(Layout(store).checkpoint("small", 6) / "policy")
    assert model.num_parameters() > 1_000_000


def test_the_report_tells_the_run(store: Path) -> None:
    report = build_report(Layout(store), "small")
    lines = "\n".join(report_lines(report))
    for part in (
        "small: 6 steps",
        "held-out success",
        "informative",
        "rollouts",
        "forecasts",
        "all candidates",
        "history",
    ):
        assert part in lines
    for command in example_commands(report):
        program, *words = shlex.split(command)
        assert program == "foreroll"
        assert CliRunner().invoke(main, words).exit_code == 0


def test_prefect_shows_tasks_by_step_and_both_artifacts(store: Path) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        states = {run.state_name for run in client.read_flow_runs() if run.name == "train-small"}
        names = {run.name for run in client.read_task_runs()}
        artifacts = {artifact.key for artifact in client.read_artifacts()}
    assert "Completed" in states
    stages = (
        "predict_difficulty",
        "acquire_batch",
        "generate_rollouts",
        "score_rewards",
        "update_policy",
        "update_predictor",
    )
    assert {f"{stage} 1" for stage in stages} <= names
    assert {"training-progress", "training-summary"} <= artifacts


def test_the_same_seed_gives_the_same_history_and_another_seed_another(store: Path, tmp_path: Path) -> None:
    config = small_config(make_store(tmp_path / "store"), steps=1)
    train(build_config(config))
    train(build_config({**config, "run": "other", "seed": 1}))
    columns = "select prompt_id, sample, response from rollouts where step = 1 and run_id = '{}' order by all"
    first = rows(store, columns.format("small"))
    assert rows(tmp_path / "store", columns.format("small")) == first
    assert rows(tmp_path / "store", columns.format("other")) != first


def test_the_utility_is_of_the_runs_own_group_size_and_null_where_a_rule_saw_nothing(tmp_path: Path) -> None:
    acquisition = {"name": "informative", "lookahead": 0, "batch_size": 4, "candidates": 64}
    acquisition |= {"retain": 0.25, "retain_above": 0.5}
    config = small_config(make_store(tmp_path / "store"), steps=2, predictor="kalman", acquisition=acquisition)
    train(build_config(config))
    found = rows(tmp_path / "store", "select p_success, p_sd, utility, decision from forecasts where step = 2")
    assert {row["decision"] for row in found} == {"acquired", "explored", "too_easy", "not_chosen"}
    for row in found:
        assert (row["utility"] is None) >= (row["decision"] == "too_easy")
        if row["utility"] is not None:
            forecast = Forecast(np.array([row["p_success"]]), np.array([row["p_sd"]]), np.array([1.0]))
            assert chance_informative(forecast, 4) == pytest.approx([row["utility"]], abs=1e-5)


def test_commands_read_a_finished_run(store: Path) -> None:
    def output(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, "--store", str(store)])
        assert result.exit_code == 0, result.output
        return result.output

    assert "small" in output("runs") and "finished" in output("runs")
    assert "checkpoints" in output("runs", "small")
    assert "small-pool" in output("prompts", "list")
    prompt = rows(store, "select prompt_id from groups limit 1")[0]["prompt_id"]
    assert prompt in output("prompts", "list", "small-pool")
    shown = output("prompts", "show", prompt[:20])
    assert "responses of run small" in shown and prompt in shown
    assert "0 problems" in output("doctor")


def test_a_finished_run_goes_on_by_more_steps_and_from_its_own_config(store: Path, tmp_path: Path) -> None:
    config = small_config(make_store(tmp_path / "store"), steps=1)
    train(build_config(config))
    again = resolve_config({}, {"store": str(tmp_path / "store"), "run": "small", "steps": 2})
    assert again.sampling.group_size == 4
    train(again)
    found = read_run(Layout(tmp_path / "store"), "small")
    assert found is not None and (found.target, found.state, found.epoch) == (3, "finished", 2)
    assert len(rows(tmp_path / "store", "select 1 from steps")) == 4


def test_a_changed_config_is_refused_with_the_differences(store: Path) -> None:
    config = build_config(small_config(store, update={"lr": 1e-3, "minibatches": 2, "token_budget": 256}))
    with pytest.raises(
        StoreError, match=r"run small has another config: update\.lr was 0\.0001, now 0\.001\. .*fork it"
    ):
        check_plan(config.plan())


@pytest.mark.parametrize("predictor", ["gps", "kalman"])
def test_a_setting_that_is_younger_than_the_run_counts_as_its_default(tmp_path: Path, predictor: str) -> None:
    config = small_config(make_store(tmp_path / "store"), predictor=predictor)
    plan, layout = build_config(config).plan(), Layout(tmp_path / "store")
    stored = {**plan.config, "acquisition": {**plan.config["acquisition"]}, "predictor": {"name": predictor}}
    del stored["overlong"], stored["acquisition"]["cooldown"]
    pins = {"threads": 1, "datasets": {}}
    write_run(layout, Run("small", stored, pins, created_at="", target=6, epoch=1))
    check_plan(plan)
    config["acquisition"]["cooldown"] = 3
    with pytest.raises(StoreError, match=r"run small has another config: acquisition\.cooldown was 5, now 3\. "):
        check_plan(build_config(config).plan())


def fork(store: Path, source: str, **changes: Any) -> TrainConfig:
    """What `foreroll train --run forked --from SOURCE` resolves to."""
    return resolve_config({}, {"store": str(store), "run": "forked", "fork_from": source, "steps": 1, **changes})


def test_a_fork_begins_with_the_other_runs_checkpoint(store_copy: Path) -> None:
    config = fork(store_copy, "small@4", update={"lr": 1e-5})
    assert config.sampling.group_size == 4
    train(config)
    layout = Layout(store_copy)
    parent, child = (layout.checkpoint(run, step) / "policy" for run, step in (("small", 4), ("forked", 0)))
    assert (parent / "model.safetensors").read_bytes() == (child / "model.safetensors").read_bytes()
    found = read_run(layout, "forked")
    assert found is not None and found.forked_from == {"run": "small", "step": 4}


def test_a_fork_goes_on_whatever_became_of_its_parent_since(store_copy: Path) -> None:
    layout = Layout(store_copy)
    open_and_close(fork(store_copy, "small@4"))
    shutil.rmtree(layout.checkpoint("small", 4))
    for source in ("small@4", "small"):
        check_plan(fork(store_copy, source).plan())
    check_plan(resolve_config({}, {"store": str(store_copy), "run": "forked"}).plan())
    for source in ("small@6", "other", "forked"):
        with pytest.raises(StoreError, match=f"run forked exists and was not forked from {source}: choose another"):
            check_plan(fork(store_copy, source).plan())
    shutil.rmtree(layout.checkpoints("forked"))
    with pytest.raises(StoreError, match=r"run forked has no checkpoint yet, .* run small at step 4, .* is gone"):
        open_and_close(fork(store_copy, "small"))


def test_a_fork_has_its_parents_weights_and_needs_no_base_model(store_copy: Path) -> None:
    layout = Layout(store_copy)
    with pytest.raises(StoreError, match=r"cannot fork small with policy\.model = smollm2: .* countdown-tiny's"):
        check_plan(fork(store_copy, "small", policy={"model": "smollm2"}).plan())
    parent = read_run(layout, "small")
    assert parent is not None
    policy = {**parent.config["policy"], "model": "/a/folder/that/is/gone"}
    write_run(layout, replace(parent, config={**parent.config, "policy": policy}))
    open_and_close(fork(store_copy, "small"))
    assert checkpoint_steps(layout, "forked") == [0]


def test_a_parent_that_is_damaged_is_named(store_copy: Path) -> None:
    layout = Layout(store_copy)
    newest = layout.checkpoint("small", 6)
    (newest / "policy" / "model.safetensors").write_bytes(b"")
    with pytest.raises(StoreError, match=f"checkpoint {newest} is damaged .*: delete it, and the one before is used"):
        open_and_close(fork(store_copy, "small"))
    shutil.rmtree(newest)
    layout.run_file("small").unlink()
    with pytest.raises(StoreError, match=r"cannot fork small: .*small\.json is missing: restore it"):
        check_plan(build_config(small_config(store_copy, run="forked", fork_from="small")).plan())


@pytest.mark.parametrize(
    ("predictor", "warnings"), [({"lr": 0.01}, 0), ({"width": 32}, 1), ({"latent": 8}, 1), ({"name": "mopps"}, 1)]
)
def test_a_fork_takes_its_parents_predictor_over_where_it_fits_and_else_says_that_it_starts_fresh(
    store_copy: Path, caplog: pytest.LogCaptureFixture, predictor: dict[str, Any], warnings: int
) -> None:
    changes = parse_assignments(f"predictor.{key}={value}" for key, value in predictor.items())
    for _ in range(2):
        with open_workbench(fork(store_copy, "small", **changes).plan()) as (bench, _):
            assert (bench.predictor.state_dict()["visits"].sum() == 0) == bool(warnings)
    said = [message for message in caplog.messages if "starts fresh" in message]
    assert len(said) == warnings


def test_replaying_another_history_than_was_computed_stops_the_run(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    config = build_config(small_config(store, steps=1, checkpoint={"every": 100}))
    train(config)
    layout = Layout(store)
    shutil.rmtree(layout.checkpoint("small", 1))
    update = layout.part("updates", "small", 1)
    table = pq.ParquetFile(update).read()
    changed = table.set_column(table.schema.get_field_index("loss"), "loss", pa.array([0.25]))
    pq.write_table(changed, update)
    with pytest.raises(MismatchError, match="differs in loss from what this process computed"):
        train(config)


def test_held_out_prompts_that_are_trained_on_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prompts = {"train": POOL, "heldout": POOL}
    train(build_config(small_config(make_store(tmp_path / "store"), steps=1, prompts=prompts)))
    assert "200 prompts of small-pool are also in small-pool" in caplog.text


def test_a_run_whose_updates_stay_non_finite_stops_and_names_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = skipped_update("loss is nan")
    monkeypatch.setattr(PolicyTrainer, "update", lambda self, samples, *, seed: broken)
    config = build_config(small_config(make_store(tmp_path / "store")))
    with pytest.raises(RunStopped, match=r"3 policy updates in a row were skipped \(loss is nan\); mend it with"):
        train(config)
    assert len(rows(tmp_path / "store", "select 1 from updates where skipped = 'loss is nan'")) == 3
    with pytest.raises(StoreError, match="run small was stopped: run small stopped after step 3"):
        check_plan(config.plan())
