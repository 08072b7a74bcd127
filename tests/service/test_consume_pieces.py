"""The consumer and its sockets, with a service and a group that are made up: what it reads, holds back, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from service.consuming import channels, consumer
from service.consuming.channels import Channels
from service.consuming.consumer import Bounds, Consumer
from service.consuming.entries import Consumed, read_entry
from service.consuming.group import Claimed, Delivered, Group, Written

pytestmark = pytest.mark.anyio

Serve = Callable[[ServerConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[str]:
    """The url of a service that answers so. All of the test takes at most ten seconds."""
    async with serve_sockets(serve, "127.0.0.1", 0) as server, asyncio.timeout(10.0):
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def answer_all(connection: ServerConnection) -> None:
    async for data in connection:
        found = json.loads(data)
        answers = [{"t": 1, "note": 100 * "a"} for _ in found] if isinstance(found, list) else {"t": 1}
        await connection.send(json.dumps(answers))


def message(number: int, session: str = "s", **sent: Any) -> Consumed:
    fields = {b"session": session.encode(), b"message": json.dumps(sent).encode()}
    return read_entry("rounds", f"{number}-0", fields)


# -- sockets ----------------------------------------------------------------------------------------------------------


async def test_a_truth_is_held_back_until_the_answer_to_its_prediction_is_in_the_output() -> None:
    """A prediction that is sent again after its truth was learned would be refused."""
    frames: list[Any] = []
    answered: asyncio.Queue[Consumed] = asyncio.Queue()

    async def serve(connection: ServerConnection) -> None:
        async for data in connection:
            frames.append(json.loads(data))
            await connection.send('{"t": 1}')

    async with serving(serve) as url:
        sockets = Channels(url, lambda one, *_: answered.put_nowait(one), most=1)
        sockets.send(message(1, x=[1], id="p"))
        prediction = await answered.get()
        # The session gives its socket to another one.
        sockets.send(message(1, "other", x=[2], y=1, id="q"))
        await answered.get()
        sockets.send(message(2, id="p", y=1))
        await asyncio.sleep(2 * channels.LOOK_S)
        assert frames == [{"x": [1], "id": "p"}, {"x": [2], "y": 1, "id": "q"}]
        sockets.written(prediction)
        await answered.get()
        assert frames[2:] == [{"id": "p", "y": 1}]
        await sockets.close()


async def test_a_session_whose_socket_another_has_got_is_served_again() -> None:
    answered: asyncio.Queue[str] = asyncio.Queue()
    async with serving(answer_all) as url:
        sockets = Channels(url, lambda one, *_: answered.put_nowait(one.session), most=1)
        for number, session in enumerate("aba"):
            sockets.send(message(number, session, x=[1], y=1))
            assert await answered.get() == session
        await sockets.close()


async def test_a_session_that_always_has_messages_leaves_its_socket_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "TURN_S", 0.1)
    is_served = asyncio.Event()

    def go_on(one: Consumed, *_: object) -> None:
        if one.session == "b":
            is_served.set()
        else:
            sockets.send(message(0, "a", x=[1], y=1))

    async with serving(answer_all) as url:
        sockets = Channels(url, go_on, most=1)
        for session in "aab":
            sockets.send(message(0, session, x=[1], y=1))
        await is_served.wait()
        await sockets.close()


# -- the consumer -----------------------------------------------------------------------------------------------------


class Made:
    """A group with entries that are new, were given to this consumer before, or were left by another one."""

    def __init__(self, *, new: Sequence[Delivered] = (), given: Sequence[Delivered] = ()) -> None:
        self.written: list[str] = []
        self.claimed_from: list[str] = []
        self.most_held = 0
        self._new = list(new)
        self._given = list(given)
        self._held = 0
        self._more = asyncio.Event()

    async def open(self, stream: str, *, create: bool) -> None:
        pass

    async def read(self, streams: Sequence[str], count: int) -> list[Delivered]:
        await asyncio.sleep(0.0 if self._new else 0.01)
        found, self._new = self._new[:2], self._new[2:]
        self._held += len(found)
        self.most_held = max(self.most_held, self._held)
        return found

    async def given(self, stream: str, after: str, count: int) -> list[Delivered]:
        start = int(after.partition("-")[0])
        return [one for one in self._given if int(one.entry.partition("-")[0]) > start][:count]

    async def claim(self, stream: str, idle_ms: int, start: str, count: int, refusal: bytes) -> Claimed:
        self.claimed_from.append(start)
        self._more.set()
        return Claimed("5-0" if start == "0-0" else "0-0", [], 1)

    async def write(self, stream: str, answers: Sequence[Written]) -> int:
        self.written += [one.entry for one in answers]
        self._held -= len(answers)
        self._more.set()
        return len(answers)

    async def have_written(self, count: int) -> None:
        await self.until(lambda: len(self.written) >= count)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._more.clear()
            await self._more.wait()


def bad(count: int) -> list[Delivered]:
    """Entries that are refused without a service."""
    return [Delivered("rounds", f"{number}-0", None) for number in range(1, count + 1)]


def good(count: int, size: int = 0) -> list[Delivered]:
    text = json.dumps({"x": [1], "y": 1}).ljust(size).encode()
    return [Delivered("rounds", f"{number}-0", {b"session": b"s", b"message": text}) for number in range(1, count + 1)]


@contextlib.asynccontextmanager
async def consuming(group: Made, url: str = "http://127.0.0.1:9", **bounds: Any) -> AsyncGenerator[Consumer]:
    found = Consumer(cast(Group, group), url, ["rounds"], create=False, bounds=Bounds(**bounds))
    running = asyncio.create_task(found.run())
    async with asyncio.timeout(10.0):
        yield found
        found.stop()
        await running


async def test_all_that_was_delivered_before_is_answered_first() -> None:
    group = Made(given=bad(100))
    async with consuming(group, claim_after_s=0.0) as found:
        await group.have_written(100)
    assert group.written == [one.entry for one in bad(100)]
    assert (found.consumed, found.answered, found.refused) == (100, 100, 100)


async def test_what_others_leave_is_claimed_page_by_page_and_again_after_a_while() -> None:
    group = Made()
    async with consuming(group, claim_after_s=0.1) as found:
        await group.until(lambda: len(group.claimed_from) >= 6)
    assert group.claimed_from[:6] == 3 * ["0-0", "5-0"]
    assert found.consumed == found.answered == found.refused == len(group.claimed_from)


async def test_nothing_is_claimed_if_that_is_not_wanted() -> None:
    group = Made(new=bad(10))
    async with consuming(group, claim_after_s=0.0):
        await group.have_written(10)
    assert group.claimed_from == []


async def test_what_is_held_is_bounded_in_bytes_and_all_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "MOST_BYTES", 1_000)

    async def serve(connection: ServerConnection) -> None:
        await asyncio.sleep(0.3)
        await answer_all(connection)

    group = Made(new=good(60, size=300))
    async with serving(serve) as url, consuming(group, url, claim_after_s=0.0) as found:
        await group.have_written(60)
    assert group.most_held <= 5
    assert (found.consumed, found.answered, found.refused) == (60, 60, 0)


async def test_what_is_in_flight_at_the_end_is_answered() -> None:
    is_asked, is_stopped = asyncio.Event(), asyncio.Event()

    async def serve(connection: ServerConnection) -> None:
        async for _ in connection:
            is_asked.set()
            await is_stopped.wait()
            await asyncio.sleep(0.2)
            await connection.send('{"t": 1}')

    group = Made(new=good(1))
    async with serving(serve) as url, consuming(group, url) as found:
        await is_asked.wait()
        found.stop()
        is_stopped.set()
        await group.have_written(1)


async def test_a_truth_follows_its_prediction() -> None:
    rounds = [{"x": [1], "id": "p"}, {"id": "p", "y": 1}]
    entries = [
        Delivered("rounds", f"{number}-0", {b"session": b"s", b"message": json.dumps(one).encode()})
        for number, one in enumerate(rounds)
    ]
    group = Made(new=entries)
    async with serving(answer_all) as url, consuming(group, url):
        await group.have_written(2)
    assert group.written == ["0-0", "1-0"]
