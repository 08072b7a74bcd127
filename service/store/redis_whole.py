"""Scripts over one key that is no session's, such as the hash of all API keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from .redis_connections import Connections
from .redis_errors import damaged, refused
from .redis_scripts import Script, Value


async def run(
    connections: Connections, script: Script, key: str, *arguments: Value, of: str, is_write: bool = False
) -> Any:
    """The script's answer; `of` says what it is about. Raises StoreError."""
    try:
        return await script.run(connections, 1, key, *arguments, is_write=is_write)
    except ResponseError as error:
        raise refused(error, of) from error


def to_records(answer: tuple[bytes, Sequence[bytes]], of: str) -> tuple[str, dict[str, bytes]]:
    """The version, and the fields of the hash beside it. Raises StoreCorrupt."""
    version, fields = answer
    try:
        records = {name.decode(): record for name, record in zip(fields[::2], fields[1::2], strict=True) if name}
        return version.decode(), records
    except UnicodeDecodeError as error:
        raise damaged(of) from error
