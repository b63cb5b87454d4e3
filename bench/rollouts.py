"""Tokens per second of `generate_rollouts` on vLLM, beside a bare `LLM.generate` and the transformers engine.

    python bench/rollouts.py [--quick]

All three sample the same requests with the same weights, in this process. The
task's time holds the reading of the batch and the writing of tokens and
rollouts. Needs vLLM (make vllm) and the weights of SmolLM2 (make smollm2).
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.environment import apply_defaults

apply_defaults()

from bench_pages import finish  # noqa: E402

from flows.config import build_config  # noqa: E402
from models.engines.base import generate_all  # noqa: E402
from models.engines.hf import TransformersEngine  # noqa: E402
from models.engines.vllm_params import sampling_options  # noqa: E402
from models.records import Request  # noqa: E402
from tasks.acquire import acquire_batch  # noqa: E402
from tasks.generate import generate_rollouts, make_request  # noqa: E402
from tasks.opening import open_workbench  # noqa: E402
from tasks.predict import predict_difficulty  # noqa: E402
from tasks.workbench import Workbench, workbench  # noqa: E402

MODELS = {
    "smollm2": {"preset": "smollm2", "policy": {"dtype": "bfloat16"}, "sampling": {"max_tokens": 32}},
    "countdown-tiny": {"preset": "countdown"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small round a model, and no page")
    quick = parser.parse_args().quick
    prompts, rounds = (8, 1) if quick else (32, 3)
    figures = {}
    print(f"{'':16}{'task':>10}{'bare':>10}{'hf':>10}   tokens/s    task/bare   task/hf")
    for name, values in MODELS.items():
        with TemporaryDirectory() as folder:
            figures[name] = measure(Path(folder) / "store", values, prompts, rounds)
        one = figures[name]
        print(
            f"{name:16}{one['task']:10.0f}{one['bare']:10.0f}{one['transformers']:10.0f}"
            f"{one['task_over_bare']:23.3f}{one['task_over_transformers']:10.2f}"
        )
    finish("rollouts", {"prompts": prompts, "samples": 8, "rounds": rounds, **figures}, write_page=not quick)


def measure(store: Path, values: dict[str, Any], prompts: int, rounds: int) -> dict[str, float]:
    """Tokens per second of each, over some rounds that alternate, after one that warms up."""
    config = build_config(
        {
            **values,
            "store": str(store),
            "engine": {"name": "vllm", "batch_size": 256},
            "acquisition": {"name": "uniform", "batch_size": prompts},
            "predictor": "mopps",
        }
    )
    totals = {name: [0, 0.0] for name in ("task", "bare", "transformers")}
    with open_workbench(config.plan()) as (bench, _):
        for step in range(1, rounds + 2):
            for name, (tokens, seconds) in one_round(bench, step).items():
                if step > 1:
                    totals[name][0] += tokens
                    totals[name][1] += seconds
    rate = {name: tokens / seconds for name, (tokens, seconds) in totals.items()}
    return {
        **rate,
        "tokens": totals["task"][0],
        "task_over_bare": rate["task"] / rate["bare"],
        "task_over_transformers": rate["task"] / rate["transformers"],
    }


def one_round(bench: Workbench, step: int) -> dict[str, tuple[int, float]]:
    """Tokens and seconds of each on the batch of one step."""
    predict_difficulty.fn(bench.run, step)
    acquire_batch.fn(bench.run, step)
    table = bench.history.read("acquisitions", step)
    chosen = [row["prompt_id"] for row in table.to_pylist() if row["rank"] is not None]
    k = bench.settings.sampling.group_size
    requests = [make_request(bench, bench.train, bench.row_of[prompt], step, k) for prompt in chosen]
    bench.engine.sync(
        bench.policy_version
    )  # drops the prefixes of the round before, for the trainer's time is not ours
    task = timed(lambda: run_task(bench.run, step))
    bench.engine.sync(bench.policy_version)
    bare = timed(lambda: generate_bare(bench, requests))
    other = TransformersEngine(bench.policy, bench.settings.engine, bench.settings.sampling)
    other.sync(bench.policy_version)
    return {"task": task, "bare": bare, "transformers": timed(lambda: count(generate_all(other, requests)))}


def run_task(run: str, step: int) -> int:
    generate_rollouts.fn(run, step)
    return sum(workbench(run).history.read("rollouts", step)["response_tokens"].to_pylist())


def generate_bare(bench: Workbench, requests: list[Request]) -> int:
    from vllm import SamplingParams

    llm: Any = getattr(bench.engine, "_llm")  # noqa: B009
    prompts = [{"prompt_token_ids": list(request.prompt_token_ids)} for request in requests]
    params = [
        SamplingParams(**sampling_options(bench.settings.sampling, request, bench.policy.eos_ids))
        for request in requests
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return sum(len(sample.token_ids) for output in outputs for sample in output.outputs)


def count(groups: list[list[Any]]) -> int:
    return sum(len(row.token_ids) for group in groups for row in group)


def timed(generate: Callable[[], int]) -> tuple[int, float]:
    start = time.perf_counter()
    tokens = generate()
    return tokens, time.perf_counter() - start


if __name__ == "__main__":
    main()
