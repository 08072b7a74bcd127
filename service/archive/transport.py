"""Export sessions of a store to a file, and import them. Both resume after an interruption."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from okl.errors import (
    DamagedArchive,
    ServiceError,
    SessionExists,
    SessionMoving,
    SessionNotFound,
    StoreTimeout,
    StoreUnavailable,
)

from ..session.names import SESSION_NAME
from ..store.all_heads import heads_of
from ..store.base import Reading, Store, Tip
from ..store.moving import Whole
from .examination import Examine, Examining
from .file import ArchiveReader, ArchiveWriter, Framed, sessions_in
from .parts import LEASE_S, Lease, Part, let_in, new_token, parts_of, take_in

LISTED = 1_000


class Carried(NamedTuple):
    """A session at this round; `is_new` if this call wrote it; `trouble` is the reason if it was not written."""

    name: str
    round: int = 0
    is_new: bool = True
    trouble: str | None = None


OnCarried = Callable[[Carried], None]


async def names_in(store: Store) -> list[str]:
    """The names of all sessions that are not sealed for good."""
    return [head.name async for head in heads_of(store, LISTED) if not head.seal]


async def export(
    store: Store, names: Sequence[str], path: Path, on_carried: OnCarried, *, missing_ok: bool = False
) -> None:
    """Write sessions to a file, each a consistent copy. Sessions that an interrupted call has completed stay as they are.

    A session is sealed while it is read. One that cannot be read is left out; if all are, no file is written. Raises
    StoreUnavailable, StoreTimeout, DamagedArchive.
    """
    unfinished = path.with_name(path.name + ".part")
    done, end, digest = _begun(unfinished)
    with unfinished.open("r+b" if end else "wb") as file:
        if end:
            file.truncate(end)
            file.seek(end)
        writer, is_worth_it, is_troubled = ArchiveWriter(file, digest), bool(done), False
        try:
            for name in names:
                if name in done:
                    on_carried(Carried(name, done[name].round, is_new=False))
                    continue
                found = await _try_to_export(store, name, writer, missing_ok=missing_ok)
                if found is not None:
                    on_carried(found)
                    is_worth_it |= found.trouble is None
                    is_troubled |= found.trouble is not None
        except BaseException:
            if not is_worth_it:
                unfinished.unlink()
            raise
    # Finished even if a session is left out: otherwise a later call would take the others, by then old, for its own.
    if is_worth_it or not is_troubled:
        unfinished.replace(path)
    else:
        unfinished.unlink()


def _begun(unfinished: Path) -> tuple[dict[str, Tip], int, bytes | None]:
    """The result of an interrupted call, as from `sessions_in`. Raises DamagedArchive."""
    if not unfinished.exists() or not unfinished.stat().st_size:
        return {}, 0, None
    try:
        return sessions_in(unfinished)
    except DamagedArchive as error:
        raise DamagedArchive(f"{error.detail} It should be an interrupted export; remove it.") from error


async def _try_to_export(store: Store, name: str, writer: ArchiveWriter, *, missing_ok: bool) -> Carried | None:
    """None for a session that may be missing, and is."""
    try:
        return await _export_one(store, name, writer)
    except (StoreUnavailable, StoreTimeout):
        raise
    except ServiceError as error:
        writer.drop()
        if isinstance(error, SessionNotFound):
            return None if missing_ok else Carried(name, trouble=error.title)
        return Carried(name, trouble=f"{error.title}: {error.detail}")


async def _export_one(store: Store, name: str, writer: ArchiveWriter) -> Carried:
    lease = Lease(store, name, new_token())
    # A killed export leaves its seal, and may be the one that resumes here.
    await lease.take(LEASE_S + 1.0)
    round = 0
    try:
        async for part in parts_of(store, name, lease):
            if isinstance(part, Whole):
                round = part.head.tip.round
            writer.add(part)
        # The copy is consistent only if the seal has not lapsed.
        await lease.confirm()
        writer.done(name)
    finally:
        with contextlib.suppress(ServiceError):
            await lease.give_back()
    return Carried(name, round)


async def import_file(
    store: Store, path: Path, on_carried: OnCarried, examine: Examine, *, only: Sequence[str] = ()
) -> None:
    """Add the sessions of a file to a store. A session that the store has at that round or a later one is left as it is.

    Each is read twice, so that all of it is examined before anything is written. Raises DamagedArchive; sessions before the
    damage have been added.
    """
    with path.open("rb") as file:
        reader = ArchiveReader(file, str(path))
        frames = reader.frames()
        for frame in frames:
            begun = reader.part(frame) if frame.kind == b"SESS" else None
            if not isinstance(begun, Whole):
                raise DamagedArchive(f"{path} is damaged: a session does not begin.")
            name = begun.head.name
            if not re.fullmatch(SESSION_NAME, name):
                raise DamagedArchive(f"{path} has a session with an invalid name.")
            if only and name not in only:
                await _skip(_rest(reader, frames, begun))
                continue
            on_carried(await _import_one(store, reader, frames, begun, examine()))


async def _rest(reader: ArchiveReader, frames: Iterator[Framed], begun: Whole) -> AsyncIterator[Part]:
    """The parts of the session, up to its end."""
    yield begun
    for frame in frames:
        if frame.kind == b"DONE":
            return
        yield reader.part(frame)
    raise DamagedArchive(f"Session {begun.head.name!r} does not end.")


async def _skip(rest: AsyncIterator[Part]) -> None:
    async for _ in rest:
        pass


async def _import_one(
    store: Store, reader: ArchiveReader, frames: Iterator[Framed], begun: Whole, examining: Examining
) -> Carried:
    name, round = begun.head.name, begun.head.tip.round
    trouble, is_new = None, True
    position, rest = reader.position, _rest(reader, frames, begun)
    try:
        if await _is_there(store, begun):
            return Carried(name, round, is_new=False)
        async for part in rest:
            # In a thread, as replaying a journal takes a while.
            await asyncio.to_thread(examining.see, part)
        await asyncio.to_thread(examining.end)
        reader.go_back(position)
        rest = _rest(reader, frames, begun)
        is_new = await _bring(store, begun, rest)
    except DamagedArchive:
        raise
    except SessionExists as error:
        trouble = error.detail
    except ServiceError as error:
        trouble = f"{error.title}: {error.detail}"
    finally:
        await _skip(rest)
    return Carried(name, round, is_new, trouble)


async def _bring(store: Store, begun: Whole, rest: AsyncIterator[Part]) -> bool:
    """Add an examined session; False if another import of it was first. Raises SessionExists, SessionMoving."""
    name = begun.head.name
    try:
        await let_in(store, name, await take_in(store, name, rest, new_token()))
    except (SessionExists, SessionMoving):
        if not await _is_there(store, begun):
            raise
        return False
    return True


async def _is_there(store: Store, begun: Whole) -> bool:
    """Whether this session is open in the store, at this round or a later one of the same history."""
    found = await store.read(begun.head.name, begun.head.tip)
    return isinstance(found, Reading) and not found.head.seal and not found.is_whole
