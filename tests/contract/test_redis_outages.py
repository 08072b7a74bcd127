"""How the store handles a Redis server that goes away, comes back, comes back with older data, or loses its replica."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from pathlib import Path

import pytest

from okl.errors import StoreTimeout, StoreUnavailable
from service.store.base import Behind, Gone, Hold
from tests.contract.redis_sessions import Storm, append, eventually, first_tip, opened
from tests.contract.store_calls import NAME, entry, outcomes_of, read
from tests.redis_server import (
    connect,
    free_port,
    redis_process,
    redis_server,
    wait_for_replicas,
    wait_until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

FIRST = first_tip()
NO_WAIT_S = 2.0
"""Longer than any call takes while a server is there, on a machine that is busy; shorter than any deadline."""


AOF = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.mark.parametrize("seen_s", [0.0, 0.1])
async def test_many_calls_before_and_after_each_restart(tmp_path: Path, seen_s: float) -> None:
    """With `seen_s` 0 the store has no time to notice the restart, so its connections still look intact."""
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
                client.execute_command("DEBUG", "POPULATE", 1000)
                client.bgrewriteaof()
                wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        # One millisecond per key.
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
    """An older file is restored: the worker's tip is no longer on the chain."""
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
            # The lost rounds are not mistaken for those that replace them.
            for id in ("y", "z", "later than the lost ones"):
                assert outcomes_of(await store.commit(NAME, old, [entry(old, id)])) == []
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


# WAIT


async def test_a_server_that_takes_no_writes_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command run in this process may have sent the records to its own handler.
    monkeypatch.setattr(logging.getLogger("okl"), "propagate", True)
    caplog.set_level(logging.WARNING, "okl")
    folder = tmp_path / "data"
    with redis_server(folder) as port, connect(port) as client:
        async with opened(f"redis://127.0.0.1:{port}") as store:
            await store.create(NAME, b"", FIRST)
            client.config_set("min-replicas-to-write", 1)
            with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
                await store.commit(NAME, FIRST, [entry(FIRST, "x")])
            assert "NOREPLICAS" in str(caplog.records[-1].__dict__["error"])
            assert caplog.records[-1].__dict__["server"] == f"127.0.0.1:{port}"
            client.config_set("min-replicas-to-write", 0)
            client.config_set("save", "3600 1")
            shutil.rmtree(folder)
            client.bgsave()
            await asyncio.to_thread(wait_until, lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
            with pytest.raises(StoreUnavailable, match="cannot write to its disk"):
                await store.commit(NAME, FIRST, [entry(FIRST, "x")])
            assert "MISCONF" in str(caplog.records[-1].__dict__["error"])
            client.config_set("save", "")
            await append(store, FIRST, 1)


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
            # The master's journal has the entry, but it is acknowledged to no caller, on any connection.
            for asking in (store, store, other):
                with pytest.raises(StoreTimeout) as raised:
                    await asking.commit(NAME, tip, [new])
                assert "replicas" in raised.value.detail
            for write in (store.snapshot(NAME, tip, b"state"), store.delete("another")):
                with pytest.raises(StoreTimeout):
                    await write
            assert (await read(other, tip)).head.tip == new.tip
            replica.resume()
            assert outcomes_of(await eventually(lambda: other.commit(NAME, tip, [new]))) == []
            assert len((await read(store, None)).entries) == 1
            commits = [store.commit(NAME, new.tip, [], [Hold(f"p{number}", b"", 9.0)]) for number in range(50)]
            assert await asyncio.gather(*commits, store.ping(), store.head(NAME))
