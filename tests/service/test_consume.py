"""`okl consume` with a real Redis and a service: what it answers, waits for, takes over and refuses; entries as messages."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from typer.testing import CliRunner
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from okl.client import Client
from okl.conversation import MOST_ANSWER_BYTES
from okl.errors import ConfigurationError, InvalidInput, MalformedBody, PayloadTooLarge, ServiceError
from service.api.values import Id
from service.cli import app
from service.consuming.channels import FRAME_BYTES, Channels
from service.consuming.entries import DELETED, MOST_MESSAGE_BYTES, Consumed, id_of_entry, read_entry
from service.consuming.group import Group, Written
from service.keys.key import KeyScope, Rate
from tests.command import environment
from tests.redis_server import connect, free_port, redis_process, wait_until
from tests.service.keyed import make, revoke
from tests.service.listening import listening
from tests.warm import warm

ENTRY = "1700000000000-3"


def entry(message: object, session: str = "s") -> Consumed:
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return read_entry("rounds", ENTRY, {b"session": session.encode(), b"message": text, b"trace": b"left alone"})


# -- entries ----------------------------------------------------------------------------------------------------------

NAMED = f"rounds-{ENTRY}"


@pytest.mark.parametrize(
    ("message", "sent", "asks", "settles"),
    [
        ({"x": [1]}, {"x": [1], "id": NAMED}, (NAMED,), None),
        ({"x": [1], "id": None}, {"x": [1], "id": NAMED}, (NAMED,), None),
        ({"x": [1], "id": "mine"}, {"x": [1], "id": "mine"}, ("mine",), None),
        ({"x": [1], "wait": False}, {"x": [1], "wait": False}, (), None),
        ({"x": [1], "y": 1}, {"x": [1], "y": 1, "id": NAMED}, (), NAMED),
        ({"id": "mine", "y": 1}, {"id": "mine", "y": 1}, (), "mine"),
        ({"y": 1}, {"y": 1}, (), None),
        (
            {"update": {"x": [1], "y": 1}, "predict": {"x": [2]}},
            {"update": {"x": [1], "y": 1, "id": f"{NAMED}-u"}, "predict": {"x": [2], "id": f"{NAMED}-p"}},
            (f"{NAMED}-p",),
            f"{NAMED}-u",
        ),
        (
            {"update": {"x": [1], "y": 1}, "predict": {"x": [2], "id": "mine"}},
            {"update": {"x": [1], "y": 1, "id": f"{NAMED}-u"}, "predict": {"x": [2], "id": "mine"}},
            ("mine",),
            f"{NAMED}-u",
        ),
        ({"predict": {"x": [2]}}, {"predict": {"x": [2], "id": f"{NAMED}-p"}}, (f"{NAMED}-p",), None),
        ({"update": 3, "predict": None}, {"update": 3, "predict": None}, (), None),
        ({"id": 3}, {"id": 3}, (), None),
    ],
)
def test_what_changes_anything_has_an_id(
    message: dict[str, Any], sent: dict[str, Any], asks: tuple[str, ...], settles: str | None
) -> None:
    found = entry(message)
    assert json.loads(found.data) == sent
    assert (found.asks, found.settles) == (asks, settles)


@given(st.text(min_size=1, max_size=200), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_an_entrys_id_is_one_of_the_service(stream: str, ms: int, number: int) -> None:
    TypeAdapter(Id).validate_python(id_of_entry(stream, f"{ms}-{number}"))


@given(st.dictionaries(st.sampled_from([b"session", b"message", b"other"]), st.binary(max_size=30)))
def test_whatever_an_entry_holds_it_is_a_message_or_refused(fields: dict[bytes, bytes]) -> None:
    try:
        found = read_entry("rounds", ENTRY, fields)
    except ServiceError:
        return
    assert isinstance(json.loads(found.data), dict)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (None, InvalidInput),
        ({b"session": b"s"}, InvalidInput),
        ({b"session": b"../s", b"message": b"{}"}, InvalidInput),
        ({b"session": b"s", b"message": b"[1]"}, MalformedBody),
        ({b"session": b"s", b"message": b'{"x": [NaN]}'}, MalformedBody),
        ({b"session": b"s", b"message": b"[" * 100_000}, MalformedBody),
        ({b"session": b"s", b"message": b'{"x": "\xff"}'}, MalformedBody),
        ({b"session": b"s", b"message": b" " * (MOST_MESSAGE_BYTES + 1)}, PayloadTooLarge),
    ],
)
def test_what_can_never_be_sent_is_refused(fields: dict[bytes, bytes] | None, error: type[ServiceError]) -> None:
    with pytest.raises(error):
        read_entry("rounds", ENTRY, fields)


def test_the_largest_message_is_sent() -> None:
    message = b'{"x": [1], "id": "a"}'.ljust(MOST_MESSAGE_BYTES)
    assert entry(message).data == message


# -- the group --------------------------------------------------------------------------------------------------------


def connected(url: str) -> Any:
    return redis.Redis.from_url(url)


def group(url: str, consumer: str = "one", output: str = "answers") -> Group:
    return Group(url, group="okl", consumer=consumer, output=output, refused="refused", max_length=1000)


@pytest.mark.redis
def test_an_answer_is_written_once_whoever_writes_it(redis_url: str) -> None:
    async def run() -> None:
        one, two = group(redis_url), group(redis_url, "two")
        await one.open("rounds", create=True)
        with connected(redis_url) as client:
            client.xadd("rounds", {"session": "s", "message": "{}"})
            gone = client.xadd("rounds", {"session": "s", "message": "{}"})
            first, second = await one.read(["rounds"], 10)
            answer = Written(first.entry, "s", b"1", is_refused=False)
            assert await one.write("rounds", [answer]) == 1
            assert await one.write("rounds", [answer]) == 0
            client.xdel("rounds", gone)
            assert [found.fields for found in await one.given("rounds", "0", 10)] == [None]
            assert await two.write("rounds", [Written(second.entry, "s", b"2", is_refused=True)]) == 1
            assert await one.given("rounds", "0", 10) == []
            assert [fields[b"answer"] for _, fields in client.xrange("answers")] == [b"1"]
            assert [fields[b"answer"] for _, fields in client.xrange("refused")] == [b"2"]
            assert await one.lag("rounds") in (0, None)
        await one.close()
        await two.close()

    asyncio.run(run())


@pytest.mark.redis
def test_consumers_that_start_at_once_make_one_group(redis_url: str) -> None:
    async def run() -> None:
        groups = [group(redis_url, f"consumer-{number}") for number in range(8)]
        await asyncio.gather(*(one.open("rounds", create=True) for one in groups))
        for one in groups:
            await one.close()

    asyncio.run(run())
    with connected(redis_url) as client:
        assert len(client.xinfo_groups("rounds")) == 1


@pytest.mark.redis
def test_an_output_that_is_no_stream_leaves_the_entry_pending(redis_url: str) -> None:
    async def run() -> None:
        found = group(redis_url, output="text")
        await found.open("rounds", create=True)
        with connected(redis_url) as client:
            client.set("text", "no stream")
            client.xadd("rounds", {"session": "s", "message": "{}"})
            (first,) = await found.read(["rounds"], 10)
            with pytest.raises(ConfigurationError, match="WRONGTYPE"):
                await found.write("rounds", [Written(first.entry, "s", b"1", is_refused=False)])
            assert len(await found.given("rounds", "0", 10)) == 1
        await found.close()

    asyncio.run(run())


@pytest.mark.redis
def test_the_connection_to_a_master_that_became_a_replica_is_closed(tmp_path: Path) -> None:
    """The address may lead to the new master by now."""

    async def run() -> None:
        with redis_process(tmp_path) as server, connect(server.port) as client:
            found = group(f"redis://127.0.0.1:{server.port}/0")
            await found.open("rounds", create=True)
            connections = len(client.client_list())
            client.execute_command("REPLICAOF", "127.0.0.1", free_port())
            with pytest.raises(redis.exceptions.ReadOnlyError):
                await found.given("rounds", "0", 1)
            await asyncio.to_thread(wait_until, lambda: len(client.client_list()) == connections - 1)
            await found.close()

    asyncio.run(run())


# -- the command ------------------------------------------------------------------------------------------------------


@contextmanager
def consuming(redis_url: str, *options: str, name: str = "one", **variables: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "service.start", "consume", "--stream", "rounds", "--to", "answers"]
    command += ["--redis", redis_url, "--consumer", name, *options]
    process = warm(command, env=environment(**variables), stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The url of a service with five sessions."""
    with listening(f"sqlite:///{tmp_path_factory.mktemp('consume') / 'okl.sqlite3'}") as url:
        with Client(url) as client:
            for session in ("a", "b", "c", "d", "e"):
                client.create(session, labels=["no", "yes"])
        yield url


def add(client: Any, session: str, message: str) -> str:
    return client.xadd("rounds", {"session": session, "message": message}).decode()


def answered(client: Any) -> dict[str, dict[str, Any]]:
    entries = client.xrange("answers")
    found = {fields[b"source"].decode(): json.loads(fields[b"answer"]) for _, fields in entries}
    assert len(found) == len(entries)
    return found


@pytest.mark.redis
@pytest.mark.slow
def test_poison_is_refused_and_the_rest_goes_on(redis_url: str, served: str) -> None:
    with connected(redis_url) as client:
        poison = [
            add(client, "a", "not JSON"),
            add(client, "../a", "{}"),
            add(client, "nobody", '{"x": [1]}'),
            add(client, "a", '{"x": "' + 10_000_000 * "a" + '"}'),
            # As large as the consumer lets pass: with its id it is larger than the service takes.
            add(client, "a", '{"x": "' + (MOST_MESSAGE_BYTES - 10) * "a" + '"}'),
            add(client, "a", '{"y": "yes"}'),
            client.xadd("rounds", {"something": "else"}).decode(),
        ]
        fine = [add(client, session, '{"x": [1, 2], "y": "yes"}') for session in "abab"]
        # One socket at a time: sessions take turns.
        with consuming(redis_url, "--create", "--sockets", "1", "--url", served) as process:
            wait_until(lambda: len(answered(client)) == len(poison + fine), 30.0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        found = answered(client)
        assert {one for one in found if "refused" in found[one]} == set(poison)
        assert [found[one]["t"] for one in fine] == [1, 1, 2, 2]
        assert client.xpending("rounds", "okl")["pending"] == 0


@pytest.mark.redis
@pytest.mark.slow
def test_messages_whose_frame_would_be_refused_hold_nothing_up(redis_url: str, served: str) -> None:
    """One is nested as deep as JSON may be; many have more arrays together than the service reads at once."""
    with connected(redis_url) as client:
        entries: list[str] = []
        poison: list[str] = []
        for extra in [200 * "[" + 200 * "]", *16 * ["[" + ",".join(60 * [50 * "[" + 50 * "]"]) + "]"]]:
            entries.append(add(client, "d", '{"x": [1, 2], "y": "yes"}'))
            poison.append(add(client, "d", f'{{"x": [1, 2], "y": "yes", "extra": {extra}}}'))
        with consuming(redis_url, "--create", "--url", served):
            wait_until(lambda: len(answered(client)) == len(entries + poison), 30.0)
        found = answered(client)
        assert {one for one in found if "refused" in found[one]} == set(poison)
        first = found[entries[0]]["t"]
        assert [found[one]["t"] for one in entries] == list(range(first, first + len(entries)))


def test_messages_of_a_refused_frame_are_sent_one_by_one() -> None:
    """Another version of the service may refuse a frame for reasons of its own."""
    frames: list[int] = []

    async def serve(connection: ServerConnection) -> None:
        async for data in connection:
            found = json.loads(data)
            some = found if isinstance(found, list) else [found]
            frames.append(len(some))
            refused = {"refused": {"status": 400, "detail": "one of them is bad"}}
            told = [refused if "bad" in one else {"t": one["y"]} for one in some]
            is_whole = isinstance(found, list) and refused not in told
            await connection.send(json.dumps(told if is_whole else told[0] if len(some) == 1 else refused))

    assert taken_from(serve) == [(f"1-{number}", number == 10) for number in range(40)]
    # Sixteen one by one, and then together again.
    assert max(frames[frames.index(1) + 16 :]) > 1


def test_messages_whose_answers_are_too_large_together_are_sent_one_by_one() -> None:
    """Another version of the service may answer an array by one of any size."""

    async def serve(connection: ServerConnection) -> None:
        async for data in connection:
            found = json.loads(data)
            is_large = isinstance(found, list) or "bad" in found
            await connection.send(" " * (MOST_ANSWER_BYTES + 1) if is_large else json.dumps({"t": found["y"]}))

    assert taken_from(serve) == [(f"1-{number}", number == 10) for number in range(40)]


def test_an_array_may_be_answered_by_several() -> None:
    async def serve(connection: ServerConnection) -> None:
        async for data in connection:
            found = json.loads(data)
            if isinstance(found, dict):
                await connection.send(json.dumps({"t": found["y"]}))
                continue
            for start in range(0, len(found), 5):
                await connection.send(json.dumps([{"t": one["y"]} for one in found[start : start + 5]]))

    assert taken_from(serve) == [(f"1-{number}", False) for number in range(40)]


def test_a_frame_of_several_messages_is_bounded() -> None:
    frames: list[tuple[int, int]] = []

    async def serve(connection: ServerConnection) -> None:
        async for data in connection:
            found = json.loads(data)
            some = found if isinstance(found, list) else [found]
            frames.append((len(some), len(data)))
            told = [{"t": one["y"]} for one in some]
            await connection.send(json.dumps(told if isinstance(found, list) else told[0]))

    assert len(taken_from(serve, numbers=7_000)) == 40
    assert {count for count, _ in frames} == {1, 3}, "of 21 kB each"
    assert max(size for _, size in frames) < FRAME_BYTES + 10


def taken_from(serve: Callable[[ServerConnection], Awaitable[None]], *, numbers: int = 1) -> list[tuple[str, bool]]:
    """The entries of 40 messages, the eleventh of them bad, in the order of their answers, and whether they were refused.

    Each has so many `numbers`, of three bytes.
    """
    answers: list[tuple[str, bool]] = []

    async def run() -> None:
        done = asyncio.Event()

        def take(message: Consumed, answer: bytes, is_refused: bool) -> None:
            answers.append((message.entry, is_refused))
            if len(answers) == 40:
                done.set()

        async with serve_sockets(serve, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            channels = Channels(f"http://127.0.0.1:{port}", take, most=1)
            for number in range(40):
                text = json.dumps({"x": numbers * [1], "y": number} | ({"bad": 1} if number == 10 else {})).encode()
                channels.send(read_entry("rounds", f"1-{number}", {b"session": b"s", b"message": text}))
            async with asyncio.timeout(20.0):
                await done.wait()
            await channels.close()

    asyncio.run(run())
    return answers


def test_a_password_in_the_url_is_not_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    # A command that ran here before may have configured the logger.
    monkeypatch.setattr(logging.getLogger("okl"), "propagate", True)
    caplog.set_level(logging.WARNING, "okl")

    async def run() -> None:
        channels = Channels("http://bob:hunter2@127.0.0.1:9", lambda *_: None, most=1)
        channels.send(entry({"x": [1]}))
        await asyncio.to_thread(wait_until, lambda: bool(caplog.records))
        await channels.close()

    asyncio.run(run())
    assert vars(caplog.records[0])["address"] == "ws://127.0.0.1:9/sessions/s/stream"


@pytest.mark.redis
@pytest.mark.slow
def test_what_a_key_holds_up_is_sent_again(redis_url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    admin, fresh = asyncio.run(make(store)), asyncio.run(make(store, KeyScope.WRITE))
    slow = asyncio.run(make(store, KeyScope.WRITE, rate=Rate(20.0, 5.0)))
    with listening(store) as url, connected(redis_url) as client:
        httpx.post(f"{url}/sessions", json={"name": "a"}, headers=admin.headers).raise_for_status()
        entries = [add(client, "a", '{"x": [1, 2], "y": "yes"}') for _ in range(60)]
        with consuming(redis_url, "--create", "--url", url, OKL_KEY=slow.text):
            wait_until(lambda: len(answered(client)) > 20, 30.0)
            asyncio.run(revoke(store, slow))
            time.sleep(3.0)
        with consuming(redis_url, "--url", url, OKL_KEY=fresh.text):
            wait_until(lambda: len(answered(client)) == len(entries), 30.0)
        assert sorted(answered(client)[one].get("t") for one in entries) == list(range(1, 61))


@pytest.mark.redis
@pytest.mark.slow
def test_messages_to_a_session_that_moved_wait_until_the_consumer_asks_there(redis_url: str, tmp_path: Path) -> None:
    here, there = (f"sqlite:///{tmp_path / name}.sqlite3" for name in ("here", "there"))
    with listening(here) as url, connected(redis_url) as client:
        with Client(url) as okl:
            okl.create("a", labels=["no", "yes"])
        entries = [add(client, "a", '{"x": [1, 2], "y": "yes"}')]
        with consuming(redis_url, "--create", "--url", url) as process:
            wait_until(lambda: len(answered(client)) == 1, 30.0)
            assert CliRunner().invoke(app, ["move", "a", "--store", here, "--to", there]).exit_code == 0
            entries.append(add(client, "a", '{"x": [1, 2], "y": "yes"}'))
            stderr = process.stderr
            assert stderr is not None
            wait_until(lambda: "has moved" in stderr.readline(), 30.0)
        with listening(there) as url_there, consuming(redis_url, "--url", url_there):
            wait_until(lambda: len(answered(client)) == 2, 30.0)
        assert [answered(client)[one].get("t") for one in entries] == [1, 2]


@pytest.mark.redis
@pytest.mark.slow
def test_a_dead_consumers_entries_are_taken_over(redis_url: str, served: str) -> None:
    with connected(redis_url) as client:
        client.xgroup_create("rounds", "okl", "0", mkstream=True)
        entries = [add(client, "c", '{"x": [1, 2], "y": "yes"}') for _ in range(40)]
        client.xreadgroup("okl", "dead", {"rounds": ">"}, count=30)
        with consuming(redis_url, "--claim-after", "0.5", "--url", served):
            wait_until(lambda: len(answered(client)) == len(entries), 30.0)
        assert sorted(one["t"] for one in answered(client).values()) == list(range(1, 41))


@pytest.mark.redis
def test_what_was_deleted_is_refused_when_it_is_taken_over(redis_url: str) -> None:
    async def run() -> None:
        dead, claiming = group(redis_url), group(redis_url, "two")
        await dead.open("rounds", create=True)
        with connected(redis_url) as client:
            entries = [add(client, "a", '{"x": [1, 2]}') for _ in range(4)]
            await dead.read(["rounds"], 4)
            client.xdel("rounds", *entries[:2])
            client.set("refused", "no stream")
            with pytest.raises(ConfigurationError, match="WRONGTYPE"):
                await claiming.claim("rounds", 0, "0-0", 10, DELETED)
            client.delete("refused")
            claimed = await claiming.claim("rounds", 0, "0-0", 10, DELETED)
            assert (claimed.cursor, [one.entry for one in claimed.entries]) == ("0-0", entries[2:])
            assert claimed.deleted == 2
            refused = [fields for _, fields in client.xrange("refused")]
            assert [fields[b"source"].decode() for fields in refused] == entries[:2]
            assert all(b"was deleted" in fields[b"answer"] for fields in refused)
            pending = client.xpending_range("rounds", "okl", "-", "+", 10)
            assert [one["message_id"].decode() for one in pending] == entries[2:]
            assert (await claiming.claim("rounds", 0, "0-0", 10, DELETED)).deleted == 0
        for one in (dead, claiming):
            await one.close()

    asyncio.run(run())


@pytest.mark.redis
@pytest.mark.slow
def test_two_consumers_share_a_stream_and_nothing_is_answered_twice(redis_url: str, served: str) -> None:
    with connected(redis_url) as client:
        entries = [add(client, "e", '{"x": [1, 2], "y": "no"}') for _ in range(400)]
        options = ("--create", "--claim-after", "0.2", "--under-way", "50", "--url", served)
        with consuming(redis_url, *options, name="two"):
            for killed_at in (100, 250):
                with consuming(redis_url, *options):
                    wait_until(lambda at=killed_at: client.xlen("answers") >= at, 30.0)
            wait_until(lambda: client.xlen("answers") >= len(entries), 30.0)
        assert sorted(one["t"] for one in answered(client).values()) == list(range(1, 401))


@pytest.mark.slow
def test_what_is_away_is_waited_for_and_no_more_is_read_than_may_be_under_way(tmp_path: Path, served: str) -> None:
    port, nobody = free_port(), free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with consuming(url, "--create", "--under-way", "20", "--url", f"http://127.0.0.1:{nobody}") as process:
        time.sleep(1.0)
        with redis_process(tmp_path, port=port), connected(url) as client:
            for _ in range(50):
                add(client, "d", '{"x": [1, 2], "y": "yes"}')
            wait_until(
                lambda: client.xinfo_groups("rounds") != [] and client.xpending("rounds", "okl")["pending"] == 20, 20
            )
            time.sleep(0.5)
            assert client.xpending("rounds", "okl")["pending"] == 20
            process.kill()
            process.wait()
            with consuming(url, "--max-length", "30", "--url", served):
                wait_until(
                    lambda: client.xinfo_groups("rounds")[0]["pending"] == 0 and client.xlen("answers") == 50, 20
                )


@pytest.mark.redis
@pytest.mark.slow
def test_a_redis_that_is_full_is_told_and_waited_for(tmp_path: Path, served: str) -> None:
    """It gives what is to be read, and takes no answer."""
    with redis_process(tmp_path) as server, connected(f"redis://127.0.0.1:{server.port}/0") as client:
        client.xgroup_create("rounds", "okl", "0", mkstream=True)
        entries = [add(client, "d", '{"x": [1, 2], "y": "yes"}') for _ in range(5)]
        client.config_set("maxmemory", 1)
        with consuming(f"redis://127.0.0.1:{server.port}/0", "--url", served) as process:
            assert process.stderr is not None
            # A line at least comes every ten seconds.
            deadline = time.monotonic() + 30.0
            while "redis takes no answers" not in (line := process.stderr.readline()):
                assert process.poll() is None
                assert time.monotonic() < deadline
            assert "maxmemory" in line
            client.config_set("maxmemory", 0)
            wait_until(lambda: len(answered(client)) == len(entries), 30.0)


@pytest.mark.redis
@pytest.mark.slow
def test_a_redis_that_comes_back_empty_gets_its_group_anew(tmp_path: Path, served: str) -> None:
    port = free_port()
    with (
        connected(f"redis://127.0.0.1:{port}/0") as client,
        consuming(f"redis://127.0.0.1:{port}/0", "--create", "--url", served) as process,
    ):
        for name in ("before", "after"):
            with redis_process(tmp_path / name, port=port):
                entries = [add(client, "d", '{"x": [1, 2], "y": "yes"}') for _ in range(5)]
                wait_until(lambda: process.poll() is not None or client.xlen("answers") == 5, 30.0)
                assert process.poll() is None, name
                assert set(answered(client)) == set(entries)


@pytest.mark.redis
@pytest.mark.slow
def test_a_redis_that_is_frozen_does_not_hold_up_the_end(tmp_path: Path, served: str) -> None:
    with (
        redis_process(tmp_path) as server,
        connected(f"redis://127.0.0.1:{server.port}/0") as client,
        consuming(f"redis://127.0.0.1:{server.port}/0?socket_timeout=120", "--create", "--url", served) as process,
    ):
        add(client, "d", '{"x": [1, 2], "y": "yes"}')
        wait_until(lambda: client.xlen("answers") == 1, 30.0)
        server.pause()
        # A read begins that gets no reply.
        time.sleep(1.0)
        process.terminate()
        assert process.wait(30.0) == 0


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(redis_url: str, number: signal.Signals) -> None:
    """What nobody answers stays pending."""
    with (
        connected(redis_url) as client,
        consuming(redis_url, "--create", "--url", f"http://127.0.0.1:{free_port()}") as process,
    ):
        add(client, "d", '{"x": [1, 2], "y": "yes"}')
        wait_until(lambda: client.xinfo_groups("rounds") != [] and client.xpending("rounds", "okl")["pending"] == 1, 20)
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(4.0)
        process.send_signal(number)
        assert process.wait(15.0) == (130 if number == signal.SIGINT else 0)
        assert client.xpending("rounds", "okl")["pending"] == 1


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ((), 2, "--create makes both"),
        (("--stream", "answers"), 2, "would be answered"),
        (("--redis", "http://x"), 2, "--redis takes"),
        (("--url", "x:1"), 2, "--url takes"),
    ],
)
def test_what_cannot_be_is_told_at_once(redis_url: str, options: tuple[str, ...], code: int, told: str) -> None:
    command = ["consume", "--stream", "rounds", "--to", "answers", "--redis", redis_url, "--url", "http://127.0.0.1:9"]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == code
    assert told in result.stderr
    assert "Traceback" not in result.stderr
