"""When a session gets its next snapshot. The worker that crosses the threshold writes it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Protocol

from okl.errors import StoreError

from ..session.session import Session
from ..session.snapshot import pack
from ..session.turn import Position
from ..store.base import Store
from ..telemetry.counts import Counts
from .replica import Replica
from .scheduling import Scheduler

log = logging.getLogger("okl.sessions")

BYTES_PER_S = 10e6
"""Bytes of snapshots per second of learning; without this limit the largest states would be packed most of the time."""

LARGE_TURNS = 16
LARGE_BYTES = 4 << 20
"""A journal of large turns holds so many of them, or so many bytes, before a snapshot: one after each few blocks of thousands
of rounds would cost some hundredths of the time that a fast learner takes for them."""


class BeforeTrim(Protocol):
    """Awaited with the session's name before a snapshot is written, and with whether the session is blocked meanwhile."""

    def __call__(self, name: str, /, *, is_blocked: bool) -> Awaitable[None]: ...


class Snapshots:
    """Writes a snapshot once the journal is as large, which at most doubles the bytes written, or is slow to replay."""

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        *,
        least_bytes: int,
        replay_s: float,
        counts: Counts | None = None,
        before_trim: BeforeTrim | None = None,
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._counts = counts or Counts()
        self._least_bytes = least_bytes
        self._replay_s = replay_s
        self._before_trim = before_trim
        self._under_way: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for the snapshots under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def consider(self, replica: Replica) -> None:
        """Write a snapshot if one is due. The session is blocked while it is packed, but not while it is written."""
        session, position = replica.session, replica.position
        if session is None or position is None or not self._is_due(replica, session):
            return
        replica.wants_snapshot = False
        blob = await self._scheduler.bytes(session.nbytes, lambda: pack(session, str(position)))
        replica.journal.start(position.tip.round, len(blob))
        replica.is_snapshot_under_way = True
        is_blocked = session.definition.snapshot_every is not None
        task = asyncio.create_task(self._write(replica, position, blob, is_blocked=is_blocked))
        if is_blocked:
            await task
            return
        # Keep a reference to the task: the event loop holds none, and the replica may be dropped.
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _is_due(self, replica: Replica, session: Session) -> bool:
        journal = replica.journal
        if replica.is_snapshot_under_way:
            return False
        every = session.definition.snapshot_every
        if every is not None:
            return journal.rounds >= every
        # Measure the session only once the journal reaches the last measured size, not after each round.
        size = replica.size + replica.beside
        if replica.wants_snapshot or journal.seconds > max(self._replay_s, size / BYTES_PER_S):
            return True
        turns = min(LARGE_TURNS * journal.largest, LARGE_BYTES)
        least = max(self._least_bytes, journal.snapshot_bytes, size, turns)
        return journal.bytes >= least and journal.bytes >= session.nbytes + session.history.nbytes

    async def _write(self, replica: Replica, position: Position, blob: bytes, *, is_blocked: bool) -> None:
        """Write a snapshot; a failure is only logged, since the round is committed and the journal complete without it."""
        try:
            if self._before_trim is not None:
                await self._before_trim(replica.name, is_blocked=is_blocked)
            started = time.perf_counter()
            await self._store.snapshot(replica.name, position.tip, blob)
            self._counts.snapshots += 1
            self._counts.snapshot_bytes += len(blob)
            self._counts.snapshot_s += time.perf_counter() - started
        except StoreError as error:
            self._counts.snapshot_failures += 1
            extra = {"session": replica.name, "t": position.tip.round, "detail": error.detail}
            log.warning("snapshot failed", extra=extra)
        finally:
            replica.is_snapshot_under_way = False
