"""The `vllm` engine: vLLM in this process, on the trainer's device.

Weights are handed over in memory, and never by restarting. vLLM labels every
sampled token with the version that was set when they arrived, so a rollout's
`policy_version` is the engine's word, not the trainer's belief.
"""

import gc
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch

from models.engines.base import check_context
from models.engines.vllm_params import (
    check_sampling,
    expect,
    first_line,
    read_outputs,
    read_scores,
    sampling_options,
    scoring_options,
)
from models.engines.weights import check_finite, checkpoint_weights
from models.errors import EngineError
from models.policy.loading import Policy
from models.records import Generation, Request
from models.settings import EngineSettings, SamplingSettings

GIB = 2**30
BATCHED_TOKENS = 4096
"""Tokens that vLLM computes at once, unless one sequence is longer, or more sequences run."""
CACHE_BLOCK = {"cpu": 128, "cuda": 16}
"""Tokens of a sequence for which vLLM sets cache aside at once."""
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a worker process starts five times as slowly, and would not share memory
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmEngine:
    """One vLLM engine for the life of a run."""

    name = "vllm"
    whole_rounds = False

    def __init__(
        self, policy: Policy, engine: EngineSettings, sampling: SamplingSettings, *, longest_prompt: int
    ) -> None:
        """Start vLLM with the policy's architecture; its weights come with the first `sync`.

        Args:
            longest_prompt: tokens of the longest prompt that will be asked for.

        Raises:
            EngineError: vLLM does not import, cannot run the model or sample as asked, or finds too little memory.
        """
        check_sampling(sampling)
        self._policy = policy
        self._sampling = sampling
        self._context = longest_prompt + sampling.max_tokens
        self._on_gpu = policy.model.device.type == "cuda"
        self._asleep = False
        self.policy_version: int | None = None
        _check_memory(policy, engine, self._context)
        self._llm = _start(policy, engine, self._context, on_gpu=self._on_gpu)

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[Generation]]]:
        """Groups as they finish; the prompt of a group is computed once."""
        assert self.policy_version is not None
        check_context(requests, self._sampling.max_tokens, self._context)
        core = self._llm.llm_engine
        waiting: set[str] = set()
        try:
            with _own_errors("taking prompts"):
                for position, request in enumerate(requests):
                    self._add(str(position), request)
                    waiting.add(str(position))
            while waiting:
                with _own_errors("generating"):
                    outputs = core.step()
                for output in outputs:
                    if output.finished:
                        waiting.remove(output.request_id)
                        position = int(output.request_id)
                        yield position, self._read(output.outputs, requests[position])
        finally:
            core.abort_request(sorted(waiting))

    def sync(self, policy_version: int) -> None:
        """Hand the trainer's weights over in memory, and drop every cached prefix."""
        self.policy_version = None
        check_finite(self._policy)
        with _own_errors("taking new weights"):
            if self._asleep:
                torch.cuda.empty_cache()  # else the trainer's allocator keeps what the engine needs
                self._llm.wake_up(tags=["weights"])
            self._llm.collective_rpc("update_policy", args=(checkpoint_weights(self._policy),))
            if self._asleep:
                self._llm.wake_up(tags=["kv_cache"])
                self._asleep = False
            dropped = self._llm.reset_prefix_cache()
        if not dropped:
            raise EngineError("vLLM would not drop its cached prefixes: sequences of the old weights are in flight")
        self._llm.llm_engine.set_weight_version(str(policy_version))
        self.policy_version = policy_version

    def suspend(self) -> None:
        """On a GPU, give weights and cache back to the trainer; vLLM for the CPU has no sleep."""
        if self._on_gpu:
            self._llm.sleep(level=2)
            self._asleep = True
            self.policy_version = None

    def score(self, token_ids: Sequence[int]) -> list[list[float]]:
        """[1, len - 1] log-probabilities of the tokens after the first."""
        from vllm import SamplingParams

        prompt = {"prompt_token_ids": list(token_ids)}
        with _own_errors("scoring"):
            output = self._llm.generate(prompt, SamplingParams(**scoring_options()), use_tqdm=False)[0]
        return [read_scores(output.prompt_logprobs, token_ids, served=False)]

    def close(self) -> None:
        """Stop vLLM and return its memory."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        gc.collect()

    def _add(self, name: str, request: Request) -> None:
        from vllm import SamplingParams

        options = sampling_options(self._sampling, request, self._policy.eos_ids)
        prompt = {"prompt_token_ids": list(request.prompt_token_ids)}
        self._llm.llm_engine.add_request(name, prompt, SamplingParams(**options, output_kind=_final_only()))

    def _read(self, outputs: Sequence[Any], request: Request) -> list[Generation]:
        assert self.policy_version is not None
        label = str(self.policy_version)
        return read_outputs(outputs, expect(self._sampling, request, self._policy, label, self.policy_version))


def _start(policy: Policy, engine: EngineSettings, context: int, *, on_gpu: bool) -> Any:
    os.environ |= _ENVIRONMENT
    try:
        from vllm import LLM
    except Exception as error:  # its compiled parts fail in many ways
        raise EngineError(
            f"engine vllm does not import ({first_line(error)}): make vllm adds it, or use engine transformers"
        ) from error
    with tempfile.TemporaryDirectory(prefix="foreroll-vllm-") as folder:
        policy.model.config.save_pretrained(folder)
        try:
            return LLM(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                dtype=str(policy.dtype).removeprefix("torch."),
                max_model_len=context,
                max_num_seqs=engine.batch_size,
                kv_cache_memory_bytes=int(engine.kv_cache_gib * GIB),
                gpu_memory_utilization=_free_share() if on_gpu else 0.9,
                enforce_eager=not on_gpu,
                enable_sleep_mode=on_gpu,
                enable_prefix_caching=True,
                # On a CPU vLLM cannot take back the random numbers of a seeded request whose prompt came in chunks.
                enable_chunked_prefill=on_gpu,
                max_num_batched_tokens=max(BATCHED_TOKENS, context, engine.batch_size),
                worker_extension_cls="models.engines.vllm_worker.PolicyWorker",
            )
        except Exception as error:
            raise EngineError(
                f"vLLM cannot run {type(policy.model).__name__} here ({first_line(error)}): use engine transformers"
            ) from error


def _check_memory(policy: Policy, engine: EngineSettings, context: int) -> None:
    """Refuse a cache that holds no single sequence, and on a CPU one that does not fit into free memory."""
    width = torch.finfo(policy.dtype).bits // 8
    config: Any = policy.model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    block = CACHE_BLOCK[policy.model.device.type]
    tokens = (math.ceil(context / block) + 1) * block  # vLLM keeps one block empty
    sequence = 2 * config.num_hidden_layers * heads * head_dim * width * tokens / GIB
    if sequence > engine.kv_cache_gib:
        raise EngineError(
            f"engine.kv_cache_gib = {engine.kv_cache_gib:g} holds no sequence of {context} tokens, which takes "
            f"{sequence:.2g} GiB: raise it, or lower sampling.max_tokens"
        )
    if policy.model.device.type != "cpu":
        return
    wanted = engine.kv_cache_gib + policy.model.num_parameters() * width / GIB
    free = psutil.virtual_memory().available / GIB
    if wanted > free:
        raise EngineError(
            f"vLLM wants {wanted:.1f} GiB for weights and cache, and {free:.1f} GiB are free: "
            "lower engine.kv_cache_gib, or use engine transformers"
        )


@contextmanager
def _own_errors(doing: str) -> Iterator[None]:
    """Turn what vLLM raises into an error of the engine; its engine is lost then, and what was finished is kept."""
    try:
        yield
    except Exception as error:
        raise EngineError(
            f"vLLM failed while {doing} ({first_line(error)}): run again, and with a smaller engine.batch_size if "
            "it was memory"
        ) from error


def _free_share() -> float:
    """Share of the GPU's memory that is free; vLLM refuses to start where less than it asks for is."""
    free, total = torch.cuda.mem_get_info()
    return 0.95 * free / total


def _final_only() -> Any:
    from vllm.sampling_params import RequestOutputKind

    return RequestOutputKind.FINAL_ONLY
