"""The documents behind the pages, assembled from the API's answers about sessions."""

from __future__ import annotations

import asyncio
import time
from typing import final

from okl.values import Json

from ..api import watching_wire, wire
from ..challengers.challengers import Challengers
from ..keys import caller
from ..sessions import Sessions
from ..watching.past import PastReader

LAST_ROUNDS = 50
WAITING = 50


@final
class SessionViews:
    """Views of the sessions in the store."""

    def __init__(self, sessions: Sessions, past: PastReader, challengers: Challengers) -> None:
        self._sessions = sessions
        self._past = past
        self._challengers = challengers

    async def index(self, cursor: str | None, limit: int) -> Json:
        now, listing = time.time(), await self._sessions.list(cursor, limit, caller.prefix())
        lines = [watching_wire.line(listed, now) for listed in listing.sessions]
        total = await self._sessions.count(caller.prefix())
        return {"sessions": lines, "next": listing.cursor, "total": total, "now": now}

    async def session(self, name: str) -> Json:
        found = await self._sessions.inspect(name)
        past, rounds, waiting, challengers = await asyncio.gather(
            self._past.history(name),
            self._past.last(name, LAST_ROUNDS),
            self._past.waiting(name, None, WAITING),
            self._challengers.list(name),
        )
        return {
            "session": wire.session(found),
            "history": watching_wire.history(name, past),
            "rounds": watching_wire.past_rounds(name, rounds),
            "waiting": watching_wire.waiting(name, waiting),
            "challengers": [wire.challenger(name, one) for one in challengers],
            "now": time.time(),
        }

    async def compare(self, names: list[str]) -> Json:
        now = time.time()
        entries = [
            watching_wire.line(await self._past.line(name), now)
            | {"points": watching_wire.history(name, await self._past.history(name))["points"]}
            for name in names
        ]
        return {"sessions": entries, "now": now}
