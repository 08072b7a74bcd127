"""In the background, a worker feeds the challengers that it knows of.

The worker that commits to a champion feeds its challengers at once. It looks for those that other workers attached
before a snapshot of the champion trims its journal. A periodic sweep over the names of all sessions finds what a dead worker
left behind.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from okl.errors import ServiceError, SessionMoved, SessionNotFound, let_go, passes

from ..chance import sweep_forever
from ..session.names import is_challenger, split_name
from ..sessions import challengers_of, delete_orphans
from ..store.all_heads import heads_of
from ..store.base import Store
from ..telemetry.counts import Counts
from .feeder import Feeder

log = logging.getLogger("okl.challengers")

SWEEP_S: Final = 15.0
SWEPT_AT_ONCE: Final = 500
CHAMPIONS_AT_ONCE: Final = 8
"""The most champions whose challengers are fed at the same time, so that a slow challenger does not delay those of others."""
FIRST_WAIT_S: Final = 0.02
"""The delay from a champion's commit to its challengers, so that a few commits are fed together."""
BEFORE_TRIM_S: Final = 1.0
"""How long a snapshot waits until the challengers are fed."""
AGAIN_S: Final = 30.0
"""The pause after a challenger has failed, or has refused all rounds."""
SOON_S: Final = 0.5
"""The pause after an error that passes, such as of a session that is being copied."""


@final
class Roster:
    """The challengers that this worker knows of, by champion, and the tasks that feed them."""

    def __init__(self, store: Store, counts: Counts) -> None:
        self._store = store
        self._counts = counts
        self._known: dict[str, set[str]] = {}
        self._due: set[str] = set()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """The tasks, by champion."""
        self._slots = asyncio.Semaphore(CHAMPIONS_AT_ONCE)
        self._feeder: Feeder | None = None
        self._not_before: dict[tuple[str, str], float] = {}
        self._troubles: dict[tuple[str, str], str] = {}
        self._gone: set[str] = set()
        """Champions that were gone when their challengers were about to be fed."""
        self._sweeps: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """The number of challengers that this worker knows of."""
        return sum(len(names) for names in self._known.values())

    def wake(self, champion: str) -> None:
        """Feed the challengers, if any, of a session that a commit has changed."""
        if champion in self._known and self._feeder is not None:
            self._due.add(champion)
            if champion not in self._under_way:
                self._under_way[champion] = asyncio.create_task(self._feed_all(self._feeder, champion))

    def add(self, champion: str, name: str) -> None:
        """Add a challenger that was attached."""
        self._known.setdefault(champion, set()).add(name)
        self._not_before.pop((champion, name), None)
        self.wake(champion)

    async def find(self, champion: str) -> None:
        """Find challengers of a session that other workers attached. Raises StoreError."""
        if is_challenger(champion):
            return
        for own in await challengers_of(self._store, champion):
            if (name := split_name(own)[1]) not in self._known.get(champion, ()):
                self.add(champion, name)

    async def feed_before_trim(self, champion: str, *, is_blocked: bool = False) -> None:
        """Feed a champion's challengers before its journal is trimmed, for a while; if it is blocked, they are fed later.
        Raises StoreError."""
        await self.find(champion)
        # Another worker's commits have not woken them here.
        self.wake(champion)
        if champion in self._under_way and not is_blocked:
            await asyncio.wait([self._under_way[champion]], timeout=BEFORE_TRIM_S)

    def trouble(self, champion: str, name: str) -> str | None:
        """Return why this worker could not continue with a challenger, or why the last refused round was refused."""
        return self._troubles.get((champion, name))

    def start(self, feeder: Feeder) -> None:
        """Start feeding."""
        self._feeder = feeder
        sweeps = sweep_forever(self.sweep, SWEEP_S, log, "challengers cannot be looked for")
        self._sweeps = asyncio.create_task(sweeps)

    async def close(self) -> None:
        """Stop; other workers, or the next one, feed the rest."""
        self._feeder = None
        tasks = [*self._under_way.values(), *(() if self._sweeps is None else (self._sweeps,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._under_way.clear()

    async def sweep(self) -> None:
        """Find all challengers and feed each; delete those whose champion was found missing. Raises StoreError."""
        known: dict[str, set[str]] = {}
        async for head in heads_of(self._store, SWEPT_AT_ONCE):
            if is_challenger(head.name):
                champion, name = split_name(head.name)
                known.setdefault(champion, set()).add(name)
        gone, self._gone = self._gone, set()
        for champion in gone & known.keys():
            await delete_orphans(self._store, champion)
        self._known = known
        pairs = {(champion, name) for champion, names in known.items() for name in names}
        self._troubles = {pair: trouble for pair, trouble in self._troubles.items() if pair in pairs}
        self._not_before = {pair: at for pair, at in self._not_before.items() if pair in pairs}
        for champion in known:
            self.wake(champion)

    async def _feed_all(self, feeder: Feeder, champion: str) -> None:
        """Feed a champion's challengers until none of its commits is left."""
        try:
            while champion in self._due:
                await asyncio.sleep(FIRST_WAIT_S)
                async with self._slots:
                    self._due.discard(champion)
                    for name in sorted(self._known.get(champion, ())):
                        await self._feed(feeder, champion, name)
        finally:
            self._under_way.pop(champion, None)

    async def _feed(self, feeder: Feeder, champion: str, name: str) -> None:
        """Feed one challenger. Any error is recorded as its trouble, and does not stop the others."""
        pair, loop = (champion, name), asyncio.get_running_loop()
        if self._not_before.get(pair, 0.0) > loop.time():
            return
        pause_s = AGAIN_S
        try:
            fed = await feeder.feed(champion, name)
        except (SessionNotFound, SessionMoved) as error:
            # The next sweep looks again, and checks whether the champion is gone. A pause would be that of the sessions that
            # get the names next.
            if error.extra.get("session") == champion:
                self._gone.add(champion)
            self._known.get(champion, set[str]()).discard(name)
            return
        except Exception as error:
            trouble = error.detail if isinstance(error, ServiceError) else type(error).__name__
            self._counts.follow_failures += 1
            if trouble != self._troubles.get(pair):
                log.warning(
                    "challenger cannot follow", extra={"session": champion, "challenger": name, "detail": trouble}
                )
            if passes(error):
                pause_s = SOON_S
                loop.call_later(pause_s, self.wake, champion)
            if not isinstance(error, ServiceError):
                log.exception("unexpected error", extra={"session": champion})
            let_go(error)
        else:
            if fed is None:
                # Another worker feeds it, but may not know of the last round.
                self.wake(champion)
                return
            if fed.refused is None:
                if self._not_before.pop(pair, None) is not None:
                    self._troubles.pop(pair, None)
                return
            trouble = fed.refused
            if fed.rounds:
                self._troubles[pair] = trouble
                return
        self._troubles[pair] = trouble
        self._not_before[pair] = loop.time() + pause_s
