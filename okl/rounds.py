"""What is said to one session: typed answers, and ids that are made once and kept while a request is sent again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, final

from okl.answers import Learned, Played, Prediction, Predictions
from okl.errors import PayloadTooLarge, ServiceError, SessionExists
from okl.forks import Ids
from okl.frames import Form
from okl.routes import ROUTES, Learner
from okl.talks import Json, Talk
from okl.values import column, rows

BLOCK: Final = 1_000
"""Rounds of one request, or fewer where these are too large."""

T = TypeVar("T")

_ROW: Final = re.compile(r"(/[xy]/)(\d+)(.*)")
"""Where the row of a request is wrong."""


@final
class Rounds:
    """The talks that a `Session` and an `AsyncSession` of this name hold."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ids = Ids()
        self._most = BLOCK

    def make(self, learner: Learner | None, settings: Mapping[str, Any]) -> Talk[None]:
        """The session, if it is not there and a learner or settings are given."""
        if learner is None and not settings:
            return
        try:
            yield from ROUTES.create(self.name, learner, **settings)
        except SessionExists:
            return

    def predict(self, x: Any, *, wait: bool = True) -> Talk[Prediction]:
        """The forecast for one input. `wait=False`: no truth will come."""
        id = self._ids.new() if wait else None
        return Prediction.of((yield from ROUTES.predict(self.name, x, id=id, wait=wait)))

    def update(self, prediction: Prediction | str, y: Any, *, weight: float = 1.0) -> Talk[Learned]:
        """Report the truth of a prediction, or of the id of one."""
        id = _id_of(prediction)
        return Learned.of((yield from ROUTES.update(self.name, y, id=id, weight=weight)))

    def learn(self, x: Any, y: Any, *, weight: float = 1.0) -> Talk[Learned]:
        """One round whose truth is known already."""
        id = self._ids.new()
        return Learned.of((yield from ROUTES.update(self.name, y, id=id, x=x, weight=weight)))

    def step(self, prediction: Prediction | str, y: Any, next_x: Any) -> Talk[tuple[Learned, Prediction]]:
        """The truth of one round and the forecast of the next, in one request. Raises what refuses either."""
        id, following = _id_of(prediction), self._ids.new()
        told = yield from ROUTES.step(self.name, y, id=id, next_x=next_x, next_id=following)
        learned = Learned.of(told["update"])
        if "refused" in told:
            # The truth was taken: what refuses the prediction is raised by asking for it alone.
            return learned, (yield from self.predict(next_x))
        return learned, Prediction.of(told["predict"])

    def play(self, X: Any, y: Any, *, progress: bool = False) -> Talk[Played]:
        """Many rounds in order, each forecast before it is learned, in requests of 1,000.

        X is a list of inputs or a frame with a row each, y a list or a column of as many truths.
        """
        inputs, truths = rows(X), column(y)
        if len(inputs) != len(truths):
            raise ValueError(f"there are {len(inputs)} inputs and {len(truths)} truths")
        parts: list[Played] = []
        for part in _shown(_parts(len(truths)), len(truths), self.name, is_shown=progress):
            parts += yield from self.blocks(inputs[part], truths[part], part.start)
        return Played.joined(parts, Form.of(X))

    def blocks(self, X: Sequence[Any], y: Sequence[Any], before: int) -> Talk[list[Played]]:
        """Rounds in as few requests as the service takes, after so many of the same call."""

        def learned(part: slice) -> Talk[Played]:
            id = self._ids.new()
            try:
                return Played.of((yield from ROUTES.rounds(self.name, X[part], y[part], id=id)))
            except ServiceError as error:
                if known := before + part.start:
                    error.add_note(f"The {known:,} rounds before those of this request were learned.")
                _move(error, known)
                raise

        return (yield from self._halved(slice(0, len(y)), learned))

    def predict_many(self, xs: Any) -> Talk[Predictions]:
        """Forecasts of a list of inputs or the rows of a frame, in requests of 1,000; no truth is expected.

        Those of one request are made at the same moment.
        """
        inputs, found = rows(xs), list[Prediction]()

        def told(part: slice) -> Talk[list[Json]]:
            try:
                return (yield from ROUTES.predict_many(self.name, inputs[part], wait=False))
            except ServiceError as error:
                _move(error, part.start)
                raise

        for part in _parts(len(inputs)):
            for block in (yield from self._halved(part, told)):
                found += [Prediction.of(one | {"session": self.name}) for one in block]
        return Predictions(found, Form.of(xs))

    def _halved(self, rows: slice, ask: Callable[[slice], Talk[T]]) -> Talk[list[T]]:
        """What is answered of these rows, asked in halves of halves where they are too large for one request."""
        count = rows.stop - rows.start
        if count <= self._most:
            try:
                return [(yield from ask(rows))]
            except PayloadTooLarge:
                if count == 1:
                    raise
                self._most = count - count // 2
        middle = rows.start + count // 2
        first = yield from self._halved(slice(rows.start, middle), ask)
        return first + (yield from self._halved(slice(middle, rows.stop), ask))

    def describe(self) -> Talk[Json]:
        """What `GET /sessions/{session}` tells: learner, settings, metrics, verdict, fields."""
        return (yield from ROUTES.inspect(self.name))

    def history(self) -> Talk[Json]:
        """How the session has done over its life."""
        return (yield from ROUTES.history(self.name))


def _id_of(prediction: Prediction | str) -> str:
    """Raises ValueError where it does not wait for its truth."""
    id = prediction.id if isinstance(prediction, Prediction) else prediction
    if id is None:
        raise ValueError("this prediction was made with wait=False; `learn` takes its input with the truth")
    return id


def _move(error: ServiceError, rows: int) -> None:
    """Have the error of a request that began at this row tell the places of the rows as they were given."""
    for one in error.extra.get("errors", ()):
        if (found := _ROW.match(one["pointer"])) is not None:
            there = f"{found[1]}{int(found[2]) + rows}{found[3]}"
            error.detail = error.detail.replace(f"{one['pointer']}: ", f"{there}: ", 1)
            one["pointer"] = there
    error.args = (error.detail,)


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]


def _shown(parts: Sequence[slice], rounds: int, name: str, *, is_shown: bool) -> Any:
    """With a progress bar in the terminal or notebook."""
    if not is_shown:
        return parts
    from rich.progress import track

    return track(parts, description=f"{name}: {rounds:,} rounds")
