"""DAPO's soft overlong punishment (arXiv 2503.14476, equation 13)."""


def overlong_penalty(tokens: int, *, max_tokens: int, buffer: int) -> float:
    """What is added to the reward of a response: 0 up to max_tokens - buffer, from there falling linearly to -1.

    Args:
        tokens: length of the response; never more than max_tokens.
        buffer: tokens over which the penalty grows, at least 1.
    """
    return -max(0.0, (tokens - (max_tokens - buffer)) / buffer)
