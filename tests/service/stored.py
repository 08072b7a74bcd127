"""Sessions as a store holds them, rewritten: what another build, another machine or a fault might have left there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from service.session.codec import RoundEntry, decode_entry, encode_round
from service.store.base import Entry, Reading
from tests.oracles.model_store import ModelStore

Change = Callable[[bytes], bytes]


async def rewritten(reading: Reading, changes: dict[int, Change], store: ModelStore | None = None) -> ModelStore:
    """A store with the same session, some of whose entries say something else: their chain is sound all the same.

    `changes` are by the entries' places, -1 is the last.
    """
    store = store or ModelStore()
    head, tip = reading.head, reading.start
    assert reading.record is not None
    await store.create(head.name, reading.record, tip, reading.snapshot, summary=head.summary)
    places = {place % len(reading.entries): change for place, change in changes.items()}
    entries: list[Entry] = []
    for place, old in enumerate(reading.entries):
        blob = places[place](old.blob) if place in places else old.blob
        entries.append(Entry(tip := tip.then(old.count, old.id, blob), old.count, old.id, blob))
    await store.commit(head.name, reading.start, entries)
    return store


def saying(**values: Any) -> Change:
    """A round that says this, well-formed."""

    def change(blob: bytes) -> bytes:
        entry = decode_entry(blob)
        assert isinstance(entry, RoundEntry)
        return encode_round(entry._replace(**values))

    return change


def flipped(blob: bytes, bit: int) -> bytes:
    place = bit // 8
    return blob[:place] + bytes([blob[place] ^ (1 << bit % 8)]) + blob[place + 1 :]


def bits(blob: bytes, step: int = 1) -> Sequence[int]:
    return range(0, 8 * len(blob), step)
