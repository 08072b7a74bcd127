"""Private Redis servers for the tests: real ones, on free ports, gone with the test run."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TOOLS = Path(__file__).parents[1] / ".tools" / "redis"
START_TIMEOUT_S = 10.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_redis() -> tuple[str, dict[str, str]]:
    """The server's path and the environment that it needs."""
    if found := shutil.which("redis-server"):
        return found, dict(os.environ)
    unpacked = TOOLS / "usr" / "bin" / "redis-server"
    if not unpacked.exists():
        pytest.fail("There is no redis-server on PATH or in .tools/redis: run `make tools`.", pytrace=False)
    libraries = sorted({str(path.parent) for path in TOOLS.glob("usr/lib/**/*.so*")})
    return str(unpacked), os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


@contextlib.contextmanager
def redis_server(folder: Path, *options: str, port: int | None = None) -> Iterator[int]:
    """Runs a server until the end of the block; gives its port, a free one unless it is given."""
    path, environment = find_redis()
    port = port or free_port()
    command = [path, *options, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until_up(port, process)
        yield port
    finally:
        process.kill()
        process.wait()


def wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with connect(port) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


def connect(port: int) -> redis.Redis:
    return redis.Redis("127.0.0.1", port, retry=Retry(NoBackoff(), 0))


def own_all_slots(port: int) -> None:
    with connect(port) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + START_TIMEOUT_S
        while "'ok'" not in str(client.execute_command("CLUSTER INFO")) and time.monotonic() < deadline:
            time.sleep(0.02)


def flush(port: int) -> None:
    with connect(port) as client:
        client.flushall()
