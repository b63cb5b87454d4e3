"""The verifiers that problems can name."""

from models.rewards.arithmetic import verify_arithmetic
from models.rewards.base import Verifier
from models.rewards.countdown import verify_countdown

VERIFIERS: dict[str, Verifier] = {
    "arithmetic": verify_arithmetic,
    "countdown": verify_countdown,
}
