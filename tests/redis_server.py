"""Private Redis servers for the tests: real servers on free ports that end with the test run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TOOLS = Path(__file__).parents[1] / ".tools" / "redis"
START_TIMEOUT_S = 10.0

SERVER = os.environ.get("OKL_TEST_REDIS", "redis-server")
"""Another server that speaks Redis, by its name or path: `make test-valkey`."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_redis() -> tuple[str, dict[str, str]]:
    """The path of the server and the environment it needs."""
    if found := shutil.which(SERVER):
        return found, dict(os.environ)
    if SERVER != "redis-server":
        pytest.fail(f"OKL_TEST_REDIS names {SERVER}, which is no program.", pytrace=False)
    unpacked = TOOLS / "usr" / "bin" / "redis-server"
    if not unpacked.exists():
        pytest.fail("There is no redis-server on PATH or in .tools/redis: run `make tools`.", pytrace=False)
    libraries = sorted({str(path.parent) for path in TOOLS.glob("usr/lib/**/*.so*")})
    return str(unpacked), os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


@dataclass(slots=True)
class Server:
    port: int
    process: subprocess.Popen[bytes]

    def pause(self) -> None:
        """Stop answering, with connections kept open, until `resume`."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(
    folder: Path, *arguments: str, port: int, password: str | None = None, is_awaited: bool = True
) -> Iterator[Server]:
    path, environment = find_redis()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen([path, *arguments], env=environment, stdout=log, stderr=log)
    server = Server(port, process)
    try:
        if is_awaited:
            wait_until_up(port, process, password)
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def redis_server(folder: Path, *options: str, port: int | None = None) -> Iterator[int]:
    """Run a server until the end of the block; yield its port, by default a free one."""
    with redis_process(folder, *options, port=port) as server:
        yield server.port


@contextlib.contextmanager
def redis_process(
    folder: Path, *options: str, port: int | None = None, password: str | None = None, is_awaited: bool = True
) -> Iterator[Server]:
    port = port or free_port()
    secret = ("--requirepass", password, "--masterauth", password) if password else ()
    arguments = [*options, *secret, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with running(folder, *arguments, port=port, password=password, is_awaited=is_awaited) as server:
        yield server


SERVICE = "sessions"
NO_DELAY = ("--repl-diskless-sync-delay", "0")


@dataclass(slots=True)
class Replicated:
    """A master, its replica, and a Sentinel that watches both and takes `sentinel_password`."""

    master: Server
    replica: Server
    sentinel: Server
    password: str
    sentinel_password: str

    @property
    def url(self) -> str:
        """The url for stores. Its first address is that of a Sentinel that does not exist."""
        addresses = f"127.0.0.1:{free_port()},127.0.0.1:{self.sentinel.port}"
        return f"redis+sentinel://:{self.password}@{addresses}/{SERVICE}?sentinel_password={self.sentinel_password}"


@contextlib.contextmanager
def redis_sentinel(folder: Path) -> Iterator[Replicated]:
    """Run the three; a fail-over takes a second or two."""
    password, sentinel_password = "master-secret", "sentinel-secret"
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(redis_process(folder / "master", *NO_DELAY, password=password))
        replica = stack.enter_context(
            redis_process(folder / "replica", "--replicaof", "127.0.0.1", str(master.port), password=password)
        )
        wait_for_replicas(master.port, 1, password)
        port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nrequirepass {sentinel_password}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 1\n"
            f"sentinel auth-pass {SERVICE} {password}\n"
            f"sentinel down-after-milliseconds {SERVICE} 500\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
        )
        arguments = (str(config), "--sentinel")
        sentinel = stack.enter_context(running(folder / "sentinel", *arguments, port=port, password=sentinel_password))
        with connect(port, sentinel_password) as client:
            wait_until(lambda: client.execute_command("SENTINEL MASTERS")[SERVICE]["num-slaves"] == 1)
        yield Replicated(master, replica, sentinel, password, sentinel_password)


@contextlib.contextmanager
def redis_cluster(folder: Path) -> Iterator[list[Server]]:
    """Six servers: three that share the slots, and a replica of each."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(6):
            options = (
                "--cluster-enabled",
                "yes",
                "--cluster-announce-ip",
                "127.0.0.1",
                "--cluster-node-timeout",
                "1000",
            )
            bus = ("--cluster-port", str(free_port()))
            servers.append(stack.enter_context(redis_process(folder / str(number), *options, *bus)))
        clients = [stack.enter_context(connect(server.port)) for server in servers]
        for number, client in enumerate(clients[:3]):
            client.execute_command("CLUSTER ADDSLOTSRANGE", number * 5462, min(number * 5462 + 5461, 16383))
        for client, server in zip(clients, servers, strict=True):
            bus_port = client.config_get("cluster-port")["cluster-port"]
            clients[0].execute_command("CLUSTER MEET", "127.0.0.1", server.port, bus_port)
        wait_until(lambda: all(len(client.execute_command("CLUSTER NODES")) == 6 for client in clients))
        for master, replica in zip(clients[:3], clients[3:], strict=True):
            replica.execute_command("CLUSTER REPLICATE", master.execute_command("CLUSTER MYID").decode())
        for client in clients:
            wait_until(lambda client=client: "'ok'" in str(client.execute_command("CLUSTER INFO")))
        for server in servers[:3]:
            wait_for_replicas(server.port, 1)
        yield servers


def wait_until(is_so: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come true")
        time.sleep(0.02)


def wait_for_replicas(port: int, count: int, password: str | None = None) -> None:
    """Wait until the replicas are online and, outside a cluster, acknowledge writes."""
    with connect(port, password) as client:
        wait_until(lambda: str(client.info("replication")).count("'state': 'online'") == count)
        if not client.info("cluster")["cluster_enabled"]:
            # A replica that has just come online takes a second for its first acknowledgement.
            client.set("probe", b"")
            client.delete("probe")
            wait_until(lambda: client.wait(count, 1000) == count)


def wait_until_up(port: int, process: subprocess.Popen[bytes], password: str | None = None) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with connect(port, password) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


def connect(port: int, password: str | None = None, user: str | None = None) -> redis.Redis:
    return redis.Redis("127.0.0.1", port, username=user, password=password, retry=Retry(NoBackoff(), 0))


def own_all_slots(port: int) -> None:
    with connect(port) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + START_TIMEOUT_S
        while "'ok'" not in str(client.execute_command("CLUSTER INFO")) and time.monotonic() < deadline:
            time.sleep(0.02)


def flush(port: int) -> None:
    with connect(port) as client:
        client.flushall()
