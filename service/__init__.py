"""The streaming prediction service: sessions over HTTP, durable in a store."""

from okl import __version__

__all__ = ["__version__"]
