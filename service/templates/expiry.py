"""Deletion of idle sessions of templates.

Rounds, and predictions that wait for their truth, are use of a session. The time of its last prediction is in its summary,
which a worker writes within seconds. Use between the check and the deletion keeps the session: a round moves its tip, and a
prediction waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final, final

from okl.errors import ServiceError, StoreCorrupt, StoreError

from ..chance import BY_CHANCE, sweep_forever
from ..session.names import is_challenger
from ..sessions import Listed, Sessions
from .template import Template
from .templates import Templates

log = logging.getLogger("okl.templates")

STEP_S: Final = 60.0
"""A clock that moves this much within no time was set."""
SWEEP_S: Final = 30.0
"""Approximate seconds between two sweeps."""
LISTED_AT_ONCE: Final = 250
MOST_LOOKED_AT: Final = 10_000
"""The most sessions that one sweep checks; the next sweep continues after them."""


@final
class Expiry:
    """A worker's sweeps; other workers may sweep at the same time.

    `clock` gives seconds since the epoch. When it is set, the times of earlier use are not comparable with it any more, so
    the sessions count as used then.
    """

    def __init__(self, templates: Templates, sessions: Sessions, *, clock: Callable[[], float] = time.time) -> None:
        self._templates = templates
        self._sessions = sessions
        self._clock = clock
        self._cursors: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._offset: float | None = None
        self._set_at = -math.inf

    def start(self) -> None:
        self._now()
        self._task = asyncio.create_task(self._sweep_all())

    async def close(self) -> None:
        """Stop; other or later workers will find the remaining idle sessions."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sweep_all(self) -> None:
        # After a time without a worker, the sessions that are used come first.
        await asyncio.sleep(SWEEP_S * BY_CHANCE.uniform(0.8, 1.2))
        await sweep_forever(self.sweep, SWEEP_S, log, "idle sessions cannot be looked for")

    async def sweep(self) -> int:
        """Delete idle sessions. Return how many there were. Raises StoreError."""
        deleted, left = 0, MOST_LOOKED_AT
        templates = [template for template in await self._templates.all() if template.idle_s is not None]
        self._cursors = {one.name: cursor for one in templates if (cursor := self._cursors.get(one.name)) is not None}
        # Templates that the last sweep did not finish come after the others.
        for template in sorted(templates, key=lambda one: one.name in self._cursors):
            # A template that is deleted or replaced meanwhile no longer applies.
            while left > 0 and template in await self._templates.all():
                page = await self._sessions.list(self._cursors.get(template.name), LISTED_AT_ONCE, template.prefix)
                left -= max(len(page.sessions), 1)
                for listed in page.sessions:
                    deleted += await self._delete(template, listed)
                if page.cursor is None:
                    self._cursors.pop(template.name, None)
                    break
                self._cursors[template.name] = page.cursor
                await asyncio.sleep(0)
        return deleted

    async def _delete(self, template: Template, listed: Listed) -> bool:
        head, summary = listed.head, listed.summary
        if summary.template != template.name or is_challenger(head.name) or head.seal or template.idle_s is None:
            return False
        now = self._now()
        used_at = max(head.created_at, head.updated_at or 0.0, summary.asked_at or 0.0, self._set_at)
        if now - used_at < template.idle_s:
            return False
        try:
            if not await self._sessions.delete_unused(head, used_at + template.idle_s):
                return False
        except ServiceError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt):
                raise
            # The session is moving, or is damaged.
            log.warning("idle session not deleted", extra={"session": head.name, "detail": error.detail})
            return False
        facts = {"session": head.name, "template": template.name, "t": head.tip.round}
        log.info("idle session deleted", extra=facts | {"idle_s": round(now - used_at)})
        return True

    def _now(self) -> float:
        """The time; notes whether the clock was set since the last call."""
        now = self._clock()
        offset = now - asyncio.get_running_loop().time()
        if self._offset is not None and abs(offset - self._offset) > STEP_S:
            self._set_at = now
        self._offset = offset
        return now
