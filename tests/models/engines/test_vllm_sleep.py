"""The order in which the in-process engine sleeps and wakes on a GPU; what vLLM itself does then, no CPU can tell."""

from typing import Any
from unittest.mock import MagicMock, call

import pytest
import torch

from models.engines.vllm_local import VllmEngine
from models.errors import EngineError
from models.settings import SamplingSettings
from tests.models.engines.vllm_setup import tiny_policy


def make_engine(llm: Any) -> VllmEngine:
    """An engine that believes it is on a GPU."""
    engine = object.__new__(VllmEngine)
    engine._policy, engine._sampling, engine._llm = tiny_policy(), SamplingSettings(), llm
    engine._on_gpu, engine._asleep, engine.policy_version = True, False, 3
    return engine


def test_weights_come_back_before_the_cache_and_only_after_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    llm = MagicMock()
    engine = make_engine(llm)
    engine.suspend()
    assert engine.policy_version is None
    engine.sync(4)
    names = [entry[0] for entry in llm.mock_calls if entry[0] and not entry[0].startswith("__")]
    assert names == [
        "sleep",
        "wake_up",
        "collective_rpc",
        "wake_up",
        "reset_prefix_cache",
        "reset_prefix_cache().__bool__",
        "llm_engine.set_weight_version",
    ]
    assert llm.wake_up.mock_calls == [call(tags=["weights"]), call(tags=["kv_cache"])]
    assert engine.policy_version == 4
    llm.reset_mock()
    engine.sync(5)
    assert not llm.wake_up.called


@pytest.mark.parametrize("method", ["collective_rpc", "reset_prefix_cache"])
def test_what_vllm_raises_during_a_sync_is_one_line_and_leaves_no_version(method: str) -> None:
    llm = MagicMock()
    getattr(llm, method).side_effect = RuntimeError("out of memory\nand a long story")
    engine = make_engine(llm)
    with pytest.raises(EngineError, match=r"taking new weights \(RuntimeError: out of memory\): run again"):
        engine.sync(4)
    assert engine.policy_version is None


def test_what_vllm_raises_while_generating_is_one_line() -> None:
    llm = MagicMock()
    llm.generate.side_effect = RuntimeError("worker died")
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    with pytest.raises(EngineError, match=r"scoring \(RuntimeError: worker died\)"):
        make_engine(llm).score((1, 2, 3))
