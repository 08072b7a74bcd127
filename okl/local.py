"""A private service that runs for the duration of a `with` block."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Final
from urllib.parse import quote

from okl.client import Client, local_url
from okl.errors import ConfigurationError, ServiceError

HOST: Final = "127.0.0.1"
STARTS_WITHIN_S, STOPS_WITHIN_S = 60.0, 20.0


@contextmanager
def local(store: str | os.PathLike[str] | None = None, *, key: str | None = None) -> Iterator[Client]:
    """Start a service on a free port of this machine and yield a client of it; stop the service at the end of the block.

    `store` is a file or a store URL that keeps the sessions; without it they are discarded at the end. Raises ServiceError if
    the service does not start, and ConfigurationError for a path that is not valid Unicode.

        with okl.local() as client:
            prices = client.session("prices")
    """
    with tempfile.TemporaryDirectory(prefix="okl-") as folder:
        port = _free_port()
        environment = os.environ | {
            "OKL_STORE": _store_url(Path(folder) / "okl.sqlite3" if store is None else store),
            "OKL_HOST": HOST,
            "OKL_PORT": str(port),
            "OKL_LOG_LEVEL": "warning",
        }
        # In its own process group: Ctrl-C must reach this process alone.
        process = Popen([sys.executable, "-m", "okl", "serve"], env=environment, process_group=0)
        try:
            address = local_url(HOST, port)
            _wait_until_ready(process, address)
            with Client(address, key=key) as client:
                yield client
        finally:
            process.terminate()
            with suppress(TimeoutExpired):
                process.wait(STOPS_WITHIN_S)
            process.kill()
            process.wait()


def _store_url(store: str | os.PathLike[str]) -> str:
    if "://" in str(store):
        return str(store)
    path = str(Path(store).absolute())
    try:
        return f"sqlite:///{quote(path)}"
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"The path {path!r} is not valid Unicode; name the file otherwise.") from error


def _wait_until_ready(process: Popen[bytes], address: str) -> None:
    give_up = time.monotonic() + STARTS_WITHIN_S
    with Client(address, timeout_s=1.0) as client:
        while not client.is_ready():
            if process.poll() is not None or time.monotonic() > give_up:
                raise ServiceError(f"The service did not start (exit code {process.poll()}).")
            time.sleep(0.05)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return probe.getsockname()[1]
