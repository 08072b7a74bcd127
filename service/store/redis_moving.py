"""Moving sessions in Redis: the arguments of the scripts, their replies, and the reading of a whole session."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from okl.errors import StoreCorrupt

from . import redis_scripts as scripts
from .base import PAGE_BYTES, PAGE_ITEMS, Entry, Gone, Reading, Tip
from .moving import (
    LUGGAGE_BYTES,
    LUGGAGE_ITEMS,
    Checkpoint,
    HeldItem,
    Luggage,
    RememberedItem,
    Whole,
    page_after,
    page_cursor,
    page_place,
)
from .redis_replies import Damage, to_entry, to_reading, to_tip
from .redis_scripts import US, Value, text_of
from .store_checks import check_last, without_gap

Run = Callable[..., Awaitable[Any]]
"""Runs a script on a session: the script, the session's name, the script's arguments."""

WHOLE_TRIES = 3
"""Attempts to read a whole session that others change meanwhile."""

_HELD = struct.Struct("<dd")
_APPLIED = struct.Struct("<d")


def time_us(time: float | None) -> int:
    """Any time in microseconds; 0 for None."""
    return round((time or 0.0) * US)


def to_checkpoints(answer: Mapping[bytes, bytes] | Sequence[bytes]) -> Sequence[Checkpoint]:
    found: list[Checkpoint] = []
    # The driver's cluster client returns a dictionary.
    fields = answer if isinstance(answer, Mapping) else dict(zip(answer[::2], answer[1::2], strict=True))
    for name, value in fields.items():
        at, size, tip = value.split(b":", 2)
        found.append(Checkpoint(name.decode(), to_tip(tip), int(at) / US, int(size)))
    return sorted(found)


async def read_whole(run: Run, name: str) -> Whole | Gone:
    """As `whole` of the store."""
    tries = WHOLE_TRIES
    while True:
        answer = await run(scripts.WHOLE, name, PAGE_ITEMS, PAGE_BYTES)
        if answer[0] == b"gone":
            return Gone()
        with Damage(name):
            _, reading_answer, first, base_text, rows = answer
            reading, base = to_reading(name, reading_answer), to_tip(base_text)
        entries = await _entries(run, name, rows, reading.head.tip.round)
        base, entries = _kept(base, entries, reading)
        try:
            check_last(name, base, entries, reading.head.tip)
        except StoreCorrupt:
            # Some may have been taken back or replaced between two pages.
            tries -= 1
            if not tries:
                raise
        else:
            # The head may count entries that Redis has evicted.
            tail_bytes = sum(len(entry.blob) for entry in entries if entry.tip.round <= reading.start.round)
            head = replace(reading.head, tail_bytes=tail_bytes)
            return Whole(head, to_tip(first), base, reading.record or b"", reading.snapshot, entries)


def _kept(base: Tip, entries: Sequence[Entry], reading: Reading) -> tuple[Tip, Sequence[Entry]]:
    """The entries from the `base` on that Redis has not evicted, and the tip before the first of them.

    The tip is at most that of the snapshot, where the reading starts.
    """
    kept_from, kept = without_gap(base, entries, reading.start)
    return (kept_from, kept) if kept_from.round <= reading.start.round else (reading.start, entries)


async def _entries(run: Run, name: str, rows: Sequence[Any], to: int) -> Sequence[Entry]:
    """The entries up to a round, of which `rows` are the first, in pages: a long journal in one reply would block the
    server."""
    entries: list[Entry] = []
    while rows:
        with Damage(name):
            entries += [to_entry(*row) for row in rows]
        after = entries[-1].tip.round
        rows = await run(scripts.PAGE, name, after, to, PAGE_ITEMS, PAGE_BYTES) if after < to else []
    return entries


def luggage_arguments(cursor: str | None) -> list[Value]:
    """Raises ValueError."""
    return [*page_place(cursor), LUGGAGE_ITEMS, LUGGAGE_BYTES]


def to_luggage(cursor: str | None, answer: Sequence[Any]) -> Luggage:
    _, next_offset, *flat = answer
    part, _ = page_place(cursor)
    after = page_cursor(part, next_offset) if next_offset else page_after(part)
    rows = list(zip(flat[::2], flat[1::2], strict=True))
    if part == "remembered":
        items = [RememberedItem(id.decode(), value[8:], _APPLIED.unpack_from(value)[0] / US) for id, value in rows]
        return Luggage([], items, after)
    held: list[HeldItem] = []
    for id, value in rows:
        expires_at, forget_at = _HELD.unpack_from(value)
        is_expired = part == "expired"
        held.append(
            HeldItem(id.decode(), value[16:], 0.0 if is_expired else expires_at / US, forget_at / US, is_expired)
        )
    return Luggage(held, [], after)


def arrive_arguments(whole: Whole, note: bytes) -> list[Value]:
    head = whole.head
    arguments: list[Value] = [note, whole.record, head.summary, head.summary_round, head.told]
    arguments += [time_us(head.created_at), time_us(head.updated_at)]
    arguments += [text_of(whole.first), text_of(whole.base), text_of(head.tip)]
    arguments += [head.journal_bytes, head.tail_bytes, head.never_came]
    if whole.snapshot is not None and head.snapshot_tip is not None:
        arguments += [text_of(head.snapshot_tip), time_us(head.snapshot_at), whole.snapshot]
    return arguments


def unload_arguments(entries: Sequence[Entry], luggage: Luggage) -> list[Value]:
    arguments: list[Value] = [len(entries)]
    for entry in entries:
        arguments += (entry.tip.round, entry.tip.digest, entry.count, entry.id, entry.blob)
    arguments.append(len(luggage.held))
    for item in luggage.held:
        expires_at, forget_at = time_us(item.expires_at), time_us(item.forget_at)
        due = forget_at if item.is_expired else expires_at
        arguments += (item.id, _HELD.pack(expires_at, forget_at) + item.blob, due, int(item.is_expired))
    for item in luggage.remembered:
        arguments += (item.id, _APPLIED.pack(time_us(item.at)) + item.answer)
    return arguments


def kept_arguments(
    identity: bytes, bounds: tuple[int, int], checkpoint: str, tip: Tip, at: float | None, note: bytes, blob: bytes
) -> list[Value]:
    return [identity, *bounds, checkpoint, text_of(tip), "" if at is None else time_us(at), note, blob]
