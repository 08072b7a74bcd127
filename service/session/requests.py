"""Requests to a session and their answers: the domain's own values, neither wire nor stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from okl.errors import InvalidInput, ServiceError
from okl_core.records.record import Raw, Raws, to_list, weights_of
from okl_core.types import F64

from ..store.base import Tip
from .definition import Input, Scalar
from .precondition import IfTip
from .truths import Answer


class Question(NamedTuple):
    """Asks for a prediction, which waits for its truth under `id`, or is not kept (None). `raw`: the input, if it was read
    already; `pointer`: the JSON pointer of `x` in what the client sent. `together`: the first of several in one request has
    their number."""

    x: Input
    id: str | None
    raw: Raw | None = None
    pointer: str = "/x"
    together: int = 1


class Report(NamedTuple):
    """Reports the truth of the prediction that waits under `id`, or of the input `x`. `pointer`: the JSON pointer of the
    object that has these in what the client sent."""

    y: Scalar
    id: str | None = None
    x: Input | None = None
    weight: float = 1.0
    pointer: str = ""

    @property
    def truths(self) -> list[Scalar]:
        """What a duplicate must repeat, besides the input."""
        return [self.y] if self.weight == 1.0 else [self.y, self.weight]


_BEFORE_INDEX = " "
"""It is in no client's id."""


def earlier_entry_id(id: str, index: int) -> str:
    """The id of an entry before the last one of the request with this id; the last entry has the request's own."""
    return f"{id}{_BEFORE_INDEX}{index}"


def is_earlier_entry(entry_id: str) -> bool:
    """Whether the entry is not the last one of its request."""
    return _BEFORE_INDEX in entry_id


def id_of_request(entry_id: str) -> str:
    """The id of the request that the entry is of."""
    return entry_id.partition(_BEFORE_INDEX)[0]


def body_id_of(key: str) -> str:
    """The id under which the progress of a body of lines is remembered."""
    return f"{key}-"


class BodyBlock(NamedTuple):
    """A block of the body sent under `key`: the number of blocks, and of rounds, before it."""

    key: str
    blocks: int
    rounds: int

    @property
    def block_id(self) -> str:
        return f"{self.key}-{self.blocks}"

    @property
    def previous_id(self) -> str | None:
        return f"{self.key}-{self.blocks - 1}" if self.blocks else None

    @property
    def body_id(self) -> str:
        return body_id_of(self.key)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rounds in order, each to be predicted and then learned; with `if_tip` only if the session is at one of these tips.

    `body_block` is set for a block of a longer body; `id` is then the block's. `weight` has shape (n,), None if all are 1.
    """

    x: Sequence[Input] | F64
    y: Sequence[Scalar] | F64
    id: str | None = None
    if_tip: IfTip = None
    body_block: BodyBlock | None = None
    weight: F64 | None = None

    @property
    def kin(self) -> set[str]:
        """The ids that tell whether its key was used before, and of lines whether those before these are known."""
        block = self.body_block
        if block is not None:
            ids = {block.key, block.body_id}
            return ids if block.previous_id is None else ids | {block.previous_id}
        return set() if self.id is None else {body_id_of(self.id)}

    @property
    def truths(self) -> Sequence[Scalar] | F64:
        """What a duplicate must repeat, besides the inputs."""
        if self.weight is None:
            return self.y
        return [*to_list(self.y), *self.weight.tolist()]

    def first(self, rounds: int) -> Batch:
        """The first of these rounds."""
        weight = None if self.weight is None else weights_of(self.weight[:rounds])
        return replace(self, x=self.x[:rounds], y=self.y[:rounds], weight=weight)


class Lesson(NamedTuple):
    """An entry of a champion's journal in the session's labels or units, with the champion's errors (NaN if unknown).

    `tip` is the champion's after the entry. `weight` is None if all weights are 1. `is_late`: other rounds came between the
    single prediction and its truth.
    """

    tip: Tip
    id: str
    x: Raws
    y: Sequence[Scalar]
    errors: Sequence[float]
    weight: F64 | None = None
    is_late: bool = False
    at: float = 0.0
    waited_s: float = math.nan


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a challenger plays of its champion's journal: the steps since the tip `start`, rounds and predictions that wait.

    `learner` identifies the champion's; `skipped` counts the rounds before the first step that are no longer stored.
    `is_careful`: leave out a round that the challenger refuses, instead of refusing all.
    """

    start: Tip
    learner: int
    steps: Sequence[Lesson | Question]
    skipped: int = 0
    is_careful: bool = False
    id: None = None

    @property
    def late_ids(self) -> list[str]:
        """The ids of the rounds whose predictions may wait."""
        return [one.id for one in self.steps if isinstance(one, Lesson) and one.is_late]

    @property
    def rounds(self) -> int:
        return sum(len(one.y) for one in self.steps if isinstance(one, Lesson))


Part = Question | Report | Batch | Excerpt


def halves(report: Report, question: Question) -> Sequence[Part]:
    """The parts of a step, with their pointers in its body."""
    return [report._replace(pointer="/update"), question._replace(pointer="/predict/x")]


def repointed(error: ServiceError, part: Part) -> ServiceError:
    """The error of a part, with its pointers moved to where the part is in what the client sent."""
    if not isinstance(error, InvalidInput):
        return error
    match part:
        case Question(pointer=pointer) if pointer != "/x":
            return error.under(pointer, "/x")
        case Report(pointer=pointer) if pointer:
            return error.under(pointer, "")
        case _:
            return error


class Predicted(NamedTuple):
    """A prediction. `t` counts the rounds that the learner had observed; `id` is None if nothing waits."""

    session: str
    id: str | None
    t: int
    answer: Answer


class Updated(NamedTuple):
    """A learned round. `t` counts the rounds observed, this one too; classifiers have `mistake`, regressors `error`."""

    session: str
    id: str | None
    t: int
    loss: float
    mistake: bool | None = None
    error: float | None = None
    is_duplicate: bool = False


class Labels(NamedTuple):
    """n labels by their indices among the session's, shape (n,)."""

    names: Sequence[Scalar]
    indices: NDArray[np.intp]

    def tolist(self) -> list[Scalar]:
        names = np.empty(len(self.names), dtype=object)
        names[:] = self.names
        return names[self.indices].tolist()


class Columns(NamedTuple):
    """Forecasts in the session's labels or units, one entry per round; None for columns that the session does not have."""

    scores: Sequence[float | None] | F64 | None = None
    labels: Sequence[Scalar | None] | Labels | None = None
    probabilities: Sequence[float | Sequence[float] | None] | F64 | None = None
    values: Sequence[float | None] | F64 | None = None
    lows: Sequence[float | None] | None = None
    highs: Sequence[float | None] | None = None
    sets: Sequence[Sequence[Scalar]] | None = None

    def by_name(self) -> dict[str, Sequence[Any] | F64 | Labels]:
        """The columns that the session has, by name."""
        return {name: column for name, column in self._asdict().items() if column is not None}

    def as_lists(self) -> dict[str, Sequence[Any]]:
        """The columns that the session has, by name, as lists."""
        return {
            name: column.tolist() if isinstance(column, np.ndarray | Labels) else column
            for name, column in self.by_name().items()
        }


class RoundsPlayed(NamedTuple):
    """Totals of a batch, and the forecasts of its rounds; a duplicate of a large batch has no forecasts."""

    session: str
    id: str | None
    t: int
    rounds: int
    loss: float
    mistakes: int | None = None
    columns: Columns = Columns()
    is_duplicate: bool = False


class ExcerptPlayed(NamedTuple):
    """The progress of a challenger: `tip` is the champion's after the last round learned.

    `is_stale`: another worker played it meanwhile; nothing was done. `refused`: why the last refused round was left out.
    """

    tip: Tip
    rounds: int = 0
    is_stale: bool = False
    refused: str | None = None


Result = Predicted | Updated | RoundsPlayed | ExcerptPlayed

Answers = list[Result | ServiceError]
"""The answers to the parts of a request, in order, each perhaps the error that refused its part."""

T = TypeVar("T", Predicted, Updated, RoundsPlayed, ExcerptPlayed)


def as_result(kind: type[T], result: Result | ServiceError) -> T:
    """The answer to a part, which has this kind. Raises the ServiceError that refused the part."""
    if isinstance(result, ServiceError):
        raise result
    assert isinstance(result, kind)
    return result


@dataclass(frozen=True, slots=True)
class Stepped:
    """The two halves of a step. `refusal`: why the prediction was refused after the truth was learned."""

    update: Updated
    predict: Predicted | None
    refusal: ServiceError | None = None

    @classmethod
    def of(cls, results: Answers) -> Stepped:
        """Combine the two answers. Raises the ServiceError that refused the truth."""
        updated, predicted = results
        if isinstance(predicted, ServiceError):
            return cls(as_result(Updated, updated), None, predicted)
        return cls(as_result(Updated, updated), as_result(Predicted, predicted))
