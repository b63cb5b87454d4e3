"""`foreroll prompts add` and `foreroll prompts check`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from flows.commands.watching import show_rows
from models.problems import BUILTIN
from models.rewards import VERIFIERS
from storage.errors import StoreError
from storage.files import check_writable
from storage.importers.adding import Sources, Survey, add_dataset, check_dataset, survey
from storage.importers.columns import Where, parse_pairs
from storage.importers.faults import SHOWN, one_line, summary
from storage.importers.prompts import find_prompt_columns
from storage.importers.sources import expand, kind_of
from storage.layout import Layout, check_name
from storage.prompts import holds_dataset, is_held_out
from storage.store import open_store
from tasks.answers import FORMS, UNTOLD, reads

NO_VERIFIER = " (no verifier: to forecast and import to, not to train on; --reward names one)"


def add_prompts(
    store: Path,
    files: Sequence[Path],
    *,
    name: str,
    columns: Sequence[str],
    where: Sequence[str],
    tags: Sequence[str],
    reward: str | None,
    heldout: float,
    skip_bad: bool,
) -> None:
    """Store files of prompts as a dataset, or one and its held-out part, and print what was found in them.

    The held-out part is written first: so a dataset that was added with a share never stands alone, and what a killed
    process left is completed by the same command.

    Raises:
        StoreError: a file or a row cannot be used; with `skip_bad`, such rows are left out.
    """
    names = _names(name, heldout)
    _check_store(store)
    _check_whole(Layout(store.absolute()), name, names[0])
    chosen = Where(parse_pairs("--where", where))
    sources = _find(files, columns, tags, chosen)
    found = _look_through(sources, chosen, reward, heldout)
    if found.faults and not skip_bad:
        raise StoreError(
            f"{len(found.faults):,} of {found.rows:,} rows cannot be used; mend them, or leave them out with "
            f"--skip-bad:\n{summary(found.faults)}"
        )
    if not found.prompts:
        raise StoreError(f"no prompts in {', '.join(path.name for path in sources)}: nothing was added")
    sizes = dict(zip(reversed(names), _sizes(found, heldout), strict=False))
    reward = reward or _reward_of(found)
    _tell(found, reward)
    layout = open_store(store, create=True)
    for one in names:
        keep = partial(_belongs, heldout, one != name)
        if add_dataset(layout, one, sources, chosen, reward, partial(reads, reward), keep, show_rows):
            click.echo(f"added dataset {one}: {sizes[one]:,} prompts")
        else:
            click.echo(f"dataset {one} has just these {sizes[one]:,} prompts already: nothing was added")


def _names(name: str, heldout: float) -> list[str]:
    """The datasets that are added, in order: the held-out part, if there is one, and the rest."""
    if not 0.0 <= heldout < 1.0:
        raise StoreError(f"--heldout {heldout} is no share: name a number from 0 to 1")
    names = [*([f"{name}-heldout"] if heldout else []), name]
    for one in names:
        if check_name("dataset", one) in BUILTIN:
            raise StoreError(f"dataset {one} is built in: choose another name")
    return names


def _sizes(found: Survey, heldout: float) -> tuple[int, int]:
    """Prompts of the dataset, and of its held-out part."""
    sizes = found.prompts - found.heldout, found.heldout
    if heldout and not all(sizes):
        raise StoreError(
            f"--heldout {heldout:g} of {found.prompts:,} prompts holds {found.heldout:,} out: nothing was added; "
            "choose another share, or add the held-out ones from a file of their own"
        )
    return sizes


def _belongs(share: float, heldout: bool, identity: str) -> bool:
    return is_held_out(identity, share) == heldout


def check_prompts(store: Path, target: str, *, columns: Sequence[str], where: Sequence[str], reward: str | None) -> int:
    """Print all that is wrong with a file of prompts, or with a dataset of the store; returns 1 when something is."""
    if not Path(target).exists():
        return _check_dataset(store, target)
    chosen = Where(parse_pairs("--where", where))
    found = _look_through(_find([Path(target)], columns, (), chosen), chosen, reward)
    _tell(found, reward or _reward_of(found), shown=found.rows)
    return 1 if found.faults or found.conflicts else 0


def _check_store(store: Path) -> None:
    """Refuse a store that cannot be written to before files are read, without making one."""
    layout = Layout(store.absolute())
    if layout.store_file().exists():
        open_store(store)
    check_writable(layout.root)


def _check_whole(layout: Layout, name: str, heldout: str) -> None:
    """Refuse a name whose dataset was added without the part that is to be held out of it."""
    if holds_dataset(layout, name) and not holds_dataset(layout, heldout):
        raise StoreError(f"dataset {name} exists already, without {heldout}: choose another name")


def _check_dataset(store: Path, name: str) -> int:
    rows, problems = check_dataset(open_store(store), name, reads)
    click.echo(f"dataset {name}: {rows:,} prompts, {len(problems):,} with problems")
    if problems:
        click.echo(summary(problems, shown=len(problems)))
    return 1 if problems else 0


def _find(files: Sequence[Path], columns: Sequence[str], tags: Sequence[str], where: Where) -> Sources:
    """The columns of each file, printed."""
    given = parse_pairs("--map", columns)
    sources = {}
    for path in expand(files):
        found = sources[path] = find_prompt_columns(path, given, tags, where)
        click.echo(f"{one_line(path.name)} ({kind_of(path)})")
        for field, column in found.fields.items():
            click.echo(f"  {field} <- {one_line(column)}")
        if found.tags:
            click.echo(f"  tags <- {', '.join(found.tags.values())}")
    return sources


def _look_through(sources: Sources, where: Where, reward: str | None, heldout: float = 0.0) -> Survey:
    rewards = FORMS if reward is None else {reward: partial(reads, reward)}
    return survey(sources, where, rewards, strict=reward is not None, heldout=heldout, watch=show_rows)


def _reward_of(found: Survey) -> str:
    return found.rewards[0] if found.rewards and found.prompts else UNTOLD


def _tell(found: Survey, reward: str, *, shown: int = SHOWN) -> None:
    click.echo(f"reward {reward}{'' if reward in VERIFIERS else NO_VERIFIER}")
    click.echo(f"{found.rows:,} rows, {found.prompts:,} different prompts that can be used")
    for line in found.notes.lines():
        click.echo(f"  {line}")
    if found.duplicates:
        click.echo(f"{found.duplicates:,} rows repeat a problem and were counted once")
    if found.conflicts:
        click.echo(f"{len(found.conflicts):,} of these have another answer:\n{summary(found.conflicts, shown=shown)}")
    if found.faults:
        click.echo(f"{len(found.faults):,} rows cannot be used:\n{summary(found.faults, shown=shown)}")
