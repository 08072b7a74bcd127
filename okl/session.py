"""A session as an object: ids are made and kept, so that what was not answered can be sent again."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from okl.answers import Learned, Played, Prediction
from okl.errors import SessionExists, passes
from okl.stream import Stream
from okl.values import as_list, column, rows

if TYPE_CHECKING:
    from okl.client import Client

BLOCK: Final = 1_000
"""Rounds of one request."""

T = TypeVar("T")


class Session:
    """A session of a service; made by `Client.session`.

    Each round has an id from the first request on. A request that fails in a way that passes (nobody answers, the store is
    away, the worker stops, the rate is used up) is sent again with the same id for `again_for_s` seconds, and learned once.

        with okl.Client() as client:
            clicks = client.session("clicks", labels=["no", "yes"])
            prediction = clicks.predict({"page": "home", "seconds": 4.2})
            clicks.update(prediction, "yes")
    """

    again_for_s: float = 30.0

    def __init__(
        self, client: Client, name: str, learner: Mapping[str, Any] | str | None, settings: Mapping[str, Any]
    ) -> None:
        """Raises the ServiceError that refuses the definition of a new session."""
        self.client = client
        self.name = name
        self._prefix = secrets.token_urlsafe(9)
        self._count = itertools.count()
        if learner is not None or settings:
            self._again(lambda: self._make(learner, settings))

    def __repr__(self) -> str:
        return f"Session({self.name!r}, {self.client.url!r})"

    def predict(self, x: Any, *, wait: bool = True) -> Prediction:
        """The forecast for one input. `wait=False`: no truth will come."""
        id = self._new_id() if wait else None
        return Prediction.of(self._again(lambda: self.client.predict(self.name, x, id=id, wait=wait)))

    def update(self, prediction: Prediction | str, y: Any, *, weight: float = 1.0) -> Learned:
        """Report the truth of a prediction, or of the id of one."""
        id = _id_of(prediction)
        return Learned.of(self._again(lambda: self.client.update(self.name, y, id=id, weight=weight)))

    def learn(self, x: Any, y: Any, *, weight: float = 1.0) -> Learned:
        """One round whose truth is known already."""
        id = self._new_id()
        return Learned.of(self._again(lambda: self.client.update(self.name, y, id=id, x=x, weight=weight)))

    def step(self, prediction: Prediction | str, y: Any, next_x: Any) -> tuple[Learned, Prediction]:
        """The truth of one round and the forecast of the next, in one request. Raises what refuses either."""
        id, following = _id_of(prediction), self._new_id()
        told = self._again(lambda: self.client.step(self.name, y, id=id, next_x=next_x, next_id=following))
        learned = Learned.of(told["update"])
        if "refused" in told:
            # The truth was taken: what refuses the prediction is raised by asking for it alone.
            return learned, self.predict(next_x)
        return learned, Prediction.of(told["predict"])

    def play(self, X: Any, y: Any, *, progress: bool = False) -> Played:
        """Many rounds in order, each forecast before it is learned, in requests of 1,000.

        X is a list of inputs or a frame with a row each, y a list or a column of as many truths.
        """
        inputs, truths = rows(X), column(y)
        if len(inputs) != len(truths):
            raise ValueError(f"there are {len(inputs)} inputs and {len(truths)} truths")
        parts: list[Played] = []
        for start in _shown(range(0, len(truths), BLOCK), len(truths), self.name, is_shown=progress):
            part, id = slice(start, start + BLOCK), self._new_id()
            found = self._again(
                lambda part=part, id=id: self.client.rounds(self.name, inputs[part], truths[part], id=id)
            )
            parts.append(Played.of(found))
        return Played.joined(parts)

    def predict_many(self, xs: Any) -> list[Prediction]:
        """Forecasts at this moment, at most 1,000; no truth is expected."""
        found = self._again(lambda: self.client.predict_many(self.name, xs, wait=False))
        return [Prediction.of(one | {"session": self.name}) for one in as_list(found)]

    def stream(self) -> Stream:
        """A socket, for many rounds under way at once; a context manager."""
        return self.client.stream(self.name)

    def describe(self) -> dict[str, Any]:
        """What `GET /sessions/{session}` tells: learner, settings, metrics, verdict, fields."""
        return self._again(lambda: self.client.inspect(self.name))

    def history(self) -> dict[str, Any]:
        return self._again(lambda: self.client.history(self.name))

    def delete(self) -> None:
        self.client.delete(self.name)

    def _make(self, learner: Mapping[str, Any] | str | None, settings: Mapping[str, Any]) -> None:
        try:
            self.client.create(self.name, learner, **settings)
        except SessionExists:
            return

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._count)}"

    def _again(self, call: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception(passes),
            stop=stop_after_delay(self.again_for_s),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        return retrying(call)


def _id_of(prediction: Prediction | str) -> str:
    """Raises ValueError where it does not wait for its truth."""
    id = prediction.id if isinstance(prediction, Prediction) else prediction
    if id is None:
        raise ValueError("this prediction was made with wait=False; `learn` takes its input with the truth")
    return id


def _shown(starts: range, rounds: int, name: str, *, is_shown: bool) -> Any:
    """With a progress bar in the terminal or notebook."""
    if not is_shown:
        return starts
    from rich.progress import track

    return track(starts, description=f"{name}: {rounds:,} rounds")
