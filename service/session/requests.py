"""What a client asks of a session, and what it is told: the domain's own values, neither wire nor stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from okl_core.types import F64
from service.session.definition import Input, Scalar
from service.session.truths import Answer


class Question(NamedTuple):
    """Asks for a prediction. Under an id it waits for its truth; without one (None) nothing is kept."""

    x: Input
    id: str | None


class Report(NamedTuple):
    """Reports a truth: of the prediction that waits under `id`, or of the input `x`."""

    y: Scalar
    id: str | None = None
    x: Input | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rounds in order, each to be predicted and then learned; with `at` only if the session is at the tip of this label."""

    x: list[Input]
    y: list[Scalar]
    id: str | None = None
    at: str | None = None


Part = Question | Report | Batch


class Predicted(NamedTuple):
    """`t` counts the rounds that the learner had observed; `id` is None where nothing waits."""

    session: str
    id: str | None
    t: int
    answer: Answer


class Updated(NamedTuple):
    """`t` counts the rounds observed, this one included; `mistake` is for classifiers, `error` for regressors."""

    session: str
    id: str | None
    t: int
    loss: float
    mistake: bool | None = None
    error: float | None = None
    is_duplicate: bool = False


class RoundsPlayed(NamedTuple):
    """Totals of a batch, and the forecasts of its rounds, unless it is a large one that was sent again."""

    session: str
    id: str | None
    t: int
    rounds: int
    loss: float
    mistakes: int | None = None
    values: list[float] | None = None
    scores: list[float] | None = None
    labels: list[Scalar] | None = None
    probabilities: list[float] | list[list[float]] | None = None
    is_duplicate: bool = False


Told = Predicted | Updated | RoundsPlayed


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The vectors of a batch, shape (n, d), its truths in the learner's terms, shape (n,), and the note of its layout."""

    X: F64
    y: F64
    note: bytes
