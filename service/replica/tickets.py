"""Requests at a session, each with its future answer: what is known under their ids, and how they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from okl.errors import Overloaded, ServiceError, passes

from ..session.codec import WaitingEntry
from ..session.requests import Answers, Batch, Excerpt, Part, Question, RoundsPlayed, Updated
from ..session.session import Session
from ..session.turn import Outcome, Position, ResultOf
from ..store.base import Applied, Head, Waiting
from .replica import Replica


@final
class Sender:
    """A sender with several requests under way, which are served in order.

    Once one is refused with a retryable error (`refused`), so are those after it, and the sender resends from that one.
    `latest` is the answer to the last request sent.
    """

    __slots__ = ("latest", "refused")

    def __init__(self) -> None:
        self.refused: Exception | None = None
        self.latest: asyncio.Future[Answers] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the last request sent is still unanswered."""
        return self.latest is not None and not self.latest.done()


@final
class Ticket:
    """A request in the queue: its parts are played one after the other, in one commit.

    `asked` are the ids of its predictions, `settled` those of its truths; `known` is what the store holds under them.
    `deadline`: the time by which the client must be answered. `is_alone`: whether it needs a turn of its own.
    `may_repeat`: whether its turn failed because the store knew an id of it, so that all its ids must be looked up.
    """

    __slots__ = (
        "answer",
        "asked",
        "deadline",
        "ids",
        "is_alone",
        "known",
        "may_repeat",
        "parts",
        "rounds",
        "sender",
        "settled",
    )

    def __init__(
        self,
        parts: Sequence[Part],
        deadline: float,
        answer: asyncio.Future[Answers],
        sender: Sender | None = None,
    ) -> None:
        self.sender = sender
        self.parts = parts
        self.deadline = deadline
        self.answer = answer
        self.asked = {part.id for part in parts if isinstance(part, Question) and part.id is not None}
        self.settled = {part.id for part in parts if not isinstance(part, Question) and part.id is not None}
        first = parts[0]
        if isinstance(first, Batch):
            self.settled |= first.kin
        self.ids = self.asked | self.settled
        self.known: dict[str, Waiting | Applied | None] = {}
        self.may_repeat = False
        if isinstance(first, Excerpt):
            self.settled = set(first.late_ids)
            self.ids |= self.settled
        self.is_alone = isinstance(first, Batch | Excerpt)
        self.rounds = sum([_rounds_of(part) for part in parts])

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            if self.sender is not None and passes(error):
                self.sender.refused = error


def _rounds_of(part: Part) -> int:
    if isinstance(part, Batch):
        return len(part.y)
    return part.rounds if isinstance(part, Excerpt) else 1


@final
class SessionCall:
    """A request to inspect a session at the store's present tip: the answer is what `work` returns."""

    __slots__ = ("answer", "deadline", "work")
    asked = settled = ids = frozenset[str]()
    is_alone = True

    def __init__(
        self, work: Callable[[Session, Head, Position], Any], deadline: float, answer: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.deadline = deadline
        self.answer = answer

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


Queued = Ticket | SessionCall
"""A request in a session's queue."""

TicketAnswers = list[tuple[Ticket, list[ResultOf] | ServiceError]]
"""The requests of a turn, each with the answers to its parts, or the error that refuses it."""


def too_late(name: str) -> Overloaded:
    return Overloaded(f"Session {name!r} was busy for too long; try again.", session=name)


def still_open(replica: Replica, taken: Sequence[Queued]) -> list[Queued]:
    """Refuse requests that took too long, or whose sender was refused, and return those without an answer."""
    now = asyncio.get_running_loop().time()
    for ticket in taken:
        refused = ticket.sender.refused if isinstance(ticket, Ticket) and ticket.sender is not None else None
        if refused is not None or ticket.deadline <= now:
            ticket.refuse(refused or too_late(replica.name))
    return [ticket for ticket in taken if not ticket.answer.done()]


def known_under(replica: Replica, tickets: Sequence[Ticket]) -> dict[str, WaitingEntry | Waiting | Applied | None]:
    """Return what the ids of the tickets hold: what the store found, else a prediction of this worker."""
    known: dict[str, WaitingEntry | Waiting | Applied | None] = {}
    for ticket in tickets:
        for id in ticket.ids:
            if (prediction := replica.waiting.get(id)) is not None:
                known[id] = prediction.entry
        known |= ticket.known
    return known


def answer_ticket(ticket: Ticket, results_of: list[ResultOf] | ServiceError, outcomes: Mapping[str, Outcome]) -> bool:
    """Answer a ticket whose turn is durable, given the outcomes of the turn's holds. Return whether it was a duplicate."""
    if ticket.answer.done():
        return False
    if isinstance(results_of, ServiceError):
        ticket.refuse(results_of)
        return False
    results: Answers = []
    for result_of in results_of:
        try:
            results.append(result_of(outcomes))
        except ServiceError as error:
            results.append(error)
        except Exception as error:
            # The turn is durable: what is wrong with this answer must not cost the others theirs.
            ticket.refuse(error)
            return False
    ticket.answer.set_result(results)
    first = results[0]
    return isinstance(first, Updated | RoundsPlayed) and first.is_duplicate
