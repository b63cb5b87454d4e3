"""What each predictor reads of the pool beside its prompts' ids; no torch."""

from models.settings import DepoSettings, DotsSettings, ForerollSettings, GpSettings, GpsSettings, PredictorSettings

STATIC = "static"
"""The encoder of `depo` that is the pool's embeddings."""


def reads_embeddings(settings: PredictorSettings) -> bool:
    """Whether the predictor needs `Pool.embeddings`."""
    if isinstance(settings, DepoSettings):
        return settings.encoder == STATIC
    return isinstance(settings, GpsSettings | GpSettings | DotsSettings | ForerollSettings)


def reads_texts(settings: PredictorSettings) -> bool:
    """Whether the predictor needs `Pool.texts`."""
    if isinstance(settings, DepoSettings):
        return settings.encoder != STATIC
    return isinstance(settings, ForerollSettings)
