"""Creation of a missing session from a template, on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from okl.errors import ServiceError, SessionNotFound

from ..session.requests import Batch, Excerpt, Report
from .tickets import Queued, Ticket

Make = Callable[[str], Awaitable[bool]]
"""Makes the session of this name; False if there is no template for it. Raises ServiceError."""


async def make_missing(
    error: ServiceError, name: str, taken: Sequence[Queued], make: Make | None
) -> ServiceError | None:
    """Make the missing session of a failed turn. Return the error that refuses its requests, None if it exists now."""
    tickets = [ticket for ticket in taken if isinstance(ticket, Ticket)]
    if not isinstance(error, SessionNotFound) or make is None or not any(_begins(ticket) for ticket in tickets):
        return error
    try:
        if not await make(name):
            return error
    except ServiceError as refused:
        return refused
    for ticket in tickets:
        # Lookups of an earlier session of this name are void.
        ticket.known.clear()
    return None


def _begins(ticket: Ticket) -> bool:
    """Whether a new session can serve the request: not the truth of an earlier prediction, nor rounds for a known tip."""
    match ticket.parts[0]:
        case Report(x=x):
            return x is not None
        case Batch(if_tip=if_tip):
            return if_tip is None
        case part:
            return not isinstance(part, Excerpt)
