"""A session that is missed may be one that a template makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from okl.errors import ServiceError, SessionNotFound

from ..session.requests import Batch, Follow, Report
from .tickets import Look, Ticket

Make = Callable[[str], Awaitable[bool]]
"""Makes the session of this name, if there is a template for it. Raises ServiceError."""


async def refusal_after(
    error: ServiceError, name: str, taken: Sequence[Ticket | Look], make: Make | None
) -> ServiceError | None:
    """What the requests of a turn are refused with that met this error; None where the session that they missed is there
    now."""
    tickets = [ticket for ticket in taken if isinstance(ticket, Ticket)]
    if not isinstance(error, SessionNotFound) or make is None or not any(_begins(ticket) for ticket in tickets):
        return error
    try:
        if not await make(name):
            return error
    except ServiceError as refused:
        return refused
    for ticket in tickets:
        # That was of a session that had the name before.
        ticket.known.clear()
    return None


def _begins(ticket: Ticket) -> bool:
    """Can it be done in a session that is new? The truth of a prediction made before cannot, nor what is for a known tip."""
    match ticket.parts[0]:
        case Report(x=x):
            return x is not None
        case Batch(at=at):
            return at is None
        case part:
            return not isinstance(part, Follow)
