"""The interface between the pages and the source of their documents."""

from __future__ import annotations

from typing import Protocol

from okl.values import Json


class Views(Protocol):
    """The documents behind the pages, the same on every worker. An unknown member is null or omitted.

    Times are seconds since the epoch, durations are seconds. Raises ServiceError only.
    """

    async def index(self, cursor: str | None, limit: int) -> Json:
        """{"sessions": [entry, ...], "next": cursor or null, "total": number, "now": time}, sorted by name; `total` counts
        the sessions of all pages.

        An entry has name, kind, t, waiting, never_came, created_at, updated_at, bytes, rate (recent rounds per second),
        error_name ("mistake rate" or "RMSE"), error (windowed), verdict ({"text", "state", "rival", "gain", "low", "high"}),
        sparkline (up to 32 windowed errors), alarms (their number) and alarm ({"t", "at", "kind", "text"}, the latest).
        """
        ...

    async def session(self, name: str) -> Json:
        """{"session", "history", "rounds", "waiting", "challengers"}, the answers of the API routes, and "now"."""
        ...

    async def compare(self, names: list[str]) -> Json:
        """{"sessions": [...], "now": time}: the entries of `index`, each with "points", its history's columns, or null."""
        ...
