"""Seeds: the same everywhere and for ever, and apart for every purpose."""

import hashlib

import numpy as np
import pytest
from scipy.stats import kstest

from models.seeding import derive_rng, derive_seed


@pytest.mark.parametrize(
    ("parts", "seed"),
    [
        ((0,), 3696793467068528757),
        ((0, 1, "acquire", 0), 1462510713641679730),
        ((7, 12, "forecast"), 2671181093527574369),
        (("\u00fc", -1), 3512311388291998437),
    ],
)
def test_seeds_are_golden(parts: tuple[str | int, ...], seed: int) -> None:
    """Stored runs replay from these: a change breaks every one of them."""
    assert derive_seed(*parts) == seed


def test_a_seed_is_the_top_63_bits_of_the_digest_of_its_typed_parts() -> None:
    digest = hashlib.sha256(b"int:3\x1fstr:update").hexdigest()
    assert derive_seed(3, "update") == int(digest[:16], 16) // 2


def test_every_difference_makes_another_seed() -> None:
    calls: list[tuple[str | int, ...]] = [
        (1, 2, "a"),
        (2, 1, "a"),
        (12, "a"),
        (1, "2", "a"),
        ("1", 2, "a"),
        (1, 2, "a", 0),
        (1, 2, "a", ""),
        (1, 2, "A"),
        (),
    ]
    calls += [(seed, step, purpose) for seed in range(5) for step in range(20) for purpose in ("acquire", "forecast")]
    assert len({derive_seed(*parts) for parts in calls}) == len(calls)


def test_seeds_fit_every_generator() -> None:
    seeds = [derive_seed(step, "x") for step in range(2000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert kstest(np.array(seeds) / 2.0**63, "uniform").pvalue > 0.01


def test_a_generator_repeats_itself_and_no_other() -> None:
    first, again, other = (derive_rng(0, step, "acquire").random(5) for step in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert not np.isin(first, other).any()
    assert first.tolist() == np.random.Generator(np.random.Philox(derive_seed(0, 1, "acquire"))).random(5).tolist()
