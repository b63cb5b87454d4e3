"""The bench's own arithmetic: its truth is what a deployment gets, and its summary counts what it says."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from models.acquisition.off_policy import Estimate
from models.records import Pool

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_counterfactual", BENCH / "counterfactual.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_counterfactual", module)
    spec.loader.exec_module(module)
    sys.modules.pop("bench_pages", None)
    return module


def test_the_truth_of_a_uniform_selector_is_the_share_of_all_candidates(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = object.__new__(bench.World)
    world.logits = {"a": np.linspace(-4.0, 4.0, 200), "b": np.linspace(-4.0, 4.0, 200)}
    world.pool = Pool(tuple(f"{row:032x}" for row in range(200)))
    monkeypatch.setattr(bench, "BATCH", 20)
    monkeypatch.setattr(bench, "PAIRS", {"mean+nearest": ("mean+uniform",)})
    (line,) = bench.Bench(world).log(bench.Setting(0.5, 0, 12), ("a", "b"), "mean+nearest", 0)
    p = world.success(("a", "b"), 0.0)
    share = float(np.mean(1.0 - p**8 - (1.0 - p) ** 8))
    assert line["truth"] == pytest.approx(share, abs=0.03)  # 12 steps x 40 draws of 20, five steps of rest
    assert line["refusal"] == "" and abs(line["dr_error"]) < 0.25


def test_what_is_resting_is_no_candidate(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BATCH", 2)
    settings = bench.acquisition("mean+nearest", candidates=5)
    visits = bench.Visits.none(12)
    visits.add(np.array([3, 4]))
    drawn = [bench.candidates(visits, settings, np.random.default_rng(seed)).tolist() for seed in range(50)]
    assert all(len(set(rows)) == 5 and sorted(rows) == rows for rows in drawn)
    assert set().union(*drawn) == set(range(12)) - {3, 4}


def test_a_summary_counts_coverage_among_what_was_not_refused(bench: ModuleType) -> None:
    def line(estimate: Estimate | None) -> dict[str, object]:
        both = {**bench.against(estimate, 0.5, 0.7, "dr"), **bench.against(estimate, 0.5, 0.7, "snips")}
        return {"setting": "s", "truth": 0.5, "groups": 90.0, "refusal": "" if estimate else "no", **both}

    lines = [line(Estimate(0.45, 0.4, 0.6)), line(Estimate(0.65, 0.6, 0.75)), line(None), line(None)]
    (summary,) = bench.summarise(pl.DataFrame(lines, infer_schema_length=None), "setting")
    assert (summary["logs"], summary["refused"]) == (4, 0.5)
    assert (summary["dr_covers"], summary["dr_covers_once"]) == (0.5, 0.5)
    assert summary["dr_width"] == pytest.approx(0.175)
    assert summary["dr_error"] == pytest.approx(0.05)
