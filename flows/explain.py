"""What is wrong with a configuration, in a user's words."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def explain(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """One sentence for each value that is wrong; of an unknown key also what the model knows in its place."""
    schema = model.model_json_schema() if model else {}
    return "; ".join(_explain(detail, schema) for detail in error.errors())


def _explain(detail: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    *section, last = detail["loc"] or [""]
    shown, known = _section(schema, section)
    where = ".".join(map(str, [*shown, *([last] if detail["loc"] else [])]))
    if detail["type"] in _UNKNOWN:
        return f"unknown config key {where!r}{_instead(str(last), known)}"
    if not where:
        return str(detail["ctx"]["error"])
    return f"config {where}: {detail['msg']}, not {detail['input']!r}"


def _instead(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": there are {', '.join(known)}" if known else ""


def _section(schema: Mapping[str, Any], section: Sequence[str | int]) -> tuple[list[str | int], list[str]]:
    """The keys that lead to a section as the user writes them, and those that it may hold.

    Pydantic's way names the member of a union too, as the first mopps in `predictor.mopps.decay`; it is left out.
    """
    node, shown = schema, []
    for part in section:
        node = _resolved(schema, node)
        if "discriminator" in node:
            node = _resolved(schema, {"$ref": node["discriminator"]["mapping"].get(part, "")})
            continue
        shown.append(part)
        properties = node.get("properties", {})
        node = properties.get(part, node.get("additionalProperties") or {})
    return shown, list(_resolved(schema, node).get("properties", {}))


def _resolved(schema: Mapping[str, Any], node: Any) -> Mapping[str, Any]:
    """A node itself, or what it refers to."""
    if not isinstance(node, Mapping):
        return {}
    name = node.get("$ref", "").removeprefix("#/$defs/")
    found: Mapping[str, Any] = schema.get("$defs", {}).get(name, {}) if name else node
    return found
