"""All randomness of a run, drawn from (run seed, step, purpose)."""

import hashlib

import numpy as np


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from any sequence of words and numbers; stable across machines and versions."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive_rng(*parts: str | int) -> np.random.Generator:
    """A generator seeded by `derive_seed`."""
    return np.random.Generator(np.random.Philox(derive_seed(*parts)))
