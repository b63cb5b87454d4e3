"""Two real servers, one of which does not survive. The tests build on one another, in order."""

import copy
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import LlamaForCausalLM

from flows.config import build_config
from flows.train import train
from models.engines.base import generate_all
from models.engines.parity import measure_drift
from models.engines.vllm_server import VllmServerEngine
from models.errors import EngineError
from models.policy.loading import Policy, resolve_source, save_policy
from models.settings import EngineSettings, SamplingSettings
from storage.catalog import query
from storage.layout import Layout
from storage.unfinished import UnfinishedPart
from tests.flows.small_run import make_store, small_config
from tests.models.engines.vllm_setup import LONGEST_PROMPT, make_requests, mean_gap, perturb, tiny_policy

SERVER = (
    *("-m", "vllm.entrypoints.openai.api_server", "--max-model-len", "64", "--enforce-eager"),
    *(
        "--enable-scale-out",
        "--no-enable-chunked-prefill",
        "--worker-extension-cls",
        "models.engines.vllm_worker.PolicyWorker",
    ),
)
ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "PYTHONPATH": str(Path.cwd())}
PROBE = (23, 15, 25, 15, 27, 23, 20, 21, 5, 6, 7, 8)


class Server:
    """One `vllm serve`, in a process group of its own."""

    def __init__(self, log: Path, model: Path, dtype: str = "float32") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        command = [sys.executable, *SERVER, "--port", str(port), "--model", str(model), "--dtype", dtype]
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and its workers."""
        os.killpg(self._process.pid, number)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                httpx.get(f"{self.address}/health", timeout=1).raise_for_status()
                return
            except httpx.HTTPError:
                time.sleep(0.5)
        pytest.fail(f"the server did not start: {Path(self._log.name).read_text()[-2000:]}")

    def stop(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    logs = tmp_path_factory.mktemp("servers")
    started = [Server(logs / f"{name}.log", resolve_source("countdown-tiny")) for name in ("first", "second")]
    for server in started:
        server.wait_until_ready()
    yield started
    for server in started:
        server.stop()


def make_engine(servers: list[Server], policy: Any, **changes: Any) -> VllmServerEngine:
    settings = EngineSettings(name="vllm-server", servers=tuple(server.address for server in servers), **changes)
    return VllmServerEngine(policy, settings, SamplingSettings(max_tokens=16), longest_prompt=LONGEST_PROMPT)


def test_over_http_too_engine_and_trainer_agree_after_five_updates(servers: list[Server]) -> None:
    policy = tiny_policy()
    engine = make_engine(servers, policy)
    requests = make_requests(policy)
    for version in range(1, 6):
        perturb(policy, seed=version)
        engine.sync(version)
        groups = generate_all(engine, requests)
        assert mean_gap(policy, requests, groups) <= 1e-4
        assert {row.policy_version for group in groups for row in group} == {version}
        drift = measure_drift(engine, policy, PROBE)
        assert drift is not None and drift.mean <= 1e-4
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tied", "dtype", "bar"),
    [(False, torch.float32, 1e-4), (True, torch.bfloat16, 0.06)],
    ids=["untied", "bfloat16"],
)
def test_other_policies_agree_over_http_too(tied: bool, dtype: torch.dtype, bar: float, tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    policy = tiny_policy(tied=tied, dtype=dtype)
    save_policy(policy, tmp_path / "model")
    server = Server(tmp_path / "server.log", tmp_path / "model", str(dtype).removeprefix("torch."))
    try:
        server.wait_until_ready()
        engine = make_engine([server], policy)
        requests = make_requests(policy)
        for version in range(1, 6):
            perturb(policy, seed=version)
            engine.sync(version)
            assert mean_gap(policy, requests, generate_all(engine, requests)) <= bar
        engine.close()
    finally:
        server.stop()


def test_one_server_that_kept_old_weights_is_caught_by_the_probe(servers: list[Server]) -> None:
    policy = tiny_policy()
    engine = make_engine(servers, policy)
    engine.sync(1)
    perturb(policy, seed=9)
    lazy = make_engine(servers[:1], policy)
    lazy.sync(2)
    engine.policy_version = 2
    drift = measure_drift(engine, policy, PROBE)
    assert drift is not None and drift.mean > 0.01
    with pytest.raises(EngineError, match=r"version \w+-1, not never-synced"):
        generate_all(make_believing(servers[1:], policy), make_requests(policy))


def make_believing(servers: list[Server], policy: Any) -> VllmServerEngine:
    """An engine that takes its servers for synced."""
    engine = make_engine(servers, policy, retries=0)
    engine.policy_version = 2
    for server in engine._servers.values():
        server.label = "never-synced"
    return engine


def test_two_trainers_at_one_server_never_take_each_others_rollouts_for_their_own(servers: list[Server]) -> None:
    policies = [tiny_policy(), tiny_policy()]
    for seed, policy in enumerate(policies):
        perturb(policy, seed, size=0.3)
    engines = [make_engine(servers[:1], policy, retries=0) for policy in policies]
    accepted = []
    for version in range(6):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda engine, version=version: _outcome(lambda: engine.sync(version)), engines))
        for engine, policy in zip(engines, policies, strict=True):
            requests = make_requests(policy, samples=2)
            groups = _outcome(lambda engine=engine, requests=requests: generate_all(engine, requests))
            if groups is not None:
                accepted.append(mean_gap(policy, requests, groups))
    assert accepted and max(accepted) <= 1e-4


def _outcome(call: Callable[[], Any]) -> Any:
    """What it gives, None where the engine refuses."""
    try:
        return call()
    except (EngineError, AssertionError):
        return None


def test_another_model_is_refused_before_a_weight_is_touched(servers: list[Server]) -> None:
    policy = tiny_policy()
    engine = make_engine(servers[:1], policy)
    engine.sync(1)
    config = copy.deepcopy(policy.model.config)
    config.vocab_size, config.num_hidden_layers = 150, 3
    other = Policy(LlamaForCausalLM(config).eval(), policy.tokenizer, torch.float32)
    with pytest.raises(EngineError, match=r"vocab_size 99 there, 150 here; num_hidden_layers 4 there, 3 here"):
        make_engine(servers[:1], other, retries=0).sync(1)
    assert mean_gap(policy, make_requests(policy), generate_all(engine, make_requests(policy))) <= 1e-4


def test_a_server_that_takes_too_short_sequences_is_refused_at_once(servers: list[Server]) -> None:
    with pytest.raises(EngineError, match=r"takes sequences of 64 tokens, and this run needs 132.*--max-model-len"):
        settings = EngineSettings(name="vllm-server", servers=(servers[0].address,))
        VllmServerEngine(tiny_policy(), settings, SamplingSettings(max_tokens=100), longest_prompt=LONGEST_PROMPT)


def test_a_step_survives_one_server_and_a_resume_the_other(
    servers: list[Server], tmp_path: Path, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    calls: list[int] = []
    act = {3: lambda: servers[1].signal(signal.SIGKILL), 6: lambda: servers[0].signal(signal.SIGSTOP)}
    monkeypatch.setattr(VllmServerEngine, "generate", _acting(VllmServerEngine.generate, calls, act))
    config = small_config(
        store,
        steps=3,
        engine={
            "name": "vllm-server",
            "servers": [server.address for server in servers],
            "timeout": 6.0,
            "retries": 1,
            "concurrency": 1,
        },
        dynamic_sampling={"enabled": False},
        evaluation={"every": 0},
    )
    with pytest.raises(EngineError, match=r"no server is left to generate.*run again"):
        for _ in range(3):
            train(build_config(config))
    broken = len(calls) - 1
    step = query(Layout(store), "select max(step) as step from steps").to_pylist()[0]["step"] + 1
    kept = UnfinishedPart(Layout(store), "tokens", "small", step, 0).read()
    assert 0 < len(kept) < 4 * 4
    servers[0].signal(signal.SIGCONT)
    servers[0].wait_until_ready()
    train(build_config(config))
    assert calls[broken + 1] == 4 - len(kept) // 4
    groups = query(Layout(store), "select count(*) as n, count(distinct sample) as k from rollouts group by group_id")
    assert {(row["n"], row["k"]) for row in groups.to_pylist()} == {(4, 4)}
    stored = query(Layout(store), f"select group_id, sample, token_ids from tokens where step = {step}").to_pylist()
    for row in kept.to_pylist():
        assert {name: row[name] for name in ("group_id", "sample", "token_ids")} in stored


def _acting(generate: Callable[..., Any], calls: list[int], act: dict[int, Callable[[], None]]) -> Callable[..., Any]:
    """`generate` that notes how many groups are asked for, and acts when the first is there."""

    def wrapped(self: VllmServerEngine, requests: Any) -> Iterator[Any]:
        calls.append(len(requests))
        acting = act.get(len(calls))
        for group in generate(self, requests):
            yield group
            if acting:
                acting()
                acting = None

    return wrapped


def test_no_server_at_all_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"no server works: http://127\.0\.0\.1:9: /health: ConnectError.*Start one"):
        settings = EngineSettings(name="vllm-server", servers=("http://127.0.0.1:9",))
        VllmServerEngine(tiny_policy(), settings, SamplingSettings(max_tokens=16), longest_prompt=LONGEST_PROMPT)
    with pytest.raises(EngineError, match=r"has no servers: --set engine\.servers="):
        VllmServerEngine(
            tiny_policy(), EngineSettings(name="vllm-server"), SamplingSettings(max_tokens=16), longest_prompt=32
        )
