"""Checks shared by all stores: the chain of entries, the sizes of arguments, the cursors of pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from okl.errors import StoreCorrupt

from .base import EDGES, SUMMARY_BYTES, Entry, Reading, Tip
from .moving import Seal, sealed

LARGEST = 1 << 53
"""The largest number that every store represents and compares exactly."""


def check_entries(tip: Tip, entries: Sequence[Entry]) -> None:
    """Raises ValueError unless the entries form a chain from `tip` and have distinct ids."""
    if len(entries) > 1 and len({entry.id for entry in entries}) != len(entries):
        raise ValueError("two entries of one commit have the same id")
    if follow(tip, entries) is None:
        raise ValueError(f"the entries do not follow round {tip.round} one after the other")


def follow(tip: Tip, entries: Sequence[Entry]) -> Tip | None:
    """The tip that the entries lead to; None if one does not follow from the one before it."""
    for entry in entries:
        follows = entry.link == tip or entry.tip == tip.then(entry.count, entry.id, entry.blob)
        if entry.count < 1 or not entry.id or not follows:
            return None
        tip = entry.tip
    return tip


def sound_part(reading: Reading) -> Reading:
    """The reading up to the first entry that does not follow from the one before it."""
    tip, sound = reading.start, 0
    for entry in reading.entries:
        if follow(tip, [entry]) is None:
            break
        tip, sound = entry.tip, sound + 1
    return replace(reading, entries=reading.entries[:sound])


def check_reading(reading: Reading) -> Reading:
    """The reading, if its entries lead from its start to its head. Raises StoreCorrupt, or SessionMoving if they have not
    arrived yet."""
    if follow(reading.start, reading.entries) != reading.head.tip:
        _check_arrived(reading.head.name, reading.head.seal)
        name, start, end = reading.head.name, reading.start.round, reading.head.tip.round
        raise StoreCorrupt(f"The journal of session {name!r} does not lead from round {start} to {end}.", session=name)
    return reading


def check_last(name: str, start: Tip, entries: Sequence[Entry], tip: Tip, seal: bytes | None = None) -> Sequence[Entry]:
    """The entries, if they lead from `start` to the session's tip. Raises StoreCorrupt, or SessionMoving if the `seal` says
    that they have not arrived yet."""
    if follow(start, entries) != tip:
        _check_arrived(name, seal)
        raise StoreCorrupt(
            f"The newest entries of session {name!r} do not lead to its round {tip.round}.", session=name
        )
    return entries


def without_gap(base: Tip, entries: Sequence[Entry], end: Tip) -> tuple[Tip, Sequence[Entry]]:
    """The entries after the `base` and up to `end`, and the tip before the first of them.

    Where the first does not follow the base, since the store has lost those between, the tip is that of the oldest entry.
    """
    if not entries:
        return end, entries
    oldest = entries[0]
    follows = oldest.tip.round - oldest.count == base.round
    return (base, entries) if follows else (oldest.tip, entries[1:])


def is_arriving(seal: bytes | None) -> bool:
    """Whether the session is sealed since some of it has not arrived yet."""
    return bool(seal) and Seal.of(seal).kind == "arriving"


def _check_arrived(name: str, seal: bytes | None) -> None:
    if seal and is_arriving(seal):
        raise sealed(name, seal)


def check_summary(summary: bytes) -> None:
    """Raises ValueError."""
    if len(summary) > SUMMARY_BYTES:
        raise ValueError(f"a summary has at most {SUMMARY_BYTES} bytes, this one {len(summary)}")


def check_number(number: int) -> None:
    """Raises ValueError."""
    if not 0 <= number <= LARGEST:
        raise ValueError(f"expected a number from 0 to 2^53, not {number}")


def check_edges(due_before: Sequence[float]) -> None:
    """Raises ValueError."""
    if len(due_before) > EDGES or any(math.isnan(edge) for edge in due_before):
        raise ValueError(f"expected at most {EDGES} numbers of seconds")


def check_limit(limit: int) -> None:
    """Raises ValueError."""
    if limit < 1:
        raise ValueError("a page has at least one item")


def cursor_after(time: float, id: str) -> str:
    """A position among waiting predictions, which are ordered by time and then by id."""
    return f"{time!r}:{id}"


def split_cursor(cursor: str) -> tuple[float, str]:
    """The time and the id of a cursor. Raises ValueError for a malformed one."""
    text, separator, id = cursor.partition(":")
    time = float(text)
    if not separator or not math.isfinite(time):
        raise ValueError("this is no cursor")
    id.encode()
    return time, id


def after_prefix(prefix: str) -> str:
    """The first text after all that begin with `prefix`, a prefix of names, which are ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
