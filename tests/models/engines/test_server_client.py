"""The client of `vllm-server` by itself: what it does with answers that no vLLM gives."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from models.engines.base import generate_all
from models.engines.server import Server
from models.engines.vllm_server import VllmServerEngine
from models.errors import EngineError
from models.policy.loading import Policy
from models.records import Request
from models.settings import EngineSettings, SamplingSettings
from tests.models.engines.fake_server import GENERATE, FakeServer, fake_server
from tests.models.engines.vllm_setup import tiny_policy

REQUESTS = [Request((5, 6), seed=index, samples=2) for index in range(20)]


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.engines.vllm_server.LONGEST_PAUSE", 0.01)


@cache
def policy() -> Policy:
    return tiny_policy()


def make_engine(*addresses: str, sampling: SamplingSettings | None = None, **changes: Any) -> VllmServerEngine:
    settings = EngineSettings(**{"name": "vllm-server", "servers": addresses, "retries": 0, "timeout": 5.0, **changes})
    return VllmServerEngine(policy(), settings, sampling or SamplingSettings(max_tokens=8), longest_prompt=16)


def make_synced(*addresses: str, **changes: Any) -> VllmServerEngine:
    engine = make_engine(*addresses, **changes)
    engine.sync(1)
    return engine


def test_every_group_is_asked_for_and_comes_in_its_place(fake: FakeServer) -> None:
    groups = generate_all(make_synced(fake.address), REQUESTS)
    assert [[row.token_ids for row in group] for group in groups] == [[(7, 8), (7, 8)]] * 20
    assert {row.policy_version for group in groups for row in group} == {1}
    assert fake.asked.count(GENERATE) == 21  # one was the look-up's


def test_a_server_that_comes_back_is_looked_up_again(fake: FakeServer) -> None:
    engine = make_engine(fake.address)
    fake.answers["rpc:load_policy"] = (500, "gone")
    with pytest.raises(EngineError, match="no server works"):
        engine.sync(1)
    del fake.answers["rpc:load_policy"]
    fake.answers["/v1/models"] = (200, {"data": [{"max_model_len": 8}]})
    with pytest.raises(EngineError, match="takes sequences of 8 tokens, and this run needs 24"):
        engine.sync(2)
    del fake.answers["/v1/models"]
    engine.sync(3)
    assert engine.policy_version == 3


def test_a_server_that_keeps_its_cached_prefixes_is_given_up(fake: FakeServer) -> None:
    fake.answers["/reset_prefix_cache"] = (200, {"success": False})
    with pytest.raises(EngineError, match="would not drop its cached prefixes"):
        make_synced(fake.address)


def test_the_folder_is_named_where_weights_do_not_load_and_how_to_serve_where_there_is_no_worker(
    fake: FakeServer,
) -> None:
    fake.answers["rpc:load_policy"] = (500, "no such file")
    with pytest.raises(EngineError, match=r"answered 500: no such file.*engine\.weights_folder"):
        make_synced(fake.address)
    fake.answers["rpc:claim_policy"] = (500, "no such method")
    with pytest.raises(EngineError, match=r"no such method.*--worker-extension-cls") as caught:
        make_synced(fake.address)
    assert "weights_folder" not in str(caught.value)


def test_a_server_of_another_model_is_refused_before_it_is_paused(fake: FakeServer) -> None:
    fake.answers["rpc:claim_policy"] = (200, {"results": [{"vocab_size": [150, 99], "hidden_size": [64, 192]}]})
    with pytest.raises(EngineError, match=r"another model \(vocab_size 150 there, 99 here; hidden_size 64") as caught:
        make_synced(fake.address)
    assert "weights_folder" not in str(caught.value)
    assert "/pause" not in fake.asked and fake.named == "default"


BAD_GROUPS: dict[str, Callable[[Any], Any]] = {
    "no choices": lambda choices: None,
    "a token beyond the vocabulary": lambda choices: choices[0]["token_ids"].__setitem__(0, 99),
    "a negative token": lambda choices: choices[0]["token_ids"].__setitem__(0, -1),
    "a token that is text": lambda choices: choices[0]["token_ids"].__setitem__(0, "7"),
    "no token": lambda choices: choices[0].update(token_ids=[], logprobs={"content": []}),
    "too many tokens": lambda choices: choices[0].update(
        token_ids=[7] * 9, logprobs={"content": [{"logprob": -1.0}] * 9}
    ),
    "too few log-probabilities": lambda choices: choices[0]["logprobs"]["content"].pop(),
    "a log-probability that is null": lambda choices: choices[0]["logprobs"]["content"].__setitem__(
        0, {"logprob": None}
    ),
    "one that is NaN": lambda choices: choices[0]["logprobs"]["content"].__setitem__(0, {"logprob": float("nan")}),
    "one that is infinite": lambda choices: choices[0]["logprobs"]["content"].__setitem__(
        0, {"logprob": float("-inf")}
    ),
    "an index twice": lambda choices: choices[1].update(index=0),
    "an index too high": lambda choices: choices[1].update(index=2),
    "a response missing": lambda choices: choices.pop(),
    "another label": lambda choices: choices[0].update(weight_versions=[{"version": "other"}]),
    "no label": lambda choices: choices[0].update(weight_versions=None),
    "no end": lambda choices: choices[0].update(finish_reason="abort"),
}


@pytest.mark.parametrize("change", BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_a_group_with_anything_wrong_is_asked_of_another_server(change: Callable[[Any], Any], fake: FakeServer) -> None:
    def spoil(answer: Any) -> Any:
        if change(answer["choices"]) is None and change is BAD_GROUPS["no choices"]:
            return {}
        return answer

    with fake_server() as good:
        engine = make_synced(fake.address, good.address, retries=1)
        fake.edit = spoil
        groups = generate_all(engine, REQUESTS)
        assert all(row.token_ids == (7, 8) for group in groups for row in group)
        assert engine._endpoints.working == [good.address]
        good.edit = spoil
        with pytest.raises(EngineError, match="no server is left to generate"):
            generate_all(engine, REQUESTS[:1])


@pytest.mark.parametrize("body", ["[]", "null", "not json", "[" * 200_000, "9" * 10_000, '{"choices": 3}'])
@pytest.mark.parametrize(
    "path", ["/v1/models", "/reset_prefix_cache", "rpc:claim_policy", "rpc:policy_labels", GENERATE]
)
def test_an_answer_that_no_vllm_gives_is_one_line(fake: FakeServer, path: str, body: str) -> None:
    fake.answers[path] = (200, body)
    with pytest.raises(EngineError, match=r"^no server (works|is left to generate): [^\n]*cannot be read[^\n]*$"):
        generate_all(make_synced(fake.address), REQUESTS[:1])


def test_an_answer_without_weights_version_does_not_bring_a_server_back(fake: FakeServer) -> None:
    engine = make_synced(fake.address, retries=1)
    fake.answers |= {GENERATE: (500, "x"), "/weight_info": (200, [])}
    with pytest.raises(EngineError, match="no server is left to generate"):
        generate_all(engine, REQUESTS[:1])


@pytest.mark.parametrize("score", [None, float("nan")])
def test_a_probe_without_finite_scores_is_one_line(fake: FakeServer, score: float | None) -> None:
    engine = make_synced(fake.address)
    fake.answers[GENERATE] = (200, {"prompt_logprobs": [None, {"6": {"logprob": score}}]})
    with pytest.raises(EngineError, match=r"no server works: .*(cannot be read|not finite)"):
        engine.score((5, 6))


@pytest.mark.parametrize("path", ["/pause", "rpc:load_policy", "/resume", "/update_weight_version"])
def test_a_redirection_is_no_success(fake: FakeServer, path: str) -> None:
    fake.answers[path] = (302, "")
    with pytest.raises(EngineError, match="answered 302"):
        make_synced(fake.address)


@pytest.mark.parametrize("path", ["/weight_info", GENERATE])
def test_a_server_without_what_training_needs_is_refused_with_how_to_start_it(fake: FakeServer, path: str) -> None:
    fake.answer = lambda asked, _: (403, "disabled") if asked == path else (200, {"data": [{"max_model_len": 64}]})  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1, --enable-scale-out"):
        make_engine(fake.address)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:99999",
        "http://[::1:80",
        "http://a..b:80",
        "http://" + "a" * 70 + ".x:80",
        "http://a b:80",
        "x",
    ],
)
def test_an_address_that_is_none_is_one_line_and_does_no_harm_beside_a_good_one(fake: FakeServer, address: str) -> None:
    with pytest.raises(EngineError, match=r"^no server works: [^\n]*$"):
        make_engine(address)
    fake.once[GENERATE] = (503, "busy")
    engine = make_synced(fake.address, address, retries=3)
    assert len(generate_all(engine, REQUESTS[:3])) == 3


@pytest.mark.parametrize("path", ["/health", "/pause", "rpc:policy_labels", GENERATE])
def test_the_timeout_is_for_the_whole_answer(fake: FakeServer, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.engines.server.LOOK_SECONDS", 0.5)
    fake.answers[path] = (200, "trickle")
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"no whole answer within 0\.5 s"):
        generate_all(make_synced(fake.address, timeout=0.5), REQUESTS[:1])
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("broken", [(0, ""), (503, "busy")], ids=["dropped", "busy"])
@pytest.mark.parametrize("path", ["/pause", "rpc:claim_policy", "rpc:load_policy", "/update_weight_version", GENERATE])
def test_sync_and_probe_try_again(fake: FakeServer, path: str, broken: tuple[int, str]) -> None:
    engine = make_engine(fake.address, retries=1)
    fake.once[path] = broken
    engine.sync(1)
    assert engine.score((5, 6)) == [[-1.0]]
    assert path not in fake.once and fake.held == fake.named == fake.claimed


def test_without_retries_a_busy_server_is_given_up(fake: FakeServer) -> None:
    fake.answers["/pause"] = (503, "busy")
    with pytest.raises(EngineError, match=r"/pause\?mode=wait answered 503: busy"):
        make_synced(fake.address)


@pytest.mark.parametrize("broken", [(0, ""), (500, "no")])
def test_a_server_goes_on_after_one_failed_resume_and_the_first_error_is_told(
    fake: FakeServer, broken: tuple[int, str]
) -> None:
    fake.once["/resume"] = broken
    make_synced(fake.address)
    assert not fake.paused
    fake.once["/resume"] = broken
    fake.answers["rpc:load_policy"] = (500, "the first error")
    with pytest.raises(EngineError, match="the first error"):
        make_synced(fake.address)
    assert not fake.paused


def test_a_pause_whose_answer_was_lost_is_ended(fake: FakeServer) -> None:
    def pause() -> tuple[int, str]:
        fake.paused = True
        return 0, ""

    fake.answers["/pause"] = pause
    with pytest.raises(EngineError, match="/pause"):
        make_synced(fake.address)
    assert not fake.paused


def test_weights_that_another_trainer_loads_meanwhile_are_not_taken_for_ours(fake: FakeServer) -> None:
    def other_loads() -> tuple[int, Any]:
        fake.claimed = fake.held = "other"
        del fake.answers["/update_weight_version"]
        return 200, {}

    engine = make_engine(fake.address)
    fake.answers["/resume"] = lambda: (fake.answers.__setitem__("/update_weight_version", other_loads), (200, {}))[1]
    with pytest.raises(EngineError, match="another trainer gave it other weights meanwhile"):
        engine.sync(1)


def test_every_load_has_a_label_of_its_own(fake: FakeServer) -> None:
    engines = [make_engine(fake.address), make_engine(fake.address)]
    labels = []
    for engine in (*engines, *engines):
        engine.sync(3)
        labels.append(fake.named)
    assert len(set(labels)) == 4
    with pytest.raises(EngineError, match=f"version {labels[3]}, not {labels[2]}"):
        generate_all(engines[0], REQUESTS[:1])


def test_the_limit_at_one_server_holds_when_the_other_is_dead(fake: FakeServer) -> None:
    engine = make_synced(fake.address, "http://127.0.0.1:9", concurrency=3)
    busy: list[int] = []
    most: list[int] = []

    def slow(answer: Any) -> Any:
        busy.append(1)
        most.append(len(busy))
        time.sleep(0.02)
        busy.pop()
        return answer

    fake.edit = slow
    generate_all(engine, REQUESTS)
    assert 1 < max(most) <= 3


def test_weights_that_are_not_finite_are_named_before_anything_is_sent(fake: FakeServer) -> None:
    engine = make_engine(fake.address)
    engine._policy = tiny_policy()
    with torch.no_grad():
        next(iter(engine._policy.model.parameters()))[0, 0] = float("nan")
    with pytest.raises(EngineError, match=r"weights are not finite \(model\.embed_tokens\.weight\)"):
        engine.sync(1)
    assert "rpc:claim_policy" not in fake.asked


@pytest.mark.parametrize("temperature", [0.001, 2.5, float("inf")])
def test_a_temperature_that_vllm_does_not_sample_at_is_refused_at_the_start(
    fake: FakeServer, temperature: float
) -> None:
    with pytest.raises(EngineError, match=r"temperatures of 0\.01 to 2, and sampling\.temperature is"):
        make_engine(fake.address, sampling=SamplingSettings(max_tokens=8, temperature=temperature))
    assert fake.asked == []


def test_a_weights_folder_that_does_not_exist_is_one_line(fake: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot make a folder for weights .* see engine\.weights_folder"):
        make_engine(fake.address, weights_folder=str(tmp_path / "missing"))


_SYNCING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.models.engines.test_server_client import make_engine
engine = make_engine(sys.argv[1], timeout=600.0)
engine.sync(1)
"""


def test_an_interrupted_sync_ends_at_once(fake: FakeServer) -> None:
    fake.answers["rpc:load_policy"] = lambda: (time.sleep(60), (200, {}))[1]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen(
        [sys.executable, "-c", _SYNCING, fake.address], env=environment, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while "rpc:load_policy" not in fake.asked and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=15) != 0


def test_closing_ends_a_pause_that_was_left(fake: FakeServer) -> None:
    engine = make_engine(fake.address)
    server: Server = engine._servers[fake.address]
    server._paused = fake.paused = True
    engine.close()
    assert not fake.paused
