"""The interface of every verifier, and the boundary that keeps its failures to their own sample."""

import math
from collections.abc import Callable

from models.records import RewardStatus, Verdict

Verifier = Callable[[str, str], Verdict]
"""(response, reference answer) -> verdict. A wrong or unreadable response is a verdict, not an exception."""


def score(verifier: Verifier, response: str, answer: str) -> tuple[Verdict | None, RewardStatus]:
    """Verdict on one response, None unless the status is `ok`.

    `error`: the verifier raised, or returned no verdict. `unparsable`: its reward is no finite number.
    """
    try:
        verdict = verifier(response, answer)
        finite = math.isfinite(verdict.reward)
    except Exception:  # a verifier may be anyone's code; its failure costs this sample alone
        return None, "error"
    return (verdict, "ok") if finite else (None, "unparsable")
