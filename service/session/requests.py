"""What a client asks of a session, and what it is told: the domain's own values, neither wire nor stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from service.errors import ServiceError
from service.session.definition import Input, Scalar
from service.session.truths import Answer


class Question(NamedTuple):
    """Asks for a prediction. Under an id it waits for its truth; without one (None) nothing is kept. `row`: of many."""

    x: Input
    id: str | None
    row: int | None = None


class Report(NamedTuple):
    """Reports a truth: of the prediction that waits under `id`, or of the input `x`."""

    y: Scalar
    id: str | None = None
    x: Input | None = None
    weight: float = 1.0

    @property
    def said(self) -> list[Scalar]:
        """What must be the same if it is sent again, beside the input."""
        return [self.y] if self.weight == 1.0 else [self.y, self.weight]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rounds in order, each to be predicted and then learned; with `at` only if the session is at the tip of this label."""

    x: Sequence[Input]
    y: Sequence[Scalar]
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
    values: Sequence[float | None] | None = None
    scores: Sequence[float | None] | None = None
    labels: Sequence[Scalar | None] | None = None
    probabilities: Sequence[float | Sequence[float] | None] | None = None
    lows: Sequence[float | None] | None = None
    highs: Sequence[float | None] | None = None
    sets: Sequence[Sequence[Scalar]] | None = None
    is_duplicate: bool = False


Told = Predicted | Updated | RoundsPlayed

T = TypeVar("T", Predicted, Updated, RoundsPlayed)


def as_told(kind: type[T], told: Told | ServiceError) -> T:
    """What a part of this kind was told. Raises the ServiceError that refused it."""
    if isinstance(told, ServiceError):
        raise told
    assert isinstance(told, kind)
    return told


@dataclass(frozen=True, slots=True)
class Stepped:
    """The two halves of a step. Where the prediction is refused after the truth was taken, `refusal` says why."""

    update: Updated
    predict: Predicted | None
    refusal: ServiceError | None = None

    @classmethod
    def of(cls, told: Sequence[Told | ServiceError]) -> Stepped:
        """Raises the ServiceError that refused the truth."""
        updated, predicted = told
        if isinstance(predicted, ServiceError):
            return cls(as_told(Updated, updated), None, predicted)
        return cls(as_told(Updated, updated), as_told(Predicted, predicted))
