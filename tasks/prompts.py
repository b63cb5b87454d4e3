"""The prompts of a run: made on first use, put to the policy's tokenizer, and embedded."""

import json
import logging
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.embeddings import WordllamaEncoder
from models.errors import ModelError
from models.policy.loading import Policy
from models.policy.templates import prompt_token_ids
from models.problems import BUILTIN
from models.records import Prompt
from models.rewards import VERIFIERS
from models.settings import TrainSettings
from storage.layout import Layout
from storage.prompts import holds_dataset, read_dataset, read_embeddings, write_dataset, write_embeddings
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
        ModelError: a prompt wants a reward that is not there, or leaves no room for a response.
    """
    prompts = [_prompt(row) for row in read_dataset(layout, dataset).to_pylist()]
    for prompt in prompts:
        if prompt.reward not in VERIFIERS:
            known = ", ".join(VERIFIERS)
            raise ModelError(
                f"dataset {dataset}: prompt {prompt.prompt_id} wants reward {prompt.reward!r}; there are {known}"
            )
    token_ids = [prompt_token_ids(prompt, settings.prompts.template, policy.tokenizer) for prompt in prompts]
    room = policy.context - settings.sampling.max_tokens if policy.context else None
    for prompt, ids in zip(prompts, token_ids, strict=True):
        if room is not None and len(ids) > room:
            raise ModelError(
                f"dataset {dataset}: prompt {prompt.prompt_id} has {len(ids)} tokens, and the model's context of "
                f"{policy.context} leaves room for {room}: lower sampling.max_tokens or drop the prompt"
            )
    return TokenisedPrompts(dataset, prompts, token_ids)


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


def read_or_make_embeddings(
    layout: Layout, settings: TrainSettings, train: TokenisedPrompts
) -> NDArray[np.float32] | None:
    """[pool, dim] embeddings of the pool's texts, from the store's cache; None when no method reads them."""
    if settings.predictor.name != "foreroll" and "gps" not in (settings.predictor.name, settings.acquisition.name):
        return None
    encoder = WordllamaEncoder()
    cached = read_embeddings(layout, encoder.name, train.dataset)
    if cached is None:
        found = encoder.encode([prompt.text for prompt in train.prompts])
        ids = [prompt.prompt_id for prompt in train.prompts]
        rows = pa.FixedSizeListArray.from_arrays(found.ravel(), found.shape[1])
        write_embeddings(layout, encoder.name, train.dataset, ids, rows)
        cached = read_embeddings(layout, encoder.name, train.dataset)
    assert cached is not None
    flat = cached["embedding"].combine_chunks().flatten().to_numpy()
    return np.array(flat, dtype=np.float32).reshape(len(train.prompts), -1)  # Arrow's own memory is read-only
