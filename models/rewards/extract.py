"""Finds the final answer in a response."""

import re

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


def final_answer(response: str) -> str | None:
    """The last `<answer>…</answer>`, else the last `\\boxed{…}`, else the last line; None if empty."""
    for pattern in (_TAGGED, _BOXED):
        found = pattern.findall(response)
        if found:
            return found[-1].strip()
    lines = [line.strip() for line in response.splitlines() if line.strip()]
    return lines[-1] if lines else None
