"""The documents of the pages, from the sessions."""

from __future__ import annotations

import time
from typing import final

from service.api import wire
from service.pages.views import Json
from service.sessions import Sessions


@final
class SessionViews:
    """Views of the sessions in the store."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def index(self, cursor: str | None, limit: int) -> Json:
        return wire.page(await self._sessions.list(cursor, limit)) | {"now": time.time()}

    async def session(self, name: str) -> Json:
        found = wire.session(await self._sessions.inspect(name))
        return {"session": found, "history": None, "rounds": None, "waiting": None}

    async def compare(self, names: list[str]) -> Json:
        found = [wire.session(await self._sessions.inspect(name)) for name in names]
        return {"sessions": found, "now": time.time()}
