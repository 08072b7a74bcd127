"""Decode the replies of Redis as the contract's answers. A malformed reply means damaged data."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, final

from okl.errors import StoreCorrupt

from .base import (
    DIGEST_BYTES,
    Applied,
    Entry,
    Full,
    Head,
    Reading,
    Tip,
    Waiting,
    WaitingItem,
    WaitingPage,
)
from .redis_scripts import NEVER_US, US
from .store_checks import check_last, check_reading, cursor_after, is_arriving, without_gap

HEAD_FIELDS = (
    "summary",
    "created_at",
    "counters",
    "first",
    "tip",
    "snapshot",
    "snapshot_at",
    "snapshot_bytes",
    "tail_bytes",
    "summary_round",
    "told",
    "seal",
    "sealed_until",
)
"""In this order in every reply that has a head."""

COUNTERS = struct.Struct("<9d")
"""As in `lua/session.lua`: updated at, due at, journal bytes, number waiting, their bytes, bytes of the expired, number
remembered, their bytes, never_came."""

_DAMAGE = (ValueError, TypeError, OverflowError, struct.error)


@final
class Damage:
    """Turns errors raised while a damaged reply is decoded into StoreCorrupt."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _DAMAGE):
            raise StoreCorrupt(f"What Redis holds of session {self._name!r} is damaged.", session=self._name) from error


def to_tip(text: bytes | None) -> Tip:
    round, _, digest = (text or b"").partition(b":")
    if len(digest) != DIGEST_BYTES:
        raise ValueError("a digest is cut")
    return Tip(int(round), digest)


def to_head(name: str, fields: Sequence[bytes | None]) -> Head:
    summary, created_at, packed, first_text, tip_text, snapshot_text, snapshot_at, *numbers = fields
    snapshot_bytes, tail_bytes, summary_round, told, seal, sealed_until = numbers
    if summary is None or packed is None:
        raise ValueError("the head lacks fields")
    tip, first = to_tip(tip_text), to_tip(first_text)
    snapshot_tip = None if snapshot_text is None else to_tip(snapshot_text)
    updated_at, _, journal_bytes, *counts = COUNTERS.unpack(packed)
    waiting, waiting_bytes, _, remembered, remembered_bytes, never_came = map(int, counts)
    return Head(
        name,
        summary,
        tip,
        created_at=int(created_at or b"") / US,
        updated_at=updated_at / US if updated_at else None,
        snapshot_tip=snapshot_tip,
        snapshot_at=None if snapshot_at is None else int(snapshot_at) / US,
        snapshot_bytes=int(snapshot_bytes or 0),
        journal_rounds=tip.round - (snapshot_tip or first).round,
        journal_bytes=int(journal_bytes),
        tail_bytes=int(tail_bytes or 0),
        waiting=waiting,
        waiting_bytes=waiting_bytes,
        remembered=remembered,
        remembered_bytes=remembered_bytes,
        never_came=never_came,
        summary_round=int(summary_round or b""),
        told=int(told or 0),
        seal=seal or b"" if sealed_until is not None and int(sealed_until) == NEVER_US else b"",
    )


def to_entry(stream_id: bytes, flat: Sequence[bytes]) -> Entry:
    _, digest, _, count, _, id, _, blob = flat
    return Entry(Tip(int(stream_id.partition(b"-")[0]), digest), int(count), id.decode(), blob)


def to_reading(name: str, answer: Sequence[Any]) -> Reading:
    return check_reading(to_all_read(name, answer))


def to_all_read(name: str, answer: Sequence[Any]) -> Reading:
    fields, start, rows, snapshot, is_whole, record = answer
    head = to_head(name, fields)
    if is_whole and (record is None or (snapshot is None and head.snapshot_tip is not None)):
        raise ValueError("the record or the snapshot is missing")
    if snapshot is not None and len(snapshot) != head.snapshot_bytes:
        raise ValueError("the snapshot is not as long as it was")
    return Reading(head, to_tip(start), [to_entry(*row) for row in rows], snapshot, record if is_whole else None)


def to_last(name: str, answer: Sequence[Any]) -> Sequence[Entry]:
    _, tip_text, seal, start_text, *rows = answer
    tip, start = to_tip(tip_text), to_tip(start_text)
    entries: Sequence[Entry] = [to_entry(*row) for row in reversed(rows)]
    if not is_arriving(seal):
        start, entries = without_gap(start, entries, tip)
    return check_last(name, start, entries, tip, seal)


def to_waiting(answer: Sequence[Any]) -> WaitingPage:
    _, now, has_more, *flat = answer
    times = [int(float(time)) for time in flat[1::3]]
    ids = [id.decode() for id in flat[::3]]
    items = [WaitingItem(id, blob, time / US) for id, blob, time in zip(ids, flat[2::3], times, strict=True)]
    return WaitingPage(items, cursor_after(times[-1], ids[-1]) if has_more else None, now / US)


def to_what(id: str, answer: Sequence[Any] | None) -> Waiting | Applied | Full | None:
    match answer:
        case None:
            return None
        case [b"applied", _, first_answer]:
            return Applied(id, first_answer)
        case [b"waiting", blob, is_expired]:
            return Waiting(id, blob, bool(is_expired))
        case _:
            return Full()
