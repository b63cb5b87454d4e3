"""The log of promotions of a predictor: `promotions.jsonl` beside its versions, a line each."""

import json
from dataclasses import asdict, dataclass

from storage.errors import StoreError
from storage.files import write_over
from storage.layout import Layout


@dataclass(frozen=True)
class Promotion:
    """A line of the promotions log."""

    version: int
    reason: str
    promoted_at: str
    """UTC, ISO 8601."""


def promotions(layout: Layout, name: str) -> list[Promotion]:
    """All promotions of a name, oldest first.

    Raises:
        StoreError: the log is damaged.
    """
    path = layout.promotions(name)
    log = []
    try:
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                log += [_promotion(line)] if line.strip() else []
            except (ValueError, TypeError) as error:
                raise StoreError(f"{path}: line {number} is damaged ({error}): mend or delete the line") from error
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path} is not readable ({error})") from error
    return log


def _promotion(line: bytes) -> Promotion:
    found = Promotion(**json.loads(line))
    if type(found.version) is not int or found.version < 1:
        raise ValueError(f"{found.version!r} is no version")
    if not isinstance(found.reason, str) or not isinstance(found.promoted_at, str):
        raise TypeError("reason and promoted_at are texts")
    return found


def add_promotion(layout: Layout, name: str, promotion: Promotion) -> None:
    """Append a line; call while holding the predictor's guard.

    Raises:
        StoreError: the log is damaged, or the file system refuses the write.
    """
    log = [*promotions(layout, name), promotion]
    lines = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in log)
    write_over(layout.promotions(name), lines.encode())
