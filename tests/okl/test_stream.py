"""One stream that is asked twice at a time, cancelled or closed: no answer goes to another's message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from websockets.asyncio.server import ServerConnection as AsyncServerConnection
from websockets.asyncio.server import serve as serve_async
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response
from websockets.sync.server import ServerConnection, serve

from okl.client import AsyncClient, Client
from okl.conversation import MOST_ANSWER_BYTES, Connect, Conversation, Pause
from okl.errors import LimitReached, NotFinite, PayloadTooLarge, ServiceError, WrongType
from okl.stream import AsyncStream, Stream

pytestmark = pytest.mark.anyio


def learned(id: str) -> dict[str, Any]:
    return {"x": [1.0], "y": 1.0, "id": id}


@pytest.fixture
def session(client: Client) -> str:
    client.create("s", "mean", y_range=[0.0, 10.0])
    return "s"


async def test_single_messages_of_several_tasks_wait_for_each_other(url: str, session: str) -> None:
    async with AsyncClient(url) as client, client.stream(session) as stream:
        for n in range(6):
            ids = [f"{n}-{i}" for i in range(5)]
            found = await asyncio.wait_for(asyncio.gather(*(stream.one(learned(id)) for id in ids)), 20.0)
            assert [answer["id"] for answer in found] == ids
            assert (await stream.one(learned(f"{n}")))["id"] == f"{n}"


async def test_a_message_that_comes_after_another_call_is_not_sent(url: str, client: Client, session: str) -> None:
    coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def messages() -> AsyncIterator[dict[str, Any]]:
        while True:
            yield await coming.get()

    async def answers(stream: AsyncStream) -> list[Any]:
        return [answer async for answer in stream.ask(messages())]

    async with AsyncClient(url) as other, other.stream(session) as stream:
        first = asyncio.ensure_future(answers(stream))
        await asyncio.sleep(0.01)
        assert (await stream.one(learned("second")))["id"] == "second"
        await coming.put(learned("late"))
        with pytest.raises(RuntimeError, match="asked for others"):
            await first
        assert (await stream.one(learned("third")))["id"] == "third"
    assert client.inspect(session)["t"] == 2


async def test_a_call_that_is_cancelled_leaves_nothing_behind(url: str, session: str) -> None:
    async with AsyncClient(url) as client, client.stream(session) as stream:

        async def ask(n: int) -> None:
            async for _ in stream.ask((learned(f"{n}-{i}") for i in range(300)), together=7):
                pass

        for n in range(12):
            asking = asyncio.ensure_future(ask(n))
            await asyncio.sleep(0.002 * n)
            asking.cancel()
            await asyncio.wait({asking})
            assert (await stream.one(learned(f"{n}")))["id"] == f"{n}"


def test_messages_made_of_answers_of_the_same_stream(client: Client, session: str) -> None:
    with client.stream(session) as stream:

        def messages() -> Iterator[dict[str, Any]]:
            yield learned("a")
            stream.one({"x": [1.0], "wait": False})
            yield learned("b")

        with pytest.raises(RuntimeError, match="asked for others"):
            list(stream.ask(messages()))
        assert stream.one(learned("c"))["id"] == "c"


async def test_a_stream_goes_on_after_a_message_that_is_too_large(
    url: str, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncClient(url) as client, client.stream(session) as stream:
        for id in ("a", "b"):
            with pytest.raises(PayloadTooLarge):
                await stream.one({"x": "a" * (20 << 20)})
            assert (await stream.one(learned(id)))["id"] == id
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_who_is_closed_connects_no_more(url: str, client: Client, session: str) -> None:
    with client.stream(session) as stream:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        stream.one(learned("a"))
    async with AsyncClient(url) as other:
        waiting = other.stream(session)
        with pytest.raises(RuntimeError, match="not open"):
            await waiting.one(learned("a"))
        async with waiting:
            asking = asyncio.ensure_future(waiting.one(learned("b")))
        with pytest.raises(RuntimeError, match="not open"):
            await waiting.one(learned("a"))
        await asyncio.wait({asking})
        assert asking.exception() is None or isinstance(asking.exception(), RuntimeError)


FOREIGN = [
    "oops",
    b"\x00\xff",
    "1",
    "[1]",
    "[" + ", ".join(["{}"] * 3) + "]",
    "[" * 100_000,
    '{"refused": {"x": 1}}',
    '{"refused": "x"}',
]


@contextmanager
def answered_by(frame: str | bytes) -> Iterator[Stream]:
    """A stream to a service that answers every frame by this one."""

    def answer(socket: ServerConnection) -> None:
        for _ in socket:
            socket.send(frame)

    with serve(answer, "127.0.0.1", 0) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        port = server.socket.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}") as client, client.stream("s") as stream:
            yield stream
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("frame", FOREIGN)
def test_what_is_no_answer_is_told(frame: str | bytes) -> None:
    with answered_by(frame) as stream, pytest.raises(ServiceError, match="This is no okl service"):
        stream.one(learned("a"))


def test_answers_that_are_too_large_together_are_told() -> None:
    """A service of another version may not divide them."""
    too_large = pytest.raises(PayloadTooLarge, match="send fewer messages together")
    with answered_by(" " * (MOST_ANSWER_BYTES + 1)) as stream, too_large:
        list(stream.ask([learned("a"), learned("b")], together=2))


ROWS: dict[str, Any] = {
    "a row of pandas": pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]}).iloc[0],
    "a frame of polars": pl.DataFrame({"a": [1.0]}),
    "an array": np.array([1.0, np.nan]),
    "NaN": {"a": float("nan"), "b": {"c": np.float64("nan")}},
    "keys of numpy": {np.int64(1): 2.0},
}


@pytest.mark.parametrize("name", ROWS)
def test_inputs_are_those_of_the_client(client: Client, session: str, name: str) -> None:
    with client.stream(session) as stream:
        for message in (
            {"x": ROWS[name]},
            {"update": {"x": ROWS[name], "y": np.float32(1)}, "predict": {"x": ROWS[name]}},
        ):
            assert "refused" not in next(stream.ask([message]))


def test_a_prediction_stands_for_its_id(client: Client, session: str) -> None:
    rounds = client.session(session)
    one, two, silent = rounds.predict([1.0]), rounds.predict([2.0]), rounds.predict([3.0], wait=False)
    with client.stream(session) as stream:
        assert stream.one({"id": one, "y": 1.0})["id"] == one.id
        step = {"update": {"id": two, "y": 1.0}, "predict": {"x": [0.0], "id": "next"}}
        assert stream.one(step)["update"]["id"] == two.id
        with pytest.raises(ValueError, match="wait=False"):
            stream.one({"id": silent, "y": 1.0})


def test_an_infinite_number_is_refused_in_its_place(client: Client, session: str) -> None:
    messages = [{"x": [1.0]}, {"x": [float("inf")]}, {"x": [2.0]}]
    with client.stream(session) as stream:
        told = ["refused" in answer for answer in stream.ask(messages)]
        assert told == [False, True, False]
        with pytest.raises(NotFinite):
            stream.one(messages[1])


@pytest.mark.parametrize("message", [[1.0], "x", None], ids=repr)
def test_what_is_no_message(client: Client, session: str, message: Any) -> None:
    with client.stream(session) as stream, pytest.raises(WrongType, match="object such as"):
        next(stream.ask([message]))


def test_at_least_one_message_is_sent(client: Client, session: str) -> None:
    with client.stream(session) as stream, pytest.raises(ValueError, match="at least"):
        list(stream.ask([learned("a")], together=0))


def test_an_address_in_capitals_with_a_slash(url: str, client: Client, session: str) -> None:
    with Client(f"{url.replace('http', 'HTTP')}/") as other, other.stream(session) as stream:
        assert stream.one(learned("a"))["t"] == 1


@pytest.mark.parametrize("body", [b"<html>", b'{"type":"about:blank","title":"No worker","detail":"Send it again."}'])
def test_a_balancer_that_has_no_worker_is_asked_again(body: bytes) -> None:
    script = Conversation("http://127.0.0.1:9", "s").begin()
    assert isinstance(next(script), Connect)
    assert isinstance(script.throw(InvalidStatus(Response(502, "Bad Gateway", Headers(), body))), Pause)
    assert isinstance(next(script), Connect)
    with pytest.raises(ServiceError):
        script.throw(InvalidStatus(Response(500, "Internal Server Error", Headers(), body)))


def test_a_rate_that_is_used_up_is_waited_for_and_a_limit_is_not() -> None:
    script = Conversation("http://127.0.0.1:9", "s").begin()
    assert isinstance(next(script), Connect)
    bodies = [b'{"type":"/problems/%s","detail":"No."}' % slug for slug in (b"too-many-requests", b"limit-reached")]
    assert isinstance(script.throw(InvalidStatus(Response(429, "Too Many", Headers(), bodies[0]))), Pause)
    assert isinstance(next(script), Connect)
    with pytest.raises(LimitReached):
        script.throw(InvalidStatus(Response(429, "Too Many", Headers(), bodies[1])))


async def test_a_call_that_is_given_up_awaits_no_answer() -> None:
    async def silent(socket: AsyncServerConnection) -> None:
        await socket.wait_closed()

    async def messages() -> AsyncIterator[dict[str, Any]]:
        yield learned("a")
        await asyncio.Event().wait()

    async with serve_async(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncStream(f"http://127.0.0.1:{port}", "s") as stream:
            before = asyncio.all_tasks()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream.ask(messages())), 0.1)
            assert asyncio.all_tasks() == before
