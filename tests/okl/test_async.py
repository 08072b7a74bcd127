"""The async client: the answers and errors of the sync one, rounds under way together, and what was lost sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from okl import errors
from okl.client import AsyncClient, Client
from okl.conversation import UNDER_WAY
from okl.session import AsyncSession, Session
from okl.talks import Call, Talk, hold, hold_async

pytestmark = pytest.mark.anyio

LABELS = ["no", "yes"]


def rows(n: int) -> list[tuple[dict[str, Any], str]]:
    return [({"page": "ab"[i % 2], "seconds": i % 7}, LABELS[i % 7 > 3]) for i in range(n)]


class Lossy(AsyncClient):
    """Every second answer is lost on the way."""

    count = 0

    async def send(self, call: Call) -> Any:
        found = await super().send(call)
        self.count += 1
        if self.count % 2:
            raise errors.Unreachable("The answer was lost.")
        return found


def plainly(answer: Any) -> Any:
    """Without what differs between two sessions."""
    gone = {"session": "", "id": None}
    return replace(answer, **{name: value for name, value in gone.items() if hasattr(answer, name)})


async def test_a_session_answers_as_the_sync_one_does(url: str, client: Client) -> None:
    sync: Session = client.session("sync", "aioli", labels=LABELS)
    async with AsyncClient(url) as other:
        assert await other.is_ready()
        session: AsyncSession = await other.session("async", "aioli", labels=LABELS)
        for x, y in rows(12):
            asked, told = sync.predict(x), await session.predict(x)
            assert plainly(told) == plainly(asked)
            assert plainly(await session.update(told, y)) == plainly(sync.update(asked, y))
        X, Y = map(list, zip(*rows(40), strict=True))
        assert plainly(await session.play(X, Y)) == plainly(sync.play(X, Y))
        weight = [1.0, 2.5] * 20
        assert plainly(await session.play(X, Y, weight=weight)) == plainly(sync.play(X, Y, weight=weight))
        one, two = await other.rounds("async", X, Y, weight=weight), client.rounds("sync", X, Y, weight=weight)
        assert one["loss"] == two["loss"]
        assert list(map(plainly, await session.predict_many(X))) == list(map(plainly, sync.predict_many(X)))
        frame = pd.DataFrame(X, index=range(7, 47))
        assert ((await session.predict_many(frame)).to_frame() == sync.predict_many(frame).to_frame()).all(axis=None)
        learned, following = await session.step(await session.predict(X[0]), Y[0], X[1])
        assert (learned.t, following.t) == (133, 133)
        assert (await session.describe())["metrics"]["rounds"] == 133
        assert len((await session.history())["points"]["t"]) > 0
        assert [one["name"] for one in await other.sessions()] == ["async", "sync"]
        assert await other.snapshot("async")
        await session.delete()


async def test_errors_are_the_services(url: str, client: Client) -> None:
    async with AsyncClient(url) as other:
        with pytest.raises(errors.SessionNotFound):
            await other.inspect("nobody")
        with pytest.raises(errors.UnknownLearner):
            await other.session("s", "oracle")
        session = await other.session("s", "mean")
        with pytest.raises(ValueError, match="wait=False"):
            await session.update(await session.predict([1.0], wait=False), 1.0)
        with pytest.raises(errors.SessionNotFound):
            async for _ in other.events("nobody"):
                pass
        with pytest.raises(errors.SessionNotFound):
            async with other.stream("nobody"):
                pass
    async with AsyncClient("http://127.0.0.1:9") as nobody:
        session = await nobody.session("s")
        session.again_for_s = 0.2
        with pytest.raises(errors.Unreachable, match="okl serve"):
            await session.predict([1.0])


async def test_what_was_lost_is_sent_again_and_learned_once(url: str, client: Client) -> None:
    async with Lossy(url) as lossy:
        session = await lossy.session("lossy", "mean", y_range=[0.0, 10.0])
        for t in range(1, 4):
            learned = await session.update(await session.predict([1.0]), 4.0)
            assert (learned.t, learned.duplicate) == (t, True)
        assert (await session.play([[1.0]] * 3, [4.0] * 3)).t == 6
    assert client.inspect("lossy")["t"] == 6


async def test_many_tasks_use_one_client(url: str, client: Client) -> None:
    client.create("s", "mean", y_range=[0.0, 10.0])
    async with AsyncClient(url) as other:
        session = await other.session("s")
        found = await asyncio.gather(*(session.learn([1.0], float(i % 9)) for i in range(40)))
    assert sorted(one.t for one in found) == list(range(1, 41))


async def test_rounds_that_come_while_a_request_is_under_way_go_together(url: str, client: Client) -> None:
    twin = client.session("twin", "aioli", labels=LABELS)

    async def coming(n: int) -> AsyncIterator[tuple[dict[str, Any], str]]:
        for i, one in enumerate(rows(n)):
            if i == 1:
                await asyncio.sleep(0.05)
            yield one

    async with AsyncClient(url) as other:
        session = await other.session("s", "aioli", labels=LABELS)
        sizes = [part.rounds async for part in session.parts(coming(60))]
        assert (sizes[0], sum(sizes), len(sizes) < 60) == (1, 60, True)
        played = await session.play(coming(2100))
        X, Y = map(list, zip(*rows(60), strict=True))
        twin.play(X, Y)
        X, Y = map(list, zip(*rows(2100), strict=True))
        expected = twin.play(X, Y)
        assert (played.t, played.rounds, played.mistakes) == (2160, 2100, expected.mistakes)
        assert played.probabilities == pytest.approx(expected.probabilities, abs=1e-9)

        async def weighted() -> AsyncIterator[tuple[Any, ...]]:
            for i, one in enumerate(rows(60)):
                yield (*one, 2.0) if i % 2 else one

        X, Y = map(list, zip(*rows(60), strict=True))
        expected = twin.play(X, Y, weight=[1.0, 2.0] * 30)
        assert (await session.play(weighted())).probabilities == pytest.approx(expected.probabilities, abs=1e-9)

        async def broken() -> AsyncIterator[tuple[list[float], str]]:
            yield [1.0], "no"
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            await session.play(broken())
        with pytest.raises(ValueError, match="no rounds"):
            await session.play(coming(0))
        with pytest.raises(ValueError, match="leave out y"):
            await session.play(coming(1), ["no"])


async def test_a_socket_has_many_messages_under_way(url: str, client: Client) -> None:
    n = 2 * UNDER_WAY
    async with AsyncClient(url) as other:
        session = await other.session("s", "aioli", labels=LABELS)
        async with session.stream() as stream:
            asked = ({"x": x, "id": f"visit-{i}"} for i, (x, _) in enumerate(rows(n)))
            assert len([one async for one in stream.ask(asked, together=16)]) == n
            answers = []
            async for answer in stream.ask({"id": f"visit-{i}", "y": y} for i, (_, y) in enumerate(rows(n))):
                answers.append(answer["t"])
                if len(answers) == 20:
                    assert stream._socket is not None
                    stream._socket.transport.abort()
            assert answers == list(range(1, n + 1))
            with pytest.raises(errors.PredictionNotFound):
                await stream.one({"id": "nobody", "y": "no"})
    assert client.inspect("s")["t"] == n


async def test_a_socket_answers_while_the_next_message_is_not_there(url: str, client: Client) -> None:
    """Each message is made of the answer before it."""
    answered: asyncio.Queue[int] = asyncio.Queue()

    async def coming() -> AsyncIterator[dict[str, Any]]:
        for i in range(5):
            yield {"x": [1.0], "y": float(i)}
            assert await asyncio.wait_for(answered.get(), 5.0) == i + 1

    async with AsyncClient(url) as other:
        session = await other.session("s", "mean", y_range=[0.0, 10.0])
        async with session.stream() as stream:
            async for answer in stream.ask(coming(), together=4):
                await answered.put(answer["t"])
            # What is left over of a call is its own.
            async for _ in stream.ask({"x": [1.0], "y": 1.0} for _ in range(50)):
                break
            assert (await stream.one({"x": [1.0], "wait": False}))["value"] > 0.0
            socket = stream._socket
            assert (await stream.one({"x": [1.0], "wait": False}))["value"] > 0.0
            assert stream._socket is socket


async def test_events_come_as_they_happen(url: str, client: Client) -> None:
    async with AsyncClient(url) as other:
        session = await other.session("s", "mean", y_range=[0.0, 10.0])
        await session.learn([1.0], 1.0)
        async for id, told in other.events("s"):
            assert id
            assert told["name"] == "s"
            break


async def test_a_talk_that_is_interrupted_ends_at_once() -> None:
    """Even while somebody looks at the exception, as a notebook does."""
    ended = []

    def talk() -> Talk[None]:
        try:
            yield Call("GET", "/")
        finally:
            ended.append(True)

    def send(_: Call) -> None:
        raise KeyboardInterrupt

    async def send_async(_: Call) -> None:
        raise asyncio.CancelledError

    with pytest.raises(KeyboardInterrupt) as found:
        hold(talk(), send)
    assert ended == [True]
    assert found.value.__traceback__ is not None
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await hold_async(talk(), send_async)
    assert ended == [True, True]
    assert cancelled.value.__traceback__ is not None
