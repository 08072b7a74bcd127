"""The sessions on the index page: all of them by name, page by page, or a filtered and sorted selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from okl.values import Json

from .views import Views

PAGE: Final = 100
LOOKED_AT: Final = 1000
"""How many sessions, the first by name, a filter or another order considers. The plain list is unbounded."""

Order = Literal["name", "verdict", "error", "rate", "t", "waiting", "bytes", "updated_at", "alarm"]
Kept = Literal["all", "alarm", "better", "worse", "undecided"]

_WORST_FIRST: Final = {"worse": 0, "undecided": 1, "better": 2}


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """The query of the index page: filter, order and page."""

    q: str = ""
    state: Kept = "all"
    sort: Order = "name"
    descending: bool = False
    cursor: str | None = None
    limit: int = PAGE

    @property
    def is_plain(self) -> bool:
        """Whether the store's order, by name and unfiltered, serves the query."""
        return not self.q and self.state == "all" and self.sort == "name" and not self.descending

    async def of(self, views: Views) -> Json:
        """The index document. "looked_at" is how many sessions were considered, null if that is all of them; "total" counts
        those that match.
        """
        if self.is_plain:
            return await views.index(self.cursor, self.limit) | {"looked_at": None}
        found = await views.index(None, LOOKED_AT)
        entries = [entry for entry in found["sessions"] if self._is_wanted(entry)]
        key = _KEYS[self.sort]
        known = sorted((one for one in entries if key(one) is not None), key=key, reverse=self.descending)
        unknown = [one for one in entries if key(one) is None]
        looked_at = len(found["sessions"]) if found["next"] else None
        shown = (known + unknown)[: self.limit]
        return found | {"sessions": shown, "next": None, "total": len(entries), "looked_at": looked_at}

    def _is_wanted(self, entry: Json) -> bool:
        asked = self.q.lower()
        if asked and asked not in entry["name"].lower() and asked not in (entry.get("kind") or "").lower():
            return False
        if self.state == "all":
            return True
        return bool(entry.get("alarm")) if self.state == "alarm" else _state(entry) == self.state


def _state(entry: Json) -> str | None:
    return (entry.get("verdict") or {}).get("state")


def _alarm_at(entry: Json) -> float | None:
    return (entry.get("alarm") or {}).get("at")


_KEYS: Final[dict[Order, Callable[[Json], Any]]] = {
    "verdict": lambda entry: _WORST_FIRST.get(_state(entry) or ""),
    "alarm": _alarm_at,
    "name": lambda entry: entry["name"],
    "error": lambda entry: entry.get("error"),
    "rate": lambda entry: entry.get("rate"),
    "t": lambda entry: entry.get("t"),
    "waiting": lambda entry: entry.get("waiting"),
    "bytes": lambda entry: entry.get("bytes"),
    "updated_at": lambda entry: entry.get("updated_at"),
}
