"""Clients that play a stream's events in order, retry each update until it is answered, and account for the answers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from okl.client import Client
from okl.errors import ServiceError, StateCorrupt, Unreachable

from .flights_data import Event, Flight

CLIENTS = 8
PATIENCE_S = 60.0
ANSWER_S = 10.0
REQUESTS_A_CONNECTION = 30
"""After these a client reconnects, as the system assigns a connection to a worker for its whole life."""

LATE, DELAY = "flights-late", "flights-delay"
SESSIONS = (LATE, DELAY)


@dataclass(slots=True)
class Account:
    """The answers to the clients. `rounds` has each session's rounds of acknowledged updates, by flight number."""

    rounds: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in SESSIONS})
    duplicates: int = 0
    cut: int = 0
    """Requests that were sent again because their answer was lost."""
    mistakes: int = 0
    done: int = 0

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.rounds.values()))


def truth(session: str, flight: Flight) -> Any:
    if session == DELAY:
        return flight.delay
    return "late" if flight.is_late else "on time"


@final
class Crew:
    """Each update is sent `times` times. With `is_waited` predictions wait for it; otherwise it repeats its input."""

    def __init__(self, url: str, events: Sequence[Event], *, times: int, is_waited: bool) -> None:
        self.account = Account()
        self._url = url
        self._events = iter(events)
        self._times = times
        self._is_waited = is_waited
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._asked = {event.flight.number: threading.Event() for event in events}
        self._labels: dict[int, Any] = {}

    def play(self, look: Callable[[Account], None]) -> None:
        """Play all events; `look` is called periodically, in this thread."""
        threads = [threading.Thread(target=self._client) for _ in range(CLIENTS)]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and not self._errors:
                time.sleep(0.1)
                look(self.account)
        finally:
            self._stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._errors:
            raise self._errors[0]

    def _client(self) -> None:
        connection = _Connection(self._url, self._stop)
        try:
            for event in self._following():
                if event.has_landed:
                    self._report(connection, event.flight)
                else:
                    self._ask(connection, event.flight)
                with self._lock:
                    self.account.done += 1
        except _Stopped:
            pass
        except BaseException as error:
            self._errors.append(error)
        finally:
            connection.close()
            with self._lock:
                self.account.cut += connection.cut

    def _following(self) -> Iterator[Event]:
        while not self._stop.is_set():
            with self._lock:
                event = next(self._events, None)
            if event is None:
                return
            yield event

    def _ask(self, connection: _Connection, flight: Flight) -> None:
        for session in SESSIONS:
            answer = connection.send(lambda okl, s=session: okl.predict(s, flight.x, id=_id(flight)))
            if session == LATE:
                self._labels[flight.number] = answer.get("label")
        self._asked[flight.number].set()

    def _report(self, connection: _Connection, flight: Flight) -> None:
        """Report the truth, once the client that asks for the prediction has its answer."""
        while not self._asked[flight.number].wait(0.1):
            if self._stop.is_set():
                raise _Stopped
        x = None if self._is_waited else flight.x
        for _ in range(self._times):
            for session in SESSIONS:
                y = truth(session, flight)
                answer = connection.send(lambda okl, s=session, y=y: okl.update(s, y, id=_id(flight), x=x))
                with self._lock:
                    self.account.rounds[session].setdefault(flight.number, answer["t"])
                    self.account.duplicates += answer.get("duplicate", False)
        with self._lock:
            self.account.mistakes += (self._labels[flight.number] == "late") != flight.is_late


def _id(flight: Flight) -> str:
    return f"flight-{flight.number}"


class _Stopped(Exception):
    """The demonstration is being stopped."""


class _Connection:
    """A connection that retries until there is an answer."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.cut = 0
        self._url = url
        self._stop = stop
        self._client = Client(url, timeout_s=ANSWER_S)
        self._used = 0

    def close(self) -> None:
        self._client.close()

    def send(self, call: Callable[[Client], dict[str, Any]]) -> dict[str, Any]:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            if self._stop.is_set():
                raise _Stopped
            if self._used >= REQUESTS_A_CONNECTION:
                self._connect()
            self._used += 1
            try:
                return call(self._client)
            except Unreachable:
                self._connect()
                if time.monotonic() > give_up:
                    raise
            except ServiceError as error:
                if error.status < 500 or isinstance(error, StateCorrupt) or time.monotonic() > give_up:
                    raise
            self.cut += 1
            time.sleep(0.05)

    def _connect(self) -> None:
        self._client.close()
        self._client, self._used = Client(self._url, timeout_s=ANSWER_S), 0


def learned_by_usual(client: Client, session: str) -> Counter[int]:
    """The number of times that the usual way's model has learned each flight."""
    return Counter({int(number): count for number, count in client.inspect(session)["times"].items()})
