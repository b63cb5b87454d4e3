"""The errors of `models/` that a user can cause and mend."""


class ModelError(ValueError):
    """A model, tokenizer or template that cannot be used: one line on what, where and how to mend."""


class EngineError(ModelError):
    """An engine that cannot be started, reached or brought up to date."""
