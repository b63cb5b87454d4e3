"""A server that answers as vLLM does, or as it is told to."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
GENERATE = "/inference/v1/generate"


class FakeServer:
    """Its state, and what it answers by path (`rpc:METHOD` for the worker's): the key is the path without its query."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[str] = []
        self.bodies: dict[str, Any] = {}
        """The last body by path."""
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        """In place of vLLM's. One that has code 0 breaks the connection, and with "trickle" never ends."""
        self.once: dict[str, Answer] = {}
        """The same, for the first request alone."""
        self.edit: Callable[[Any], Any] = lambda answer: answer
        """What becomes of a group that was generated."""
        self.named, self.claimed, self.held = "default", "", ""
        self.paused = False

    def answer(self, path: str, body: Any) -> Answer:
        """Code and JSON."""
        key = path.split("?")[0]
        if key == "/collective_rpc":
            key = f"rpc:{body['method']}"
        self.asked.append(key)
        self.bodies[key] = body
        if key in self.once and not (key == GENERATE and body == {}):
            return self.once.pop(key)
        if key in self.answers and not (key == GENERATE and body == {}):
            told = self.answers[key]
            return told() if callable(told) else told
        return self._vllm(key, body)

    def _vllm(self, key: str, body: Any) -> Answer:
        match key:
            case "/v1/models":
                return 200, {"data": [{"max_model_len": 64}]}
            case "/pause" | "/resume":
                self.paused = key == "/pause"
            case "/reset_prefix_cache":
                return 200, {"success": True}
            case "/weight_info":
                return 200, {"weight_version": self.named}
            case "/update_weight_version":
                self.named = body["new_version"]
            case "rpc:claim_policy":
                self.claimed = body["args"][0]
                return 200, {"results": [{}]}
            case "rpc:load_policy":
                if body["args"][1] == self.claimed:
                    self.held = self.claimed
                return 200, {"results": [None]}
            case "rpc:policy_labels":
                return 200, {"results": [{"claimed": self.claimed, "held": self.held}]}
            case "/inference/v1/generate":
                return self._generate(body)
        return 200, {}

    def _generate(self, body: Any) -> Answer:
        if body == {}:
            return 422, {}
        options = body["sampling_params"]
        if "prompt_logprobs" in options:
            return 200, {
                "prompt_logprobs": [None, *({str(token): {"logprob": -1.0}} for token in body["token_ids"][1:])]
            }
        choice = {
            "token_ids": [7, 8],
            "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -0.5}]},
            "finish_reason": "length",
            "weight_versions": [{"version": self.named}],
        }
        choices = [json.loads(json.dumps(choice)) | {"index": index} for index in range(options["n"])]
        return 200, self.edit({"choices": choices})


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """A server that listens for the length of the block."""
    fake = FakeServer()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    listening.daemon_threads = True
    fake.address = f"http://127.0.0.1:{listening.server_address[1]}"
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    yield fake
    listening.shutdown()
    listening.server_close()


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            code, content = fake.answer(self.path, json.loads(sent) if sent else None)
            if code == 0:
                self.close_connection = True
                return
            self.send_response(code)
            if content == "trickle":
                self._trickle()
                return
            encoded = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = _answer

        def _trickle(self) -> None:
            self.send_header("content-length", "1000")
            self.end_headers()
            try:
                for _ in range(100):
                    self.wfile.write(b" ")
                    time.sleep(0.1)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
