"""One client of a run: a seeded mix of requests, each to another worker, and what it does when one is not answered."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, final

from bench.history.allotment import Allotment
from bench.history.attempts import REFUSED, Action, Attempt
from bench.history.final import PROBES
from bench.history.inputs import input_of, truth_of
from bench.history.raw_http import Heard
from bench.history.streamed import connection

TIMEOUT_S = 15.0
PERSISTENCE_S = 60.0
"""For so long a request is sent again and again; then it is abandoned."""

MIX: Mapping[str, float] = {
    "predict": 30,
    "settle": 10,
    "direct": 20,
    "anonymous": 4,
    "step": 25,
    "block": 1.5,
    "look": 5,
    "again": 5,
}
MOST_OPEN = 5
"""Predictions of a client that wait for their truth."""

REMEMBERED = 30
"""Acknowledged requests of which now and then one is sent again, long after."""

AT_ONCE_AGAIN, ABANDONED, OWN_ID, SETTLED_AT_ONCE, IN_PATH = 0.1, 0.05, 0.5, 0.75, 0.5
"""How often: an acknowledged request is sent again at once; an unanswered one never again; a client makes the id; the truth
follows the prediction; the session is in the path."""


@dataclass(slots=True)
class Errand:
    """A request to be sent, once or more. `body` has everything but the session."""

    action: Action
    session: str
    body: dict[str, Any]
    id: str | None = None
    serials: tuple[int, ...] = ()
    asked: int | None = None
    given: float | None = None
    is_again: bool = False
    worker: int = -1
    """Where it was sent last."""


@dataclass(slots=True)
class Opened:
    """A prediction that waits for its truth."""

    session: str
    serial: int
    id: str
    value: float
    worker: int


@final
@dataclass
class Caller:
    """Runs in a thread of its own."""

    number: int
    seed: int
    ports: Sequence[int]
    began: float
    allotment: Allotment
    sessions: Sequence[str]
    transport: str = "requests"
    attempts: list[Attempt] = field(default_factory=list)
    abandoned: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._dice = Random(f"{self.seed}-{self.number}")
        self._connections = [
            connection(port, self.began, TIMEOUT_S, self.transport, self.number) for port in self.ports
        ]
        self._opened: deque[Opened] = deque()
        self._done: deque[Errand] = deque(maxlen=REMEMBERED)
        self._ids = 0

    def run(self) -> None:
        try:
            while not self.allotment.is_used_up:
                if self.allotment.is_held:
                    self._look()
                    time.sleep(0.05)
                else:
                    (act,) = self._dice.choices(list(MIX), list(MIX.values()))
                    getattr(self, f"_{act}")()
            while self._opened:
                self._settle()
        except BaseException as error:
            self.error = error
        finally:
            for connection in self._connections:
                connection.close()

    # -- what a client does -------------------------------------------------------------------------------------------

    def _predict(self) -> None:
        taken = self.allotment.take(self._dice)
        if taken is None:
            return
        self._ask(taken.session, taken.serials[0])
        if self._dice.random() < SETTLED_AT_ONCE or len(self._opened) > MOST_OPEN:
            self._settle()

    def _ask(self, session: str, serial: int) -> None:
        own = self._new_id() if self._dice.random() < OWN_ID else None
        body = {"x": input_of(serial)} | ({} if own is None else {"id": own})
        self._open(self._insist(Errand("predict", session, body, asked=serial)))

    def _open(self, answered: Attempt | None) -> None:
        if answered is not None and answered.asked_id is not None:
            assert answered.asked is not None
            assert answered.value is not None
            opened = Opened(answered.session, answered.asked, answered.asked_id, answered.value, answered.worker)
            self._opened.append(opened)

    def _settle(self) -> None:
        if self._opened:
            opened = self._opened.popleft()
            self._acknowledge(self._settling("update", opened))

    def _settling(self, action: Action, opened: Opened) -> Errand:
        body = {"id": opened.id, "y": truth_of(opened.serial)}
        serials = (opened.serial,)
        return Errand(action, opened.session, body, opened.id, serials, given=opened.value, worker=opened.worker)

    def _direct(self) -> None:
        taken = self.allotment.take(self._dice)
        if taken is not None:
            self._acknowledge(self._reporting(taken.session, taken.serials[0], self._new_id()))

    def _anonymous(self) -> None:
        taken = self.allotment.take(self._dice)
        if taken is not None:
            self._acknowledge(self._reporting(taken.session, taken.serials[0], None))

    def _reporting(self, session: str, serial: int, id: str | None) -> Errand:
        body = {"x": input_of(serial), "y": truth_of(serial)} | ({} if id is None else {"id": id})
        return Errand("update", session, body, id, (serial,))

    def _step(self) -> None:
        """The truth of a prediction that waits, or of an input that comes with it; and the next prediction."""
        if self._opened:
            told = self._settling("step", self._opened.popleft())
        else:
            taken = self.allotment.take(self._dice)
            if taken is None:
                return
            told = self._reporting(taken.session, taken.serials[0], self._new_id())
        following = self.allotment.take(self._dice, session=told.session)
        if following is None:
            told.action = "update"
            self._acknowledge(told)
            return
        (serial,) = following.serials
        body = {"update": told.body, "predict": {"x": input_of(serial), "id": self._new_id()}}
        errand = Errand("step", told.session, body, told.id, told.serials, serial, told.given, worker=told.worker)
        self._open(self._acknowledge(errand))

    def _block(self) -> None:
        taken = self.allotment.take(self._dice, self._dice.randint(2, 30))
        if taken is None:
            return
        id = self._new_id() if self._dice.random() < 0.75 else None
        body: dict[str, Any] = {
            "x": [input_of(one) for one in taken.serials],
            "y": [truth_of(one) for one in taken.serials],
        }
        self._acknowledge(Errand("rounds", taken.session, body | ({} if id is None else {"id": id}), id, taken.serials))

    def _look(self) -> None:
        serial = self._dice.choice(PROBES)
        body = {"x": input_of(serial), "wait": False}
        self._insist(Errand("predict", self._dice.choice(self.sessions), body, asked=serial))

    def _again(self) -> None:
        """What was acknowledged long ago; nobody insists."""
        if self._done:
            self._send(self._dice.choice(self._done))

    # -- how it does it -----------------------------------------------------------------------------------------------

    def _acknowledge(self, errand: Errand) -> Attempt | None:
        answered = self._insist(errand)
        if answered is not None and errand.id is not None:
            if errand.action == "step":
                # Its prediction may be settled when it is sent again: then it would be another request.
                body = errand.body["update"]
                errand = Errand(
                    "update", errand.session, body, errand.id, errand.serials, given=errand.given, is_again=True
                )
            self._done.append(errand)
            if self._dice.random() < AT_ONCE_AGAIN:
                self._send(errand)
        return answered

    def _insist(self, errand: Errand) -> Attempt | None:
        """The answer, after as many tries as it takes; None for a request that is refused, or abandoned."""
        deadline = time.monotonic() + PERSISTENCE_S
        while True:
            attempt = self._send(errand)
            if attempt.is_answered:
                return attempt
            if attempt.problem == "prediction-not-found" and errand.given is not None and not math.isnan(errand.given):
                self._give_input(errand)
                continue
            is_passing = attempt.status in (None, 503, 504) or attempt.problem == "session-not-found"
            if not is_passing:
                return None
            can_repeat = errand.id is not None or not errand.serials or not attempt.may_have_run
            gives_up = attempt.problem != REFUSED and self._dice.random() < ABANDONED
            if not can_repeat or gives_up or time.monotonic() > deadline:
                self.abandoned += 1
                return None
            time.sleep(self._dice.uniform(0.02, 0.3))

    def _give_input(self, errand: Errand) -> None:
        """The prediction was lost with the store's data: the truth comes with its input."""
        told = errand.body["update"] if errand.action == "step" else errand.body
        told["x"] = input_of(errand.serials[0])
        errand.given = math.nan

    def _send(self, errand: Errand) -> Attempt:
        """One request, to another worker than the last one of its kind."""
        workers = [worker for worker in range(len(self.ports)) if worker != errand.worker]
        worker = errand.worker = self._dice.choice(workers or [0])
        if errand.action == "rounds" or self._dice.random() < IN_PATH:
            path, body = f"/sessions/{errand.session}/{errand.action}", errand.body
        else:
            path, body = f"/{errand.action}", {"session": errand.session} | errand.body
        heard = self._connections[worker].request("POST", path, body)
        attempt = _attempt(errand, worker, heard)
        self.attempts.append(attempt)
        if attempt.problem != REFUSED:
            errand.is_again = True
        return attempt

    def _new_id(self) -> str:
        self._ids += 1
        return f"c{self.number}-{self._ids}"


def _attempt(errand: Errand, worker: int, heard: Heard) -> Attempt:
    attempt = Attempt(
        errand.action,
        errand.session,
        worker,
        heard.sent,
        heard.ended,
        heard.status,
        heard.problem,
        errand.id,
        errand.serials,
        errand.asked,
        given=errand.given,
        is_again=errand.is_again,
    )
    if heard.status is None or heard.status >= 300:
        attempt.detail = str(heard.body.get("detail", "")) if isinstance(heard.body, dict) else str(heard.body or "")
        return attempt
    body = heard.body
    learned = body["update"] if errand.action == "step" else body
    if errand.serials:
        attempt.t, attempt.loss, attempt.is_duplicate = learned["t"], learned["loss"], learned["duplicate"]
        attempt.values = tuple(learned.get("values", ()))
    predicted = body.get("predict") if errand.action == "step" else body
    if errand.asked is not None and predicted is not None:
        attempt.predicted_t, attempt.value = predicted["t"], predicted["value"]
        attempt.asked_id = predicted.get("id")
    return attempt
