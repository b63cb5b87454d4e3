"""The `vllm-server` engine: groups are spread over `vllm serve` endpoints.

Weights travel through a folder that trainer and servers see. A server that
fails gets no more requests until it works again, one that restarted not before
the next sync; its groups are asked of the others.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

import httpx

from models.engines.asking import ask_all
from models.engines.base import check_context
from models.engines.endpoints import Endpoints
from models.engines.server import LOOK_SECONDS, Refused, Server, Unavailable
from models.engines.shape import model_shape
from models.engines.vllm_params import (
    check_sampling,
    expect,
    read_choices,
    read_scores,
    readable,
    sampling_options,
    scoring_options,
)
from models.engines.weights import check_finite
from models.engines.weights_folder import WeightsFolder
from models.errors import EngineError
from models.policy.loading import Policy
from models.records import Generation, Request
from models.settings import EngineSettings, SamplingSettings

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
A = TypeVar("A")


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
        check_sampling(sampling)
        self._policy = policy
        self._settings = engine
        self._sampling = sampling
        self._context = longest_prompt + sampling.max_tokens
        self._http = httpx.Client(
            timeout=httpx.Timeout(engine.timeout, connect=LOOK_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=engine.concurrency),
        )
        addresses = [address.rstrip("/") for address in engine.servers]
        self._servers = {address: Server(address, self._http, engine.timeout) for address in addresses}
        self._endpoints = Endpoints(addresses, engine.concurrency)
        self.policy_version: int | None = None
        for server in self._servers.values():
            try:
                server.look_up(self._context)
            except EngineError as error:
                self._fail(server, error)
        self._need_one()
        self._folder = WeightsFolder(engine.weights_folder)

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[Generation]]]:
        """Groups as they finish, each from one server; after a failure, those that had begun come first."""
        check_context(requests, self._sampling.max_tokens, self._context)
        threads = len(self._servers) * self._settings.concurrency
        yield from ask_all(self._ask, requests, threads)

    def sync(self, policy_version: int) -> None:
        """Write the weights once, let every server that answers load them, and drop cached prefixes.

        A server that had failed is taken back when it answers again.
        """
        self.policy_version = None
        check_finite(self._policy)
        servers = list(self._servers.values())
        with self._folder.holding(self._policy) as folder:

            def load(server: Server, stop: Event) -> None:
                self._load(server, folder, policy_version, stop)

            list(ask_all(load, servers, len(servers)))
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
        for server in map(self._servers.__getitem__, self._endpoints.working):
            try:
                rows.append(self._score_at(server, token_ids))
            except EngineError as error:
                self._fail(server, error)
        self._need_one()
        return rows

    def close(self) -> None:
        """Leave the servers running; they are not ours."""
        for server in self._servers.values():
            server.release()
        self._http.close()
        self._folder.remove()

    def _ask(self, request: Request, given_up: Event) -> list[Generation]:
        """One group, from whichever server gives it; pauses grow between tries.

        A server that gave a wrong one is not asked again before the next sync.
        """
        for attempt in range(self._settings.retries + 1):
            if attempt > 0:
                if given_up.wait(_pause(attempt)):
                    break
                self._revive()
            with self._endpoints.lend() as address:
                if address is None:
                    continue
                try:
                    return self._ask_at(self._servers[address], request)
                except Refused:
                    raise
                except EngineError as error:
                    self._fail(self._servers[address], error)
        raise EngineError(f"no server is left to generate: {self._explain_faults()}")

    def _ask_at(self, server: Server, request: Request) -> list[Generation]:
        assert self.policy_version is not None
        expected = expect(self._sampling, request, self._policy, server.label, self.policy_version)
        options = sampling_options(self._sampling, request, self._policy.eos_ids)
        answer = server.generate(request.prompt_token_ids, options)
        try:
            return read_choices(answer, expected)
        except EngineError:
            server.distrust()
            raise

    def _score_at(self, server: Server, token_ids: Sequence[int]) -> list[float]:
        answer = self._patiently(server, lambda: server.generate(token_ids, scoring_options()), Event())
        with readable():
            return read_scores(answer["prompt_logprobs"], token_ids, served=True)

    def _load(self, server: Server, folder: Path, policy_version: int, stop: Event) -> None:
        """Bring one server up to date, or give it up. Every try has a label of its own."""
        shape = model_shape(self._policy.model.config.get_text_config())

        def load() -> None:
            server.load(folder, f"{uuid.uuid4().hex[:12]}-{policy_version}", shape)

        try:
            if server.address in self._endpoints.faults:
                server.look_up(self._context)  # it may be another one by now
            self._patiently(server, load, stop)
        except EngineError as error:
            self._fail(server, error)
        else:
            self._endpoints.take_back(server.address)

    def _patiently(self, server: Server, call: Callable[[], A], stop: Event) -> A:
        """Try again while connections break or the server is busy; one that was given up before has one chance."""
        retries = 0 if server.address in self._endpoints.faults else self._settings.retries
        for attempt in range(1, retries + 1):
            try:
                return call()
            except Unavailable:
                if stop.wait(_pause(attempt)):
                    raise
        return call()

    def _revive(self) -> None:
        """Take back the servers that work again and still have the weights."""
        for address in self._endpoints.faults:
            with suppress(EngineError):
                if self._servers[address].is_up_to_date():
                    self._endpoints.take_back(address)

    def _fail(self, server: Server, error: EngineError) -> None:
        reason = " ".join(str(error).split())
        if self._endpoints.give_up(server.address, reason):
            left = len(self._endpoints.working)
            logger.warning("server %s is given up for now (%s); %d left", server.address, reason, left)

    def _need_one(self) -> None:
        if not self._endpoints.working:
            raise EngineError(f"no server works: {self._explain_faults()}")

    def _explain_faults(self) -> str:
        faults = "; ".join(f"{address}: {reason}" for address, reason in self._endpoints.faults.items())
        return f"{faults}. Start one and run again; what was finished is kept"


def _pause(attempt: int) -> float:
    """Seconds before the try after so many."""
    return float(min(2 ** (attempt - 1), LONGEST_PAUSE))
