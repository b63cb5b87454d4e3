"""The `vllm-server` engine: groups are spread over `vllm serve` endpoints.

Weights travel through a folder that trainer and servers see. A server that
fails gets no more requests until it works again, one that restarted not before
the next sync; its groups are asked of the others.
"""

import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx

from models.engines.asking import ask_all
from models.engines.base import check_context
from models.engines.endpoints import Endpoints
from models.engines.vllm_params import make_generation, sampling_options, scoring_options
from models.errors import EngineError
from models.policy.loading import Policy, save_policy
from models.records import Generation, Request
from models.settings import EngineSettings, SamplingSettings

logger = logging.getLogger(__name__)

HEALTH_SECONDS = 5.0
_REFUSALS = (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY)
"""Answers that another server would give too."""
HOW_TO_SERVE = (
    "start it with VLLM_SERVER_DEV_MODE=1, --enable-scale-out and "
    "--worker-extension-cls models.engines.vllm_worker.PolicyWorker"
)


_NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL)


class _Refused(EngineError):
    """The request itself is at fault, not the server."""


class VllmServerEngine:
    """A client of one or several servers of the same model."""

    name = "vllm-server"
    whole_rounds = False

    def __init__(
        self, policy: Policy, engine: EngineSettings, sampling: SamplingSettings, *, longest_prompt: int
    ) -> None:
        """Look every server up.

        Raises:
            EngineError: no server answers, or one cannot take weights or sequences of this length.
        """
        if not engine.servers:
            raise EngineError("engine vllm-server has no servers: --set engine.servers='[\"http://localhost:8000\"]'")
        self._policy = policy
        self._settings = engine
        self._sampling = sampling
        self._context = longest_prompt + sampling.max_tokens
        self._endpoints = Endpoints([address.rstrip("/") for address in engine.servers])
        self._http = httpx.Client(
            timeout=httpx.Timeout(engine.timeout, connect=HEALTH_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=engine.concurrency),
        )
        self._nonce = uuid.uuid4().hex[:8]
        self.policy_version: int | None = None
        for address in self._endpoints.addresses:
            try:
                self._look_up(address)
            except _NO_ANSWER as error:
                self._fail(address, error)
        self._need_one()
        self._folder = _make_folder(engine.weights_folder)

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[Generation]]]:
        """Groups as they finish, each from one server; after a failure, those that had begun come first."""
        check_context(requests, self._sampling.max_tokens, self._context)
        threads = len(self._endpoints.addresses) * self._settings.concurrency
        yield from ask_all(self._ask, requests, threads)

    def sync(self, policy_version: int) -> None:
        """Write the weights once, let every server that answers load them, and drop cached prefixes.

        A server that had failed is taken back when it answers again.
        """
        self.policy_version = None
        folder = self._folder / f"policy-{policy_version}"
        try:
            folder.mkdir(parents=True)
            save_policy(self._policy, folder)
        except OSError as error:
            raise EngineError(f"cannot write weights into {folder}: {error}: see engine.weights_folder") from error
        with ThreadPoolExecutor(len(self._endpoints.addresses)) as pool:
            label = self._label(policy_version)
            list(pool.map(lambda address: self._load(address, folder, label), self._endpoints.addresses))
        shutil.rmtree(folder, ignore_errors=True)
        self._need_one()
        self.policy_version = policy_version

    def suspend(self) -> None:
        """The servers' memory is not the trainer's."""

    def score(self, token_ids: Sequence[int]) -> list[list[float]]:
        """[working servers, len - 1] log-probabilities of the tokens after the first.

        Raises:
            EngineError: no server is left.
        """
        rows = []
        for address in self._endpoints.working:
            try:
                rows.append(self._score_at(address, token_ids))
            except (httpx.HTTPError, EngineError) as error:
                self._fail(address, error)
        self._need_one()
        return rows

    def close(self) -> None:
        """Leave the servers running; they are not ours."""
        self._http.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, request: Request, given_up: Event) -> list[Generation]:
        """One group, from whichever server gives it; pauses grow between tries."""
        for attempt in range(self._settings.retries + 1):
            if attempt > 0:
                if given_up.wait(2.0 ** (attempt - 1)):
                    break
                self._revive()
            with self._endpoints.lend() as address:
                if address is None:
                    continue
                try:
                    return self._ask_at(address, request)
                except _Refused:
                    raise
                except (httpx.HTTPError, EngineError) as error:
                    self._fail(address, error)
        raise EngineError(f"no server is left to generate: {self._explain_faults()}")

    def _ask_at(self, address: str, request: Request) -> list[Generation]:
        assert self.policy_version is not None
        options = sampling_options(self._sampling, request, self._policy.eos_ids)
        answer = self._generate_at(address, request.prompt_token_ids, options)
        with _readable(address):
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            if len(choices) != request.samples:
                raise EngineError(f"it returned {len(choices)} responses, not {request.samples}")
            return [
                make_generation(
                    token_ids=choice["token_ids"],
                    logprobs=[entry["logprob"] for entry in choice["logprobs"]["content"]],
                    finish_reason=choice["finish_reason"],
                    labels={span["version"] for span in choice["weight_versions"] or ()},
                    expected=self._label(self.policy_version),
                    policy_version=self.policy_version,
                )
                for choice in choices
            ]

    def _score_at(self, address: str, token_ids: Sequence[int]) -> list[float]:
        answer = self._generate_at(address, token_ids, scoring_options())
        with _readable(address):
            entries = zip(token_ids[1:], answer["prompt_logprobs"][1:], strict=True)
            return [entry[str(token)]["logprob"] for token, entry in entries]

    def _label(self, policy_version: int) -> str:
        """What a server is to call the weights: no other engine's weights have it."""
        return f"{self._nonce}-{policy_version}"

    def _generate_at(self, address: str, token_ids: Sequence[int], options: dict[str, Any]) -> Any:
        body = {"token_ids": list(token_ids), "sampling_params": options}
        answer = self._post(address, "/inference/v1/generate", body)
        with _readable(address):
            return answer.json()

    def _load(self, address: str, folder: Path, label: str) -> None:
        """Bring one server up to date, or give it up. It has the label only when all went well."""
        try:
            if address in self._endpoints.faults:
                self._look_up(address)  # it may be another one by now
            try:
                self._post(address, "/pause?mode=wait")
                self._post(address, "/update_weight_version", {"new_version": "loading"})
                self._update(address, folder)
                if not self._post(address, "/reset_prefix_cache").json()["success"]:
                    raise EngineError("it would not drop its cached prefixes")
            finally:
                self._post(address, "/resume")
            self._post(address, "/update_weight_version", {"new_version": label})
        except (*_NO_ANSWER, EngineError, ValueError, KeyError) as error:
            self._fail(address, error)
        else:
            self._endpoints.take_back(address)

    def _update(self, address: str, folder: Path) -> None:
        try:
            self._post(address, "/collective_rpc", {"method": "update_policy", "args": [str(folder.absolute())]})
        except httpx.HTTPStatusError as error:
            raise EngineError(
                f"{error}: it must see {folder.parent} (engine.weights_folder); "
                f"where it knows no update_policy, {HOW_TO_SERVE}"
            ) from error

    def _revive(self) -> None:
        """Take back the servers that work again and still have the weights."""
        for address in self._endpoints.faults:
            try:
                self._http.get(f"{address}/health", timeout=HEALTH_SECONDS).raise_for_status()
                info = self._http.get(f"{address}/weight_info", timeout=HEALTH_SECONDS).raise_for_status().json()
            except (httpx.HTTPError, ValueError):
                continue
            assert self.policy_version is not None
            if info.get("weight_version") == self._label(self.policy_version):
                self._endpoints.take_back(address)

    def _look_up(self, address: str) -> None:
        """Whether a server answers, and can do what a run asks.

        Raises:
            EngineError: it cannot, and says so.
            httpx.HTTPError, httpx.InvalidURL: it does not answer.
        """
        self._http.get(f"{address}/health", timeout=HEALTH_SECONDS).raise_for_status()
        models = self._http.get(f"{address}/v1/models", timeout=HEALTH_SECONDS).raise_for_status()
        offers = [
            self._http.get(f"{address}/weight_info", timeout=HEALTH_SECONDS),
            self._http.post(f"{address}/inference/v1/generate", json={}, timeout=HEALTH_SECONDS),
        ]
        if any(offer.status_code in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND) for offer in offers):
            raise EngineError(f"server {address} takes no new weights or no token ids: {HOW_TO_SERVE}")
        with _readable(address):
            context = models.json()["data"][0]["max_model_len"]
        if context < self._context:
            raise EngineError(
                f"server {address} takes sequences of {context} tokens, and this run needs {self._context}: "
                "start it with a larger --max-model-len, or lower sampling.max_tokens"
            )

    def _post(self, address: str, path: str, body: Any = None) -> httpx.Response:
        answer = self._http.post(address + path, json=body)
        if answer.status_code in _REFUSALS:
            raise _Refused(f"server {address} refuses {path}: {answer.text[:200]}")
        if answer.status_code >= httpx.codes.BAD_REQUEST:
            raise httpx.HTTPStatusError(
                f"{path} answered {answer.status_code}: {answer.text[:200]}", request=answer.request, response=answer
            )
        return answer

    def _fail(self, address: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._endpoints.give_up(address, reason):
            left = len(self._endpoints.working)
            logger.warning("server %s is given up for now (%s); %d left", address, reason, left)

    def _need_one(self) -> None:
        if not self._endpoints.working:
            raise EngineError(f"no server works: {self._explain_faults()}")

    def _explain_faults(self) -> str:
        faults = "; ".join(f"{address}: {reason}" for address, reason in self._endpoints.faults.items())
        return f"{faults}. Start one and run again; what was finished is kept"


@contextmanager
def _readable(address: str) -> Iterator[None]:
    """Turn an answer that is not what vLLM gives into an error of the engine.

    Raises:
        EngineError: a part is missing, or of another kind.
    """
    try:
        yield
    except EngineError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise EngineError(
            f"server {address} gave an answer that cannot be read ({error!r}): is it vLLM 0.32?"
        ) from error


def _make_folder(parent: str) -> Path:
    """A folder for weights that servers of other users can read.

    Raises:
        EngineError: it cannot be made.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="foreroll-weights-", dir=parent or None))
        folder.chmod(0o755)
    except OSError as error:
        raise EngineError(f"cannot make a folder for weights ({error}): see engine.weights_folder") from error
    return folder
