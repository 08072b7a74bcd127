"""The streaming prediction service: sessions over HTTP, durable in a store.

docs/design.md follows a round through the modules.
"""

from okl import __version__

__all__ = ["__version__"]
