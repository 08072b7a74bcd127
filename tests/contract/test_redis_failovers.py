"""How the store handles a Redis master that fails or is demoted, under Sentinel and in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio.connection import ConnectionPool

from okl.errors import StoreError, StoreUnavailable
from service.store.base import Behind, Committed, Gone, Tip
from service.store.redis_cluster import Cluster
from service.store.redis_connections import WATCH_S, Lanes
from tests.contract.redis_sessions import Storm, append, eventually, first_tip, opened
from tests.contract.store_calls import NAME, entry, outcomes_of, read
from tests.redis_server import SERVICE, connect, redis_cluster, redis_sentinel, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

FIRST = first_tip()
JOURNAL = f"okl:{{{NAME}}}:journal"

# Sentinel


def is_ordered(sentinel: redis.Redis) -> bool:
    """Whether Sentinel has begun a fail-over; it refuses until it knows the replica well."""
    try:
        return bool(sentinel.execute_command("SENTINEL FAILOVER", SERVICE))
    except redis.ResponseError:
        return False


def is_named(sentinel: redis.Redis, port: int) -> bool:
    """Whether Sentinel names the server with this port as the master."""
    return sentinel.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1] in (port, str(port).encode())


def entries_at_a_master(port: int, password: str) -> int | None:
    """The number of entries in the journal; None if the server is no master, or just closed connections to become one."""
    try:
        with connect(port, password) as client:
            return client.xlen(JOURNAL) if client.role()[0] == b"master" else None
    except redis.ConnectionError:
        return None


async def test_a_worker_goes_on_with_the_replica(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store, opened(servers.url) as other:
            await store.create(NAME, b"record", FIRST)
            old = await append(store, FIRST, 3)
            with connect(servers.master.port, servers.password) as client:
                # The replica never sees later writes.
                servers.replica.pause()
                client.execute_command("CLIENT KILL TYPE replica")
            tip = await append(store, old, 2)
            servers.master.kill()
            servers.replica.resume()
            behind = await eventually(lambda: store.commit(NAME, tip, [entry(tip, "x")]))
            assert isinstance(behind, Behind)
            reading = behind.reading
            assert (reading.is_whole, reading.start, reading.head.tip) == (True, FIRST, old)
            assert outcomes_of(await store.commit(NAME, old, [entry(old, "x")])) == []
            assert (await read(other, old)).head.tip == entry(old, "x").tip


async def test_a_master_that_became_a_replica_is_left(tmp_path: Path) -> None:
    """Sentinel promotes the replica while both servers live: commits continue, none is lost."""
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store:
            await store.create(NAME, b"record", FIRST)
            tip = await append(store, FIRST, 1)
            with connect(servers.sentinel.port, servers.sentinel_password) as client:
                await asyncio.to_thread(wait_until, lambda: is_ordered(client))
            deadline = time.monotonic() + 20.0
            number, promoted, entries = 0, None, None
            while promoted is None or entries is None or entries < promoted + 20:
                assert time.monotonic() < deadline, "it was not promoted, or takes no commits"
                new = entry(tip, f"x{number}")
                answer = await eventually(lambda tip=tip, new=new: store.commit(NAME, tip, [new]))
                # Writes that the old master took in its last moments are lost, and reported as lost.
                tip = new.tip if isinstance(answer, Committed) else (await read(store, None)).head.tip
                number += 1
                entries = entries_at_a_master(servers.replica.port, servers.password)
                promoted = entries if promoted is None else promoted
                await asyncio.sleep(0.01)
            assert (await read(store, tip)).head.tip == tip


async def test_a_master_whose_sentinels_are_gone_is_used_on(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store:
            names = [f"s{i}" for i in range(40)]
            for name in names:
                await store.create(name, b"record", FIRST)
            servers.sentinel.kill()
            # So many at once need more connections than there are.
            answers = await asyncio.gather(*(store.commit(name, FIRST, [entry(FIRST, "x")]) for name in names))
            assert answers == [Committed([])] * len(names)


async def test_a_master_that_lives_is_left_soon_after_another_was_promoted(tmp_path: Path) -> None:
    """The old master takes writes for ten more seconds, then loses them."""
    with redis_sentinel(tmp_path) as servers:
        async with opened(servers.url) as store:
            await store.create(NAME, b"record", FIRST)
            tip = await append(store, FIRST, 1)
            with connect(servers.sentinel.port, servers.sentinel_password) as client:
                await asyncio.to_thread(wait_until, lambda: is_ordered(client))
                await asyncio.to_thread(wait_until, lambda: is_named(client, servers.replica.port))
            await asyncio.sleep(2.5 * WATCH_S)
            new = entry(tip, "x")
            assert outcomes_of(await eventually(lambda: store.commit(NAME, tip, [new]))) == []
            with connect(servers.replica.port, servers.password) as client:
                assert client.role()[0] == b"master"
                assert client.xlen(JOURNAL) == 2


@pytest.mark.parametrize("is_killed", [True, False])
async def test_with_all_replicas_waited_for_no_commit_that_was_answered_is_lost(
    tmp_path: Path, *, is_killed: bool
) -> None:
    """The master is killed or demoted with commits in flight; the promoted server has every acknowledged commit."""
    with redis_sentinel(tmp_path) as servers:
        async with opened(f"{servers.url}&wait_replicas=1&wait_ms=500") as store:
            await store.create(NAME, b"record", FIRST)
            answered = FIRST

            async def commit_on() -> None:
                nonlocal answered
                while True:
                    new = entry(answered, f"x{answered.round}")
                    assert outcomes_of(await store.commit(NAME, answered, [new])) == []
                    answered = new.tip

            commits = asyncio.ensure_future(commit_on())
            while answered.round < 50:
                assert not commits.done()
                await asyncio.sleep(0.005)
            with connect(servers.sentinel.port, servers.sentinel_password) as client:
                if is_killed:
                    servers.master.kill()
                else:
                    await asyncio.to_thread(wait_until, lambda: is_ordered(client))
                # A commit that cannot be acknowledged: neither master has a replica.
                with pytest.raises(StoreError):
                    await commits
                await asyncio.to_thread(wait_until, lambda: is_named(client, servers.replica.port))
        async with opened(servers.url) as other:
            reading = await eventually(lambda: read(other, answered))
            assert reading.head.tip.round - answered.round in (0, 1)
            # Retry that last commit. Whether or not it was applied before, it is stored once.
            new = entry(answered, f"x{answered.round}")
            assert outcomes_of(await eventually(lambda: other.commit(NAME, answered, [new]))) == []
            assert (await read(other, None)).head.tip == new.tip


async def test_a_store_closes_although_a_cancellation_is_swallowed() -> None:
    """The driver uses wait_for, which on Python 3.11 swallows a cancellation that arrives with the reply."""
    asked = asyncio.Event()

    async def find_master() -> tuple[str, int]:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60.0)
        return "master", 6379

    lanes = Lanes(ConnectionPool(), server="sentinel/service", find_master=find_master)
    await lanes.open()
    await asked.wait()
    async with asyncio.timeout(5.0):
        await lanes.close()


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
                    assert client.wait(1, 5000) == 1  # the replica is in sync
            assert min(sizes) > 50
            servers[1].kill()

            async def commit(name: str, tip: Tip) -> object:
                return await store.commit(name, tip, [entry(tip, "b")])

            answers = await asyncio.gather(
                *(eventually(lambda name=name, tip=tip: commit(name, tip)) for name, tip in storm.tips.items())
            )
            assert answers == [Committed([], waiting=1)] * 200
            assert await eventually(store.count) == 200


async def test_a_list_finds_the_masters_of_a_cluster_anew(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as servers:
        async with opened(f"redis+cluster://127.0.0.1:{servers[0].port}?max_connections=8") as store:
            await Storm(store).create()
            for server in servers[:3]:
                with connect(server.port) as client:
                    assert client.wait(1, 5000) == 1
            with connect(servers[0].port) as client:
                index = client.cluster("keyslot", "okl:sessions") // 5462
            servers[(index + 1) % 3].kill()
            assert len((await eventually(lambda: store.list(None, 300))).heads) == 200


async def test_a_session_whose_slot_moves_is_waited_for(tmp_path: Path) -> None:
    """No node runs a script while some of its keys have moved, or do not exist: 0.4 seconds of that are more than the driver
    bears."""
    with redis_cluster(tmp_path) as servers, contextlib.ExitStack() as stack:
        masters = [stack.enter_context(connect(server.port)) for server in servers[:3]]
        slot = masters[0].cluster("keyslot", JOURNAL)
        source = slot // 5462
        target = (source + 1) % 3
        ids = [master.execute_command("CLUSTER MYID") for master in masters]
        url = f"redis+cluster://127.0.0.1:{servers[0].port}"
        async with opened(url) as store, opened(f"{url}?deadline_s=1") as hasty:
            await store.create(NAME, b"record", FIRST)
            masters[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
            masters[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
            with pytest.raises(StoreUnavailable, match="The Redis cluster does not serve this session now"):
                await hasty.read(NAME)
            commit = asyncio.ensure_future(store.commit(NAME, FIRST, [entry(FIRST, "x")]))
            await asyncio.sleep(0.8)
            for one in masters[source].execute_command("CLUSTER GETKEYSINSLOT", slot, 10):
                masters[source].execute_command("MIGRATE", "127.0.0.1", servers[target].port, one, 0, 5000)
            for server in (target, source):
                masters[server].execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
            assert outcomes_of(await commit) == []
            assert (await read(hasty, None)).head.tip == entry(FIRST, "x").tip


async def test_slots_that_have_moved_close_no_connections(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as servers, contextlib.ExitStack() as stack:
        masters = [stack.enter_context(connect(server.port)) for server in servers[:3]]
        ids = [master.execute_command("CLUSTER MYID") for master in masters]

        def received() -> list[int]:
            return [master.info("stats")["total_connections_received"] for master in masters]

        async with opened(f"redis+cluster://127.0.0.1:{servers[0].port}") as store:
            names = [f"s{i}" for i in range(30)]
            for name in names:  # so that each master has a connection
                await store.head(name)
            before = received()
            for name in names:
                slot = masters[0].cluster("keyslot", f"okl:{{{name}}}:head")
                target = (slot // 5462 + 1) % 3
                for master in (masters[target], masters[slot // 5462]):
                    master.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
                assert await store.head(name) == Gone()
            assert received() == before


class ClosingClient:
    """A cluster client that fails `failures` calls as redis-py 8.1 does when another call has closed the connection."""

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
    cluster = Cluster(client, server="node", at_once=1)
    await cluster.open()
    assert await cluster.call(("PING",)) == ("PING",)


@pytest.mark.parametrize("error", CLOSED_MEANWHILE, ids=["asyncio", "uvloop"])
async def test_a_connection_that_is_closed_again_is_an_outage(error: Exception) -> None:
    client: Any = ClosingClient(2, error)
    cluster = Cluster(client, server="node", at_once=1)
    await cluster.open()
    with pytest.raises(StoreUnavailable):
        await cluster.call(("PING",))
