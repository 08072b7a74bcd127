"""Talks with one session: typed answers, and ids that are generated once and kept across retries."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, final

from okl.answers import Answer, Learned, Played, Prediction, Predictions, id_of
from okl.errors import PayloadTooLarge, ServiceError, SessionExists
from okl.forks import Ids
from okl.frames import Form
from okl.routes import ROUTES, Learner, Routes
from okl.talks import Talk, like
from okl.values import Json, rows, truths

BLOCK: Final = 1_000
"""Most rounds of one request; fewer if the service finds that too large."""

T = TypeVar("T")
P = ParamSpec("P")

_ROW: Final = re.compile(r"(/(?:x|y|weight)/)(\d+)(.*)")
"""A pointer into a row of a request."""


def _of_session(route: Callable[Concatenate[Routes, str, P], Talk[T]]) -> Callable[Concatenate[Rounds, P], Talk[T]]:
    """The talk of a route with the name of the session filled in."""

    def talk(self: Rounds, *args: P.args, **kwargs: P.kwargs) -> Talk[T]:
        return route(ROUTES, self.name, *args, **kwargs)

    of_route = inspect.signature(route)
    others = [parameter for name, parameter in of_route.parameters.items() if name != "session"]
    return like(talk, route, of_route.replace(parameters=others))


@dataclass(frozen=True, slots=True)
class _Step(Answer):
    """The answer to a step; its prediction may be refused."""

    update: Json
    predict: Json | None = None
    refused: Json | None = None


@final
class Rounds:
    """The talks behind the methods of `Session` and `AsyncSession`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ids = Ids()
        self._most = BLOCK

    def make(self, learner: Learner | None, settings: Mapping[str, Any]) -> Talk[None]:
        """Create the session unless it exists, if a learner or settings are given."""
        if learner is None and not settings:
            return
        try:
            yield from ROUTES.create(self.name, learner, **settings)
        except SessionExists:
            return

    def predict(self, x: Any, *, wait: bool = True) -> Talk[Prediction]:
        """Forecast one input. `wait=False`: no truth will be reported."""
        id = self._ids.new() if wait else None
        return Prediction.of((yield from ROUTES.predict(self.name, x, id=id, wait=wait)))

    def update(self, prediction: Prediction | str, y: Any, *, weight: float = 1.0) -> Talk[Learned]:
        """Report the truth of a prediction, given as an object or by its id."""
        id = id_of(prediction)
        return Learned.of((yield from ROUTES.update(self.name, y, id=id, weight=weight)))

    def learn(self, x: Any, y: Any, *, weight: float = 1.0) -> Talk[Learned]:
        """Learn one round whose truth is already known."""
        id = self._ids.new()
        return Learned.of((yield from ROUTES.update(self.name, y, id=id, x=x, weight=weight)))

    def step(self, prediction: Prediction | str, y: Any, next_x: Any) -> Talk[tuple[Learned, Prediction]]:
        """Report one truth and forecast the next input in one request. Raises the error of whichever part is rejected."""
        id, following = id_of(prediction), self._ids.new()
        made = _Step.of((yield from ROUTES.step(self.name, y, id=id, next_x=next_x, next_id=following)))
        learned = Learned.of(made.update)
        if made.refused is not None:
            # The truth was learned; asking for the prediction alone raises its error.
            return learned, (yield from self.predict(next_x))
        return learned, Prediction.of(made.predict)

    def play(self, X: Any, y: Any, *, weight: Any = None, progress: bool = False) -> Talk[Played]:
        """Play many rounds in order, each forecast before it is learned, in requests of 1,000.

        X is a list of inputs or a data frame, y a list or column of as many truths, `weight` of as many weights.
        """
        inputs, known, weights = rows(X), truths(y), None if weight is None else truths(weight, "/weight")
        if len(inputs) != len(known):
            raise ValueError(f"there are {len(inputs)} inputs and {len(known)} truths")
        if weights is not None and len(inputs) != len(weights):
            raise ValueError(f"there are {len(inputs)} inputs and {len(weights)} weights")
        parts: list[Played] = []
        for part in _shown(_parts(len(known)), len(known), self.name, is_shown=progress):
            own = None if weights is None else weights[part]
            parts += yield from self.blocks(inputs[part], known[part], part.start, own)
        return Played.joined(parts, Form.of(X))

    def blocks(
        self, X: Sequence[Any], y: Sequence[Any], before: int, weights: Sequence[Any] | None = None
    ) -> Talk[list[Played]]:
        """Play rounds in as few requests as the service accepts; `before` rounds of the same call preceded them."""

        def learned(part: slice) -> Talk[Played]:
            id, own = self._ids.new(), None if weights is None else weights[part]
            try:
                return Played.of((yield from ROUTES.rounds(self.name, X[part], y[part], id=id, weight=own)))
            except ServiceError as error:
                if known := before + part.start:
                    error.add_note(f"The {known:,} rounds before those of this request were learned.")
                _move(error, known)
                raise

        return (yield from self._halved(slice(0, len(y)), learned))

    def predict_many(self, xs: Any) -> Talk[Predictions]:
        """Forecast a list of inputs or the rows of a data frame, in requests of 1,000, without expecting truths.

        The forecasts of one request are made at the same round.
        """
        inputs, predictions = rows(xs), list[Prediction]()

        def predicted(part: slice) -> Talk[list[Json]]:
            try:
                return (yield from ROUTES.predict_many(self.name, inputs[part], wait=False))
            except ServiceError as error:
                _move(error, part.start)
                raise

        for part in _parts(len(inputs)):
            for block in (yield from self._halved(part, predicted)):
                predictions += [Prediction.of(answer | {"session": self.name}) for answer in block]
        return Predictions(predictions, Form.of(xs))

    def _halved(self, rows: slice, ask: Callable[[slice], Talk[T]]) -> Talk[list[T]]:
        """The answers for these rows, which are halved as often as they are too large for one request."""
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
        """Learner, settings, metrics, verdict and fields: the answer of `GET /sessions/{session}`."""
        return (yield from ROUTES.inspect(self.name))

    history = _of_session(Routes.history)
    last_rounds = _of_session(Routes.last_rounds)
    waiting = _of_session(Routes.waiting)
    cancel = _of_session(Routes.cancel)
    delete = _of_session(Routes.delete)
    freeze = _of_session(Routes.freeze)
    clone = _of_session(Routes.clone)
    snapshot = _of_session(Routes.snapshot)
    put_snapshot = _of_session(Routes.put_snapshot)
    checkpoint = _of_session(Routes.checkpoint)
    checkpoints = _of_session(Routes.checkpoints)
    delete_checkpoint = _of_session(Routes.delete_checkpoint)
    roll_back = _of_session(Routes.roll_back)
    attach = _of_session(Routes.attach)
    challengers = _of_session(Routes.challengers)
    challenger = _of_session(Routes.challenger)
    detach = _of_session(Routes.detach)
    promote = _of_session(Routes.promote)


def _move(error: ServiceError, rows: int) -> None:
    """Shift the pointers of an error by `rows`, from rows of the request to rows of the call."""
    for problem in error.extra.get("errors", ()):
        if (match := _ROW.match(problem["pointer"])) is not None:
            pointer = f"{match[1]}{int(match[2]) + rows}{match[3]}"
            error.detail = error.detail.replace(f"{problem['pointer']}: ", f"{pointer}: ", 1)
            problem["pointer"] = pointer
    error.args = (error.detail,)


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]


def _shown(parts: Sequence[slice], rounds: int, name: str, *, is_shown: bool) -> Any:
    """The parts, wrapped in a progress bar if `is_shown`."""
    if not is_shown:
        return parts
    from rich.progress import track

    return track(parts, description=f"{name}: {rounds:,} rounds")
