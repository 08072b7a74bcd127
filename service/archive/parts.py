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
from ..store.base import Entry, Gone, Head, Store, Tip, unless_gone
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
            unless_gone(await self._store.head(self._name), self._name)
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
    whole = unless_gone(await store.whole(name), name)
    yield replace(whole, entries=[])
    for entries in _paged(whole):
        await lease.renew()
        yield Load(entries, NOTHING)
    cursor: str | None = None
    while True:
        await lease.renew()
        page = unless_gone(await store.luggage(name, cursor), name)
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


def arrival_note(token: str, parts: int | None = None) -> bytes:
    """The note of the seal of a copy that has so many of its parts, or all (None).

    Each part needs the note that the one before it has left, so a store that comes back without one takes no other.
    """
    return Seal("arriving", token if parts is None else f"{token}.{parts}").note()


async def take_in(store: Store, name: str, parts: AsyncIterator[Part], token: str) -> Arrival:
    """Write a session under a name. It stays sealed until it is let in.

    Raises SessionExists, SessionFollows, and StateCorrupt if the stored session differs from the parts. After an error
    nothing of it is left. The remains of a session that moved away stay until this one is opened.
    """
    try:
        existing = await store.head(name)
        has_moved = isinstance(existing, Head) and Seal.of(existing.seal).kind == "moved"
        identity = await _take_in(store, name, aside(name) if has_moved else name, parts, token)
    except BaseException:
        with contextlib.suppress(ServiceError):
            await take_away(store, name, token)
        raise
    return Arrival(arrival_note(token), identity)


async def let_in(store: Store, name: str, arrival: Arrival) -> None:
    """Open a session that has arrived. Raises SessionMoving if it has been replaced or deleted meanwhile, or if its place is
    another's; then nothing of it is left."""
    if not await store.unseal(name, *arrival):
        await take_away(store, name, Seal.of(arrival.note).token)
        raise overtaken(name)


async def take_away(store: Store, name: str, token: str) -> None:
    """Delete the session that arrives under this token."""
    found = await arriving(store, name, token)
    if found is not None:
        await store.delete(found.name, found.tip)


async def arriving(store: Store, name: str, token: str) -> Head | None:
    """The session that arrives under this token and is not open yet, in its place or aside, whole or not."""
    for target in (name, aside(name)):
        found = await store.head(target)
        if isinstance(found, Head):
            seal = Seal.of(found.seal)
            if seal.kind == "arriving" and seal.token.partition(".")[0] == token:
                return found
    return None


async def _take_in(store: Store, name: str, target: str, parts: AsyncIterator[Part], token: str) -> bytes:
    whole: Whole | None = None
    kept: dict[str, Tip] = {}
    count = 0

    async def unload(load: Load, *, is_last: bool = False) -> None:
        nonlocal count
        then = arrival_note(token, None if is_last else count + 1)
        if not await store.unload(target, arrival_note(token, count), load.entries, load.luggage, then):
            raise overtaken(name)
        count += 1

    async for part in parts:
        match part:
            case Whole():
                whole = renamed(part, name)
                await _check_champion(store, name)
                await store.arrive(target, whole, arrival_note(token, count))
            case Load():
                await unload(part)
            case Kept(checkpoint, state):
                if whole is None or True is not await store.keep(
                    target,
                    whole.first.digest,
                    checkpoint.name,
                    checkpoint.tip,
                    state,
                    at=checkpoint.at,
                    note=arrival_note(token, count),
                ):
                    raise overtaken(name)
                kept[checkpoint.name] = checkpoint.tip
    if whole is None:
        raise overtaken(name)
    # A checkpoint leaves no note: if one is lost after this part, so is the part.
    await unload(Load([], NOTHING))
    await _check_arrived(store, name, target, whole, kept, arrival_note(token, count))
    await unload(Load([], NOTHING), is_last=True)
    return whole.first.digest


async def _check_arrived(store: Store, name: str, target: str, whole: Whole, kept: dict[str, Tip], note: bytes) -> None:
    """Raises StateCorrupt if the stored session differs from what was sent, SessionMoving if it is another one."""
    head = await store.head(target)
    if isinstance(head, Gone) or head.seal != note:
        raise overtaken(name)
    try:
        # The store recomputes the chain from its first entry to the tip, and raises SessionMoving if it leads elsewhere.
        stored = await store.whole(target)
    except SessionMoving as error:
        raise _other(name) from error
    if isinstance(stored, Gone) or stored.head.seal != note:
        raise overtaken(name)
    checkpoints = unless_gone(await store.kept(target), name)
    if (stored.head.tip, stored.base, stored.snapshot) != (whole.head.tip, whole.base, whole.snapshot):
        raise _other(name)
    if {one.name: one.tip for one in checkpoints} != kept:
        raise _other(name)


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
