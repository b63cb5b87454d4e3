"""What each predictor reads of the pool beside its prompts' ids; no torch."""

from typing import TypeGuard

from models.settings import DepoSettings, DotsSettings, ForerollSettings, GpSettings, GpsSettings, PredictorSettings

STATIC = "static"
"""The encoder of `depo` that is the pool's embeddings."""


def encoder_of(settings: PredictorSettings, static: str) -> str:
    """What encodes the prompts that the predictor reads; empty where it reads only what is counted.

    Args:
        static: the encoder behind `Pool.embeddings`.
    """
    if reads_embeddings(settings):
        return static
    return settings.encoder if isinstance(settings, DepoSettings) else ""


def reads_embeddings(settings: PredictorSettings) -> bool:
    """Whether the predictor needs `Pool.embeddings`."""
    if isinstance(settings, DepoSettings):
        return settings.encoder == STATIC
    return isinstance(settings, GpsSettings | GpSettings | DotsSettings | ForerollSettings)


def past_wanted(settings: PredictorSettings) -> str:
    """Which past runs the predictor reads into `Pool.past`, as the setting says it; `none` where it reads none."""
    return settings.past if reads_past(settings) else "none"


def reads_past(settings: PredictorSettings) -> TypeGuard[ForerollSettings]:
    """Whether the predictor needs `Pool.past`."""
    return isinstance(settings, ForerollSettings)


def reads_texts(settings: PredictorSettings) -> bool:
    """Whether the predictor needs `Pool.texts`."""
    if isinstance(settings, DepoSettings):
        return settings.encoder != STATIC
    return isinstance(settings, ForerollSettings)


def reads_logprobs(settings: PredictorSettings) -> bool:
    """Whether the predictor learns from `Observation.mean_logprobs`."""
    return isinstance(settings, DepoSettings)
