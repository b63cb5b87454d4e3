"""Versions of the libraries that decide a run's bytes."""

from functools import cache
from importlib.metadata import version

LIBRARIES = ("numpy", "polars", "pyarrow", "scipy", "tokenizers", "torch", "transformers", "wordllama")


@cache
def library_versions() -> dict[str, str]:
    """Version of each library, as installed."""
    return {library: version(library) for library in LIBRARIES}
