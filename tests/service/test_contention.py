"""A worker that loses the race for a session again and again, since loading it takes longer than others need to be first."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from service.replica import replica
from service.session.requests import Batch
from tests.oracles.model_store import ModelStore
from tests.service.definitions import RIDGE, define
from tests.service.worker import DATA, TRUTHS, Call, Clock, Watched, assert_sequential, direct, together, told, working

pytestmark = pytest.mark.anyio

LOADING_S = 3.0
"""Longer than a worker thinks itself contended, were it to count from the race that it lost."""

MOST = 10
"""Commits that it may need. To lose for ever takes as many as its patience allows."""


@pytest.mark.parametrize("size", [replica.COPIED_BYTES, 0], ids=["small", "large"])
@pytest.mark.parametrize("asks", ["a block", "updates"])
async def test_who_loses_the_race_wins_it_in_the_end(monkeypatch: pytest.MonkeyPatch, size: int, asks: str) -> None:
    monkeypatch.setattr("service.replica.replica.COPIED_BYTES", size)
    clock = Clock()
    store = ModelStore(clock=clock)
    watched = Watched(store)
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(working(watched.as_store, patience_s=100.0))
        rival = await stack.enter_async_context(working(store))
        await slow.sessions.create(define(RIDGE))
        await slow.rounds.update("s", direct(0))
        rows = iter(range(20, 60))
        played: list[int] = []

        async def before(call: Call) -> None:
            """The other one is quicker at first, and whenever the session was read anew."""
            is_first = not played and sum(entry.count for entry in call.entries) > 1
            if call.method == "commit" and (is_loaded or is_first):
                is_loaded.clear()
                played.append(next(rows))
                await rival.rounds.update("s", direct(played[-1]))

        async def after(call: Call, answer: object) -> object:
            if call.method == "read":
                clock.skip(LOADING_S)
                is_loaded.append(True)
            return answer

        is_loaded: list[bool] = []
        watched.before, watched.after = before, after
        if asks == "a block":
            tasks = together(slow.rounds.rounds("s", Batch(DATA[1:20].tolist(), TRUTHS[1:20].tolist())))
        else:
            tasks = together(*(slow.rounds.update("s", direct(i)) for i in range(1, 20)))
        _, late = await asyncio.wait(tasks, timeout=20.0)
        assert not late
        assert not [answer for answer in await told(tasks) if isinstance(answer, Exception)]
        # In turns of one request each where nothing is kept.
        assert len(watched.of("commit")) <= MOST + (20 if size == 0 and asks == "updates" else 0)
        await assert_sequential(store, 20 + len(played))
