"""The time by a store's clock, which all workers share."""

from __future__ import annotations

from .base import Gone, Store


async def time_of(store: Store, session: str) -> float | None:
    """Seconds since the epoch, as the store answers them about a session; None if there is no such session."""
    page = await store.waiting(session, None, 1)
    return None if isinstance(page, Gone) else page.now
