"""The scripts that run in Redis, their keys, and the encoding of their arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, final

from redis.exceptions import NoScriptError

from .base import Applied, Entry, Hold, Tip
from .redis_connections import Connections

KEYS = ("head", "journal", "snap", "waiting", "expiry", "forget", "applied", "remembered", "kept", "states")

US = 1_000_000
LONGEST_US = 1 << 51
"""The longest wait, 71 years; later times would lose precision."""

NEVER_US = 1 << 53

Value = bytes | str | int


@final
class Script:
    """The concatenation of the files `names`. With `has_aside` it also gets the keys of the session aside."""

    def __init__(self, *names: str, has_aside: bool = False) -> None:
        self.has_aside = has_aside
        folder = Path(__file__).with_name("lua")
        self._source = b"".join((folder / f"{name}.lua").read_bytes() for name in names)
        self._sha = hashlib.sha1(self._source, usedforsecurity=False).hexdigest().encode()

    async def run(self, connections: Connections, *call: Value, is_write: bool = False) -> Any:
        """`call`: the number of keys, the keys, the arguments. Raises StoreUnavailable, StoreTimeout, ResponseError."""
        try:
            return await connections.call(("EVALSHA", self._sha, *call), is_write=is_write)
        except NoScriptError:
            return await connections.call(("EVAL", self._source, *call), is_write=is_write)


_of_session = partial(Script, "session")

CREATE, READ, FIND, SNAPSHOT, REWIND, LAST = map(_of_session, ("create", "read", "find", "snapshot", "rewind", "last"))
WAITING, COUNT_WAITING, SUMMARIZE, TOLD, REPLACE = map(
    _of_session, ("waiting", "count_waiting", "summarize", "told", "replace")
)
KEEP, DROP, SEAL, LUGGAGE, ARRIVE, UNLOAD = map(_of_session, ("keep", "drop", "seal", "luggage", "arrive", "unload"))
WHOLE, PAGE = _of_session("pages", "whole"), _of_session("pages", "page")
DELETE, UNSEAL = _of_session("delete", has_aside=True), _of_session("unseal", has_aside=True)
COMMIT, CANCEL = _of_session("sweep", "commit"), _of_session("sweep", "cancel")


@lru_cache(4096)
def keys_of(name: str) -> Sequence[bytes]:
    return tuple(f"okl:{{{name}}}:{key}".encode() for key in KEYS)


def duration_us(seconds: float) -> int:
    """A duration in microseconds, clipped to 0 and LONGEST_US."""
    return int(min(max(seconds, 0.0) * US, LONGEST_US))


def text_of(tip: Tip) -> bytes:
    return b"%d:%b" % (tip.round, tip.digest)


def commit_arguments(
    tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold], progress: Applied | None
) -> list[Value]:
    remembered = ("", "") if progress is None else (progress.id, progress.answer)
    arguments: list[Value] = [text_of(tip), *remembered, len(entries)]
    for entry in entries:
        answer = b"" if entry.answer is None else (b"*" if entry.is_fresh else b"+") + entry.answer
        arguments += (entry.tip.round, entry.tip.digest, entry.count, entry.id, entry.blob, answer)
    for hold in holds:
        arguments += (hold.id, hold.blob, duration_us(hold.wait_s))
    return arguments
