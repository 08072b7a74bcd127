"""The processes of a demonstration. None of them survives it, however it ends."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from okl.client import Client, local_url
from okl.errors import ConfigurationError, ServiceError

from .. import __name__ as PACKAGE
from ..settings import Settings

STOPS_WITHIN_S = 20.0
"""With open requests the service uses its grace period, 10 s by default."""

STARTS_WITHIN_S = 60.0

AGAIN_AFTER_S = 0.5

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)

Process = subprocess.Popen[bytes]


@final
class Processes:
    """Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt, but not while a process is being started.

    An exception is lost where Python ignores it, as in a finalizer; so it is raised again until the processes are being
    stopped. A second signal changes nothing.
    """

    def __init__(self) -> None:
        self._running: list[Process] = []
        self._is_starting = False
        self._is_interrupted = False
        self._is_stopping = False

    def interrupt(self, number: int, frame: object) -> None:
        """The handler of these signals, and of the timer that repeats the first of them."""
        if self._is_stopping or (self._is_interrupted and number != signal.SIGALRM):
            return
        self._is_interrupted = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER_S)
        if not self._is_starting:
            raise KeyboardInterrupt

    def start(self, command: Sequence[str], environment: Mapping[str, str], *, is_quiet: bool = False) -> Process:
        """Start a process in its own process group, which Ctrl-C in the terminal does not reach: we stop it.

        Blocking the signal is not enough: with several workers, multiprocessing unblocks it, and a worker that is interrupted
        while it imports keeps its supervisor waiting.
        """
        output = subprocess.DEVNULL if is_quiet else None
        variables = os.environ | dict(environment)
        self._is_starting = True
        try:
            process = subprocess.Popen(command, env=variables, stdout=output, stderr=output, process_group=0)
            self._running.append(process)
        finally:
            self._is_starting = False
        if self._is_interrupted:
            raise KeyboardInterrupt
        return process

    def stop(self) -> None:
        """Stop all processes, in reverse order."""
        self._is_stopping = True
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        while self._running:
            process = self._running[-1]
            process.terminate()
            try:
                process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
            # Kill workers whose supervisor had no time to stop them, or is gone.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._running.pop()


@contextmanager
def processes() -> Iterator[Processes]:
    """Processes that are stopped at the end of the block."""
    running = Processes()
    # An interrupt may come between any two instructions, even before `finally` takes effect; then this stops them.
    atexit.register(running.stop)
    before = {number: signal.signal(number, running.interrupt) for number in SIGNALS}
    try:
        yield running
    finally:
        running.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
        atexit.unregister(running.stop)


def start_service(running: Processes, settings: Settings, *, workers: int = 1) -> tuple[Process, str]:
    """Start a service on the settings' store. Return it and its url when it is ready. Raises ServiceError if it fails."""
    port = settings.port or free_port(settings.host)
    url = local_url(settings.host, port)
    with Client(url, timeout_s=1.0) as client:
        if client.is_ready():
            raise ConfigurationError(f"A service answers at {url} already; choose another port with --port.")
    environment = {
        "OKL_STORE": settings.store,
        "OKL_HOST": settings.host,
        "OKL_PORT": str(port),
        "OKL_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-m", f"{PACKAGE}.start", "serve", "--workers", str(workers)]
    server = running.start(command, environment)
    wait_until_ready("The service", server, url)
    return server, url


def wait_until_ready(name: str, server: Process, url: str) -> None:
    with Client(url, timeout_s=1.0) as client:
        wait_until(name, server, client.is_ready)


def wait_until(name: str, server: Process, is_so: Callable[[], bool]) -> None:
    """Wait for a condition. Raises ServiceError with `name` if the process ends or the time is over."""
    give_up = time.monotonic() + STARTS_WITHIN_S
    while not is_so():
        if server.poll() is not None or time.monotonic() > give_up:
            raise ServiceError(f"{name} did not start (exit code {server.poll()}).")
        time.sleep(0.05)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        return server.getsockname()[1]


def worker_pids(supervisor: int) -> list[int]:
    """The worker processes of `okl serve --workers N`, in the order of their start."""
    return [pid for pid, parent, command in _all_processes() if parent == supervisor and "spawn_main" in command]


def _all_processes() -> Iterator[tuple[int, int, str]]:
    """All processes of this machine: id, parent's id, command."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,command="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            pid, parent, command = line.split(None, 2)
            yield int(pid), int(parent), command
        return
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            # The name in parentheses may hold anything; the parent is the second field after it.
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        yield int(folder.name), parent, command
