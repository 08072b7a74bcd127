"""Moving sessions in Redis: the arguments of the scripts, and their replies."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Entry, Tip
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
from .redis_replies import to_entry, to_reading, to_tip
from .redis_scripts import US, Value, text_of
from .store_checks import check_last

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


def to_whole(name: str, answer: Sequence[Any]) -> Whole:
    _, reading_answer, first, base_text, rows = answer
    reading, base = to_reading(name, reading_answer), to_tip(base_text)
    entries = check_last(name, base, [to_entry(*row) for row in rows], reading.head.tip)
    return Whole(reading.head, to_tip(first), base, reading.record or b"", reading.snapshot, entries)


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
