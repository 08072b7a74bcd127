"""Worker processes on one store, which can be killed and started again: the service as it runs in production, or another."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from subprocess import Popen
from typing import Any

from bench.http_client import HEALTHY_WITHIN_S, HOST, RawClient, Timed, free_port
from okl.client import Client

STOPS_WITHIN_S = 30.0


class Worker:
    """One worker process. `settings` are those of the service, by name; what it prints goes to the file `log`, if given.

    With `app` it is not the service, but that application behind stock uvicorn, with variables of its own in `environment`.
    """

    def __init__(
        self,
        store: str,
        *,
        log: Path | None = None,
        app: str | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        named = {f"OKL_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment = os.environ | {"OKL_LOG_LEVEL": "warning", "OPENBLAS_NUM_THREADS": "1"} | named
        self._environment |= environment or {}
        serve = (
            ["service.start", "serve", "--store", store] if app is None else ["uvicorn", app, "--log-level", "critical"]
        )
        self._command = [sys.executable, "-m", *serve, "--port", str(self.port)]
        self._log = log
        self._process: Popen[bytes] | None = None

    @property
    def process(self) -> Popen[bytes]:
        assert self._process is not None, "the worker was not started"
        return self._process

    def start(self, within_s: float = HEALTHY_WITHIN_S) -> None:
        """Returns when it can serve. Raises RuntimeError if it cannot."""
        with nullcontext() if self._log is None else self._log.open("ab") as log:
            self._process = Popen(self._command, env=self._environment, stdout=log, stderr=log)
        deadline = time.monotonic() + within_s
        with Client(self.url, timeout_s=1.0) as client:
            while not client.is_ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"the worker on port {self.port} did not start")
                time.sleep(0.02)

    def kill(self) -> None:
        """At once, without a chance to finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """With SIGTERM: what is under way is answered."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOPS_WITHIN_S)

    @contextmanager
    def connection(self) -> Iterator[Timed]:
        timed = Timed(RawClient(self.port), {})
        try:
            yield timed
        finally:
            timed.client.close()


@contextmanager
def workers(store: str, count: int, **settings: Any) -> Iterator[list[Worker]]:
    """Running workers on one store; killed at the end."""
    found = [Worker(store, **settings) for _ in range(count)]
    try:
        for worker in found:
            worker.start()
        yield found
    finally:
        for worker in found:
            worker.kill()
