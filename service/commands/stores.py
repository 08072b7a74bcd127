"""Checks of the stores that commands work on: SQLite would create a file for a mistyped name, and lose a store in memory."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from okl.errors import ConfigurationError

from ..store.store_url import split_url


def check_kept(url: str) -> None:
    """Raises ConfigurationError for a store in memory, which ends with the command."""
    _file_of(url)


def check_there(url: str) -> None:
    """Raises ConfigurationError for a store to read whose file does not exist."""
    path = _file_of(url)
    if path is not None and not path.exists():
        raise ConfigurationError(f"There is no store {path}; give another --store.")


def _file_of(url: str) -> Path | None:
    """The file of a store; None for other kinds of stores."""
    parts = split_url(url)
    if parts.scheme != "sqlite" or parts.netloc:
        return None
    if not parts.path[1:]:
        raise ConfigurationError(f"The store {url!r} names no file, so all in it would be lost; give sqlite:///file.")
    return Path(unquote(parts.path[1:]))
