"""All sessions of a store, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from .base import Head, Store


async def heads_of(store: Store, at_once: int, cursor: str | None = None) -> AsyncGenerator[Head]:
    """The heads of all sessions by name, or of those after a cursor. Other tasks may run between two pages."""
    while True:
        page = await store.list(cursor, at_once)
        for head in page.heads:
            yield head
        if page.cursor is None:
            return
        cursor = page.cursor
        await asyncio.sleep(0)
