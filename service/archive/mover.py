"""Move a session to another store, or to another name, without losing a round or ever having it open twice.

    1  it is sealed temporarily at the source; clients get a retryable refusal
    2  it is copied; the copy at the target is sealed for good
    3  it is sealed for good at the source, as moved
    4  it is opened at the target

A mover that dies before 3 leaves the source usable once its seal lapses, and at the target an unusable copy that the next
attempt replaces. One that dies after 3 leaves a copy that the next attempt recognizes by the token, and opens; if the target
has lost a part of it meanwhile, the source continues, and is moved anew.
"""

from __future__ import annotations

import contextlib
import logging
from typing import NamedTuple

from okl.errors import ServiceError, SessionExists, SessionNotFound

from ..session.names import challenger_name, is_challenger, split_name
from ..sessions import challengers_of, delete_orphans
from ..store.base import Gone, Head, Store, unless_gone
from ..store.moving import FOR_GOOD, Seal, sealed
from .parts import Arrival, Lease, arrival_note, arriving, new_token, overtaken, parts_of, take_away, take_in

log = logging.getLogger("okl.sessions")


class Moved(NamedTuple):
    """A session that is now open at the target, at this round; `is_new` if this call copied it. Its remains at the source are
    sealed with the note `remains`."""

    name: str
    round: int
    is_new: bool
    remains: bytes


async def move(
    source: Store, target: Store, name: str, new_name: str | None = None, to: str = "", *, patience_s: float = 0.0
) -> Moved:
    """Move a session; a call after a crash finishes the move. `to` is the address that clients are told, also if the session
    has moved before; `patience_s` is the time to wait for the seal of another mover that may have died.

    Raises SessionNotFound, SessionExists, SessionMoving, SessionMoved.
    """
    new_name = new_name or name
    if (finished := await _finished(source, target, name, new_name)) is not None:
        return await _readdressed(source, name, finished, to)
    token = new_token()
    lease, remains = Lease(source, name, token), Seal("moved", token, to)
    await lease.take(patience_s)
    try:
        if not is_challenger(new_name) and isinstance(await target.head(new_name), Gone):
            await delete_orphans(target, new_name)
        arrival = await take_in(target, new_name, parts_of(source, name, lease), token)
        copy = await arriving(target, new_name, token)
        if copy is None or copy.seal != arrival.note:
            raise overtaken(new_name)
        await lease.finish(remains)
    except BaseException:
        # If the reply of the last call was lost, the session may be sealed as moved; then the copy must stay.
        with contextlib.suppress(ServiceError):
            if await lease.give_back():
                await take_away(target, new_name, token)
        raise
    await _open(source, target, name, new_name, arrival, remains.note())
    log.info("session moved", extra={"session": name, "as": new_name, "t": copy.tip.round})
    return Moved(new_name, copy.tip.round, is_new=True, remains=remains.note())


async def _open(source: Store, target: Store, name: str, new_name: str, arrival: Arrival, remains: bytes) -> None:
    """Open the copy. If it is incomplete, deleted, or its place is another's, the source continues: raises SessionMoving."""
    if not await target.unseal(new_name, *arrival):
        await _continue(source, target, name, new_name, remains)
        raise overtaken(new_name)


async def _continue(source: Store, target: Store, name: str, new_name: str, remains: bytes) -> None:
    """Let the source continue, and delete the copy."""
    # The source first: without its permanent seal nobody opens the copy any more.
    await source.unseal(name, remains)
    await take_away(target, new_name, Seal.of(remains).token)


async def _finished(source: Store, target: Store, name: str, new_name: str) -> Moved | None:
    """The result of an earlier call that reached step 3, opened now if need be; None if the session is to be moved: it has no
    permanent seal, or the target has lost a part of the copy."""
    head = unless_gone(await source.head(name), name)
    if not head.seal:
        return None
    seal, existing = Seal.of(head.seal), await target.head(new_name)
    if seal.kind == "moved" and isinstance(existing, Head):
        note = arrival_note(seal.token)
        ours = unless_gone(await source.whole(name), name)
        if (copy := await arriving(target, new_name, seal.token)) is not None:
            if copy.seal != note:
                await _continue(source, target, name, new_name, head.seal)
                return None
            await _open(source, target, name, new_name, Arrival(note, ours.first.digest), head.seal)
            return Moved(new_name, copy.tip.round, is_new=False, remains=head.seal)
        its = await target.whole(new_name)
        # One that is behind is not the copy, but an older one that somebody has brought there.
        is_ours = not isinstance(its, Gone) and ours.first == its.first and its.head.tip.round >= head.tip.round
        if is_ours and not existing.seal:
            return Moved(new_name, existing.tip.round, is_new=False, remains=head.seal)
    raise sealed(name, head.seal)


async def _readdressed(source: Store, name: str, moved: Moved, to: str) -> Moved:
    """The moved session, whose remains tell clients the address `to` from now on, if there is one."""
    remains = Seal.of(moved.remains)._replace(to=to).note()
    if to and await source.seal(name, remains, FOR_GOOD, moved.remains):
        return moved._replace(remains=remains)
    return moved


async def undo(source: Store, target: Store, name: str) -> Moved:
    """Open the remains of a session that the target has lost; it continues at the source, from the round at which it moved.

    Raises SessionNotFound, SessionMoving, SessionExists: the target has a session of this name.
    """
    head = unless_gone(await source.head(name), name)
    if head.seal:
        if Seal.of(head.seal).kind != "moved":
            raise sealed(name, head.seal)
        if isinstance(await target.head(name), Head):
            raise SessionExists(name)
        if not await source.unseal(name, head.seal):
            # Its remains tell another address by now.
            raise sealed(name, head.seal)
        log.info("session opened again", extra={"session": name, "t": head.tip.round})
    return Moved(name, head.tip.round, is_new=bool(head.seal), remains=b"")


async def rename(store: Store, name: str, new_name: str) -> Moved:
    """Rename a session and its challengers. Raises SessionNotFound, SessionExists, SessionMoving, SessionMoved."""
    if name == new_name:
        raise SessionExists(new_name)
    earlier = await challengers_of(store, name)
    moved = await move(store, store, name, new_name, to=f"/sessions/{new_name}")
    challengers = await challengers_of(store, name)
    head = await store.head(name)
    if isinstance(head, Gone) or head.seal != moved.remains:
        # Another session has taken the name, and those that follow it are its own.
        challengers = earlier
    for challenger in challengers:
        with contextlib.suppress(SessionNotFound):
            await rename(store, challenger, challenger_name(new_name, split_name(challenger)[1]))
    # The remains are deleted last, since they let the next attempt finish.
    await store.delete(name, remains=moved.remains)
    return moved
