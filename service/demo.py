"""The demonstration: a real data set, one row at a time, through learners hosted by a real service process."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from service.client import OklClient, local_url
from service.demo_data import magic
from service.errors import ConfigurationError, ServiceError, SessionNotFound
from service.settings import Settings

AGAIN_ROUNDS = 1000
"""Rounds that a session gets which has had all of its rounds already, where nobody says how many."""

_GAUSSIAN = {"kind": "gaussian", "sigma": "median"}


@dataclass(frozen=True, slots=True)
class DemoSession:
    """`learner` is None where the service chooses; `rounds` is how much of the stream the session gets."""

    name: str
    learner: dict[str, Any] | None
    rounds: int


SESSIONS = (
    DemoSession("magic-majority", {"kind": "majority"}, 2_000),
    DemoSession("magic", None, 19_020),
    DemoSession("magic-aioli", {"kind": "nystrom-aioli", "config": {"kernel": _GAUSSIAN}}, 19_020),
    DemoSession("magic-pomdr", {"kind": "pomdr", "config": {"kernel": _GAUSSIAN, "step_factor": 0.05}}, 19_020),
)


@dataclass(slots=True)
class Outcome:
    """What the table shows of one session."""

    session: DemoSession
    rounds_per_s: float
    latencies_s: list[float]


def import_all() -> None:
    """What the first client and the first output import on the way: an interrupt in the middle of an import may be lost."""
    "localhost".encode("idna")
    OklClient("http://localhost").close()
    magic()
    console = Console(file=io.StringIO(), width=100)
    with Progress(console=console) as progress:
        progress.add_task(":…")


def run(settings: Settings, console: Console, *, rounds: int | None, stop: bool) -> None:
    """Start the service, stream, print the table; go on serving unless `stop`.

    Raises KeyboardInterrupt where Ctrl-C or SIGTERM comes before the table is printed.
    """
    with _interruptible(), served(settings) as (server, url):
        with OklClient(url) as client:
            outcomes = stream(client, console, rounds)
            console.print(table(client, outcomes))
        if stop:
            return
        console.print(f"Serving at [bold]{url}[/]; interactive API documentation at [bold]{url}/docs[/]. Ctrl-C stops.")
        try:
            code = server.wait()
        except KeyboardInterrupt:
            return
        raise ServiceError(f"The service stopped by itself (exit code {code}).")


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM as Ctrl-C: whatever ends this process has it stop the service that it started."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def served(settings: Settings) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A service process on the settings' store, stopped at the end. Raises ServiceError if it does not come up."""
    port = settings.port or _free_port(settings.host)
    url = local_url(settings.host, port)
    with OklClient(url, timeout_s=1.0) as client:
        if client.is_ready():
            raise ConfigurationError(f"A service answers at {url} already; choose another port with --port.")
    environment = os.environ | {
        "OKL_STORE": settings.store,
        "OKL_HOST": settings.host,
        "OKL_PORT": str(port),
        "OKL_LOG_LEVEL": "warning",
    }
    server = _start([sys.executable, "-m", "service.start", "serve"], environment)
    try:
        with OklClient(url, timeout_s=1.0) as client:
            while not client.is_ready():
                if server.poll() is not None:
                    raise ServiceError(f"The service did not start (exit code {server.returncode}); it said why above.")
                time.sleep(0.05)
        yield server, url
    finally:
        server.terminate()
        server.wait()


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process that Ctrl-C does not reach, though it has the same terminal: who started it stops it.

    It inherits the signals that are blocked. One that comes meanwhile reaches this process afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, env=environment)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        return server.getsockname()[1]


def stream(client: OklClient, console: Console, rounds: int | None) -> list[Outcome]:
    """Predict, then update, one row at a time, each session from where it stopped."""
    X, y = magic()
    progress = Progress(
        TextColumn("{task.description:<15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>6.0f} rounds/s  {task.fields[mistakes]:6.2%} mistakes"),
        console=console,
    )
    with progress:
        return [_stream_one(client, session, X, y, rounds, progress) for session in SESSIONS]


def _stream_one(
    client: OklClient, session: DemoSession, X: Any, y: Any, rounds: int | None, progress: Progress
) -> Outcome:
    t, mistakes = _resume(client, session)
    goal = t + _rounds_to_play(session, t, rounds)
    task = progress.add_task(session.name, total=goal, completed=t, rate=0.0, mistakes=mistakes / max(1, t))
    latencies: list[float] = []
    started = time.perf_counter()
    for row in range(t, goal):
        x, truth = X[row % len(y)].tolist(), int(y[row % len(y)])
        asked = time.perf_counter()
        prediction = client.predict(session.name, x)
        answered = time.perf_counter()
        mistakes += client.update(session.name, truth, id=prediction["id"])["mistake"]
        latencies += (answered - asked, time.perf_counter() - answered)
        if row % 50 == 49 or row == goal - 1:
            rate = (row + 1 - t) / (time.perf_counter() - started)
            progress.update(task, completed=row + 1, rate=rate, mistakes=mistakes / (row + 1))
    return Outcome(session, (goal - t) / (time.perf_counter() - started), latencies)


def _rounds_to_play(session: DemoSession, t: int, rounds: int | None) -> int:
    """As many as asked for, each time, but no more than the session's at once; else those that it lacks, or some more."""
    if rounds is not None:
        return min(rounds, session.rounds)
    return session.rounds - t if t < session.rounds else AGAIN_ROUNDS


def _resume(client: OklClient, session: DemoSession) -> tuple[int, int]:
    """Rounds and mistakes so far; the session is created if it is not there."""
    try:
        found = client.inspect(session.name)
    except SessionNotFound:
        found = client.create(session.name, session.learner, labels=[-1, 1])
    return found["t"], found["metrics"]["mistakes"]


def table(client: OklClient, outcomes: list[Outcome]) -> Table:
    """One line a session; the latencies are those of this run, of predict and update together."""
    shown = Table(title="MAGIC gamma telescope, one row at a time", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("session", no_wrap=True)
    shown.add_column("learner", no_wrap=True)
    for heading in ("rounds", "mistakes", "dictionary", "rounds/s", "p50 ms", "p99 ms"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        found = client.inspect(outcome.session.name)
        p50, p99 = np.percentile(outcome.latencies_s, [50, 99]) * 1e3
        shown.add_row(
            outcome.session.name,
            found["kind"],
            f"{found['t']:,}",
            f"{found['metrics']['mistake_rate']:.2%}",
            f"{found['describe']['dictionary']:.0f}",
            f"{outcome.rounds_per_s:,.0f}",
            f"{p50:.2f}",
            f"{p99:.2f}",
        )
    return shown
