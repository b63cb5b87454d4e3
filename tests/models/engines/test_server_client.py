"""The client of `vllm-server` by itself: what it does with answers that no vLLM gives."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from models.engines.vllm_server import VllmServerEngine
from models.errors import EngineError
from models.records import Request
from models.settings import EngineSettings, SamplingSettings
from tests.models.engines.vllm_setup import tiny_policy

REQUESTS = [Request((5, 6), seed=index, samples=2) for index in range(20)]
BODIES: dict[str, tuple[int, str]] = {}


class Answers(BaseHTTPRequestHandler):
    """Answers by path; everything else is 200 and empty JSON."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        code, body = BODIES.get(self.path, (200, "{}"))
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = _answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    BODIES.clear()
    BODIES["/v1/models"] = (200, '{"data": [{"max_model_len": 64}]}')
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def make_engine(address: str, **changes: Any) -> VllmServerEngine:
    settings = EngineSettings(name="vllm-server", servers=(address,), retries=0, **changes)
    return VllmServerEngine(tiny_policy(), settings, SamplingSettings(max_tokens=8), longest_prompt=16)


def test_a_server_that_comes_back_is_looked_up_again(address: str) -> None:
    BODIES["/reset_prefix_cache"] = (200, '{"success": true}')
    engine = make_engine(address)
    BODIES["/collective_rpc"] = (500, "gone")
    with pytest.raises(EngineError, match="no server works"):
        engine.sync(1)
    del BODIES["/collective_rpc"]
    BODIES["/v1/models"] = (200, '{"data": [{"max_model_len": 8}]}')
    with pytest.raises(EngineError, match="takes sequences of 8 tokens, and this run needs 24"):
        engine.sync(2)
    BODIES["/v1/models"] = (200, '{"data": [{"max_model_len": 64}]}')
    engine.sync(3)
    assert engine.policy_version == 3


def test_a_server_that_keeps_its_cached_prefixes_is_given_up(address: str) -> None:
    BODIES["/reset_prefix_cache"] = (200, '{"success": false}')
    with pytest.raises(EngineError, match="would not drop its cached prefixes"):
        make_engine(address).sync(1)


def test_a_server_that_cannot_load_the_weights_is_named_with_its_answer(address: str) -> None:
    BODIES["/collective_rpc"] = (500, "no such method")
    with pytest.raises(EngineError, match=r"collective_rpc answered 500: no such method.*engine\.weights_folder"):
        make_engine(address).sync(1)


@pytest.mark.parametrize("body", ["{}", "[]", '{"choices": [{"index": 0}]}', "not json"])
def test_an_answer_that_no_vllm_gives_is_one_line(address: str, body: str) -> None:
    BODIES["/reset_prefix_cache"] = (200, '{"success": true}')
    engine = make_engine(address)
    engine.sync(1)
    BODIES["/inference/v1/generate"] = (200, body)
    with pytest.raises(EngineError, match="no server is left to generate"):
        list(engine.generate(REQUESTS[:1]))


@pytest.mark.parametrize("path", ["/weight_info", "/inference/v1/generate"])
def test_a_server_without_what_training_needs_is_refused_with_how_to_start_it(address: str, path: str) -> None:
    BODIES[path] = (403, "disabled")
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1, --enable-scale-out"):
        make_engine(address)


def test_two_engines_never_take_each_others_weights_for_their_own(address: str) -> None:
    first, second = make_engine(address), make_engine(address)
    assert first._label(3) != second._label(3)


def test_a_weights_folder_that_does_not_exist_is_one_line(address: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot make a folder for weights .* see engine\.weights_folder"):
        make_engine(address, weights_folder=str(tmp_path / "missing"))
