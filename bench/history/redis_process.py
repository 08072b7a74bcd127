"""A Redis server, or a Sentinel, that can be killed, stopped and started again on its port and in its folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.history.own_store import wait_for
from bench.http_client import HOST, free_port


@final
class RedisProcess:
    """`options` are those of the command line; of a Sentinel the first is its configuration file."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers and has loaded its data."""
        command = ["redis-server", *self._options, "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self.is_up, f"Redis on port {self.port} is up")

    def is_up(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except redis.RedisError:
            return False

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask(self, *command: Any) -> Any:
        """One command on a connection of its own."""
        with redis.Redis(HOST, self.port, socket_timeout=2.0, retry=Retry(NoBackoff(), 0)) as client:
            return client.execute_command(*command)

    def replication(self) -> dict[str, Any]:
        """What INFO says of it; nothing while the server does not answer."""
        try:
            return self.ask("INFO", "replication")
        except redis.RedisError:
            return {}

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def shut_down(self) -> None:
        """In order: what was acknowledged is on disk."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=30.0)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)


def data_options(appendfsync: str) -> Sequence[str]:
    """Those of every server that holds sessions."""
    return ("--save", "", "--appendonly", "yes", "--appendfsync", appendfsync)
