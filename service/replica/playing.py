"""Playing the requests of one turn, without keeping the event loop from other sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from okl.errors import ServiceError
from okl_core.errors import OklError

from ..session.refusals import refusal
from ..session.turn import ResultOf, Turn, Unasked
from .replay import failed
from .replica import Replica
from .scheduling import THREAD_FROM_S, Scheduler
from .tickets import Ticket, TicketAnswers


async def play_turn(
    scheduler: Scheduler, replica: Replica, turn: Turn, tickets: Sequence[Ticket]
) -> tuple[TicketAnswers, tuple[Ticket, ServiceError] | None]:
    """Return each ticket's answers or error, and the ticket that failed half-way, if any, which voids the turn.

    The last tickets are left for another turn if time is up, or if one needs a lookup first.
    """
    played: TicketAnswers = []
    time = scheduler.turn_time()

    def work() -> tuple[Ticket, ServiceError | OklError] | None:
        for ticket in time.within(share):
            try:
                turn.learn()
            except OklError as error:
                return played[-1][0], refusal(error, replica.name) or error
            results_of: list[ResultOf] = []
            try:
                for part in ticket.parts:
                    results_of.append(turn.play(part))
            except Unasked:
                return None
            except (ServiceError, OklError) as error:
                if results_of or ticket.is_alone or not isinstance(error, ServiceError):
                    return ticket, error
                played.append((ticket, error))
            else:
                played.append((ticket, results_of))
        return None

    def done() -> int:
        return sum([ticket.rounds for ticket, _ in played])

    for share in _shares(tickets, replica):
        before = len(played)
        rounds, whole = sum([ticket.rounds for ticket in share]), max([ticket.rounds for ticket in share])
        is_long = turn.session.has_long_round(rounds + turn.is_pending)
        void = await scheduler.rounds(replica, work, rounds, is_long=is_long, whole=whole, done=done)
        if void is not None:
            ticket, error = void
            return [], (ticket, error if isinstance(error, ServiceError) else failed(replica.name, turn.session, error))
        if len(played) < before + len(share):
            break
    return played, None


def _shares(tickets: Sequence[Ticket], replica: Replica) -> Iterator[Sequence[Ticket]]:
    """Divide a turn into shares that are short enough for the event loop, and tickets that are not.

    A thread for the whole turn would compete with the event loop for the interpreter, and both would be slow.
    """
    share: list[Ticket] = []
    rounds = 0
    for ticket in tickets:
        rounds += ticket.rounds
        if share and rounds * replica.round_s > THREAD_FROM_S:
            yield share
            share, rounds = [], ticket.rounds
        share.append(ticket)
    yield share
