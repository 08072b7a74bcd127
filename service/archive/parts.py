"""A session in parts: read from a store under a seal, and added to another store, or under another name."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple, final

from okl.errors import ServiceError, SessionFollows, SessionMoving, StateCorrupt

from ..session.names import is_challenger, split_name
from ..session.record import decode_record, encode_record
from ..store.base import Entry, Gone, Head, Store, present
from ..store.moving import Checkpoint, Luggage, Seal, Whole, aside

LEASE_S = 10.0
"""The seal of a copier, which renews it; if the copier dies, the seal lapses and the session continues."""

AGAIN_S = 0.1

ENTRIES, ENTRY_BYTES = 1_000, 4 << 20
"""The most entries of a part, and their most bytes; a single larger entry is a part of its own."""


class Load(NamedTuple):
    """Some entries of the journal, or some predictions and remembered ids."""

    entries: list[Entry]
    luggage: Luggage


class Kept(NamedTuple):
    """A checkpoint with its state."""

    checkpoint: Checkpoint
    state: bytes


Part = Whole | Load | Kept
NOTHING = Luggage([], [])


def new_token() -> str:
    return secrets.token_hex(16)


@final
class Lease:
    """A copier's seal of a session, which lapses unless it is renewed. Raises SessionMoving if it is lost, or another has
    it."""

    def __init__(self, store: Store, name: str, token: str) -> None:
        self._store = store
        self._name = name
        self.note = Seal("held", token).note()
        self._renewed = 0.0

    async def take(self, patience_s: float = 0.0) -> None:
        """Seal the session; wait up to `patience_s` for another copier's seal to lapse."""
        give_up = time.monotonic() + patience_s
        while True:
            self._renewed = time.monotonic()
            if await self._store.seal(self._name, self.note, LEASE_S):
                return
            present(await self._store.head(self._name), self._name)
            if time.monotonic() >= give_up:
                raise self._lost()
            await asyncio.sleep(AGAIN_S)

    async def renew(self) -> None:
        """Renew the seal if it is time."""
        now = time.monotonic()
        if now - self._renewed > LEASE_S / 3:
            await self.confirm()
            self._renewed = now

    async def confirm(self) -> None:
        """Renew the seal, which proves that it has not lapsed."""
        if not await self._store.seal(self._name, self.note, LEASE_S, self.note):
            raise self._lost()

    async def finish(self, seal: Seal) -> None:
        """Seal the session for good."""
        if not await self._store.seal(self._name, seal.note(), float("inf"), self.note):
            raise self._lost()

    async def give_back(self) -> bool:
        """Remove the seal; False if the session stays sealed."""
        return await self._store.unseal(self._name, self.note)

    def _lost(self) -> SessionMoving:
        return SessionMoving(
            f"Session {self._name!r} is being copied by another; try again in a moment.", session=self._name
        )


async def parts_of(store: Store, name: str, lease: Lease) -> AsyncIterator[Part]:
    """Yield the whole session, the Whole first; the seal is renewed meanwhile."""
    whole = present(await store.whole(name), name)
    yield replace(whole, entries=[])
    for entries in _paged(whole):
        await lease.renew()
        yield Load(entries, NOTHING)
    cursor: str | None = None
    while True:
        await lease.renew()
        page = present(await store.luggage(name, cursor), name)
        cursor = page.cursor
        if page.held or page.remembered:
            yield Load([], replace(page, cursor=None))
        if cursor is None:
            break
    checkpoints = await store.kept(name)
    for one in [] if isinstance(checkpoints, Gone) else checkpoints:
        await lease.renew()
        state = await store.kept_state(name, one.name)
        if state is not None:
            yield Kept(one, state)
    await lease.renew()


def _paged(whole: Whole) -> list[list[Entry]]:
    pages: list[list[Entry]] = []
    size = 0
    for entry in whole.entries:
        size += len(entry.blob)
        if not pages or len(pages[-1]) == ENTRIES or size > ENTRY_BYTES:
            pages.append([])
            size = len(entry.blob)
        pages[-1].append(entry)
    return pages


class Arrival(NamedTuple):
    """A session that was written and is not open: the note of its seal, and its identity."""

    note: bytes
    identity: bytes


async def take_in(store: Store, name: str, parts: AsyncIterator[Part], token: str) -> Arrival:
    """Write a session under a name. It stays sealed until it is let in.

    Raises SessionExists, SessionFollows, and StateCorrupt if the stored session differs from the parts. After an error
    nothing of it is left. The remains of a session that moved away stay until this one is opened.
    """
    note = Seal("arriving", token).note()
    try:
        existing = await store.head(name)
        has_moved = isinstance(existing, Head) and Seal.of(existing.seal).kind == "moved"
        identity = await _take_in(store, name, aside(name) if has_moved else name, parts, note)
    except BaseException:
        with contextlib.suppress(ServiceError):
            await take_away(store, name, note)
        raise
    return Arrival(note, identity)


async def let_in(store: Store, name: str, arrival: Arrival) -> None:
    """Open a session that has arrived. Raises SessionMoving if it has been replaced or deleted meanwhile."""
    if not await store.unseal(name, *arrival):
        raise overtaken(name)


async def take_away(store: Store, name: str, note: bytes) -> None:
    """Delete the session that arrived under this note."""
    found = await arrived(store, name, note)
    if found is not None:
        await store.delete(found.name, found.tip)


async def arrived(store: Store, name: str, note: bytes) -> Head | None:
    """The session that arrived under this note and is not open yet, in its place or aside."""
    for target in (name, aside(name)):
        found = await store.head(target)
        if isinstance(found, Head) and found.seal == note:
            return found
    return None


async def _take_in(store: Store, name: str, target: str, parts: AsyncIterator[Part], note: bytes) -> bytes:
    whole: Whole | None = None
    async for part in parts:
        match part:
            case Whole():
                whole = renamed(part, name)
                await _check_champion(store, name)
                await store.arrive(target, whole, note)
            case Load(entries, luggage):
                if not await store.unload(target, note, entries, luggage):
                    raise overtaken(name)
            case Kept(checkpoint, state):
                if whole is None or not await store.keep(
                    target, whole.first.digest, checkpoint.name, checkpoint.tip, state, at=checkpoint.at, note=note
                ):
                    raise overtaken(name)
    head = await store.head(target)
    if whole is None or isinstance(head, Gone) or head.seal != note:
        raise overtaken(name)
    try:
        # The store recomputes the chain from its first entry to the tip, and raises SessionMoving if it leads elsewhere.
        stored = await store.whole(target)
    except SessionMoving as error:
        raise _other(name) from error
    if isinstance(stored, Gone) or stored.head.seal != note:
        raise overtaken(name)
    if (stored.head.tip, stored.base, stored.snapshot) != (whole.head.tip, whole.base, whole.snapshot):
        raise _other(name)
    return whole.first.digest


def renamed(whole: Whole, name: str) -> Whole:
    """The same session under another name. Raises StateCorrupt."""
    definition, identity = decode_record(whole.head.name, whole.record)
    if identity != whole.first.digest:
        raise StateCorrupt(
            f"The record of session {whole.head.name!r} is that of another one.", session=whole.head.name
        )
    if name == whole.head.name:
        return whole
    record = encode_record(replace(definition, name=name), identity)
    return replace(whole, record=record, head=replace(whole.head, name=name))


async def _check_champion(store: Store, name: str) -> None:
    """A challenger without its champion would be taken for the remains of a deleted one. Raises SessionFollows."""
    champion, _ = split_name(name)
    if is_challenger(name) and isinstance(await store.head(champion), Gone):
        raise SessionFollows(
            f"Session {name!r} follows {champion!r}, which is not there; bring that one first.", session=name
        )


def _other(name: str) -> StateCorrupt:
    return StateCorrupt(f"Session {name!r} did not arrive as it was.", session=name)


def overtaken(name: str) -> SessionMoving:
    return SessionMoving(f"Another copy arrives as {name!r}, or there was no room; nothing was opened.", session=name)
