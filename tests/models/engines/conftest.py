"""The vLLM engines of the session: one policy each, restored after every test."""

from collections.abc import Iterator

import pytest

from models.engines.vllm_local import VllmEngine
from models.policy.loading import Policy
from models.settings import EngineSettings, SamplingSettings
from tests.models.engines.vllm_setup import LONGEST_PROMPT, tiny_policy


@pytest.fixture(scope="session")
def vllm_session() -> Iterator[tuple[VllmEngine, Policy]]:
    """vLLM with the shipped policy, in float32."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    policy = tiny_policy()
    settings = EngineSettings(name="vllm", kv_cache_gib=0.25, batch_size=64)
    engine = VllmEngine(policy, settings, SamplingSettings(max_tokens=16), longest_prompt=LONGEST_PROMPT)
    yield engine, policy
    engine.close()


@pytest.fixture
def vllm(vllm_session: tuple[VllmEngine, Policy]) -> Iterator[tuple[VllmEngine, Policy]]:
    """The session's engine, synced with its policy at version 0; a test may change the policy's weights."""
    engine, policy = vllm_session
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    engine.sync(0)
    yield engine, policy
    policy.model.load_state_dict(before)
