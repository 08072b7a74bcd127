"""`okl.compare`: learners side by side on the same rounds, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, SupportsIndex, final

from okl.__main__ import service_part
from okl.frames import NO_FRAME, Form
from okl.measures import error_name
from okl.values import column, rows

HEADINGS: Final = ("learner", "error", "last 500", "loss", "rounds/s", "stored", "memory", "verdict")
LOG_LOSS: Final = "log-loss"
LOG_LOSS_AT: Final = 4
"""Index of its column, which is shown if any learner has a log-loss."""

MOST_LETTERS: Final = 80
"""Length of a verdict or a reason in a printed table."""


@final
@dataclass(frozen=True, slots=True)
class Line:
    """Results of one learner.

    `error` is a mistake rate or an RMSE over all rounds, `window_error` the same over the last 500; None before the first
    round. `loss` is the mean of the learner's own loss, `log_loss` that of its probabilities if it gave one in every round.
    `seconds` is CPU time spent in arithmetic, `points` the number of stored points. `refusal` says why it stopped early.
    """

    name: str
    is_classifier: bool
    rounds: int
    error: float | None
    window_error: float | None
    loss: float | None
    log_loss: float | None
    seconds: float
    points: int
    bytes: int
    verdict: str
    refusal: str | None
    curve: Mapping[str, Sequence[float | None]] = field(repr=False)

    def cells(self) -> list[str]:
        """Texts for HEADINGS; the reason of a failure takes the place of the verdict."""
        if not self.rounds:
            return [self.name, *[""] * 6, self.refusal or ""]
        rate = f"{self.rounds / self.seconds:,.0f}" if self.seconds > 0.0 else ""
        loss = "" if self.loss is None else f"{self.loss:.4g}"
        errors = [error_shown(error, is_classifier=self.is_classifier) for error in (self.error, self.window_error)]
        memory = f"{self.bytes / 1024:,.0f} KiB"
        return [self.name, *errors, loss, rate, f"{self.points:,}", memory, self.refusal or self.verdict]


def error_shown(error: float | None, *, is_classifier: bool) -> str:
    if error is None:
        return ""
    return f"{error:.2%}" if is_classifier else f"{error:.4g}"


@final
class Comparison:
    """Results of several learners on the same rounds, best first and failures last; returned by `compare`.

    A sequence of `Line` that prints as a table, and is an HTML table in a notebook.
    """

    def __init__(self, lines: Sequence[Line], form: Form = NO_FRAME) -> None:
        self.lines, self._form = tuple(lines), form

    @property
    def error_name(self) -> str:
        """The name of the errors: "mistake rate" or "RMSE"."""
        return error_name(is_classifier=any(line.is_classifier for line in self.lines))

    @property
    def best(self) -> Line:
        """The learner with the smallest error."""
        return self.lines[0]

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __getitem__(self, name: str | SupportsIndex) -> Line:
        """The line of a learner's name or of an index. Raises KeyError, IndexError."""
        if not isinstance(name, str):
            return self.lines[name]
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(f"no learner {name!r} was compared, but {', '.join(line.name for line in self.lines)}")

    def curve(self, name: str, *, windowed: bool = False) -> tuple[Any, Any]:
        """Rounds and errors, shape (n,) each with n at most 513: cumulative errors, or those of about the last 500 rounds."""
        import numpy as np

        curve = self[name].curve
        errors = curve["window_error" if windowed else "total_error"]
        return np.array(curve["t"], dtype=np.int64), np.array(errors, dtype=np.float64)

    def columns(self) -> dict[str, list[Any]]:
        """The results by name, one entry per learner."""
        names = (
            "error",
            "window_error",
            "loss",
            "log_loss",
            "rounds",
            "seconds",
            "points",
            "bytes",
            "verdict",
            "refusal",
        )
        return {"learner": [line.name for line in self.lines]} | {
            name: [getattr(line, name) for line in self.lines] for name in names
        }

    def to_frame(self) -> Any:
        """The columns as a data frame of the library that the rows came in, otherwise as a dict of NumPy arrays."""
        return Form(self._form.library).frame(self.columns())

    def __str__(self) -> str:
        table = [[*row[:-1], _short(row[-1])] for row in self._table()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        last = len(widths) - 1
        texts = (
            "  ".join(
                cell.ljust(width) if i in (0, last) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        )
        return "\n".join(text.rstrip() for text in texts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = [[escape(cell) for cell in row] for row in self._table()]
        titles = "".join(f"<th>{cell}</th>" for cell in head)
        lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"

    def _table(self) -> list[list[str]]:
        head = [self.error_name if name == "error" else name for name in HEADINGS]
        table = [head, *(line.cells() for line in self.lines)]
        if any(line.log_loss is not None for line in self.lines):
            losses = [LOG_LOSS, *("" if line.log_loss is None else f"{line.log_loss:.4g}" for line in self.lines)]
            for row, loss in zip(table, losses, strict=True):
                row.insert(LOG_LOSS_AT, loss)
        return table


def compare(
    X: Any,
    y: Any,
    learners: Sequence[Mapping[str, Any] | str] | Mapping[str, Any] | str | None = None,
    *,
    delay: int = 0,
    are_labels: bool | None = None,
    progress: bool = False,
) -> Comparison:
    """Play learners on the same rounds in this process, predicting each row before its truth is learned.

    Every learner runs in a session of its own that prepares inputs, and forecasts, exactly as a session of a service would.

    Parameters
    ----------
    X
        Rows in chronological order: a pandas, polars or other data frame that narwhals reads, an array, or a list of
        dictionaries or lists.
    y
        Truths, one per row.
    learners
        A kind or spec, or up to 64 of them. By default `auto`, the trivial forecasters, and some learners that suit the
        truths.
    delay
        The truth of a row is learned after this many further rows have been predicted.
    are_labels
        Whether the truths are labels rather than numbers. By default strings, booleans, and truths with only two values are,
        and other numbers if learners of many labels are compared and none of numbers.
    progress
        Whether to show a progress bar.

    Raises
    ------
    ValueError
        If the numbers of rows and truths differ, or the delay is negative.
    ConfigurationError
        If the rows, truths or learners leave nothing to compare. A learner that fails is reported in its line, and the others
        continue.

    Examples
    --------
    >>> import okl
    >>> rows = [{"n": i % 7, "colour": ["red", "blue"][i % 2]} for i in range(200)]
    >>> truths = ["much" if row["n"] > 3 else "little" for row in rows]
    >>> found = okl.compare(rows, truths, ["auto", "majority"])
    >>> found.best.name, found["majority"].rounds
    ('auto', 200)
    """
    form = Form.of(X)
    inputs, truths = rows(X), column(y)
    if len(inputs) != len(truths):
        raise ValueError(f"there are {len(inputs)} inputs and {len(truths)} truths")
    if delay < 0:
        raise ValueError(f"the delay is a number of rows, not {delay}")
    played = service_part("commands.compare").played_rows
    lines = played(inputs, truths, learners, delay=delay, are_labels=are_labels, progress=progress)
    return Comparison(lines, form)


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
