"""Finds the final answer in a response.

Responses are hostile until shown otherwise, and may be long: every search here
goes through the text a fixed number of times.
"""

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOXED = "\\boxed{"


def final_answer(response: str) -> str | None:
    """The last `<answer>…</answer>`, else the last `\\boxed{…}`, else the last line; None if empty."""
    for find in (_last_tagged, _last_boxed, _last_line):
        found = find(response)
        if found is not None:
            return found.strip()
    return None


def _last_tagged(response: str) -> str | None:
    end = response.rfind(_CLOSE)
    start = response.rfind(_OPEN, 0, max(end, 0))
    return response[start + len(_OPEN) : end] if start >= 0 else None


def _last_boxed(response: str) -> str | None:
    """Content of the last box, braces inside it balanced; None when there is none or it stays open."""
    start = response.rfind(_BOXED)
    if start < 0:
        return None
    start += len(_BOXED)
    depth = 1
    for position in range(start, len(response)):
        depth += {"{": 1, "}": -1}.get(response[position], 0)
        if depth == 0:
            return response[start:position]
    return None


def _last_line(response: str) -> str | None:
    lines = response.strip().splitlines()
    return lines[-1] if lines else None
