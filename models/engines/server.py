"""What is said to one `vllm serve`. Whatever goes wrong with it is an EngineError."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from models.engines.deadline import within
from models.engines.vllm_params import readable
from models.errors import EngineError

LOOK_SECONDS = 5.0
"""Limit of what needs no waiting for tokens or weights."""
HOW_TO_SERVE = (
    "start it with VLLM_SERVER_DEV_MODE=1, --enable-scale-out and "
    "--worker-extension-cls models.engines.vllm_worker.PolicyWorker"
)

_REFUSALS = (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY)
_BUSY = (
    httpx.codes.TOO_MANY_REQUESTS,
    httpx.codes.BAD_GATEWAY,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
)
_DROPPED = (httpx.NetworkError, httpx.ProtocolError)
_NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError, OverflowError)
"""All that a request raises: addresses that cannot be read are ValueErrors of several libraries."""


class Refused(EngineError):
    """The request itself is at fault: every server would refuse it."""


class Unavailable(EngineError):
    """The connection broke, or the server is busy: the same request may go well later."""


class Server:
    """One address. Every request has a limit on its whole time."""

    def __init__(self, address: str, http: httpx.Client, timeout: float) -> None:
        self.address = address
        self.label = ""
        """What the weights that were synced last are called there: no other weights have it."""
        self._http = http
        self._timeout = timeout
        self._paused = False

    def look_up(self, context: int) -> None:
        """Whether it answers, and can do what a run asks.

        Raises:
            EngineError: it does not or cannot, and says so.
        """
        self._ask("GET", "/health", seconds=LOOK_SECONDS)
        models = self._ask("GET", "/v1/models", seconds=LOOK_SECONDS)
        for method, path, refusals in (("GET", "/weight_info", ()), ("POST", "/inference/v1/generate", _REFUSALS)):
            offer = self._send(method, path, {} if method == "POST" else None, LOOK_SECONDS)
            if offer.status_code in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
                raise EngineError(f"it takes no new weights or no token ids: {HOW_TO_SERVE}")
            if offer.status_code not in refusals:
                self._judge(path, offer)
        with readable():
            longest = int(models["data"][0]["max_model_len"])
        if longest < context:
            raise EngineError(
                f"it takes sequences of {longest} tokens, and this run needs {context}: "
                "start it with a larger --max-model-len, or lower sampling.max_tokens"
            )

    def generate(self, token_ids: Sequence[int], options: Mapping[str, Any]) -> Any:
        """The answer to one prompt, as vLLM gives it.

        Raises:
            Refused: the request is at fault.
            EngineError: the server is.
        """
        body = {"token_ids": list(token_ids), "sampling_params": options}
        return self._ask("POST", "/inference/v1/generate", body)

    def load(self, folder: Path, label: str, shape: Mapping[str, Any]) -> None:
        """Take the weights of a folder, drop what was computed with older ones, and call them `label`.

        vLLM's own label, which its responses bear, is "loading" from before the
        weights change until they are all there. That `label` is claimed and held
        at the end shows that no other trainer began to load in between; one that
        begins later takes vLLM's label away first.

        Raises:
            EngineError: it serves another model, it could not, or another trainer came in between.
        """
        self.label = ""
        self._claim(label, shape)
        with self._pause():
            self._name_weights("loading")
            try:
                self._call_worker("load_policy", [str(folder.absolute()), label])
            except Refused:
                raise
            except EngineError as error:
                raise type(error)(f"{error}: it must see {folder.parent} (engine.weights_folder)") from error
            with readable():
                if not self._ask("POST", "/reset_prefix_cache")["success"]:
                    raise EngineError("it would not drop its cached prefixes")
        self._name_weights(label)
        self.label = label
        if not self.is_up_to_date():
            raise EngineError("another trainer gave it other weights meanwhile: a server serves one run at a time")

    def is_up_to_date(self) -> bool:
        """Whether it has the weights of the last `load`, under their label.

        Raises:
            EngineError: it does not answer.
        """
        with readable():
            named = self._ask("GET", "/weight_info", seconds=LOOK_SECONDS)["weight_version"]
            workers = self._call_worker("policy_labels", [])
            labels = {named, *(worker[key] for worker in workers for key in ("claimed", "held"))}
        return labels == {self.label}

    def distrust(self) -> None:
        """Have it not up to date until the next `load`."""
        self.label = ""

    def release(self) -> None:
        """Let it go on if we left it paused, as far as it answers."""
        if self._paused:
            with suppress(EngineError):
                self._resume(LOOK_SECONDS)

    def _claim(self, label: str, shape: Mapping[str, Any]) -> None:
        try:
            answers = self._call_worker("claim_policy", [label, shape])
        except (Refused, Unavailable):
            raise
        except EngineError as error:
            raise EngineError(f"{error}: {HOW_TO_SERVE}") from error
        with readable():
            differing = [f"{name} {here} there, {ours} here" for name, (here, ours) in answers[0].items()]
        if differing:
            raise EngineError(f"it serves another model ({'; '.join(differing)}): serve the one in policy.model")

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """No tokens are sampled in the block. It resumes whatever happens, and the block's error is the one told."""
        self._paused = True  # even if the answer to the request is lost
        try:
            self._ask("POST", "/pause?mode=wait")
            yield
        except BaseException:
            with suppress(EngineError):
                self._resume(self._timeout)
            raise
        self._resume(self._timeout)

    def _resume(self, seconds: float) -> None:
        """Twice if need be: a connection that broke is not used again."""
        try:
            self._ask("POST", "/resume", seconds=seconds)
        except EngineError:
            self._ask("POST", "/resume", seconds=seconds)
        self._paused = False

    def _name_weights(self, label: str) -> None:
        self._ask("POST", "/update_weight_version", {"new_version": label})

    def _call_worker(self, method: str, args: Sequence[Any]) -> list[Any]:
        """What each of the server's workers answers."""
        answer = self._ask("POST", "/collective_rpc", {"method": method, "args": args})
        with readable():
            answers: list[Any] = list(answer["results"])
            if not answers:
                raise ValueError("no worker answered")
            return answers

    def _ask(self, method: str, path: str, body: Any = None, seconds: float | None = None) -> Any:
        """The answer's JSON, None where it has none.

        Raises:
            EngineError: there is no answer, it is no success, or it cannot be read.
        """
        answer = self._send(method, path, body, seconds or self._timeout)
        self._judge(path, answer)
        with readable():
            return answer.json() if answer.content else None

    def _send(self, method: str, path: str, body: Any, seconds: float) -> httpx.Response:
        try:
            return within(seconds, lambda: self._http.request(method, self.address + path, json=body))
        except _DROPPED as error:
            raise Unavailable(f"{path}: {type(error).__name__}: {error}") from error
        except _NO_ANSWER as error:
            raise EngineError(f"{path}: {type(error).__name__}: {error}") from error

    def _judge(self, path: str, answer: httpx.Response) -> None:
        """Raise what an answer that is no success means."""
        if answer.is_success:
            return
        text = " ".join(answer.text[:200].split())
        if answer.status_code in _REFUSALS:
            raise Refused(f"server {self.address} refuses {path}: {text}")
        failure = Unavailable if answer.status_code in _BUSY else EngineError
        raise failure(f"{path} answered {answer.status_code}: {text}")
