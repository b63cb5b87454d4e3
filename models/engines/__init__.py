"""The engines that settings can name; one is imported when it is built."""

from collections.abc import Callable

from models.engines.base import Engine
from models.errors import EngineError
from models.policy.loading import Policy
from models.settings import EngineSettings, SamplingSettings


def _transformers(policy: Policy, engine: EngineSettings, sampling: SamplingSettings, longest_prompt: int) -> Engine:
    from models.engines.hf import TransformersEngine

    return TransformersEngine(policy, engine, sampling)


def _vllm(policy: Policy, engine: EngineSettings, sampling: SamplingSettings, longest_prompt: int) -> Engine:
    from models.engines.vllm_local import VllmEngine

    return VllmEngine(policy, engine, sampling, longest_prompt=longest_prompt)


def _vllm_server(policy: Policy, engine: EngineSettings, sampling: SamplingSettings, longest_prompt: int) -> Engine:
    from models.engines.vllm_server import VllmServerEngine

    return VllmServerEngine(policy, engine, sampling, longest_prompt=longest_prompt)


ENGINES: dict[str, Callable[[Policy, EngineSettings, SamplingSettings, int], Engine]] = {
    "transformers": _transformers,
    "vllm": _vllm,
    "vllm-server": _vllm_server,
}


def build_engine(
    policy: Policy, engine: EngineSettings, sampling: SamplingSettings, *, longest_prompt: int
) -> tuple[Engine, str]:
    """The engine of `engine.name`, to be synced before its first use, and why `auto` took it.

    `auto` tries vLLM with the very policy, since nothing less tells whether it runs here.

    Args:
        longest_prompt: tokens of the longest prompt that will be asked for.

    Raises:
        EngineError: it does not start.
    """
    if engine.name != "auto":
        return ENGINES[engine.name](policy, engine, sampling, longest_prompt), ""
    try:
        return ENGINES["vllm"](policy, engine, sampling, longest_prompt), "it runs this model here"
    except EngineError as error:
        return ENGINES["transformers"](policy, engine, sampling, longest_prompt), str(error)
