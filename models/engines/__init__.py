"""The engines that settings can name; one is imported when it is built."""

from collections.abc import Callable

from models.engines.base import Engine
from models.policy.loading import Policy
from models.settings import EngineSettings, SamplingSettings


def _transformers(policy: Policy, engine: EngineSettings, sampling: SamplingSettings) -> Engine:
    from models.engines.hf import TransformersEngine

    return TransformersEngine(policy, engine, sampling)


ENGINES: dict[str, Callable[[Policy, EngineSettings, SamplingSettings], Engine]] = {
    "transformers": _transformers,
}


def build_engine(policy: Policy, engine: EngineSettings, sampling: SamplingSettings) -> Engine:
    """The engine of `engine.name`, on the weights of `policy`."""
    return ENGINES[engine.name](policy, engine, sampling)
