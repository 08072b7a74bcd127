"""Play a file through several learners side by side, and print the results."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from okl.comparing import HEADINGS, Line, error_shown
from okl.errors import ConfigurationError
from okl.measures import error_name

from ..escaping import escaped
from ..settings import Settings, session_limits_of
from .contestants import BLOCK, Contestant, check_count, definition_for, in_turn, names_of, specs_of, usual
from .fitting import decided
from .recording import RecordedRow, Recording, Selection, look_through, looked_through
from .terminal import progress_of_rows

NO_FIGURE: Final = (
    "No figure was saved: it needs matplotlib; install it with `pip install matplotlib` (the extra `plot`)."
)


class Stopped:
    """Whether Ctrl-C was pressed: the current block is then played to its end. A second Ctrl-C interrupts."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self, *_: object) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@dataclass(frozen=True, slots=True)
class Compared:
    """The learners, the best first, those that failed last; `is_whole` if all rows were played."""

    contestants: Sequence[Contestant]
    recording: Recording
    is_whole: bool

    @property
    def error_name(self) -> str:
        return error_name(is_classifier=any(one.is_classifier for one in self.contestants))


def compare(console: Console, path: Path, selection: Selection, learners: Sequence[str], *, delay: int = 0) -> Compared:
    """Play a file. Raises ConfigurationError for a file, or an option, that leaves nothing to compare."""
    recording = look_through(path, selection)
    specs = specs_of(learners) if learners else usual(recording)
    contestants = _contestants(recording, specs, delay)
    told = decided(recording, specs).told
    console.print(escaped(f"{recording.title}: {told}"), highlight=False, markup=False, soft_wrap=True)
    with heeding() as stopped:
        _play(console, recording, contestants, stopped)
    return Compared(ranked(contestants), recording, not stopped.is_set)


def played_rows(
    inputs: Sequence[Any],
    truths: Sequence[Any],
    learners: Sequence[Any] | Mapping[str, Any] | None,
    *,
    delay: int,
    are_labels: bool | None,
    progress: bool,
) -> list[Line]:
    """The work of `okl.compare`: as `compare`, with rows from memory. Raises ConfigurationError."""
    recording = _of_rows(inputs, truths, are_labels=are_labels)
    several = [learners] if isinstance(learners, str | Mapping) else learners
    specs = None if several is None else [{"kind": one} if isinstance(one, str) else dict(one) for one in several]
    contestants = _contestants(recording, usual(recording) if specs is None else specs, delay)
    turns: Iterable[Contestant] = in_turn(recording, contestants)
    if progress:
        from rich.progress import track

        turns = track(turns, total=len(contestants) * math.ceil(recording.count / BLOCK))
    for _ in turns:
        pass
    return [line_of(one) for one in ranked(contestants)]


def _of_rows(inputs: Sequence[Any], truths: Sequence[Any], *, are_labels: bool | None) -> Recording:
    """Raises ConfigurationError for truths that cannot be learned."""

    def rows() -> Iterator[RecordedRow]:
        for number, (x, y) in enumerate(zip(inputs, truths, strict=True)):
            if not isinstance(x, Mapping | list):
                raise ConfigurationError(f"Row {number} is neither a list nor an object: {x!r:.100}.")
            if y is None:
                raise ConfigurationError(f"Truth {number} is missing; leave out the rows without a truth.")
            if not isinstance(y, bool | int | float | str):
                raise ConfigurationError(f"Truth {number} is neither a label nor a number: {y!r}.")
            yield RecordedRow(number, x, y, str(number))

    first = inputs[0] if inputs else ()
    names = range(len(first)) if isinstance(first, list) else first if isinstance(first, Mapping) else ()
    recording = looked_through("rows", tuple(map(str, names)), rows)
    if not recording.count:
        raise ConfigurationError("There are no rows to compare learners on.")
    if are_labels is False:
        if not recording.are_numbers:
            raise ConfigurationError("The truths are not all numbers: some are strings or booleans.")
        return replace(recording, truths=None)
    if are_labels is None and recording.odd is not None and recording.odd.are_gaps:
        row, truth = recording.odd.row, recording.odd.truth
        raise ConfigurationError(
            f"Truth {row} is {truth!r}, but others are numbers; leave out the rows without a truth."
        )
    recording = replace(recording, are_numbers=False) if are_labels else recording
    if recording.truths is not None and len(recording.truths) < 2:
        raise ConfigurationError("The truths must have at least two different values.")
    return recording


def _contestants(recording: Recording, specs: Sequence[Any], delay: int) -> list[Contestant]:
    """Raises ConfigurationError."""
    if recording.has_labels:
        recording.settings(with_range=False)
    if not specs:
        raise ConfigurationError("There are no learners to compare.")
    check_count(specs)
    recording = decided(recording, specs)
    limits, define = session_limits_of(Settings()), partial(definition_for, recording)
    named = zip(names_of(specs), specs, strict=True)
    has_labels = recording.has_labels
    return [Contestant(name, spec, define, limits, has_labels=has_labels, delay=delay) for name, spec in named]


@contextmanager
def heeding() -> Iterator[Stopped]:
    stopped = Stopped()
    before = signal.signal(signal.SIGINT, stopped)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _play(console: Console, recording: Recording, contestants: Sequence[Contestant], stopped: Stopped) -> None:
    error = TextColumn("{task.fields[error]}", markup=False)
    with progress_of_rows(console, error, disable=not console.is_terminal) as progress:
        bars = [progress.add_task(short(one.name), total=recording.count, error="") for one in contestants]
        bar_of = dict(zip(contestants, bars, strict=True))
        for one in in_turn(recording, contestants, is_stopped=lambda: stopped.is_set):
            progress.update(bar_of[one], completed=one.rounds, error="refused" if one.refusal else _error(one))


def ranked(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The best first, those that failed last."""

    def key(one: Contestant) -> tuple[bool, float]:
        mean = one.tally.mean_error
        return one.refusal is not None or mean is None, float("inf") if mean is None else mean

    return sorted(contestants, key=key)


def line_of(one: Contestant) -> Line:
    """A contestant's line in the table."""
    tally, view = one.tally, one.view
    return Line(
        name=one.name,
        is_classifier=one.is_classifier,
        rounds=tally.rounds,
        error=_root(one, tally.mean_error),
        window_error=_root(one, tally.window_error),
        loss=tally.mean_loss,
        log_loss=one.log_loss,
        seconds=one.seconds,
        points=one.stored,
        bytes=one.nbytes,
        verdict=one.verdict,
        refusal=one.refusal,
        curve={name: () if view is None else view.points[name] for name in ("t", "total_error", "window_error")},
    )


def cells_of(one: Contestant) -> list[str]:
    """The cells under HEADINGS."""
    return line_of(one).cells()


def _error(one: Contestant) -> str:
    return error_shown(_root(one, one.tally.mean_error), is_classifier=one.is_classifier)


def _root(one: Contestant, mean: float | None) -> float | None:
    """A mistake rate as it is, or the root of a mean square."""
    return mean if mean is None or one.is_classifier else mean**0.5


def short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def played(compared: Compared) -> str:
    rounds = max((one.rounds for one in compared.contestants), default=0)
    return f"{rounds:,} of {compared.recording.count:,} rows, each predicted before its truth was learned."


def table_of(compared: Compared) -> Table:
    """The table of results, with the best in bold."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), caption=played(compared), caption_justify="left")
    for i, heading in enumerate(HEADINGS):
        shown = compared.error_name if heading == "error" else heading
        is_text = i in (0, len(HEADINGS) - 1)
        table.add_column(shown, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for i, one in enumerate(compared.contestants):
        is_best = i == 0 and one.refusal is None
        table.add_row(*map(Text, printed_cells(one)), style="bold" if is_best else None)
    return table


def printed_cells(one: Contestant) -> list[str]:
    """The cells of a printed table, which has no room for a reason."""
    *cells, remark = cells_of(one)
    return [*cells, remark if one.refusal is None else "failed"]


def print_refusals(console: Console, contestants: Sequence[Contestant]) -> None:
    """Print why learners failed, each reason whole, however narrow the terminal is."""
    for one in contestants:
        if one.refusal is not None:
            console.print(escaped(f"{one.name}: {one.refusal}"), highlight=False, markup=False, soft_wrap=True)


def has_figure() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None
