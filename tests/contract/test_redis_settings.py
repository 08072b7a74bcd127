"""The url of a Redis store, its credentials, and the configuration of its server."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from okl.errors import ConfigurationError, StoreRefused, StoreUnavailable
from service.store.opening import open_store
from tests.contract.redis_sessions import append, first_tip, opened
from tests.contract.store_calls import NAME, read
from tests.redis_server import connect, free_port, redis_process, redis_server, running, wait_for_replicas

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

FIRST = first_tip()
SECRET = "hunter2/x:y@z%zz"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@host:port/0",
        f"redis://:{SECRET}@[host/0",
        f"redis://:a#{SECRET}@host:6379/0",
        f"redis://host?password={SECRET}&no_such_option={SECRET}",
        f"redis://host?password={SECRET}&max_connections=many",
        f"redis://host?password={SECRET}&wait_replicas=1&wait_ms=0",
        f"redis://host?password={SECRET}&deadline_s=0",
        f"redis+cluster://:{SECRET}@host/1",
        f"redis://:{SECRET}@[::1/0",
        "redis+cluster://:hunter2@host?wait_replicas=1",
        "redis+sentinel://:hunter2@host:26379?sentinel_password=hunter2",
        "redis+sentinel://:hunter2@host:26379/main?sentinel_password=hunter2&foo=hunter2",
    ],
)
def test_a_url_that_makes_no_sense_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store(url)
    error: BaseException | None = raised.value
    assert "hunter2" not in str(error)
    assert error.__cause__ is None or "hunter2" not in str(error.__cause__)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("redis://host?socket_timeout=nan", "socket_timeout must be above 0"),
        ("redis+cluster://host?socket_connect_timeout=0", "socket_connect_timeout must be above 0"),
        ("rediss://host?timeout=-1", "timeout must be above 0"),
        ("redis://host?db=-1", "db must be a whole number from 0 to"),
        ("redis://host?max_connections=0", "max_connections must be a whole number from 1 to"),
        ("redis+cluster://host?max_connections=99999999999999999999", "max_connections must be a whole number"),
        ("redis://host?deadline_s=60.5", "deadline_s must be above 0 and at most 60"),
        (f"redis://host?db={5_000 * '9'}", "db must be a whole number from 0 to"),
        ("redis://host?db=%C2%B2", "db must be a whole number from 0 to"),
        ("redis+sentinel://host/main?health_check_interval=1.5", "health_check_interval must be a whole number"),
        ("redis://host?socket_keepalive=maybe", "socket_keepalive must be true or false"),
        ("redis://host?client_name=a%20b", "client_name must be ASCII without spaces"),
        ("redis://host?wait_replicas=x", "wait_replicas must be a whole number"),
        ("redis://host?deadline_s=", "deadline_s must be above 0 and at most 60"),
        ("redis://host?decode_responses=true", "unknown option 'decode_responses'; known: client_name, db, "),
        ("redis://host?retry=3", "unknown option 'retry'"),
        ("redis://host?ssl_ca_data=x", "unknown option 'ssl_ca_data'"),
        ("redis+cluster://host?timeout=1", "unknown option 'timeout'"),
        ("redis+sentinel://host/main?ssl_ca_data=x", "ssl_ca_data needs ssl=true"),
        ("rediss://host?ssl_cert_reqs=some", "ssl_cert_reqs must be none, optional or required"),
        ("redis://host?max_connections=5&max_connections=6", "max_connections is given twice"),
        ("redis://host/first", "the path must be the number of a database"),
        ("redis://host/1/2", "the path must be the number of a database"),
        ("redis+cluster://host/1", "a cluster has database 0 only"),
        ("redis://12?hunter2@host", "unknown option; known: "),
    ],
)
def test_a_wrong_option_is_named(rest: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store(rest)
    assert f"://...: {said}" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:pass@host:6379/15/?client_name=okl&max_connections=8&socket_timeout=1.5&timeout=2&retry_on_timeout=yes",
        "redis://host?db=3&username=user&password=&socket_connect_timeout=1&socket_keepalive=No&health_check_interval=0",
        "rediss://host?ssl_cert_reqs=none&ssl_check_hostname=false&ssl_min_version=771&ssl_ciphers=ALL&ssl_password=x",
        "redis+sentinel://host/main?db=3&ssl=true&ssl_cert_reqs=none&ssl_check_hostname=false&ssl_password=x",
        "redis+cluster://host?ssl=true&ssl_cert_reqs=none&ssl_check_hostname=false&ssl_min_version=772",
        "redis+cluster://host?ssl=YES&ssl_cert_reqs=none",
        "redis://host?deadline_s=60&timeout=86400",
        "redis+cluster://host/0?ssl=false&username=user&client_name=okl&health_check_interval=5&socket_timeout=2",
    ],
)
async def test_an_option_of_the_driver_is_taken(url: str) -> None:
    open_store(url)


@pytest.mark.parametrize(
    ("option", "least", "most"),
    [
        ("db", 0, 2**31 - 1),
        ("max_connections", 1, 65_535),
        ("health_check_interval", 0, 86_400),
        ("wait_ms", 1, 30_000),
        ("wait_replicas", 0, 1_000),
    ],
)
def test_a_whole_number_may_be_at_either_end_of_its_range_but_not_beyond(option: str, least: int, most: int) -> None:
    for number in (least, most):
        open_store(f"redis://host?{option}={number}")
    for number in (least - 1, most + 1):
        with pytest.raises(ConfigurationError, match=f"from {least} to {most}"):
            open_store(f"redis://host?{option}={number}")


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_an_error_names_neither_the_server_nor_a_secret_and_the_log_names_the_server(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "okl")
    port = free_port()
    store = open_store(f"{scheme}://:hunter2@127.0.0.1:{port}/{'main' if scheme == 'redis+sentinel' else ''}")
    with pytest.raises(StoreUnavailable) as raised:
        await store.open()
    await store.close()
    error = raised.value
    assert str(port) not in error.detail
    assert "127.0.0.1" not in error.detail
    assert "hunter2" not in f"{error} {error.__cause__!r} {error.__cause__} {caplog.text}"
    logged = [vars(record) for record in caplog.records if record.name == "okl.store"]
    assert logged
    assert all(f"127.0.0.1:{port}" in record["server"] for record in logged)
    if scheme == "redis+sentinel":
        assert str(error.__cause__).startswith(f"no Sentinel of 127.0.0.1:{port} answers, or none ")
    assert "<" not in f"{error.__cause__} {caplog.text}"  # the driver's description of a connection
    assert not any("hunter2" in str(record) for record in logged)


async def test_a_wrong_password_is_said_at_once(tmp_path: Path) -> None:
    with running(
        tmp_path,
        "--requirepass",
        "right",
        "--port",
        str(port := free_port()),
        "--save",
        "",
        port=port,
        password="right",
    ):
        for url in (f"redis://:hunter2@127.0.0.1:{port}", f"redis://127.0.0.1:{port}"):
            store = open_store(url)
            with pytest.raises(StoreRefused) as raised:
                await store.open()
            assert "hunter2" not in f"{raised.value} {raised.value.__cause__}"
            await store.close()


async def warnings_of(url: str) -> Sequence[str]:
    async with opened(url) as store:
        return await store.warnings()


async def test_a_sound_server_gives_no_warning(redis_url: str) -> None:
    assert await warnings_of(redis_url) == []


async def test_what_may_lose_sessions_is_said(tmp_path: Path) -> None:
    evicting = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with redis_server(tmp_path, *evicting) as port:
        lost, unsaved = await warnings_of(f"redis://127.0.0.1:{port}")
        assert "allkeys-lru" in lost
        assert "appendonly" in unsaved
        with connect(port) as client:
            client.config_set("maxmemory", 0)
            client.config_set("appendonly", "yes")
            client.config_set("appendfsync", "no")
            evicted, late = await warnings_of(f"redis://127.0.0.1:{port}")
            assert "maxmemory-policy" in evicted
            assert "appendfsync" in late
            client.acl_setuser(
                "worker", enabled=True, nopass=True, keys="*", categories=["+@all"], commands=["-config"]
            )
        told = await warnings_of(f"redis://worker:any@127.0.0.1:{port}")
        assert len(told) == 2
        assert "maxmemory-policy" in told[0]
        assert "appendfsync" in told[1]


async def test_it_is_said_if_the_file_is_read_as_a_user_without_rights(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes") as port:
        url = f"redis://worker:any@127.0.0.1:{port}"
        with connect(port) as client:
            client.acl_setuser("worker", enabled=True, nopass=True, keys=["*"], categories=["+@all"])
            client.acl_setuser("default", enabled=False)
        assert await warnings_of(url) == []
        with connect(port, "any", user="worker") as client:
            client.acl_setuser("default", enabled=False, reset=True)
            assert ["`default`" in warning for warning in await warnings_of(url)] == [True]
            client.acl_setuser("worker", enabled=True, commands=["-acl"])
        assert await warnings_of(url) == []


async def test_a_command_that_is_forbidden_is_unavailable(tmp_path: Path) -> None:
    with redis_server(tmp_path) as port:
        with connect(port) as client:
            client.acl_setuser("worker", enabled=True, nopass=True, keys="*", categories=["+@all"], commands=["-xadd"])
        async with opened(f"redis://worker:any@127.0.0.1:{port}") as store:
            await store.create(NAME, b"", FIRST)
            with pytest.raises(StoreUnavailable, match="forbids"):
                await append(store, FIRST, 1)


async def test_a_replica_says_that_it_takes_no_writes(redis_url: str, tmp_path: Path) -> None:
    """Its data can be read; a replica that accepts writes loses them."""
    with (
        redis_process(tmp_path / "master") as master,
        redis_process(
            tmp_path / "replica", "--appendonly", "yes", "--replicaof", "127.0.0.1", str(master.port)
        ) as replica,
    ):
        async with opened(f"redis://127.0.0.1:{master.port}") as store:
            await store.create(NAME, b"record", FIRST)
            tip = await append(store, FIRST, 1)
        wait_for_replicas(master.port, 1)
        url = f"redis://127.0.0.1:{replica.port}"
        async with opened(url) as store:
            assert (await read(store)).head.tip == tip
            for write in (
                lambda: append(store, tip, 1),
                lambda: store.create("other", b"", FIRST),
                lambda: store.delete(NAME),
                lambda: store.seal(NAME, b"note", 1.0),
            ):
                with pytest.raises(StoreUnavailable, match=r"replica.*master"):
                    await write()
        [told] = await warnings_of(url)
        assert "is a replica" in told
        with connect(replica.port) as client:
            client.config_set("replica-read-only", "no")
        assert await warnings_of(url) == [told]
