"""Judges predictors and acquisition rules by simulation on measured success rates of real models.

The policy drifts from one model to another: the logit of every prompt moves
evenly from its rate under the first, (n + 1/2) / 51 of n successes in 50, to
that under the second. Each step a method forecasts the pool, a rule chooses a
batch with its exploration slice, and k outcomes are drawn for each prompt; a
prompt rests for five steps. No method sees the rates. Warm runs learn from the
other models' histories alone, both ends of the drift left out at every
temperature: all 50 rollouts of every prompt (`warm`), or the groups that a cold
`foreroll` acquired of each (`selected`).

    python bench/selection.py [--quick] [--seeds 5] [--work FOLDER]

Every finished run is kept under --work, so that a killed bench goes on.
"""

import argparse
import copy
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import selection_page
from bench_pages import PAGES, finish
from selection_labelled import DECIDING as LABELLED
from selection_labelled import judge_labelled
from selection_replay import VISITS, replay
from selection_told import Told
from selection_warm import DECIDING, HISTORIES, SETTINGS, judge, make_history
from selection_world import GROUP, PROBES, REST, TOKENS, Groups, World, in_figures, joined, others, simulate

from models.acquisition import RULES
from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.records import PastRuns, Pool
from models.settings import AcquisitionSettings, ForerollSettings, MoppsSettings, PredictorSettings

STEPS, BATCH = 60, 128
DRIFTS = (
    ("Qwen2.5-Math-1.5B", "Qwen2.5-Math-1.5B-Instruct"),
    ("Qwen2-1.5B", "Qwen2-1.5B-Instruct"),
    ("Qwen2.5-1.5B", "Qwen2.5-Math-1.5B"),
)
MYOPIC = "informative, no lookahead"
PUBLISHED = (
    ("mopps", "thompson"),
    ("kalman", MYOPIC),
    ("gp", MYOPIC),
    ("greso", "greso"),
    ("dps", MYOPIC),
    ("sec", "boltzmann"),
    ("depo", "band"),
    ("dots", "nearest"),
    ("gps", "gps"),
    ("mean", "uniform"),
)
SLOW = ("gps", "depo", "dots")
"""Only with their own rule: seconds a step."""
UNABLE = ("pcl",)
"""Wants a live policy's hidden states, which rates have not."""
Result = dict[str, Any]


class Run(NamedTuple):
    """One simulated run."""

    drift: int
    start: str
    """`cold`, `warm` or `selected`."""
    predictor: str
    rule: str
    seed: int


def main() -> None:
    """Do what is not done yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few prompts, steps and methods, and no page")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="folder of finished runs; a temporary one where none is given")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which no more run is begun")
    arguments = parser.parse_args()
    data = Path(os.environ.get("FOREROLL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not data.exists():
        print(f"no data in {data}: set FOREROLL_DATA", file=sys.stderr)
        finish("selection", {"skipped": f"no data in {data}"}, write_page=False)
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = Kept(arguments.work or Path(temporary), time.monotonic() + arguments.until)
        report(data, work, seeds=1 if arguments.quick else arguments.seeds, quick=arguments.quick)


def report(data: Path, work: "Kept", *, seeds: int, quick: bool) -> None:
    """All parts of the bench; what took too long is missing from the page."""
    visits = 6 if quick else VISITS
    replays = []
    for name, settings in {**predictors(), "mopps, decay 0.9": MoppsSettings(decay=0.9)}.items():
        if name not in (*UNABLE, "sec"):
            found = work.do(
                ("replay", name), (visits, settings), lambda settings=settings: replay(data, settings, visits)
            )
            replays += [{"predictor": name, **found}] if found else []
    warm, labelled = ([], []) if quick else warm_settings(data, work)
    runs = Simulator(data, work, prompts=600 if quick else 7500, steps=12 if quick else STEPS, quick=quick)
    lines = []
    for run in plan(seeds, quick=quick):
        found = work.do(("run", *run), runs.setting(run), lambda run=run: runs.figures(run))
        lines += [{**run._asdict(), "drift": " to ".join(DRIFTS[run.drift]), **found}] if found else []
    figures = {
        "runs": selection_page.means(lines),
        "replay": replays,
        "warm": selection_page.warm_means(warm, labelled),
    }
    text = selection_page.text(figures, seeds)
    print(text)
    if not quick:
        selection_page.plot(lines, PAGES)
    finish("selection", figures, write_page=not quick, text=text)


def plan(seeds: int, *, quick: bool) -> list[Run]:
    """Every run: ours, published and told methods on all drifts, and all other sensible pairs on the first."""
    if quick:
        return [Run(0, "warm", "foreroll", "informative", 0), Run(0, "cold", "mopps", "thompson", 0)]
    ours = [("cold", "foreroll", "informative"), ("warm", "foreroll", "informative")]
    ours += [("selected", "foreroll", "informative"), *(("cold", *pair) for pair in PUBLISHED)]
    ours += [("cold", "told", "informative"), ("warm", "told", "informative")]
    fast = [name for name in predictors() if name not in (*SLOW, *UNABLE)]
    rules = [MYOPIC, *(rule for rule in sorted(RULES) if rule != "per_token")]
    pairs = [("warm", "foreroll", MYOPIC), ("warm", "foreroll", "nearest"), ("warm", "foreroll", "thompson")]
    pairs += [("cold", name, rule) for name in fast for rule in rules]
    planned = [Run(drift, *one, seed) for seed in range(seeds) for drift in range(len(DRIFTS)) for one in ours]
    planned += [Run(0, *one, seed) for seed in range(seeds) for one in pairs]
    return list(dict.fromkeys(planned))


def predictors() -> dict[str, PredictorSettings]:
    """Default settings of every predictor, by name."""
    found = {kind().name: kind() for kind in get_args(PredictorSettings)}
    return {"foreroll": found.pop("foreroll"), **found}


class Kept:
    """Results on disk, by what they are of and the setting in which they were found."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self.folder, self._deadline = folder, deadline
        folder.mkdir(parents=True, exist_ok=True)

    def do(self, name: tuple[Any, ...], setting: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The kept result, or a new one, which is kept; None after the deadline.

        Args:
            setting: all else that decides the result; only what has the same `repr` is the same.
        """
        path = self.folder / f"{hashlib.sha256(repr((name, setting)).encode()).hexdigest()[:24]}.json"
        if path.exists():
            return json.loads(path.read_text())["result"]
        if time.monotonic() > self._deadline:
            return None
        result = make()
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps({"name": list(name), "setting": repr(setting), "result": result}))
        unfinished.replace(path)
        print(*name, flush=True)
        return result

    def groups(self, name: tuple[Any, ...], setting: tuple[Any, ...], make: Callable[[], Groups]) -> Groups | None:
        """The same for the groups of a run."""
        found = self.do(name, setting, lambda: [part.tolist() for part in make()])
        return None if found is None else tuple(np.array(part, np.int64) for part in found)  # type: ignore[return-value]


class Simulator:
    """The runs on MATH train; openings are shared by runs that differ in rule and seed alone."""

    def __init__(self, data: Path, work: Kept, *, prompts: int, steps: int, quick: bool) -> None:
        self._data, self._work, self._prompts, self._steps = data, work, prompts, steps
        self._batch = 16 if quick else BATCH
        self._opened: dict[tuple[int, str], tuple[Predictor, Pool, float]] = {}
        self._histories: dict[int, Groups] = {}

    @cached_property
    def world(self) -> World:
        """Loaded when the first run needs it."""
        return World(self._data, ["train"], self._prompts)

    def setting(self, run: Run) -> tuple[Any, ...]:
        """What decides the figures of a run beside its name."""
        ours = run.predictor in ("foreroll", "told")
        predictor = ForerollSettings() if ours else predictors()[run.predictor]
        past = self._settings("informative") if run.start == "selected" else None
        sizes = (self._prompts, self._steps, GROUP, REST, PROBES, TOKENS)
        return sizes, DRIFTS[run.drift], predictor, self._settings(run.rule), past

    def figures(self, run: Run) -> Result:
        """Simulate one run."""
        first, last = (self.world.logits(self.world.at_one(model)) for model in DRIFTS[run.drift])
        predictor, pool, seconds = self._predictor(run)
        judged, groups = simulate(
            predictor, pool, first, last, self._settings(run.rule), steps=self._steps, seed=run.seed
        )
        return {**in_figures(judged, groups[1]), "opening_seconds": seconds, "array_mib": _array_mib(predictor)}

    def _settings(self, rule: str) -> AcquisitionSettings:
        lookahead = 0.0 if rule == MYOPIC else AcquisitionSettings().lookahead
        name = "informative" if rule == MYOPIC else rule
        return AcquisitionSettings(name=name, batch_size=self._batch, lookahead=lookahead)  # type: ignore[arg-type]

    def _predictor(self, run: Run) -> tuple[Predictor, Pool, float]:
        if run.predictor in ("foreroll", "told"):
            opened, pool, seconds = self._open(run.drift, run.start)
            if run.predictor == "foreroll":
                return copy.deepcopy(opened), pool, seconds
            first, last = (self.world.logits(self.world.at_one(model)) for model in DRIFTS[run.drift])
            return Told(opened._prior.features, first, last, self._steps), pool, seconds  # type: ignore[attr-defined]
        pool, start = self.world.pool(None), time.perf_counter()
        predictor = build_predictor(predictors()[run.predictor], pool, seed=run.seed)
        return predictor, pool, time.perf_counter() - start

    def _open(self, drift: int, start: str) -> tuple[Predictor, Pool, float]:
        if start == "cold":
            drift = 0
        if (drift, start) not in self._opened:
            pool, begun = self.world.pool(self._past(drift, start)), time.perf_counter()
            predictor = build_predictor(ForerollSettings(), pool, seed=0)
            self._opened[drift, start] = predictor, pool, time.perf_counter() - begun
        return self._opened[drift, start]

    def _past(self, drift: int, start: str) -> PastRuns | None:
        kept = others(self.world.models, DRIFTS[drift])
        if start == "cold":
            return None
        return self.world.dense(kept) if start == "warm" else joined([self._made(at) for at in kept])

    def _made(self, configuration: int) -> Groups:
        """A cold `foreroll` run of an unchanging policy."""
        if configuration not in self._histories:
            logits, settings = self.world.logits(configuration), self._settings("informative")
            cold, pool, _ = self._open(0, "cold")
            self._histories[configuration] = simulate(
                copy.deepcopy(cold), pool, logits, logits, settings, steps=self._steps, seed=configuration
            )[1]
        return self._histories[configuration]


def warm_settings(data: Path, work: Kept) -> tuple[list[Result], list[Result]]:
    """The three settings, on dense histories and on such as `foreroll` made, and what labels could tell in each."""
    world = World(data, ["train", "test"], 7500)
    cold = build_predictor(ForerollSettings(), world.pool(None), seed=0)
    made: list[Groups] = []
    for at in range(len(world.models)):
        groups = work.groups(("made", at), DECIDING, lambda at=at: make_history(world, cold, at))
        if groups is None:
            return [], []
        made.append(groups)
    models = [model for model in dict.fromkeys(world.models) if model != "Qwen2.5-1.5B"]
    lines: list[Result] = []
    for history, setting, model in product(HISTORIES, SETTINGS, models):
        about = setting, history, model
        lines += work.do(("warm", *about), DECIDING, lambda about=about: judge(world, *about, made)) or []
    labelled: list[Result] = []
    for about in product(SETTINGS, models):
        labelled += work.do(("labelled", *about), LABELLED, lambda about=about: judge_labelled(world, *about)) or []
    return lines, labelled


def _array_mib(predictor: Predictor) -> float:
    """Memory of what a predictor would store."""
    return sum(array.nbytes for array in predictor.state_dict().values()) / 2**20


if __name__ == "__main__":
    main()
