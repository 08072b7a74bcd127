"""The store that a URL names."""

from __future__ import annotations

import importlib

from okl.errors import ConfigurationError

from .base import Limits, Store
from .store_url import split_url

STORE_MODULES = {
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "redis+sentinel": "redis",
    "redis+cluster": "redis",
}


def open_store(url: str, limits: Limits | None = None) -> Store:
    """The store that `url` names, not yet opened. Raises ConfigurationError for an unknown scheme.

    sqlite:///relative/path.sqlite3, sqlite:////absolute/path.sqlite3, sqlite:// (in memory, for tests);
    redis://host:port/db, rediss://..., redis+sentinel://host:port,host:port/service, redis+cluster://host:port.
    """
    scheme = split_url(url).scheme
    if scheme not in STORE_MODULES:
        problem = f"unknown scheme {scheme!r}" if scheme else "no scheme; a file is sqlite:///path"
        raise ConfigurationError(f"store url: {problem}; known: {', '.join(STORE_MODULES)}")
    return importlib.import_module(f".{STORE_MODULES[scheme]}", __package__).from_url(url, limits or Limits())
