import pytest
import torch
from scipy.stats import chisquare
from transformers import GenerationConfig

from models.engines.base import generate_all
from models.engines.hf import TransformersEngine
from models.policy.loading import Policy, load_policy
from models.records import Generation, Request
from models.settings import EngineSettings, SamplingSettings

PROBLEMS = ["3 7 20 -> 41", "4 9 -> 13", "1 2 3 4 -> 10", "19 20 -> 1", "12 5 5 -> 11"]


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("countdown-tiny")


def make_requests(policy: Policy, seeds: int = 6) -> list[Request]:
    return [
        Request(tuple(policy.tokenizer.encode(text + "\n")), seed=100 * index, samples=seeds)
        for index, text in enumerate(PROBLEMS)
    ]


def generate(policy: Policy, requests: list[Request], batch_size: int = 256, **sampling) -> list[list[Generation]]:
    engine = TransformersEngine(policy, EngineSettings(batch_size=batch_size), SamplingSettings(**sampling))
    engine.sync(3)
    return generate_all(engine, requests)


def test_results_come_in_the_order_of_requests_and_seeds(tiny: Policy):
    requests = make_requests(tiny)
    together = generate(tiny, requests)
    assert [len(group) for group in together] == [6] * len(requests)
    for request, group in zip(requests, together, strict=True):
        for seed, generation in zip(request.seeds, group, strict=True):
            [[alone]] = generate(tiny, [Request(request.prompt_token_ids, seed, samples=1)], batch_size=1)
            assert alone.token_ids == generation.token_ids
            assert alone.finish_reason == generation.finish_reason
            assert alone.logprobs == pytest.approx(generation.logprobs, abs=1e-4)


def test_batches_of_any_size_give_the_same_tokens(tiny: Policy):
    requests = make_requests(tiny)
    whole = [[row.token_ids for row in group] for group in generate(tiny, requests)]
    for batch_size in (1, 7):
        assert [[row.token_ids for row in group] for group in generate(tiny, requests, batch_size)] == whole


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.7}, {"top_p": 0.6}])
def test_logprobs_are_the_raw_models_by_a_plain_forward_pass(tiny: Policy, sampling: dict):
    for request, group in zip(make_requests(tiny), generate(tiny, make_requests(tiny), **sampling), strict=True):
        for row in group:
            ids = torch.tensor([request.prompt_token_ids + row.token_ids])
            with torch.no_grad():
                logprobs = torch.log_softmax(tiny.model(ids).logits[0, len(request.prompt_token_ids) - 1 : -1], -1)
            expected = logprobs.gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0].tolist()
            assert row.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_response_ends_with_its_end_token_or_at_its_longest(tiny: Policy):
    rows = [row for group in generate(tiny, make_requests(tiny, seeds=30), max_tokens=8) for row in group]
    assert {row.finish_reason for row in rows} == {"stop", "length"}
    for row in rows:
        assert len(row.token_ids) == len(row.logprobs) <= 8
        assert 1 not in row.token_ids[:-1]
        assert (row.token_ids[-1] == 1) == (row.finish_reason == "stop")
        assert row.finish_reason == "stop" or len(row.token_ids) == 8


def test_any_of_several_end_tokens_ends_a_response(tiny: Policy, monkeypatch: pytest.MonkeyPatch):
    plus = tiny.tokenizer.convert_tokens_to_ids("+")
    monkeypatch.setattr(tiny.model, "generation_config", GenerationConfig(eos_token_id=[1, plus]))
    rows = [row for group in generate(tiny, make_requests(tiny, seeds=20)) for row in group]
    assert {row.token_ids[-1] for row in rows if row.finish_reason == "stop"} == {1, plus}
    assert all(plus not in row.token_ids[:-1] for row in rows)


def test_first_tokens_are_distributed_as_the_model_says(tiny: Policy):
    prompt = tuple(tiny.tokenizer.encode(PROBLEMS[0] + "\n"))
    [rows] = generate(tiny, [Request(prompt, seed=0, samples=800)], batch_size=800, max_tokens=1)
    with torch.no_grad():
        probs = torch.softmax(tiny.model(torch.tensor([prompt])).logits[0, -1].double(), -1)
    counts = torch.bincount(torch.tensor([row.token_ids[0] for row in rows]), minlength=len(probs))
    common = probs * 800 >= 5
    seen = [*counts[common].tolist(), int(counts[~common].sum())]
    expected = [*(probs[common] * 800).tolist(), float(probs[~common].sum()) * 800]
    assert chisquare(seen, expected).pvalue > 0.01


def test_generation_defaults_of_the_model_change_nothing(tiny: Policy, monkeypatch: pytest.MonkeyPatch):
    requests = make_requests(tiny)
    plain = generate(tiny, requests)
    meddling = GenerationConfig(
        eos_token_id=1, repetition_penalty=3.0, no_repeat_ngram_size=1, max_length=3, do_sample=True, top_k=1
    )
    monkeypatch.setattr(tiny.model, "generation_config", meddling)
    assert generate(tiny, requests) == plain
    assert tiny.model.generation_config is meddling


def test_a_prompt_without_room_for_a_response_is_refused_before_generation(tiny: Policy):
    long = Request(tuple([40] * 120), seed=1, samples=1)
    with pytest.raises(ValueError, match=r"prompt 1 has 120 tokens.*context of 128"):
        generate(tiny, [make_requests(tiny)[0], long])


def test_no_requests_give_no_results(tiny: Policy):
    assert generate(tiny, []) == []


def test_bfloat16_sampling_stays_near_the_full_model(tiny: Policy):
    half = Policy(tiny.model, tiny.tokenizer, torch.bfloat16)
    request = make_requests(tiny, seeds=1)[0]
    [[row]] = generate(half, [request])
    ids = torch.tensor([request.prompt_token_ids + row.token_ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(tiny.model(ids).logits[0, len(request.prompt_token_ids) - 1 : -1], -1)
    expected = logprobs.gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0].tolist()
    assert row.logprobs == pytest.approx(expected, abs=0.2)


def test_rollouts_carry_the_version_that_was_synced(tiny: Policy):
    engine = TransformersEngine(tiny, EngineSettings(), SamplingSettings(max_tokens=1))
    engine.sync(3)
    [[first], *_] = generate_all(engine, make_requests(tiny, seeds=1))
    engine.sync(4)
    [[second], *_] = generate_all(engine, make_requests(tiny, seeds=1))
    assert (first.policy_version, second.policy_version) == (3, 4)
    engine.close()
