"""One connection of a Redis store with the task that uses it, and the calls that it carries."""

from __future__ import annotations

import asyncio
import math
from typing import Any, final

from redis.asyncio.connection import AbstractConnection


@final
class LaneCall:
    """A call: `packed` is one command with one reply, or `commands` commands whose replies are a list."""

    __slots__ = ("commands", "deadline", "is_write", "packed", "reply")

    def __init__(
        self, packed: bytes, deadline: float, is_write: bool, reply: asyncio.Future[Any], commands: int | None = None
    ) -> None:
        self.commands = commands
        self.packed = packed
        self.deadline = deadline
        self.is_write = is_write
        self.reply = reply

    def answer(self, reply: Any) -> None:
        """Errors are set as results too, so that asyncio does not complain if the caller is gone."""
        if not self.reply.done():
            self.reply.set_result(reply)


@final
class Lane:
    """A connection. `carrier` is the task that uses it; its exchange is broken off at `due`, for the reason `broken_by`.

    Others may cancel the carrier too: `cancelling` counts the cancellations before its exchange, `breaks` those by the lane.
    """

    __slots__ = ("breaks", "broken_by", "cancelling", "carrier", "connection", "due", "epoch")

    def __init__(self) -> None:
        self.connection: AbstractConnection | None = None
        self.epoch = 0
        self.carrier: asyncio.Task[Any] | None = None
        self.cancelling = self.breaks = 0
        self.due = math.inf
        self.broken_by: Exception | None = None

    def taken_by(self, carrier: asyncio.Task[Any] | None) -> None:
        assert carrier is not None
        self.carrier, self.cancelling = carrier, carrier.cancelling()

    def break_off(self, error: Exception) -> None:
        """Cancel the carrier's wait. The driver may swallow that (wait_for of Python 3.11); then the next tick repeats it."""
        if self.carrier is not None:
            self.broken_by = error
            self.breaks += 1
            self.carrier.cancel()

    def settle(self) -> bool:
        """End the exchange. Return whether somebody else cancelled the carrier."""
        self.due, self.broken_by = math.inf, None
        if self.carrier is None:
            return False
        for _ in range(self.breaks):
            self.carrier.uncancel()
        self.breaks = 0
        return self.carrier.cancelling() > self.cancelling
