import pytest
import torch
from scipy.stats import chisquare

from models.engines import build_engine
from models.engines.base import generate_all
from models.engines.parity import measure_drift, trainer_scores
from models.engines.vllm_local import VllmEngine, _check_memory
from models.engines.weights import checkpoint_weights
from models.errors import EngineError
from models.records import Request
from models.settings import EngineSettings, SamplingSettings
from tests.models.engines.vllm_setup import LONGEST_PROMPT, make_requests, mean_gap, perturb, tiny_policy

F32_BAR = 1e-4
PROBE = (23, 15, 25, 15, 27, 23, 20, 21, 5, 6, 7, 8)


def test_the_engine_gives_k_rollouts_a_request_in_order(vllm):
    engine, policy = vllm
    requests = make_requests(policy, samples=5)
    groups = generate_all(engine, requests)
    assert [len(group) for group in groups] == [5] * len(requests)
    for row in (row for group in groups for row in group):
        assert len(row.logprobs) == len(row.token_ids) <= 16
        assert (row.token_ids[-1] in policy.eos_ids) == (row.finish_reason == "stop")
        assert row.finish_reason == "stop" or len(row.token_ids) == 16


def test_the_same_seeds_give_the_same_rollouts_in_any_company(vllm):
    engine, policy = vllm
    requests = make_requests(policy)
    together = generate_all(engine, requests)
    alone = [generate_all(engine, [request])[0] for request in requests]
    assert [[row.token_ids for row in group] for group in alone] == [
        [row.token_ids for row in group] for group in together
    ]
    assert len({row.token_ids for row in together[0]}) > 1


def test_the_ith_rollout_is_drawn_from_the_seed_plus_i(vllm):
    engine, policy = vllm
    [group] = generate_all(engine, make_requests(policy)[:1])
    request = make_requests(policy)[0]
    for sample, row in enumerate(group):
        [[alone]] = generate_all(engine, [Request(request.prompt_token_ids, request.seed + sample, samples=1)])
        assert alone.token_ids == row.token_ids


def test_first_tokens_are_distributed_as_the_model_says(vllm):
    engine, policy = vllm
    prompt = make_requests(policy)[0].prompt_token_ids
    [group] = generate_all(engine, [Request(prompt, seed=7, samples=2000)])
    with torch.no_grad():
        expected = policy.model(torch.tensor([prompt])).logits[0, -1].double().softmax(-1) * len(group)
    counts = torch.bincount(torch.tensor([row.token_ids[0] for row in group]), minlength=len(expected))
    common = expected >= 5
    observed = [*counts[common].tolist(), int(counts[~common].sum())]
    wanted = [*expected[common].tolist(), float(expected[~common].sum())]
    assert chisquare(observed, wanted).pvalue > 1e-3


def test_after_each_of_five_updates_engine_and_trainer_agree_on_what_was_sampled(vllm):
    engine, policy = vllm
    for version in range(1, 6):
        perturb(policy, seed=version)
        engine.sync(version)
        requests = make_requests(policy)
        groups = generate_all(engine, requests)
        assert mean_gap(policy, requests, groups) <= F32_BAR
        assert {row.policy_version for group in groups for row in group} == {version}


def test_a_skipped_sync_is_caught_by_the_probe(vllm):
    engine, policy = vllm
    assert measure_drift(engine, policy, PROBE).mean <= F32_BAR
    perturb(policy, seed=9)
    assert measure_drift(engine, policy, PROBE).mean > 100 * F32_BAR
    engine.sync(1)
    assert measure_drift(engine, policy, PROBE).mean <= F32_BAR


def test_a_stale_tied_head_is_caught_by_the_probe(vllm):
    """vLLM's own reload leaves the head's packed copy as it was."""
    engine, policy = vllm
    perturb(policy, seed=9)
    weights = iter(checkpoint_weights(policy))
    engine._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
    assert measure_drift(engine, policy, PROBE).mean > 100 * F32_BAR


def test_cached_prefixes_of_old_weights_are_forgotten(vllm):
    engine, policy = vllm
    long = Request((23,) * LONGEST_PROMPT, seed=1, samples=4)
    generate_all(engine, [long])
    perturb(policy, seed=3, size=0.3)
    engine.sync(1)
    groups = generate_all(engine, [long])
    assert mean_gap(policy, [long], groups) <= F32_BAR


def test_the_trainers_scores_are_those_of_a_plain_forward_pass(vllm):
    _, policy = vllm
    ids = torch.tensor([PROBE])
    with torch.no_grad():
        logprobs = policy.model(ids).logits[0, :-1].log_softmax(-1)
    expected = logprobs.gather(-1, ids[0, 1:, None])[:, 0].tolist()
    assert trainer_scores(policy, PROBE) == pytest.approx(expected, abs=1e-5)


def test_rollouts_of_another_version_than_the_synced_are_refused(vllm):
    engine, policy = vllm
    engine._llm.llm_engine.set_weight_version("default")
    with pytest.raises(EngineError, match="version default, not 0"):
        generate_all(engine, make_requests(policy))
    engine.sync(1)
    assert generate_all(engine, make_requests(policy))


def test_a_broken_off_round_leaves_nothing_in_flight(vllm):
    engine, policy = vllm
    groups = engine.generate(make_requests(policy))
    next(groups)
    groups.close()
    assert not engine._llm.llm_engine.has_unfinished_requests()
    engine.sync(1)


def test_a_prompt_without_room_for_a_response_is_refused_before_generation(vllm):
    engine, policy = vllm
    long = Request((40,) * (LONGEST_PROMPT + 1), seed=1, samples=1)
    with pytest.raises(ValueError, match=f"prompt 1 has {LONGEST_PROMPT + 1} tokens"):
        generate_all(engine, [make_requests(policy)[0], long])


def test_a_request_that_vllm_refuses_is_one_line_and_leaves_none_in_flight(vllm):
    engine, policy = vllm
    with pytest.raises(EngineError, match="vLLM failed while taking prompts"):
        generate_all(engine, [make_requests(policy)[0], Request((), seed=1, samples=1)])
    assert not engine._llm.llm_engine.has_unfinished_requests()
    assert generate_all(engine, make_requests(policy))


def test_weights_that_are_not_finite_are_named(vllm):
    engine, policy = vllm
    with torch.no_grad():
        policy.model.get_input_embeddings().weight[0, 0] = float("nan")
    with pytest.raises(EngineError, match="weights are not finite"):
        engine.sync(1)
    assert engine.policy_version is None


@pytest.mark.parametrize(
    ("tied", "dtype", "bar"),
    [(False, torch.float32, F32_BAR), (True, torch.bfloat16, 0.06)],
    ids=["untied", "bfloat16"],
)
def test_other_policies_agree_after_five_updates_too(vllm_session, tied: bool, dtype: torch.dtype, bar: float):
    policy = tiny_policy(tied=tied, dtype=dtype)
    settings = EngineSettings(name="vllm", kv_cache_gib=0.1, batch_size=64)
    engine, reason = build_engine(policy, settings, SamplingSettings(max_tokens=16), longest_prompt=LONGEST_PROMPT)
    assert isinstance(engine, VllmEngine) and reason == ""
    requests = make_requests(policy)
    for version in range(1, 6):
        perturb(policy, seed=version)
        engine.sync(version)
        assert mean_gap(policy, requests, generate_all(engine, requests)) <= bar
    engine.close()


def test_a_cache_that_holds_no_sequence_is_one_line_before_anything_starts():
    with pytest.raises(EngineError, match=r"kv_cache_gib = 1e-06 holds no sequence of 48 tokens.*raise it"):
        VllmEngine(tiny_policy(), EngineSettings(kv_cache_gib=1e-6), SamplingSettings(max_tokens=16), longest_prompt=32)


def test_more_memory_than_is_free_is_one_line_before_anything_starts():
    with pytest.raises(EngineError, match=r"vLLM wants 100000\.0 GiB .* GiB are free: lower engine\.kv_cache_gib"):
        VllmEngine(tiny_policy(), EngineSettings(kv_cache_gib=1e5), SamplingSettings(max_tokens=16), longest_prompt=32)


def test_auto_falls_back_to_transformers_and_says_why():
    engine, reason = build_engine(
        tiny_policy(), EngineSettings(name="auto", kv_cache_gib=1e5), SamplingSettings(max_tokens=16), longest_prompt=32
    )
    assert engine.name == "transformers"
    assert "GiB are free" in reason


def test_a_cache_must_hold_whole_blocks_and_an_empty_one():
    """48 tokens take a block of 128; 2 tensors of 4 layers, 6 heads, 32 numbers and 4 bytes a token."""
    needed = 2 * 4 * 6 * 32 * 4 * (128 + 128) / 2**30
    policy = tiny_policy()
    with pytest.raises(EngineError, match="holds no sequence of 48 tokens"):
        _check_memory(policy, EngineSettings(kv_cache_gib=0.99 * needed), 48)
    _check_memory(policy, EngineSettings(kv_cache_gib=1.01 * needed), 48)


@pytest.mark.slow
def test_more_sequences_at_once_than_tokens_are_computed_at_once_is_fine():
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    policy = tiny_policy()
    settings = EngineSettings(name="vllm", kv_cache_gib=0.1, batch_size=5000)
    engine = VllmEngine(policy, settings, SamplingSettings(max_tokens=16), longest_prompt=LONGEST_PROMPT)
    engine.sync(0)
    assert len(generate_all(engine, make_requests(policy))) == 5
    engine.close()
