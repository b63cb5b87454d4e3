"""Where a run's predictor begins: with a published version, which is fixed as a number when the run is created."""

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from models.difficulty.base import Predictor, State
from models.difficulty.inputs import reads_past
from models.difficulty.states import fits
from models.records import Pool
from models.settings import PredictorSettings
from storage.checkpoints import checkpoint_steps, load_arrays, read_checkpoint
from storage.errors import StoreError
from storage.layout import Layout
from storage.registry import Version, read_version, resolve, version_digest
from storage.runs import Run
from tasks.plan import RunPlan
from tasks.registry import check_version, settings_of

logger = logging.getLogger(__name__)


def pin_start(layout: Layout, plan: RunPlan, parent: Run | None) -> dict[str, Any]:
    """Name, number and digest of the version that a new run begins with, under `predictor`; empty where it has none.

    A fork that says of its start what its parent says begins with the same version.

    Raises:
        StoreError: there is no such version, it is damaged, or it is of another kind than the run's predictor.
    """
    predictor = plan.settings.predictor
    if not predictor.start:
        return {}
    if parent is not None and _says_the_same(parent, predictor):
        return {"predictor": parent.pins["predictor"]}
    name, number = resolve(layout, predictor.start)
    check_version(read_version(layout, name, number), f"{name}@{number}", predictor)
    return {"predictor": {"name": name, "version": number, "sha256": version_digest(layout, name, number)}}


def read_start(layout: Layout, run: str, pins: Mapping[str, Any]) -> Version | None:
    """The version that a run began with, None where there is none.

    Raises:
        StoreError: it is gone, damaged or another than it was.
    """
    if "predictor" not in pins:
        return None
    name, number = pins["predictor"]["name"], pins["predictor"]["version"]
    if version_digest(layout, name, number) != pins["predictor"]["sha256"]:
        raise StoreError(
            f"run {run} began with predictor {name}@{number}, which is another one by now: restore it, or begin a new "
            "run"
        )
    return read_version(layout, name, number)


def join_past(groups: pa.Table, version: Version | None, record: Run) -> pa.Table:
    """The groups that a run reads of others, and those of its version; of a run that is in both, the former.

    A run is never its own past, whatever the version says of a run of its name, and what the run that it was forked
    from did after the fork is none of its past either.
    """
    if version is None:
        return groups
    theirs = known_to(record, version.past)
    in_both = pc.is_in(theirs["run_id"], pa.array(record.pins.get("past", {}), pa.string()))
    return pa.concat_tables([groups, theirs.filter(pc.invert(in_both))])


def known_to(record: Run, groups: pa.Table) -> pa.Table:
    """The past groups that a run may begin with: none of its own, and none of its parent from after the fork."""
    known = pc.not_equal(groups["run_id"], record.run)
    if record.forked_from:
        parents = pc.equal(groups["run_id"], record.forked_from["run"])
        later = pc.greater(groups["step"], record.forked_from["step"])
        known = pc.and_(known, pc.invert(pc.and_(parents, later)))
    return groups.filter(known)


def begin_with(version: Version, reference: str, settings: PredictorSettings, predictor: Predictor, pool: Pool) -> None:
    """Give a fresh predictor the state of a version; one that reads the past has the version's groups in its pool.

    Raises:
        StoreError: the state does not fit the settings; names those of both.
    """
    if reads_past(settings):
        _warn_of_strangers(version, reference, pool)
        return
    if not fits(version.state, predictor.state_dict()):
        raise StoreError(
            f"no predictor of these settings can begin with {reference}: {_differences(version, settings)}"
        )
    predictor.load_state_dict(version.state)


def forked_state(layout: Layout, record: Run, settings: PredictorSettings, fresh: State) -> State | None:
    """What the predictor of a fork had learned when the fork began; None where it began anew, or the run is no fork.

    Its own checkpoint of step 0 says it, else that of its parent.

    Raises:
        StoreError: neither is there any more.
    """
    if not record.forked_from:
        return None
    if 0 in checkpoint_steps(layout, record.run):
        return load_arrays(layout.checkpoint(record.run, 0) / "predictor")
    if not record.pins.get("keeps_predictor", True):
        return None
    parent, step = record.forked_from["run"], record.forked_from["step"]
    if step not in checkpoint_steps(layout, parent):
        raise StoreError(
            f"run {record.run} begins anew here, because what run {parent} had learned by step {step}, where it was "
            "forked, is in no checkpoint any more"
        )
    folder = layout.checkpoint(parent, step)
    state = load_arrays(folder / "predictor")
    return state if read_checkpoint(folder).predictor == settings.name and fits(state, fresh) else None


def _warn_of_strangers(version: Version, reference: str, pool: Pool) -> None:
    """Warn of a version whose groups tell nothing of a pool, because none of its prompts is in it."""
    theirs = pc.unique(version.past["prompt_id"])
    if len(theirs) and not pc.any(pc.is_in(theirs, pa.array(pool.prompt_ids, pa.string()))).as_py():
        logger.warning(
            "predictor %s has learned of %d prompts, none of which the run has: it tells nothing here",
            reference, len(theirs),
        )  # fmt: skip


def _says_the_same(parent: Run, predictor: PredictorSettings) -> bool:
    theirs = parent.config["predictor"]
    same = (theirs["name"], theirs.get("from")) == (predictor.name, predictor.start)
    return same and "predictor" in parent.pins


def _differences(version: Version, settings: PredictorSettings) -> str:
    theirs, ours = version.config["predictor"], settings_of(settings)
    differing = [
        f"predictor.{key} was {theirs.get(key)!r} and is {value!r} here"
        for key, value in ours.items()
        if theirs.get(key) != value
    ]
    return "; ".join(differing) or "its arrays have other shapes, as those of a policy of another size"
