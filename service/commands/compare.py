"""Play a file through several learners side by side, print how they did, and save pictures and a page of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from okl.errors import ConfigurationError

from ..session.limits import SessionLimits
from ..settings import Settings
from .contestants import Contestant, definition_for, names_of, specs_of, usual
from .recording import Recording, Selection, look_through

BLOCK: Final = 100
"""Rows that each learner plays in turn, as many as `okl replay` sends in one request."""

TOLD: Final = 80
"""Letters of a verdict or a reason in the table."""

NO_FIGURE: Final = (
    "No figure was saved: it needs matplotlib; install it with `pip install matplotlib` (the extra `plot`)."
)

HEADINGS: Final = ("learner", "error", "last 500", "loss", "rounds/s", "stored", "memory", "verdict")


class Stopped:
    """Whether Ctrl-C was pressed: the rows under way are played to their end. Pressed again, it interrupts."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self, *_: object) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@dataclass(frozen=True, slots=True)
class Compared:
    """The learners, the best first, those that failed last; `is_whole`: were all rows played?"""

    contestants: Sequence[Contestant]
    recording: Recording
    is_whole: bool

    @property
    def error_name(self) -> str:
        return "mistake rate" if any(one.is_classifier for one in self.contestants) else "RMSE"


def compare(console: Console, path: Path, selection: Selection, learners: Sequence[str], *, delay: int = 0) -> Compared:
    """Raises ConfigurationError for a file, or an option, that leaves nothing to compare."""
    recording = look_through(path, selection)
    if recording.has_labels:
        recording.settings(are_labels=True, with_range=False)
    limits = limits_here()
    specs = specs_of(learners) if learners else usual(recording)
    contestants = [
        Contestant(name, spec, partial(definition_for, recording), limits, delay=delay)
        for name, spec in zip(names_of(specs), specs, strict=True)
    ]
    with heeding() as stopped:
        _play(console, recording, contestants, stopped)
    return Compared(ranked(contestants), recording, not stopped.is_set)


def limits_here() -> SessionLimits:
    """Those that a service with these settings would have."""
    settings = Settings()
    return SessionLimits(
        dim=settings.max_dim,
        bytes=settings.session_bytes,
        waiting_s=settings.waiting_expires_s,
        batch=settings.max_batch,
        answer_bytes=settings.max_answer_bytes,
    )


@contextmanager
def heeding() -> Iterator[Stopped]:
    stopped = Stopped()
    before = signal.signal(signal.SIGINT, stopped)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _play(console: Console, recording: Recording, contestants: Sequence[Contestant], stopped: Stopped) -> None:
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[error]}", markup=False),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        bars = [progress.add_task(short(one.name), total=recording.count, error="") for one in contestants]
        rows = recording.rows()
        # What was appended since it was looked through is not played: its truths are not known.
        rows = islice(rows, recording.count)
        while not stopped.is_set and (block := list(islice(rows, BLOCK))):
            for one, bar in zip(contestants, bars, strict=True):
                one.play(block)
                progress.update(bar, completed=one.rounds, error="refused" if one.refusal else _error(one))
        for one, bar in zip(contestants, bars, strict=True):
            if not stopped.is_set:
                one.end()
                progress.update(bar, completed=one.rounds)


def ranked(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The best first, those that failed last."""

    def key(one: Contestant) -> tuple[bool, float]:
        mean = one.tally.mean_error
        return one.refusal is not None or mean is None, float("inf") if mean is None else mean

    return sorted(contestants, key=key)


def cells_of(one: Contestant) -> list[str]:
    """Under HEADINGS; a learner that failed has its reason in place of the verdict."""
    tally = one.tally
    if not tally.rounds:
        return [one.name, *[""] * 6, one.refusal or ""]
    rate = f"{tally.rounds / one.seconds:,.0f}" if one.seconds > 0.0 else ""
    window = _shown(one, tally.window_error)
    loss = "" if tally.mean_loss is None else f"{tally.mean_loss:.4g}"
    told = one.refusal or one.verdict
    memory = f"{one.nbytes / 1024:,.0f} KiB"
    return [one.name, _error(one), window, loss, rate, f"{one.stored:,}", memory, told]


def _error(one: Contestant) -> str:
    return _shown(one, one.tally.mean_error)


def _shown(one: Contestant, mean: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:.2%}" if one.is_classifier else f"{mean**0.5:.4g}"


def short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def played(compared: Compared) -> str:
    rounds = max((one.rounds for one in compared.contestants), default=0)
    return f"{rounds:,} of {compared.recording.count:,} rows, each predicted before its truth was learned."


def table_of(compared: Compared) -> Table:
    """The best in bold."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), caption=played(compared), caption_justify="left")
    for i, heading in enumerate(HEADINGS):
        shown = compared.error_name if heading == "error" else heading
        is_text = i in (0, len(HEADINGS) - 1)
        table.add_column(shown, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for i, one in enumerate(compared.contestants):
        is_best = i == 0 and one.refusal is None
        *cells, told = cells_of(one)
        table.add_row(*(Text(cell) for cell in (*cells, short(told, TOLD))), style="bold" if is_best else None)
    return table


def refusals(compared: Compared) -> Iterator[str]:
    """What the table has no room for."""
    for one in compared.contestants:
        if one.refusal is not None and len(one.refusal) > TOLD:
            yield f"{one.name}: {one.refusal}"


def has_figure() -> bool:
    """Is there what draws?"""
    return find_spec("matplotlib") is not None


def save(compared: Compared, folder: Path) -> list[Path]:
    """compare.png, compare.svg and compare.html, whole or not at all. Raises ConfigurationError where it cannot write."""
    from .compare_page import made_of

    made = made_of(compared)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            part = folder / f"{name}.part"
            part.write_bytes(content)
            os.replace(part, folder / name)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}.") from error
    return [folder / name for name in made]
