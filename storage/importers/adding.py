"""Prompt files become a dataset: looked through once to judge them, and once more to write.

Nothing but identities is held in memory, so files may be larger than it is.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.importers.columns import Where
from storage.importers.faults import Fault, Notes
from storage.importers.prompts import Parsed, Prompt, PromptColumns, parse_prompts
from storage.importers.sources import Watch, unwatched
from storage.importers.texts import text_fault
from storage.layout import Layout
from storage.prompts import is_held_out, prompt_id, read_dataset, stream_dataset

_BATCH = 10_000

Sources = Mapping[Path, PromptColumns]
"""Files in order, with the columns found in each."""
Reads = Callable[[str], bool]
"""Whether a reward can be told from an answer."""


@dataclass
class Survey:
    """What prompt files hold."""

    rows: int = 0
    prompts: int = 0
    """Different ones that can be used."""
    heldout: int = 0
    """Those of them that are held out."""
    duplicates: int = 0
    """Rows with the problem of an earlier row."""
    conflicts: list[Fault] = field(default_factory=list)
    """Duplicates whose answer is another."""
    faults: list[Fault] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    rewards: list[str] = field(default_factory=list)
    """Those asked about that can be told from every answer."""


def survey(
    sources: Sources,
    where: Where,
    rewards: Mapping[str, Reads],
    *,
    strict: bool,
    heldout: float = 0.0,
    watch: Watch[Parsed] = unwatched,
) -> Survey:
    """Look through files.

    Args:
        heldout: share of the prompts that is held out.
        strict: an answer that the rewards cannot be told from is a fault of its row; else it only rules them out.
    """
    found = Survey(rewards=list(rewards))
    first: dict[str, tuple[bytes, str]] = {}
    for path, columns in sources.items():
        for parsed in watch(parse_prompts(path, columns, where)):
            found.rows += 1
            prompt, fault = parsed.prompt, parsed.fault
            if prompt and strict and not all(reads(prompt.answer) for reads in rewards.values()):
                fault = f"reward {', '.join(rewards)} cannot be told from the answer {prompt.answer[:60]!r}"
            if fault or prompt is None:
                found.faults.append(Fault(path.name, parsed.number, fault))
                continue
            found.notes.add(parsed.notes, path, parsed.number)
            _count(found, first, prompt, path, parsed.number)
            found.rewards = [name for name in found.rewards if rewards[name](prompt.answer)]
    found.prompts = len(first)
    found.heldout = sum(is_held_out(identity, heldout) for identity in first)
    return found


def _count(found: Survey, first: dict[str, tuple[bytes, str]], prompt: Prompt, path: Path, row: int) -> None:
    digest = hashlib.blake2b(prompt.answer.encode(), digest_size=8).digest()
    identity = prompt_id(prompt.messages)
    before = first.get(identity)
    if before is None:
        first[identity] = digest, f"{path.name}:{row}"
        return
    found.duplicates += 1
    if before[0] != digest:
        reason = f"answer {prompt.answer[:60]!r} is not that of the same problem at {before[1]}, which is kept"
        found.conflicts.append(Fault(path.name, row, reason))


def add_dataset(
    layout: Layout,
    name: str,
    sources: Sources,
    where: Where,
    reward: str,
    reads: Reads,
    keep: Callable[[str], bool] = lambda identity: True,
    watch: Watch[Parsed] = unwatched,
) -> bool:
    """Store the prompts that can be used, each problem once; False where the store has just these already.

    Args:
        keep: whether a prompt of this identity belongs to the dataset.

    Raises:
        StoreError: another dataset has the name, or a file cannot be read.
    """
    distinct = _distinct(sources, where, reads, watch)
    kept = ((identity, prompt) for identity, prompt in distinct if keep(identity))
    return stream_dataset(layout, name, _batches(kept, reward))


def _distinct(sources: Sources, where: Where, reads: Reads, watch: Watch[Parsed]) -> Iterator[tuple[str, Prompt]]:
    seen: set[str] = set()
    for path, columns in sources.items():
        for parsed in watch(parse_prompts(path, columns, where)):
            if parsed.prompt is None or not reads(parsed.prompt.answer):
                continue
            identity = prompt_id(parsed.prompt.messages)
            if identity not in seen:
                seen.add(identity)
                yield identity, parsed.prompt


def _batches(prompts: Iterator[tuple[str, Prompt]], reward: str) -> Iterator[Sequence[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for identity, prompt in prompts:
        batch.append({**vars(prompt), "prompt_id": identity, "reward": reward})
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def check_dataset(layout: Layout, name: str, reads: Callable[[str, str], bool]) -> tuple[int, list[str]]:
    """Number of prompts of a stored dataset, and what is wrong with any of them.

    Args:
        reads: whether a reward can use an answer.

    Raises:
        StoreError: there is no such dataset, or its file is damaged.
    """
    rows = read_dataset(layout, name).to_pylist()
    problems = []
    for row in rows:
        messages = [(message["role"], message["content"]) for message in row["messages"]]
        faults = [f"prompt: {fault}" for _, text in messages if (fault := text_fault(text))]
        if prompt_id(messages) != row["prompt_id"]:
            faults.append("its text is not that of its prompt_id")
        if not reads(row["reward"], row["answer"]):
            faults.append(f"reward {row['reward']} cannot be told from the answer {row['answer'][:60]!r}")
        problems += [f"{row['prompt_id']}: {fault}" for fault in faults]
    return len(rows), problems
