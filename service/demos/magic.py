"""`okl demo`: the bundled data set, streamed row by row to four sessions in turn."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from okl.client import Client

from ..demo_data import magic
from ..settings import Settings
from .common import asked, found_or_created, run_story, verdict_of

ROUNDS = 1_500
"""The default rounds of each session in one run."""

SECONDS = 35.0
"""The time limit of a default run; a slow machine plays fewer rounds."""

NEVER_EVERY = 50
LATE_ROUNDS = (5, 40)
EXPIRES_S = 30.0

_GAUSSIAN = {"kind": "gaussian", "sigma": "median"}


@dataclass(frozen=True, slots=True)
class DemoSession:
    """A session; `learner` is None if the service chooses. Late truths come rounds after their prediction, or never."""

    name: str
    learner: dict[str, Any] | None
    is_late: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        return {"learner": self.learner, "labels": [-1, 1]} | ({"expires_s": EXPIRES_S} if self.is_late else {})


SESSIONS = (
    DemoSession("magic", None),
    DemoSession("magic-aioli", {"kind": "nystrom-aioli", "config": {"kernel": _GAUSSIAN}}, is_late=True),
    DemoSession("magic-pomdr", {"kind": "pomdr", "config": {"kernel": _GAUSSIAN, "step_factor": 0.05}}),
    DemoSession("magic-majority", {"kind": "majority"}),
)


def late_by(row: int) -> int | None:
    """The number of rounds by which the truth of a row is late; None if it never comes."""
    low, high = LATE_ROUNDS
    return None if row % NEVER_EVERY == NEVER_EVERY - 1 else low + row * 7919 % (high - low + 1)


@dataclass(slots=True)
class Part:
    """One session's state in the run, with the latencies of its requests in seconds."""

    session: DemoSession
    row: int
    rounds: int
    mistakes: int
    latencies_s: list[float] = field(default_factory=list)
    due: list[tuple[int, int, str]] = field(default_factory=list)
    """The truths of waiting predictions: the row at which each is due, its own row, and its id."""


def run(settings: Settings, console: Console, *, rounds: int | None, stop: bool) -> None:
    def story(running: object, server: object, url: str) -> None:
        with Client(url) as client:
            console.print(
                f"Photographs of air showers, from a telescope: is it a gamma ray? {len(SESSIONS)} sessions see one row at a"
                " time: a prediction first, then its truth. Those of [bold]magic-aioli[/] come 5 to 40 rounds late, and"
                f" one in {NEVER_EVERY} never comes.\n",
                highlight=False,
            )
            parts = stream(client, console, rounds)
            console.print(table(client, parts))
            late = client.inspect(next(session.name for session in SESSIONS if session.is_late))
            console.print(
                f"{late['name']}: {late['t']:,} truths came late; {late['waiting']:,} predictions still wait, for"
                f" {EXPIRES_S:.0f} s; {late['never_came']:,} waited in vain.",
                highlight=False,
            )

    run_story(settings, console, story, workers=1, stop=stop)


def stream(client: Client, console: Console, rounds: int | None) -> list[Part]:
    """Send row after row to all sessions in turn; each resumes where it stopped."""
    X, y = magic()
    progress = Progress(
        TextColumn("{task.description:<15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[mistakes]:6.2%} mistakes"),
        console=console,
    )
    with progress:
        parts = [_resumed(client, session) for session in SESSIONS]
        goal = rounds or ROUNDS
        tasks = [progress.add_task(part.session.name, total=goal, mistakes=0.0) for part in parts]
        give_up = time.monotonic() + SECONDS
        played = 0
        for played in range(1, goal + 1):
            for part in parts:
                _play(client, part, X, y)
            if played % 25 == 0:
                _show(progress, tasks, parts, played)
            if rounds is None and time.monotonic() > give_up:
                break
        for part in parts:
            _report(client, part, y, before=None)
        _show(progress, tasks, parts, played)
        for task in tasks:
            progress.update(task, total=played)
    return parts


def _resumed(client: Client, session: DemoSession) -> Part:
    found = found_or_created(client, session.name, session.settings)
    return Part(session, asked(found), found["t"], found["metrics"]["mistakes"])


def _show(progress: Progress, tasks: Sequence[Any], parts: Sequence[Part], played: int) -> None:
    for task, part in zip(tasks, parts, strict=True):
        progress.update(task, completed=played, mistakes=part.mistakes / max(1, part.rounds))


def _play(client: Client, part: Part, X: Any, y: Any) -> None:
    """Request the prediction for the next row, and report the truths that are due."""
    row = part.row
    started = time.perf_counter()
    prediction = client.predict(part.session.name, X[row % len(y)].tolist())
    part.latencies_s.append(time.perf_counter() - started)
    part.row += 1
    late = late_by(row) if part.session.is_late else 0
    if late is not None:
        heapq.heappush(part.due, (row + late, row, prediction["id"]))
    _report(client, part, y, before=part.row)


def _report(client: Client, part: Part, y: Any, before: int | None) -> None:
    for row, id in _come(part.due, before):
        started = time.perf_counter()
        answer = client.update(part.session.name, int(y[row % len(y)]), id=id)
        part.latencies_s.append(time.perf_counter() - started)
        part.rounds += 1
        part.mistakes += answer["mistake"]


def _come(due: list[tuple[int, int, str]], before: int | None) -> Iterator[tuple[int, str]]:
    """The truths due before this row, or all of them."""
    while due and (before is None or due[0][0] < before):
        _, row, id = heapq.heappop(due)
        yield row, id


def table(client: Client, parts: Sequence[Part]) -> Table:
    """A table with one line per session; rounds/s and latencies are those of this run, as one client sees them."""
    shown = Table(title="MAGIC gamma telescope, one row at a time", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("session", no_wrap=True)
    for heading in ("rounds", "mistakes"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("verdict")
    for heading in ("rounds/s", "p50 ms", "p99 ms"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for part in parts:
        found = client.inspect(part.session.name)
        rate = found["metrics"]["mistake_rate"]
        p50, p99 = np.percentile(part.latencies_s, [50, 99]) * 1e3
        shown.add_row(
            part.session.name,
            f"{found['t']:,}",
            "" if rate is None else f"{rate:.1%}",
            verdict_of(found),
            f"{len(part.latencies_s) / 2 / sum(part.latencies_s):,.0f}",
            f"{p50:.2f}",
            f"{p99:.2f}",
        )
    return shown
