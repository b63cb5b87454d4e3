"""The interface of every engine, and the checks that come before generation."""

from collections.abc import Sequence
from typing import Protocol

from models.records import Generation, Request


class Engine(Protocol):
    """Generates rollouts with the current weights of one policy."""

    name: str

    def generate(self, requests: Sequence[Request]) -> list[list[Generation]]:
        """One list of generations for each request, one generation for each of its seeds, in order."""
        ...

    def sync(self, policy_version: int) -> None:
        """Take over the policy's weights after an update."""
        ...

    def close(self) -> None:
        """Release what the engine holds."""
        ...


def check_context(requests: Sequence[Request], max_tokens: int, context: int | None) -> None:
    """Refuse prompts that leave no room for a whole response.

    Args:
        context: the model's longest sequence in tokens, None when it has no limit.

    Raises:
        ValueError: names the first offending request and how to mend it.
    """
    if context is None:
        return
    for index, request in enumerate(requests):
        length = len(request.prompt_token_ids)
        if length + max_tokens > context:
            raise ValueError(
                f"prompt {index} has {length} tokens, and with sampling.max_tokens = {max_tokens} exceeds "
                f"the model's context of {context}: lower max_tokens or drop the prompt"
            )
