"""What a run goes on from: its own newest checkpoint, that of the run it was forked from, or the base model."""

import logging
from pathlib import Path

from models.difficulty.base import Predictor, State
from models.difficulty.states import fits
from models.errors import ModelError
from models.policy.loading import SMOLLM2, Policy, convert_smollm2, load_policy
from models.policy.update import PolicyTrainer
from models.settings import TrainSettings
from storage.checkpoints import Checkpoint, checkpoint_steps, load_arrays, read_checkpoint
from storage.errors import StoreError
from storage.files import new_folder
from storage.layout import Layout
from storage.runs import Run

logger = logging.getLogger(__name__)


def newest_checkpoint(layout: Layout, record: Run) -> Path | None:
    """The folder of a run's last checkpoint, else of the one that it was forked from, else None.

    Raises:
        StoreError: the latter is gone.
    """
    steps = checkpoint_steps(layout, record.run)
    if steps:
        return layout.checkpoint(record.run, steps[-1])
    if not record.forked_from:
        return None
    parent, step = record.forked_from["run"], record.forked_from["step"]
    if step not in checkpoint_steps(layout, parent):
        raise StoreError(
            f"run {record.run} has no checkpoint yet, and that of run {parent} at step {step}, from which it was "
            "forked, is gone: begin another fork with --run NEW --from RUN"
        )
    return layout.checkpoint(parent, step)


def begin_policy(layout: Layout, settings: TrainSettings, checkpoint: Path | None) -> Policy:
    """The policy of a checkpoint, and without one the base model.

    Raises:
        StoreError: the checkpoint is damaged.
        ModelError: the base model cannot be loaded.
    """
    if checkpoint is None:
        return load_policy(_base_model(layout, settings), settings.policy.dtype)
    try:
        return load_policy(str(checkpoint / "policy"), settings.policy.dtype)
    except ModelError as error:
        raise StoreError(
            f"checkpoint {checkpoint} is damaged ({error}): delete it, and the one before is used"
        ) from error


def restore(
    trainer: PolicyTrainer, predictor: Predictor, settings: TrainSettings, checkpoint: Path, record: Run
) -> tuple[Checkpoint | None, bool]:
    """Bring trainer and predictor to a checkpoint.

    Returns:
        The checkpoint, None when it is another run's, and so step 0 of this one; and whether it goes for the predictor
        too: a fork that forecasts from another past than its parent begins anew.

    Raises:
        StoreError: another version of Foreroll wrote the run's own predictor.
    """
    about = read_checkpoint(checkpoint)
    trainer.load_state_dict(load_arrays(checkpoint / "optimizer"))
    state = load_arrays(checkpoint / "predictor")
    ours = about.run == record.run
    if ours and not fits(state, predictor.state_dict()):
        raise StoreError(
            f"run {record.run} has learned with a predictor {about.predictor} of another version of Foreroll: continue "
            f"it there, or fork it, with a fresh predictor: foreroll train --run NEW --from {record.run}"
        )
    known = ours or (
        record.pins.get("keeps_predictor", True)
        and _can_take_over(predictor, settings.predictor.name, about, state, record.run)
    )
    if known:
        predictor.load_state_dict(state)
    return about if ours else None, known


def _can_take_over(predictor: Predictor, name: str, about: Checkpoint, state: State, run: str) -> bool:
    """Whether a fork can go on with its parent's predictor; warns where it cannot."""
    usable = about.predictor == name and fits(state, predictor.state_dict())
    if not usable:
        logger.warning(
            "run %s: predictor %s starts fresh, because what predictor %s of run %s learned does not fit its settings",
            run, name, about.predictor, about.run,
        )  # fmt: skip
    return usable


def _base_model(layout: Layout, settings: TrainSettings) -> str:
    """The source to load; SmolLM2 is unpacked into the store once."""
    if settings.policy.model != SMOLLM2:
        return settings.policy.model
    folder = layout.models() / SMOLLM2
    if not folder.exists():
        try:
            with new_folder(folder) as temporary:
                convert_smollm2(temporary)
        except StoreError:
            if not folder.exists():  # else another process unpacked it meanwhile
                raise
    return str(folder)
