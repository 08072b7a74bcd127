"""Stores that commands work on: SQLite would make one of a name that is mistyped, and lose one that is in memory."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from okl.errors import ConfigurationError


def check_kept(url: str) -> None:
    """Raises ConfigurationError for a store that ends with the command."""
    _file_of(url)


def check_there(url: str) -> None:
    """Raises ConfigurationError for a store that is to be read, and is no file yet."""
    path = _file_of(url)
    if path is not None and not path.exists():
        raise ConfigurationError(f"There is no store {path}; give another --store.")


def _file_of(url: str) -> Path | None:
    """None for one that is no file."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc:
        return None
    if not parts.path[1:]:
        raise ConfigurationError(f"The store {url!r} names no file, so all in it would be lost; give sqlite:///file.")
    return Path(unquote(parts.path[1:]))
