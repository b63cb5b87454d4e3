"""The interface of every engine, and the checks that come before generation."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from models.records import Generation, Request


class Engine(Protocol):
    """Generates rollouts with the weights of one policy, as they were at the last `sync`."""

    name: str
    whole_rounds: bool
    """Whether a round must be generated in one piece, because its batches decide the last digits."""
    policy_version: int | None
    """Updates behind the engine's weights; None while it has none, and must be synced."""

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[Generation]]]:
        """Groups as they finish: the position of the request, and one generation for each of its samples.

        Raises:
            EngineError: nothing is left that could generate the rest.
        """
        ...

    def sync(self, policy_version: int) -> None:
        """Take over the policy's weights, and forget all that was computed with older ones.

        Raises:
            EngineError: the weights did not arrive.
        """
        ...

    def suspend(self) -> None:
        """Release the memory that the trainer may want; a `sync` must follow."""
        ...

    def score(self, token_ids: Sequence[int]) -> list[list[float]]:
        """[copies, len - 1] log-probabilities (T = 1) of the tokens after the first, each given those before it.

        One row for each copy of the weights; none where engine and trainer are one module.
        """
        ...

    def close(self) -> None:
        """Release what the engine holds."""
        ...


def generate_all(engine: Engine, requests: Sequence[Request]) -> list[list[Generation]]:
    """The groups in the order of their requests."""
    groups = dict(engine.generate(requests))
    return [groups[position] for position in range(len(requests))]


def check_context(requests: Sequence[Request], max_tokens: int, context: int | None) -> None:
    """Refuse prompts that leave no room for a whole response.

    Args:
        context: the longest sequence in tokens, None when there is no limit.

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
