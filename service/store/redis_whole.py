"""Scripts over one key that is no session's, such as the hash of all API keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from okl.errors import StoreCorrupt

from .redis_connections import Connections
from .redis_errors import is_damage, log_failure, store_error
from .redis_scripts import Value


async def run(
    connections: Connections, script: bytes, key: str, *arguments: Value, of: str, is_write: bool = False
) -> Any:
    """The script's answer; `of` says what it is about. Raises StoreError."""
    sha = hashlib.sha1(script, usedforsecurity=False).hexdigest()
    call = (1, key, *arguments)
    try:
        try:
            return await connections.call(("EVALSHA", sha, *call), is_write=is_write)
        except NoScriptError:
            return await connections.call(("EVAL", script, *call), is_write=is_write)
    except ResponseError as error:
        if is_damage(error):
            raise damaged(of) from error
        log_failure(error)
        raise store_error(error) from error


def damaged(of: str) -> StoreCorrupt:
    return StoreCorrupt(f"The {of} cannot be read: Redis holds something else under them.")


def to_records(answer: tuple[bytes, Sequence[bytes]], of: str) -> tuple[str, dict[str, bytes]]:
    """The version, and the fields of the hash beside it. Raises StoreCorrupt."""
    version, fields = answer
    try:
        records = {name.decode(): record for name, record in zip(fields[::2], fields[1::2], strict=True) if name}
        return version.decode(), records
    except UnicodeDecodeError as error:
        raise damaged(of) from error
