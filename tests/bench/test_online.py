import importlib
import json
import math
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from storage.layout import Layout

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_bench("online", monkeypatch)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_bench("online_report", monkeypatch)


def import_bench(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module(name)


def make_curve(report: ModuleType, *success: float) -> Any:
    """100 rollouts between two measurements; success on problems of 3 numbers, and none on those of 4."""
    spent = 100.0 * np.arange(len(success))
    by_numbers = {3: np.array(success), 4: np.zeros(len(success))}
    return report.Curve(by_numbers, dict.fromkeys(report.COSTS, spent))


def make_target(report: ModuleType, success: float) -> Any:
    return report.Target({3: 1.0}, success)


def test_the_target_is_met_between_two_measurements_or_never(report: ModuleType) -> None:
    curve = make_curve(report, 0.10, 0.14, 0.12, 0.20)
    assert curve.cost(make_target(report, 0.13), "rollouts") == pytest.approx(75.0)
    assert curve.cost(make_target(report, 0.17), "tokens") == pytest.approx(200.0 + 100.0 * 5 / 8)
    assert curve.cost(make_target(report, 0.10), "seconds") == 0.0
    assert curve.cost(make_target(report, 0.21), "rollouts") == math.inf
    assert curve.cost(report.Target({3: 0.5, 4: 0.5}, 0.065), "rollouts") == pytest.approx(75.0)


def test_a_sweep_takes_the_median_of_the_seeds(report: ModuleType) -> None:
    curves = {("ours", seed): make_curve(report, 0.0, end) for seed, end in enumerate((0.1, 0.2, 0.4))}
    (found,) = report.sweep(curves, report.Target({3: 1.0}, 0.1, (0.3, 0.2)))
    assert found["rollouts"] == {0.1: pytest.approx(50.0), 0.2: pytest.approx(100.0), 0.3: math.inf}


def test_ratios_are_paired_by_seed_and_never_flatter_an_arm(report: ModuleType) -> None:
    quick, slow, never = (make_curve(report, 0.0, *rest) for rest in ((0.2, 0.2), (0.1, 0.2), (0.0, 0.0)))
    curves = {("ours", 1): quick, ("theirs", 1): slow, ("ours", 2): quick, ("ours", 3): never, ("theirs", 3): quick}

    def ratio(*seeds: int) -> float:
        some = {key: curve for key, curve in curves.items() if key[1] in seeds}
        return float(report.paired_ratio(some, "ours", "theirs", make_target(report, 0.1), "rollouts"))

    assert ratio(1) == pytest.approx(50.0 / 100.0)
    assert ratio(1, 2) == ratio(1)
    assert ratio(3) == math.inf
    curves["theirs", 2] = never
    assert ratio(2) == pytest.approx(50.0 / 200.0)
    assert math.isnan(ratio())
    curves["theirs", 1] = make_curve(report, 0.1, 0.2)
    assert math.isnan(ratio(1))


def test_the_paired_interval_is_that_of_a_paired_t_test(report: ModuleType) -> None:
    ends = np.random.default_rng(0).uniform(size=(2, 5))
    curves = {
        (arm, seed): make_curve(report, 0.0, ends[row, seed])
        for row, arm in enumerate(("ours", "theirs"))
        for seed in range(5)
    }
    mean, half = report.paired_difference(curves, "ours", "theirs", make_target(report, 1.0), 100.0)
    interval = stats.ttest_rel(ends[0], ends[1]).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((interval.low, interval.high))


def test_pool_and_heldout_share_no_problem_and_are_mostly_out_of_reach(online: ModuleType) -> None:
    counts = {2: 5, 3: 10, 4: 25, 5: 60}
    pool, heldout = online.problems("pool", counts, seed=10), online.problems("heldout", counts, seed=20)
    keys = [{(tuple(sorted(json.loads(one.answer)["numbers"])), json.loads(one.answer)["target"]) for one in part}
            for part in (pool, heldout)]  # fmt: skip
    assert not keys[0] & keys[1]
    found = [one.tags["numbers"] for one in pool]
    assert Counter(found) == counts
    assert found != sorted(found)


def test_weights_of_a_target_add_up_to_one(online: ModuleType) -> None:
    for target in online.TARGETS.values():
        assert sum(target.weights.values()) == pytest.approx(1.0)
        assert target.weights.keys() <= online.HELDOUT_NUMBERS.keys()


def test_a_warm_arm_reads_the_cold_run_of_the_seed_before_alone(online: ModuleType, tmp_path: Path) -> None:
    def past(name: str) -> str:
        return str(online.make_config(tmp_path, name, online.ARMS[name], 3, 40).predictor.past)

    assert past("foreroll warm") == online.run_name("foreroll", 2)
    assert past("foreroll") == "none"


def test_arms_differ_in_how_prompts_are_chosen_alone(online: ModuleType, tmp_path: Path) -> None:
    configs = {name: online.make_config(tmp_path, name, arm, 1, 40).identity() for name, arm in online.ARMS.items()}
    uniform = configs["uniform"]
    for config in configs.values():
        changed = {key for key in config.keys() | uniform.keys() if config.get(key) != uniform.get(key)}
        assert {key.split(".")[0] for key in changed} <= {"predictor", "acquisition", "dynamic_sampling"}


@pytest.mark.slow
def test_a_finished_run_is_not_made_again_and_its_figures_are_those_of_its_files(
    online: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {2: 20, 3: 20, 4: 20, 5: 40}
    monkeypatch.setitem(online.BUILTIN, online.POOL, lambda: online.problems("pool", small, seed=10))
    arms = {"uniform": online.Arm(online.ARMS["uniform"].settings, steps=2, every=2)}
    for _ in range(2):
        online.train_all(tmp_path, arms, seeds=1, heldout=40)
    assert capsys.readouterr().out.splitlines() == ["uniform.1"]
    figures, _ = online.report(Layout(tmp_path), arms, seeds=1)
    (found,) = figures["diagnostics"]

    def read(table: str) -> list[dict[str, Any]]:
        paths = sorted(tmp_path.glob(f"history/{table}/*/*/*"))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    lengths = [row["response_tokens"] for row in read("rollouts")]
    assert (found["all rollouts"], found["all tokens"]) == (len(lengths), sum(lengths))
    visited = [row["prompt_id"] for row in read("acquisitions") if row["decision"] in ("acquired", "explored")]
    assert found["distinct"] == len(set(visited))
    assert found["distinct"] + found["repeats"] == len(visited) == 32
    (dataset,) = tmp_path.glob(f"prompts/{online.HELDOUT}/*")
    numbers = {row["prompt_id"]: json.loads(row["tags"])["numbers"] for row in pq.read_table(dataset).to_pylist()}
    for count in online.HELDOUT_NUMBERS:
        solved = [
            row["successes"] for row in read("evaluations") if row["step"] == 2 and numbers[row["prompt_id"]] == count
        ]
        assert found[f"success, {count}"] == pytest.approx(sum(solved) / (len(solved) * online.SAMPLES))
