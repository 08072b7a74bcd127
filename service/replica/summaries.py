"""Summaries, for lists, of the sessions that this worker serves: written beside the rounds, about once a second each."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from okl.errors import StoreError

from ..session.session import Session
from ..session.summary import encode_summary, summary_of
from ..store.base import Store, Tip
from ..store.store_time import time_of
from ..telemetry.counts import Counts
from .replica import Replica

log = logging.getLogger("okl.sessions")

EVERY_S = 1.0
"""The delay from a round to its session's summary, which covers the rounds played meanwhile too."""

SHARE = 20.0
"""The next summaries wait this many times as long as the last ones took, so very many sessions are written less often."""


class Summaries:
    """Writes summaries. One that is lost with a worker is written again after the session's next round."""

    def __init__(self, store: Store, *, counts: Counts | None = None) -> None:
        self._store = store
        self._counts = counts or Counts()
        self._due: dict[str, Replica] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._spent_s = 0.0
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, replica: Replica) -> None:
        """Schedule a summary of a session that has new rounds, or has predicted."""
        # The copy that was noted before may have been evicted since, without these rounds.
        self._due[replica.name] = replica
        if self._timer is None:
            wait_s = max(EVERY_S, SHARE * self._spent_s)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._start)

    async def close(self) -> None:
        """Write the summaries that are due."""
        if self._timer is not None:
            self._timer.cancel()
            self._start()
        await asyncio.gather(*self._writing, return_exceptions=True)

    def _start(self) -> None:
        self._timer = None
        due, self._due, self._spent_s = list(self._due.values()), {}, 0.0
        task = asyncio.create_task(self._write_all(due))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_all(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            session, position = replica.session, replica.position
            if session is None or position is None or session.t != position.tip.round:
                # It is being changed, is ahead of what is durable, or was dropped.
                if replica.is_used:
                    self.note(replica)
                continue
            await self._write(replica, position.tip, session)

    async def _write(self, replica: Replica, tip: Tip, session: Session) -> None:
        """Write a summary; a failure is only logged, since it concerns neither a client nor another session."""
        try:
            if replica.has_asked:
                # A worker whose clock is behind would let its own session be deleted as idle.
                replica.asked_at, replica.has_asked = await time_of(self._store, replica.name), False
            started = time.perf_counter()
            summary = replace(summary_of(session), asked_at=replica.asked_at)
            blob = encode_summary(summary)
            self._spent_s += time.perf_counter() - started
            await self._store.summarize(replica.name, tip, blob)
            self._counts.summaries += 1
        except Exception as error:
            self._counts.summary_failures += 1
            detail = error.detail if isinstance(error, StoreError) else repr(error)
            log.warning("summary failed", extra={"session": replica.name, "detail": detail})
