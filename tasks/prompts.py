"""The prompts of a run: made on first use, put to the policy's tokenizer, and embedded."""

import json
import logging
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.difficulty.inputs import reads_embeddings, reads_past, reads_texts
from models.errors import ModelError
from models.policy.hidden import prompt_states
from models.policy.loading import Policy
from models.policy.templates import prompt_token_ids
from models.problems import BUILTIN
from models.records import Ints, Pool, Prompt
from models.rewards import VERIFIERS
from models.settings import SecSettings, TrainSettings
from storage.layout import Layout
from storage.prompts import holds_dataset, read_dataset, write_dataset
from tasks.datasets import dataset_categories, dataset_embeddings
from tasks.past import past_runs
from tasks.workbench import TokenisedPrompts

logger = logging.getLogger(__name__)


def ensure_datasets(layout: Layout, settings: TrainSettings) -> None:
    """Make the built-in datasets that the run names and the store lacks."""
    for name in (settings.prompts.train, settings.prompts.heldout):
        if not holds_dataset(layout, name):
            logger.info("making dataset %s", name)
            rows = [
                {
                    "messages": [("user", problem.text)],
                    "answer": problem.answer,
                    "reward": problem.reward,
                    "system": "",
                    "instruction": problem.instruction,
                    "tags": json.dumps(dict(problem.tags)),
                }
                for problem in BUILTIN[name]()
            ]
            write_dataset(layout, name, rows)


def tokenise(layout: Layout, settings: TrainSettings, dataset: str, policy: Policy) -> TokenisedPrompts:
    """Read a dataset and apply the run's template.

    Raises:
        ModelError: a prompt is empty or wants a reward that is not there, or none leaves room for a response.
    """
    prompts = [_prompt(row) for row in read_dataset(layout, dataset).to_pylist()]
    for prompt in prompts:
        if prompt.reward not in VERIFIERS:
            known = ", ".join(VERIFIERS)
            raise ModelError(
                f"dataset {dataset}: prompt {prompt.prompt_id} wants reward {prompt.reward!r}; there are {known}"
            )
    token_ids = [prompt_token_ids(prompt, settings.prompts.template, policy.tokenizer) for prompt in prompts]
    for prompt, ids in zip(prompts, token_ids, strict=True):
        if not ids:
            raise ModelError(f"dataset {dataset}: prompt {prompt.prompt_id} is empty, it has no token: drop it")
    room = policy.context - settings.sampling.max_tokens if policy.context else None
    tokenised = TokenisedPrompts(dataset, prompts, token_ids, room)
    _tell_of_overlong(tokenised)
    return tokenised


def _tell_of_overlong(tokenised: TokenisedPrompts) -> None:
    """Say which prompts will never be rolled out.

    Raises:
        ModelError: that is all of them.
    """
    overlong = np.flatnonzero(~tokenised.fits)
    if len(overlong) == 0:
        return
    first = overlong[0]
    message = (
        f"dataset {tokenised.dataset}: {len(overlong)} of {len(tokenised.prompts)} prompts are longer than the "
        f"{tokenised.room} tokens that the model's context leaves beside sampling.max_tokens, the first being "
        f"{tokenised.prompts[first].prompt_id} with {len(tokenised.token_ids[first])}"
    )
    if len(overlong) == len(tokenised.prompts):
        raise ModelError(f"{message}: lower sampling.max_tokens, or use another dataset or policy")
    logger.warning("%s; they are not rolled out", message)


def warn_of_overlap(train: TokenisedPrompts, heldout: TokenisedPrompts) -> None:
    """Say so when held-out prompts are trained on."""
    shared = {prompt.prompt_id for prompt in train.prompts} & {prompt.prompt_id for prompt in heldout.prompts}
    if shared:
        logger.warning(
            "%d prompts of %s are also in %s: held-out success will look too good",
            len(shared), heldout.dataset, train.dataset,
        )  # fmt: skip


def _prompt(row: dict[str, Any]) -> Prompt:
    return Prompt(
        prompt_id=row["prompt_id"],
        messages=tuple((message["role"], message["content"]) for message in row["messages"]),
        answer=row["answer"],
        reward=row["reward"],
        system=row["system"],
        instruction=row["instruction"],
    )


def make_pool(layout: Layout, settings: TrainSettings, train: TokenisedPrompts, policy: Policy, past: pa.Table) -> Pool:
    """The pool of a run, with what its methods read.

    Args:
        past: groups of other runs, rows of `schemas.PAST`.
    """
    prompt_ids = tuple(prompt.prompt_id for prompt in train.prompts)

    def hidden(rows: Ints) -> NDArray[np.float32]:
        return prompt_states(policy, [train.token_ids[row] for row in rows], settings.update.token_budget)

    return Pool(
        prompt_ids=prompt_ids,
        embeddings=read_or_make_embeddings(layout, settings, train),
        categories=read_categories(layout, settings, train),
        texts=tuple(prompt.text for prompt in train.prompts) if reads_texts(settings.predictor) else (),
        hidden=hidden,
        past=past_runs(past, prompt_ids) if reads_past(settings.predictor) else None,
    )


def read_or_make_embeddings(
    layout: Layout, settings: TrainSettings, train: TokenisedPrompts
) -> NDArray[np.float32] | None:
    """[pool, dim] embeddings of the pool's texts, from the store's cache; None when no method reads them."""
    if not (reads_embeddings(settings.predictor) or settings.acquisition.name == "gps"):
        return None
    ids, texts = [prompt.prompt_id for prompt in train.prompts], [prompt.text for prompt in train.prompts]
    return dataset_embeddings(layout, train.dataset, ids, texts)


def read_categories(layout: Layout, settings: TrainSettings, train: TokenisedPrompts) -> tuple[str, ...]:
    """Category of each prompt of the pool, from the tag that the predictor names; empty when it reads none.

    Raises:
        ModelError: a prompt lacks the tag.
    """
    if not isinstance(settings.predictor, SecSettings):
        return ()
    return dataset_categories(layout, train.dataset, settings.predictor.category)
