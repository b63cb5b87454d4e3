"""`foreroll sql`."""

from pathlib import Path

from flows.commands.output import check_output, write_result
from storage.catalog import query_locked
from storage.store import open_store


def run_query(store: Path, query: str, format_: str, output: Path | None) -> None:
    """Run a locked-down query, and print the result or write it to a file.

    Raises:
        StoreError: the query is refused or fails.
        ConfigError: the output cannot go where it is sent.
    """
    layout = open_store(store)
    check_output(layout, format_, output)
    write_result(query_locked(layout, query), format_, output)
