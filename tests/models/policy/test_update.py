import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from models.policy.loading import Policy, load_policy, model_digest, save_policy
from models.policy.logprobs import pack_micro_batches, token_logprobs
from models.policy.tiny import build_tokenizer
from models.policy.update import PolicyTrainer
from models.records import Sample
from models.settings import UpdateSettings

CPU = torch.device("cpu")


def make_policy(dtype: torch.dtype = torch.float32) -> Policy:
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.2,
    )
    return Policy(model=LlamaForCausalLM(config).eval(), tokenizer=tokenizer, dtype=dtype)


def make_samples(count: int = 12, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)

    def tokens(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.integers(3, 99, rng.integers(low, high)).tolist())

    return [Sample(tokens(3, 12), (*tokens(1, 9), 1), float(rng.normal())) for _ in range(count)]


def make_trainer(policy: Policy, temperature: float = 1.0, **settings) -> PolicyTrainer:
    return PolicyTrainer(policy, UpdateSettings(**settings), temperature=temperature)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in policy.model.named_parameters()}


def same_bytes(first: dict, second: dict) -> bool:
    return all(np.array_equal(np.asarray(first[name]), np.asarray(second[name]), equal_nan=True) for name in first)


def plain_logprobs(policy: Policy, sample: Sample, temperature: float) -> torch.Tensor:
    """One unpadded forward pass and torch's own log-softmax."""
    ids = torch.tensor([sample.prompt_token_ids + sample.token_ids])
    logits = policy.model(ids).logits[0] / temperature
    start = len(sample.prompt_token_ids)
    return torch.stack(
        [torch.log_softmax(logits[start + i - 1], -1)[token] for i, token in enumerate(sample.token_ids)]
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_and_entropies_equal_a_plain_forward_pass(temperature):
    policy, samples = make_policy(), make_samples()
    for batch in pack_micro_batches(samples, 100, policy.pad_id, CPU):
        with torch.no_grad():
            logprobs, entropies = token_logprobs(policy, batch, temperature)
        for row, sample in enumerate(batch.samples):
            mask = batch.response_BT[row]
            torch.testing.assert_close(logprobs[row][mask], plain_logprobs(policy, sample, temperature).detach())
            assert int(mask.sum()) == len(sample.token_ids)
            assert bool((logprobs[row][~mask] == 0).all())
        ids, start = torch.tensor([sample.prompt_token_ids + sample.token_ids]), len(sample.prompt_token_ids)
        with torch.no_grad():
            final = policy.model(ids).logits[0, start - 1 : -1] / temperature
        expected = torch.distributions.Categorical(logits=final).entropy()
        torch.testing.assert_close(entropies[row][mask], expected)


def test_every_sample_is_packed_once_within_the_budget():
    samples = make_samples(40)
    for budget in (1, 30, 64, 1000):
        batches = list(pack_micro_batches(samples, budget, 0, CPU))
        assert sorted(map(hash, (sample for batch in batches for sample in batch.samples))) == sorted(
            map(hash, samples)
        )
        assert all(batch.ids_BL.numel() <= budget or len(batch.samples) == 1 for batch in batches)


def test_the_first_step_is_adamw_on_the_closed_form_gradient():
    policy, samples = make_policy(), make_samples()
    twin = make_policy()
    tokens = sum(len(sample.token_ids) for sample in samples)
    loss = -sum(sample.advantage * plain_logprobs(twin, sample, 0.7).sum() for sample in samples) / tokens
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(twin.model.parameters(), 0.05)
    torch.optim.AdamW(twin.model.parameters(), lr=1e-3, weight_decay=0.1).step()
    stats = make_trainer(policy, 0.7, lr=1e-3, weight_decay=0.1, max_grad_norm=0.05).update(samples, seed=0)
    assert stats.grad_norm == pytest.approx(float(norm), rel=1e-4) and stats.grad_norm > 0.05
    expected_loss = -sum(sample.advantage * len(sample.token_ids) for sample in samples) / tokens
    assert stats.loss == pytest.approx(expected_loss, rel=1e-5)
    assert (stats.kl, stats.clip_fraction, stats.tokens, stats.skipped) == (0.0, 0.0, tokens, "")
    for name, weight in weights(twin).items():
        torch.testing.assert_close(weights(policy)[name], weight, atol=2e-5, rtol=1e-4)


def gradients(budget: int, samples: list[Sample]) -> dict[str, torch.Tensor]:
    """What a micro-batching hands the optimiser, read off its first moment (0.1 of the gradient)."""
    trainer = make_trainer(make_policy(), token_budget=budget, max_grad_norm=1e9)
    trainer.update(samples, seed=0)
    state = trainer.state_dict()
    return {name: torch.from_numpy(value) * 10 for name, value in state.items() if name.endswith(".exp_avg")}


def test_the_token_budget_does_not_change_the_gradient():
    samples = make_samples(20)
    whole = gradients(100_000, samples)
    for name, gradient in gradients(64, samples).items():
        torch.testing.assert_close(gradient, whole[name], atol=1e-6, rtol=1e-5)


def test_uninformative_samples_count_in_the_denominator_alone():
    samples = make_samples(10)
    flat = [Sample(sample.prompt_token_ids, sample.token_ids, 0.0) for sample in make_samples(10, seed=1)]
    alone, diluted = gradients(64, samples), gradients(64, samples + flat)
    tokens = [sum(len(sample.token_ids) for sample in group) for group in (samples, samples + flat)]
    for name, gradient in alone.items():
        torch.testing.assert_close(diluted[name] * tokens[1] / tokens[0], gradient, atol=1e-6, rtol=1e-4)
    stats = make_trainer(make_policy()).update(samples + flat, seed=0)
    assert stats.tokens == tokens[0]


def test_a_batch_without_an_informative_group_takes_no_step():
    policy = make_policy()
    trainer, before = make_trainer(policy), weights(policy)
    for samples in ([], [Sample((5, 6), (7, 1), 0.0)]):
        stats = trainer.update(samples, seed=0)
        assert stats.skipped == "no informative group" and math.isnan(stats.loss) and stats.tokens == 0
    assert same_bytes(weights(policy), before)
    assert all(not value.any() for value in trainer.state_dict().values())


@pytest.mark.parametrize("minibatches", [1, 3])
@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_non_finite_update_is_taken_back_to_the_bit(minibatches, advantage):
    policy = make_policy()
    trainer = make_trainer(policy, minibatches=minibatches, lr=1e-2)
    trainer.update(make_samples(), seed=0)
    before, state = weights(policy), trainer.state_dict()
    good = make_samples(12, seed=2)
    stats = trainer.update([*good, Sample((5, 6), (7, 1), advantage)], seed=1)
    assert "loss is" in stats.skipped and math.isnan(stats.kl)
    assert same_bytes(weights(policy), before) and same_bytes(trainer.state_dict(), state)
    assert trainer.update(good, seed=2).skipped == ""


def test_a_gradient_that_overflows_is_taken_back_too():
    policy = make_policy()
    trainer, before = make_trainer(policy), weights(policy)
    stats = trainer.update([Sample((5, 6), (7, 1), 3e38), Sample((5, 6), (8, 1), -1e38)], seed=0)
    assert stats.skipped
    assert same_bytes(weights(policy), before)


def test_later_minibatches_are_off_policy_against_the_weights_of_the_start():
    policy, samples = make_policy(), make_samples(16)
    stats = make_trainer(policy, minibatches=4, lr=3e-2).update(samples, seed=3)
    assert stats.kl > 0.0 and 0.0 < stats.clip_fraction < 1.0
    assert stats.tokens == sum(len(sample.token_ids) for sample in samples)


def test_two_minibatches_equal_a_hand_written_loop():
    samples, twin = make_samples(8), make_policy()
    order = np.random.Generator(np.random.Philox(5)).permutation(8)
    with torch.no_grad():
        olds = [plain_logprobs(twin, sample, 1.0) for sample in samples]
    optimizer = torch.optim.AdamW(twin.model.parameters(), lr=1e-2, weight_decay=0.01)
    for part in np.array_split(order, 2):
        tokens = sum(len(samples[index].token_ids) for index in part)
        loss = torch.zeros(())
        for index in part:
            ratio = (plain_logprobs(twin, samples[index], 1.0) - olds[index]).exp()
            advantage = samples[index].advantage
            loss = loss - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).sum() / tokens
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.model.parameters(), 1.0)
        optimizer.step()
    policy = make_policy()
    make_trainer(policy, lr=1e-2, minibatches=2).update(samples, seed=5)
    for name, weight in weights(twin).items():
        torch.testing.assert_close(weights(policy)[name], weight, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_the_same_inputs_give_the_same_bytes(minibatches):
    runs = []
    for _ in range(2):
        policy = make_policy()
        trainer = make_trainer(policy, minibatches=minibatches, token_budget=90)
        for step in range(3):
            trainer.update(make_samples(seed=step), seed=step)
        runs.append((weights(policy), trainer.state_dict()))
    assert same_bytes(runs[0][0], runs[1][0]) and same_bytes(runs[0][1], runs[1][1])


def test_a_run_saved_and_reloaded_goes_on_to_the_same_bytes(tmp_path: Path):
    straight = make_policy()
    trainer = make_trainer(straight)
    for step in range(4):
        trainer.update(make_samples(seed=step), seed=step)

    first = make_policy()
    half = make_trainer(first)
    for step in range(2):
        half.update(make_samples(seed=step), seed=step)
    save_policy(first, tmp_path / "policy")
    save_file(half.state_dict(), tmp_path / "optimizer.safetensors")

    resumed = load_policy(str(tmp_path / "policy"))
    other = make_trainer(resumed)
    other.load_state_dict(load_file(tmp_path / "optimizer.safetensors"))
    for step in range(2, 4):
        other.update(make_samples(seed=step), seed=step)
    assert same_bytes(weights(resumed), weights(straight))
    assert same_bytes(other.state_dict(), trainer.state_dict())
    save_policy(resumed, tmp_path / "resumed")
    save_policy(straight, tmp_path / "straight")
    assert model_digest(tmp_path / "resumed") == model_digest(tmp_path / "straight")


def test_bfloat16_runs_forward_in_half_and_keeps_the_weights_in_float32():
    policy = make_policy(torch.bfloat16)
    seen = []
    policy.model.model.layers[0].mlp.gate_proj.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    stats = make_trainer(policy).update(make_samples(), seed=0)
    assert stats.skipped == "" and set(seen) == {torch.bfloat16}
    assert {weight.dtype for weight in weights(policy).values()} == {torch.float32}


def test_training_on_a_rewarded_response_makes_it_likelier():
    policy = make_policy()
    good, bad = Sample((5, 6, 7), (8, 9, 1), 1.0), Sample((5, 6, 7), (10, 11, 1), -1.0)
    before = [float(plain_logprobs(policy, sample, 1.0).sum().detach()) for sample in (good, bad)]
    make_trainer(policy, lr=1e-3).update([good, bad], seed=0)
    after = [float(plain_logprobs(policy, sample, 1.0).sum().detach()) for sample in (good, bad)]
    assert after[0] > before[0] and after[1] < before[1]


def with_sampler(policy: Policy, samples: list[Sample], noise: float) -> tuple[list[Sample], np.ndarray]:
    """The samples as an engine would report them whose log-probabilities are off by noise, and that noise."""
    rng = np.random.default_rng(5)
    offsets, reported = [], []
    for sample in samples:
        with torch.no_grad():
            exact = plain_logprobs(policy, sample, 1.0).numpy()
        offset = rng.normal(0, noise, len(exact))
        offsets.append(offset)
        reported.append(replace(sample, logprobs=tuple((exact - offset).tolist())))
    return reported, np.concatenate(offsets)


def test_the_gap_to_the_engine_and_the_importance_ratios_are_reported():
    policy = make_policy()
    samples, offsets = with_sampler(policy, make_samples(), noise=0.5)
    stats = make_trainer(policy, importance_cap=1.3).update(samples, seed=0)
    assert stats.logprob_gap == pytest.approx(np.abs(offsets).mean(), rel=1e-4)
    assert stats.importance_mean == pytest.approx(np.exp(offsets).mean(), rel=1e-4)
    assert stats.importance_capped == pytest.approx((np.exp(offsets) > 1.3).mean(), abs=1e-6)


def test_without_a_cap_no_ratio_is_reported_and_at_another_temperature_no_gap():
    samples, _ = with_sampler(make_policy(), make_samples(), noise=0.5)
    assert math.isnan(make_trainer(make_policy()).update(samples, seed=0).importance_mean)
    assert math.isnan(make_trainer(make_policy(), temperature=0.7).update(samples, seed=0).logprob_gap)


def test_an_engine_that_agrees_changes_nothing_under_importance_sampling():
    plain, weighted = make_policy(), make_policy()
    samples, _ = with_sampler(plain, make_samples(), noise=0.0)
    make_trainer(plain).update(samples, seed=0)
    make_trainer(weighted, importance_cap=2.0).update(samples, seed=0)
    for name, weight in weights(plain).items():
        torch.testing.assert_close(weights(weighted)[name], weight, atol=1e-6, rtol=1e-4)


def test_importance_weights_scale_the_gradient_token_by_token():
    """One token a response: its weight multiplies its advantage."""
    samples = [Sample((5, 6, 7 + row), (9 + row,), (-1.0) ** row) for row in range(4)]
    plain, weighted = make_policy(), make_policy()
    noisy, offsets = with_sampler(weighted, samples, noise=0.3)
    scale = np.minimum(np.exp(offsets), 1.2)
    scaled = [replace(one, advantage=one.advantage * float(factor)) for one, factor in zip(samples, scale, strict=True)]
    make_trainer(plain).update(scaled, seed=0)
    make_trainer(weighted, importance_cap=1.2).update(noisy, seed=0)
    for name, weight in weights(plain).items():
        torch.testing.assert_close(weights(weighted)[name], weight, atol=1e-6, rtol=1e-4)
