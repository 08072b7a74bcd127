"""Scripts over one key outside any session, such as the hash of all API keys."""

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
    """Return the script's answer; `of` names its subject in errors. Raises StoreError."""
    try:
        return await script.run(connections, 1, key, *arguments, is_write=is_write)
    except ResponseError as error:
        raise refused(error, connections.server, of) from error


def to_records(answer: tuple[bytes, Sequence[bytes]], of: str) -> tuple[str, dict[str, bytes]]:
    """The version, and the other fields of the hash. Raises StoreCorrupt."""
    version, fields = answer
    try:
        records = {name.decode(): record for name, record in zip(fields[::2], fields[1::2], strict=True) if name}
        return version.decode(), records
    except UnicodeDecodeError as error:
        raise damaged(of) from error
