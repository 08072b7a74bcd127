"""Learners side by side on the same rounds, in this process: `okl.compare`, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, SupportsIndex, final

from okl.__main__ import service_part
from okl.frames import NO_FRAME, Form
from okl.values import column, rows

HEADINGS: Final = ("learner", "error", "last 500", "loss", "rounds/s", "stored", "memory", "verdict")
LOG_LOSS: Final = "log-loss"
LOG_LOSS_AT: Final = 4
"""Its place among the headings, where one has it."""

TOLD: Final = 80
"""Letters of a verdict or a reason in a table."""


@final
@dataclass(frozen=True, slots=True)
class Line:
    """One learner and how it did.

    `error` is a mistake rate or an RMSE over all rounds, `window_error` over the last 500; None before the first round.
    `loss` is the learner's own, `log_loss` that of the probabilities, where it told one in each round; both are means.
    `seconds` of arithmetic are CPU time; `points` are those that it keeps. `refusal` says why it plays no more.
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
        """Under HEADINGS; a learner that failed has its reason in place of the verdict."""
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
    """How several learners did on the same rounds: the best first, those that failed last. Made by `compare`.

    It is a sequence of `Line`, printed as a table, which a notebook shows as one.
    """

    def __init__(self, lines: Sequence[Line], form: Form = NO_FRAME) -> None:
        self.lines, self._form = tuple(lines), form

    @property
    def error_name(self) -> str:
        """What the errors are."""
        return "mistake rate" if any(line.is_classifier for line in self.lines) else "RMSE"

    @property
    def best(self) -> Line:
        """The first."""
        return self.lines[0]

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __getitem__(self, name: str | SupportsIndex) -> Line:
        """By the learner's name, or by place. Raises KeyError, IndexError."""
        if not isinstance(name, str):
            return self.lines[name]
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(f"no learner {name!r} was compared, but {', '.join(line.name for line in self.lines)}")

    def curve(self, name: str, *, windowed: bool = False) -> tuple[Any, Any]:
        """Rounds, and the error of all rounds so far or of about the last 500, shape (n,) each; n is 513 at most."""
        import numpy as np

        told = self[name].curve
        errors = told["window_error" if windowed else "total_error"]
        return np.array(told["t"], dtype=np.int64), np.array(errors, dtype=np.float64)

    def columns(self) -> dict[str, list[Any]]:
        """The numbers by name, one entry a learner."""
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
        """The columns as a frame of the library that the rows came in, else as arrays of numpy by name."""
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
    """Play learners on the same rounds, each row predicted before its truth is learned; nothing is sent anywhere.

    Each is a session of its own, which prepares inputs as a session of a service does, and forecasts what that would.

    Parameters
    ----------
    X
        Rows in the order in which they came: a frame of pandas, polars or what else narwhals reads, an array, a list of
        dictionaries or of lists.
    y
        As many truths.
    learners
        Kinds or specs, 64 at most; one may stand alone. Without it: `auto`, the trivial forecasters, and some that fit the
        truths.
    delay
        The truth of a row is told when so many more were predicted.
    are_labels
        Are the truths labels, or numbers? By default strings and booleans are labels, and what has two values is.
    progress
        Show a bar.

    Raises
    ------
    ValueError
        For other than as many rows as truths, or a negative delay.
    ConfigurationError
        For rows, truths or learners that leave nothing to compare. A learner that fails says so in its line, and the others
        go on.

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
    return text if len(text) <= TOLD else f"{text[: TOLD - 1]}…"
