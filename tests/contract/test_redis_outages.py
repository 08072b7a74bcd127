"""Redis goes away, comes back, comes back older, or another server takes its place: what the store makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from redis.asyncio.connection import ConnectionPool

from service.errors import StoreError, StoreTimeout, StoreUnavailable
from service.store.base import Behind, Committed, Gone, Hold, Store, Tip
from service.store.redis_connections import WATCH_S, Cluster, Lanes
from tests.contract.redis_sessions import append, first_tip, opened
from tests.contract.store_calls import NAME, entry, read
from tests.redis_server import (
    SERVICE,
    connect,
    free_port,
    redis_cluster,
    redis_process,
    redis_sentinel,
    redis_server,
    wait_for_replicas,
    wait_until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

T = TypeVar("T")

FIRST = first_tip()
NO_WAIT_S = 2.0
"""Longer than any call takes while a server is there, on a machine that is busy; shorter than any deadline."""


async def eventually(call: Callable[[], Awaitable[T]], timeout_s: float = 20.0) -> T:
    """The answer of the first call that does not fail."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await call()
        except StoreError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


class Storm:
    """300 calls at once on 200 sessions: each session's own commits, and readers, lists and pings."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tips = {f"s{number}": first_tip() for number in range(200)}
        self.slowest_s = 0.0

    async def create(self) -> None:
        await asyncio.gather(*(self.store.create(name, b"", tip) for name, tip in self.tips.items()))

    async def blow(self, mark: str) -> None:
        commits = [self._timed(self._commit(name, mark)) for name in self.tips]
        reads = [self._timed(self.store.find(name, tip, "p")) for name, tip in list(self.tips.items())[:80]]
        others = [self._timed(call()) for call in (self.store.ping, self.store.count) for _ in range(8)]
        lists = [self._timed(self.store.list(None, 20)) for _ in range(4)]
        await asyncio.gather(*commits, *reads, *others, *lists)

    async def _commit(self, name: str, mark: str) -> None:
        tip = self.tips[name]
        new = entry(tip, mark)
        assert await self.store.commit(name, tip, [new], [Hold(f"p{mark}", b"", 60.0)]) == Committed([None])
        self.tips[name] = new.tip

    async def _timed(self, call: Awaitable[object]) -> None:
        start = time.monotonic()
        await call
        self.slowest_s = max(self.slowest_s, time.monotonic() - start)


AOF = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.mark.parametrize("seen_s", [0.0, 0.1])
async def test_many_calls_before_and_after_each_restart(tmp_path: Path, seen_s: float) -> None:
    """Without a moment to see them break, the connections look whole."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(tmp_path, *AOF, port=port):
            store = await stack.enter_async_context(opened(f"redis://127.0.0.1:{port}?max_connections=20"))
            storm = Storm(store)
            await storm.create()
        for turn in range(3):
            await asyncio.sleep(seen_s)
            with redis_server(tmp_path, *AOF, port=port):
                await storm.blow(f"{turn}-a")
                await storm.blow(f"{turn}-b")
                with connect(port) as client:
                    assert len(client.client_list()) <= 21
        with redis_server(tmp_path, *AOF, port=port):
            for name, tip in storm.tips.items():
                reading = await read(store, tip, name=name)
                assert (reading.head.tip, reading.is_whole) == (tip, False)
    assert storm.slowest_s < NO_WAIT_S


async def test_a_server_that_went_away_is_unavailable_soon(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(tmp_path) as port:
            store = await stack.enter_async_context(opened(f"redis://127.0.0.1:{port}"))
            await store.create(NAME, b"", FIRST)
        start = time.monotonic()
        calls = [store.commit(NAME, FIRST, [entry(FIRST, "x")]), store.read(NAME), store.ping(), store.list(None, 9)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 4
        assert time.monotonic() - start < NO_WAIT_S


async def test_a_server_that_hangs_is_a_timeout_and_serves_again(tmp_path: Path) -> None:
    with redis_process(tmp_path) as server:
        async with opened(f"redis://127.0.0.1:{server.port}?deadline_s=1&max_connections=2") as store:
            await store.create(NAME, b"", FIRST)
            server.pause()
            start = time.monotonic()
            calls = [store.find(NAME, FIRST, f"{number}") for number in range(300)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            took_s = time.monotonic() - start
            server.resume()
            assert {type(error) for error in errors} == {StoreTimeout}
            assert 0.9 < took_s < NO_WAIT_S
            await append(store, FIRST, 3)


async def test_a_server_that_is_loading_is_waited_for_or_unavailable(tmp_path: Path) -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(tmp_path, *AOF, "--enable-debug-command", "yes", port=port):
            store = await stack.enter_async_context(opened(f"redis://127.0.0.1:{port}"))
            await store.create(NAME, b"", FIRST)
            with connect(port) as client:
                client.execute_command("DEBUG", "POPULATE", 3000)
                client.bgrewriteaof()
                wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        # A millisecond a key.
        slow = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
        with redis_process(tmp_path, *AOF, *slow, port=port, is_awaited=False):
            answers: set[str] = set()
            start = time.monotonic()
            while "Committed" not in answers:
                assert time.monotonic() - start < 20.0
                try:
                    answers.add(type(await store.commit(NAME, FIRST, [entry(FIRST, "x")])).__name__)
                except StoreUnavailable as error:
                    answers.add(error.detail)
            assert "Redis is loading its data." in answers


async def test_a_file_that_is_older_than_the_worker_is_read_anew(tmp_path: Path) -> None:
    """The file of a minute ago is put back: the worker's tip is not on the chain any more."""
    folder, backup = tmp_path / "redis", tmp_path / "backup"
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(folder, *AOF, port=port):
            store = await stack.enter_async_context(opened(f"redis://127.0.0.1:{port}"))
            await store.create(NAME, b"", FIRST)
            old = await append(store, FIRST, 3)
        shutil.copytree(folder, backup)
        with redis_server(folder, *AOF, port=port):
            tip = await append(store, old, 2)
        shutil.rmtree(folder)
        shutil.move(backup, folder)
        with redis_server(folder, *AOF, port=port):
            behind = await store.commit(NAME, tip, [entry(tip, "x")])
            assert isinstance(behind, Behind)
            reading = behind.reading
            assert (reading.is_whole, reading.start, reading.head.tip) == (True, FIRST, old)
            # The rounds that were lost are not taken for those that come in their place.
            for id in ("y", "z", "later than the lost ones"):
                assert await store.commit(NAME, old, [entry(old, id)]) == Committed([])
                old = entry(old, id).tip
            assert (await read(store, tip)).is_whole


async def test_a_server_that_lost_all_has_no_sessions(tmp_path: Path) -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(tmp_path, port=port):
            store = await stack.enter_async_context(opened(f"redis://127.0.0.1:{port}"))
            await store.create(NAME, b"", FIRST)
            tip = await append(store, FIRST, 3)
        with redis_server(tmp_path, port=port):
            assert await store.commit(NAME, tip, [entry(tip, "x")]) == Gone()
            again = first_tip()
            await store.create(NAME, b"", again)
            behind = await store.commit(NAME, tip, [entry(tip, "x")])
            assert isinstance(behind, Behind)
            assert (behind.reading.start, behind.reading.is_whole) == (again, True)


# WAIT


async def test_a_commit_is_answered_when_a_replica_has_it(tmp_path: Path) -> None:
    with (
        redis_process(tmp_path / "master", "--repl-diskless-sync-delay", "0") as master,
        redis_process(tmp_path / "replica", "--replicaof", "127.0.0.1", str(master.port)) as replica,
    ):
        wait_for_replicas(master.port, 1)
        url = f"redis://127.0.0.1:{master.port}?wait_replicas=1&wait_ms=300"
        async with opened(url) as store, opened(url) as other:
            await store.create(NAME, b"", FIRST)
            tip = await append(store, FIRST, 2)
            new = entry(tip, "x")
            replica.pause()
            # It is in the journal of the master; whoever asks, on whatever connection, it is not acknowledged.
            for asking in (store, store, other):
                with pytest.raises(StoreTimeout) as raised:
                    await asking.commit(NAME, tip, [new])
                assert "replicas" in raised.value.detail
            for write in (store.snapshot(NAME, tip, b"state"), store.delete("another")):
                with pytest.raises(StoreTimeout):
                    await write
            assert (await read(other, tip)).head.tip == new.tip
            replica.resume()
            assert await eventually(lambda: other.commit(NAME, tip, [new])) == Committed([])
            assert len((await read(store, None)).entries) == 1
            commits = [store.commit(NAME, new.tip, [], [Hold(f"p{number}", b"", 9.0)]) for number in range(50)]
            assert await asyncio.gather(*commits, store.ping(), store.head(NAME))


# Sentinel


def is_ordered(sentinel: redis.Redis) -> bool:
    """Whether Sentinel has begun a fail-over; it does not before it knows the replica well."""
    try:
        return bool(sentinel.execute_command("SENTINEL FAILOVER", SERVICE))
    except redis.ResponseError:
        return False


async def test_a_worker_goes_on_with_the_replica(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store, opened(servers.url) as other:
            await store.create(NAME, b"record", FIRST)
            old = await append(store, FIRST, 3)
            with connect(servers.master.port, servers.password) as client:
                # What comes now, it never sees.
                servers.replica.pause()
                client.execute_command("CLIENT KILL TYPE replica")
            tip = await append(store, old, 2)
            servers.master.kill()
            servers.replica.resume()
            behind = await eventually(lambda: store.commit(NAME, tip, [entry(tip, "x")]))
            assert isinstance(behind, Behind)
            reading = behind.reading
            assert (reading.is_whole, reading.start, reading.head.tip) == (True, FIRST, old)
            assert await store.commit(NAME, old, [entry(old, "x")]) == Committed([])
            assert (await read(other, old)).head.tip == entry(old, "x").tip


async def test_a_master_that_became_a_replica_is_left(tmp_path: Path) -> None:
    """Sentinel makes the other one the master while both live: commits go on, none is lost."""
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store:
            await store.create(NAME, b"record", FIRST)
            tip = await append(store, FIRST, 1)
            with connect(servers.sentinel.port, servers.sentinel_password) as client:
                await asyncio.to_thread(wait_until, lambda: is_ordered(client))
            deadline = time.monotonic() + 6.0
            number = 0
            while time.monotonic() < deadline and number < 400:
                new = entry(tip, f"x{number}")
                answer = await eventually(lambda tip=tip, new=new: store.commit(NAME, tip, [new]))
                # What the old master took in its last moments is lost, and said to be.
                tip = new.tip if answer == Committed([]) else (await read(store, None)).head.tip
                number += 1
                await asyncio.sleep(0.01)
            with connect(servers.replica.port, servers.password) as client:
                assert client.role()[0] == b"master"
            assert (await read(store, tip)).head.tip == tip


async def test_a_master_that_lives_is_left_soon_after_another_was_promoted(tmp_path: Path) -> None:
    """It takes writes for ten seconds more, and then loses them."""
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store:
            await store.create(NAME, b"record", FIRST)
            tip = await append(store, FIRST, 1)
            with connect(servers.sentinel.port, servers.sentinel_password) as client:
                await asyncio.to_thread(wait_until, lambda: is_ordered(client))
                ports = (servers.replica.port, str(servers.replica.port).encode())
                await asyncio.to_thread(
                    wait_until, lambda: client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1] in ports
                )
            await asyncio.sleep(2.5 * WATCH_S)
            new = entry(tip, "x")
            assert await eventually(lambda: store.commit(NAME, tip, [new])) == Committed([])
            with connect(servers.replica.port, servers.password) as client:
                assert client.role()[0] == b"master"
                assert client.xlen(f"okl:{{{NAME}}}:journal") == 2


async def test_a_store_closes_although_a_cancellation_is_swallowed() -> None:
    """As by the driver, which waits with wait_for: on Python 3.11 that swallows one that comes with the reply."""
    asked = asyncio.Event()

    async def find_master() -> object:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60.0)
        return "master"

    lanes = Lanes(ConnectionPool(), find_master=find_master)
    await lanes.open()
    await asked.wait()
    async with asyncio.timeout(5.0):
        await lanes.close()


async def test_a_single_server_that_turns_read_only_is_unavailable(tmp_path: Path) -> None:
    with redis_server(tmp_path / "a") as port, redis_server(tmp_path / "b") as other:
        async with opened(f"redis://127.0.0.1:{port}") as store:
            await store.create(NAME, b"", FIRST)
            with connect(port) as client:
                client.replicaof("127.0.0.1", other)
                with pytest.raises(StoreUnavailable) as raised:
                    await store.commit(NAME, FIRST, [entry(FIRST, "x")])
                assert "master" in raised.value.detail
                client.replicaof("NO", "ONE")
            await eventually(lambda: store.create("other", b"", FIRST))


# Cluster


async def test_a_cluster_of_six_survives_one_of_its_masters(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as servers:
        async with opened(f"redis+cluster://127.0.0.1:{servers[0].port}?max_connections=8") as store:
            assert any("append-only" in warning for warning in await store.warnings())
            storm = Storm(store)
            await storm.create()
            await storm.blow("a")
            assert len((await store.list(None, 300)).heads) == 200
            sizes = []
            for server in servers[:3]:
                with connect(server.port) as client:
                    sizes.append(client.dbsize())
                    assert len(client.client_list()) < 30
                    assert client.wait(1, 5000) == 1  # the replica has it all
            assert min(sizes) > 50
            servers[1].kill()

            async def commit(name: str, tip: Tip) -> object:
                return await store.commit(name, tip, [entry(tip, "b")])

            answers = await asyncio.gather(
                *(eventually(lambda name=name, tip=tip: commit(name, tip)) for name, tip in storm.tips.items())
            )
            assert answers == [Committed([])] * 200
            assert await eventually(store.count) == 200


class ClosingClient:
    """A cluster's client that answers `failures` calls as redis-py 8.1 does where another call has closed the connection."""

    def __init__(self, failures: int, error: Exception) -> None:
        self._failures = failures
        self._error = error

    async def initialize(self) -> None: ...

    async def execute_command(self, *command: object) -> object:
        self._failures -= 1
        if self._failures >= 0:
            raise self._error
        return command


CLOSED_MEANWHILE = [
    AttributeError("'NoneType' object has no attribute 'writelines'"),
    RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),
]


@pytest.mark.parametrize("error", CLOSED_MEANWHILE, ids=["asyncio", "uvloop"])
async def test_a_connection_that_another_call_has_closed_is_tried_again(error: Exception) -> None:
    client: Any = ClosingClient(1, error)
    cluster = Cluster(client, at_once=1)
    await cluster.open()
    assert await cluster.call(("PING",)) == ("PING",)


@pytest.mark.parametrize("error", CLOSED_MEANWHILE, ids=["asyncio", "uvloop"])
async def test_a_connection_that_is_closed_again_is_an_outage(error: Exception) -> None:
    client: Any = ClosingClient(2, error)
    cluster = Cluster(client, at_once=1)
    await cluster.open()
    with pytest.raises(StoreUnavailable):
        await cluster.call(("PING",))
