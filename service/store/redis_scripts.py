"""The scripts that run in Redis, the keys that they are given, and how arguments are written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import final

from .base import Applied, Entry, Hold, Tip

KEYS = ("head", "journal", "snap", "waiting", "expiry", "forget", "applied", "remembered", "kept", "states")

US = 1_000_000
LONGEST_US = 1 << 51
"""The longest wait, 71 years: later times would lose digits."""

NEVER_US = 1 << 53

Value = bytes | str | int


@final
class Script:
    """The file of its name after those that stand in front of it. `has_aside`: it is given the keys of what is aside too."""

    def __init__(self, name: str, *in_front: str, has_aside: bool = False) -> None:
        self.has_aside = has_aside
        folder = Path(__file__).with_name("lua")
        self.source = b"".join((folder / f"{part}.lua").read_bytes() for part in ("session", *in_front, name))
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


CREATE, READ, FIND, SNAPSHOT, REWIND, LAST = map(Script, ("create", "read", "find", "snapshot", "rewind", "last"))
WAITING, COUNT_WAITING, SUMMARIZE, TOLD, REPLACE = map(
    Script, ("waiting", "count_waiting", "summarize", "told", "replace")
)
KEEP, DROP, SEAL, WHOLE, LUGGAGE, ARRIVE, UNLOAD = map(
    Script, ("keep", "drop", "seal", "whole", "luggage", "arrive", "unload")
)
DELETE, UNSEAL = Script("delete", has_aside=True), Script("unseal", has_aside=True)
COMMIT, CANCEL = Script("commit", "sweep"), Script("cancel", "sweep")


@lru_cache(4096)
def keys_of(name: str) -> Sequence[bytes]:
    return tuple(f"okl:{{{name}}}:{key}".encode() for key in KEYS)


def duration_us(seconds: float) -> int:
    """At least 0, and at most LONGEST_US."""
    return int(min(max(seconds, 0.0) * US, LONGEST_US))


def text_of(tip: Tip) -> bytes:
    return b"%d:%b" % (tip.round, tip.digest)


def commit_arguments(
    tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold], progress: Applied | None
) -> list[Value]:
    told = ("", "") if progress is None else (progress.id, progress.answer)
    arguments: list[Value] = [text_of(tip), *told, len(entries)]
    for entry in entries:
        answer = b"" if entry.answer is None else (b"*" if entry.is_fresh else b"+") + entry.answer
        arguments += (entry.tip.round, entry.tip.digest, entry.count, entry.id, entry.blob, answer)
    for hold in holds:
        arguments += (hold.id, hold.blob, duration_us(hold.wait_s))
    return arguments
