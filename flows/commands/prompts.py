"""`foreroll prompts`."""

from pathlib import Path

from flows.commands.tables import format_table
from storage.errors import StoreError
from storage.layout import Layout
from storage.prompts import dataset_names, read_dataset
from storage.queries import latest_responses, prompt_visits, prompts_beginning_with
from storage.store import open_store

_TEXT_WIDTH = 72


def datasets_table(store: Path) -> str:
    """A line for each dataset."""
    layout = open_store(store)
    rows = []
    for name in dataset_names(layout):
        table = read_dataset(layout, name)
        rows.append((name, len(table), ", ".join(sorted(set(table["reward"].to_pylist())))))
    return format_table(("dataset", "prompts", "reward"), rows) if rows else f"no datasets in {layout.root}"


def prompts_table(store: Path, dataset: str) -> str:
    """A line for each prompt of a dataset, in its own order."""
    rows = read_dataset(open_store(store), dataset).select(["prompt_id", "text"]).to_pylist()
    return format_table(("prompt_id", "text"), [(row["prompt_id"], _shorten(row["text"])) for row in rows])


def describe_prompt(store: Path, beginning: str) -> str:
    """One prompt, and its groups in each run.

    Raises:
        StoreError: no prompt, or more than one, begins like that.
    """
    layout = open_store(store)
    prompt = _find(layout, beginning)
    lines = [f"{key:<12} {prompt[key]}" for key in ("prompt_id", "dataset", "reward", "answer", "tags")]
    for part in ("system", "text", "instruction"):
        if prompt[part]:
            lines += ["", f"{part}:", prompt[part]]
    visits = prompt_visits(layout, prompt["prompt_id"])
    if not visits:
        return "\n".join([*lines, "", "no run has rolled it out"])
    lines += ["", format_table(tuple(visits[0]), [tuple(row.values()) for row in visits])]
    latest = latest_responses(layout, prompt["prompt_id"], visits[-1]["run_id"])
    lines += ["", f"responses of run {visits[-1]['run_id']} at step {latest[0]['step']}:"]
    told = [row for row in latest if row["response"] is not None]
    lines += [f"{'+' if row['success'] else '-'} {_shorten(row['response'])}" for row in told] or ["none was kept"]
    return "\n".join(lines)


def _find(layout: Layout, beginning: str) -> dict[str, str]:
    found = prompts_beginning_with(layout, beginning)
    ids = sorted({row["prompt_id"] for row in found})
    if len(ids) != 1:
        what = f"{len(ids)} prompts begin" if ids else "no prompt begins"
        raise StoreError(f"{what} with {beginning!r} in {layout.root}: see `foreroll prompts list`")
    prompt: dict[str, str] = found[0]
    return prompt


def _shorten(text: str) -> str:
    """One printable line."""
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "\ufffd" for character in line)
    return line if len(line) <= _TEXT_WIDTH else line[: _TEXT_WIDTH - 1] + "…"
