"""Makes the checkpoint that ships in `models/policy/countdown_tiny`.

    python scripts/make_tiny_policy.py

Trains a small character-level Llama on random Countdown expressions, so that
reinforcement learning starts from a policy that succeeds now and then: on
about 75, 29 and 9 % of problems with 2, 3 and 4 numbers. Its problems come from
the `warmup` split and never meet the pool or the held-out set. Takes about
twelve minutes, on one core whatever the machine has, since the number of
threads would change the result.
"""

import argparse
import random
from fractions import Fraction
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from models.policy.tiny import build_model, build_tokenizer
from models.problems.countdown import MAX_NUMBER, MAX_TARGET, problem_text, split_of

DESTINATION = Path(__file__).parents[1] / "models" / "policy" / "countdown_tiny"
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}


def random_expression(rng: random.Random, numbers: list[int]) -> tuple[str, Fraction, int]:
    """A random tree over the numbers in order: text, value and precedence of its root."""
    if len(numbers) == 1:
        return str(numbers[0]), Fraction(numbers[0]), 3
    cut = rng.randrange(1, len(numbers))
    left, left_value, left_rank = random_expression(rng, numbers[:cut])
    right, right_value, right_rank = random_expression(rng, numbers[cut:])
    operator = rng.choice("+-*/")
    rank = PRECEDENCE[operator]
    if left_rank < rank:
        left = f"({left})"
    if right_rank < rank or (right_rank == rank and operator in "-/"):
        right = f"({right})"
    value = {
        "+": lambda: left_value + right_value,
        "-": lambda: left_value - right_value,
        "*": lambda: left_value * right_value,
        "/": lambda: left_value / right_value,
    }[operator]()
    return f"{left}{operator}{right}", value, rank


def random_example(rng: random.Random) -> tuple[str, str]:
    """A (prompt, response) pair of the `warmup` split."""
    while True:
        numbers = [rng.randint(1, MAX_NUMBER) for _ in range(rng.choice((2, 3, 3, 4, 4)))]
        try:
            expression, value, _ = random_expression(rng, numbers)
        except ZeroDivisionError:
            continue
        if value.denominator != 1 or not 1 <= value <= MAX_TARGET:
            continue
        shown = rng.sample(numbers, len(numbers))
        if split_of(shown, int(value)) == "warmup":
            return problem_text(shown, int(value)) + "\n", expression


def make_batch(rng: random.Random, tokenizer: PreTrainedTokenizerFast, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, [size, length]; labels are -100 on the prompt and the padding."""
    rows = []
    for _ in range(size):
        prompt, response = random_example(rng)
        prompt_ids = tokenizer.encode(prompt)
        response_ids = [*tokenizer.encode(response), tokenizer.eos_token_id]
        rows.append((prompt_ids + response_ids, [-100] * len(prompt_ids) + response_ids))
    length = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [-100] * (length - len(row)) for _, row in rows])
    return ids, labels


def train(steps: int, batch: int, lr: float, seed: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Supervised training with a linear warm-up and a cosine decay."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = random.Random(seed)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        ids, labels = make_batch(rng, tokenizer, batch)
        logits = model(ids).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)
    return model, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=DESTINATION)
    arguments = parser.parse_args()
    model, tokenizer = train(arguments.steps, arguments.batch, arguments.lr, arguments.seed)
    model.half().save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    print(f"saved to {arguments.out}")


if __name__ == "__main__":
    main()
