"""Streams of events in one worker: who joins as another leaves, and how many there may be."""

from __future__ import annotations

import asyncio

import pytest

from service.replica import summaries
from service.session.session import Session
from service.session.summary import Summary, summary_of
from service.watching.event_streams import EventStreams
from tests.service.api import Api

pytestmark = pytest.mark.anyio


async def test_who_joins_as_the_last_one_leaves_is_still_counted_and_ended(api: Api) -> None:
    await api.create()
    event_streams = EventStreams(api.worker.past, most=2)
    first = event_streams.watch("s", None)
    await anext(first)
    await first.aclose()
    # The task of the first one's channel has not ended yet.
    second = event_streams.watch("s", None)
    await anext(second)
    for _ in range(5):
        await asyncio.sleep(0)
    assert event_streams.count == 1
    event_streams.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(second), 5.0)


async def test_nobody_joins_while_the_worker_stops(api: Api) -> None:
    await api.create()
    event_streams = EventStreams(api.worker.past, most=2)
    event_streams.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(event_streams.watch("s", None)), 5.0)


async def test_streams_that_begin_at_once_are_no_more_than_allowed(api: Api) -> None:
    await api.create()
    event_streams = EventStreams(api.worker.past, most=2)
    streams = [event_streams.watch("s", None) for _ in range(5)]
    found = await asyncio.gather(*map(anext, streams), return_exceptions=True)
    assert [type(one) for one in found].count(StopAsyncIteration) == 3


async def test_a_session_that_cannot_be_told_of_holds_up_no_other(memory: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(session: Session) -> Summary:
        if session.definition.name == "a":
            raise ZeroDivisionError
        return summary_of(session)

    monkeypatch.setattr(summaries, "summary_of", told)
    for name in "ab":
        await memory.create(name=name)
        await memory.update(1.0, name=name, x=[1.0])
    await memory.worker.rounds.close()
    await memory.worker.rounds.summaries.close()
    assert [head.summary_round for head in (await memory.store.list(None, 9)).heads] == [0, 1]
    assert memory.worker.counts.summary_failures == 1
