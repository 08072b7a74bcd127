"""The stores that commands work on, and checks of them: SQLite would create a file for a mistyped name, and lose a store in
memory.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from okl.errors import ConfigurationError, StoreError

from ..store.store_url import split_url

if TYPE_CHECKING:
    from ..store.base import Limits, Store


@asynccontextmanager
async def opened(url: str, limits: Limits | None = None) -> AsyncIterator[Store]:
    """Open a store. Raises StoreError, which names the store."""
    from ..settings import without_password
    from ..store.opening import open_store

    store = open_store(url, limits)
    try:
        try:
            with _silent("okl.store"):
                await store.open()
        except StoreError as error:
            detail, cause = error.detail, str(error.__cause__ or "").rstrip(".")
            if cause not in detail:
                detail = f"{detail.rstrip('.')} ({cause})."
            raise type(error)(f"{without_password(url)}: {detail}") from error
        yield store
    finally:
        await store.close()


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Disable a logger whose records are reported in another way."""
    logger = logging.getLogger(name)
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


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
