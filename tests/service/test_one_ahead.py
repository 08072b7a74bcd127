"""Items of which the next is made while one is used: their order, their errors, and what is left when nobody wants more."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from service.api.blocks import one_ahead

pytestmark = pytest.mark.anyio


class Source:
    """Numbers from 1 to `most`, and then `error`, if any; `made` are those so far, and `is_closed` once it has ended."""

    def __init__(self, most: int, error: Exception | None = None) -> None:
        self.made: list[int] = []
        self.is_closed = False
        self._most = most
        self._error = error

    async def items(self) -> AsyncGenerator[int]:
        try:
            for i in range(1, self._most + 1):
                await asyncio.sleep(0)
                self.made.append(i)
                yield i
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True


def heard() -> list[dict[str, Any]]:
    """What the event loop will complain of: errors that nobody has looked at, and tasks that nobody has ended."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    return complaints


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_next_item_is_made_while_one_is_used_and_no_more() -> None:
    source, found = Source(5), list[int]()
    async for item in one_ahead(source.items()):
        await settle()
        found.append(item)
        assert len(source.made) == min(item + 1, 5)
    assert found == [1, 2, 3, 4, 5]
    assert source.is_closed


async def test_an_error_comes_after_the_items_before_it() -> None:
    source, found = Source(2, LookupError("third")), list[int]()

    async def use() -> None:
        async for item in one_ahead(source.items()):
            await settle()
            found.append(item)

    with pytest.raises(LookupError, match="third"):
        await use()
    assert found == [1, 2]
    assert source.is_closed


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("error", [None, LookupError("never used")])
@pytest.mark.parametrize("pauses", [0, 1, 10])
async def test_whoever_stops_leaves_nothing_behind(most: int, error: Exception | None, pauses: int) -> None:
    complaints = heard()
    source = Source(most, error)
    async with aclosing(one_ahead(source.items())) as items:
        async for _ in items:
            for _ in range(pauses):
                await asyncio.sleep(0)
            break
    gc.collect()
    await settle()
    assert source.is_closed
    assert not complaints
    assert len(source.made) <= 2


@pytest.mark.parametrize("pauses", range(12))
async def test_a_user_that_is_cancelled_leaves_nothing_behind(pauses: int) -> None:
    complaints = heard()
    source = Source(100)

    async def use() -> None:
        async with aclosing(one_ahead(one_ahead(source.items()))) as items:
            async for _ in items:
                await asyncio.sleep(0)

    task = asyncio.create_task(use())
    for _ in range(pauses):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gc.collect()
    await settle()
    assert source.is_closed or not source.made
    assert not complaints
