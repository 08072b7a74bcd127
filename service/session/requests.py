"""What a client asks of a session, and what it is told: the domain's own values, neither wire nor stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from okl.errors import ServiceError
from okl_core.records.record import Raw, Raws
from okl_core.types import F64

from ..store.base import Tip
from .definition import Input, Scalar
from .truths import Answer


class Question(NamedTuple):
    """Asks for a prediction. Under an id it waits for its truth; without one (None) nothing is kept. `row`: of many;
    `raw`: the input, where it was read already."""

    x: Input
    id: str | None
    row: int | None = None
    raw: Raw | None = None


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


class BodyPlace(NamedTuple):
    """Where a block is in the body that was sent under `key`: how many blocks, and rounds, are before it."""

    key: str
    block: int
    row: int

    @property
    def block_id(self) -> str:
        return f"{self.key}-{self.block}"

    @property
    def body_id(self) -> str:
        """Under it is remembered how far the body has come."""
        return f"{self.key}-"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rounds in order, each to be predicted and then learned; with `at` only if the session is at the tip of this label.

    `place` is that of a block of a longer body, whose `id` is the block's.
    """

    x: Sequence[Input] | F64
    y: Sequence[Scalar]
    id: str | None = None
    at: str | None = None
    place: BodyPlace | None = None


class Lesson(NamedTuple):
    """An entry of a champion's journal, in the words of the session: its rounds, with the champion's errors (NaN where they
    are not known). `tip` is the champion's after it. `is_late`: rounds came between the one prediction and its truth."""

    tip: Tip
    id: str
    x: Raws
    y: Sequence[Scalar]
    errors: Sequence[float]
    weight: float = 1.0
    is_late: bool = False
    at: float = 0.0
    waited_s: float = math.nan


@dataclass(frozen=True, slots=True)
class Follow:
    """What a champion has done since the tip `start`, in order, for a challenger: rounds, and predictions that wait.

    `learner` names the champion's; `skipped` rounds before the first step are not known any more. `is_careful`: a round that
    the challenger refuses is left out, where otherwise all are refused.
    """

    start: Tip
    learner: int
    steps: Sequence[Lesson | Question]
    skipped: int = 0
    is_careful: bool = False
    id: None = None

    @property
    def late_ids(self) -> list[str]:
        """Of the rounds whose predictions may wait."""
        return [one.id for one in self.steps if isinstance(one, Lesson) and one.is_late]

    @property
    def rounds(self) -> int:
        return sum(len(one.y) for one in self.steps if isinstance(one, Lesson))


Part = Question | Report | Batch | Follow


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


class Columns(NamedTuple):
    """Forecasts in the words of the session, one of each a round; None for what such a session does not tell."""

    scores: Sequence[float | None] | None = None
    labels: Sequence[Scalar | None] | None = None
    probabilities: Sequence[float | Sequence[float] | None] | None = None
    values: Sequence[float | None] | None = None
    lows: Sequence[float | None] | None = None
    highs: Sequence[float | None] | None = None
    sets: Sequence[Sequence[Scalar]] | None = None

    def told(self) -> dict[str, Sequence[Any]]:
        """Those that there are, by name."""
        return {name: column for name, column in self._asdict().items() if column is not None}


class RoundsPlayed(NamedTuple):
    """Totals of a batch, and the forecasts of its rounds, unless it is a large one that was sent again."""

    session: str
    id: str | None
    t: int
    rounds: int
    loss: float
    mistakes: int | None = None
    columns: Columns = Columns()
    is_duplicate: bool = False


class Followed(NamedTuple):
    """`tip` is the champion's up to which rounds were learned now or before. `is_stale`: somebody else has followed
    meanwhile, and nothing was done. `refused`: why the last round was left out that was."""

    tip: Tip
    rounds: int = 0
    is_stale: bool = False
    refused: str | None = None


Told = Predicted | Updated | RoundsPlayed | Followed

T = TypeVar("T", Predicted, Updated, RoundsPlayed, Followed)


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
