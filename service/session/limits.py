"""The limits of one session: inputs, memory, the time that a prediction waits, the size of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import to_json

from okl.errors import PayloadTooLarge, SessionFull
from okl_core.errors import ConfigError
from okl_core.records.record import Raw

from .inputs import invalid
from .session import Session
from .truths import Truths

NUMBER_BYTES = 25
"""The most bytes that a number takes in an answer, as JSON with its comma."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The most inputs (`dim`), bytes of a learner, rounds in one request (`batch`) and bytes of an answer.

    `waiting_s`: how long a prediction waits, unless the session sets its own time.
    """

    dim: int
    bytes: int
    waiting_s: float
    batch: int
    answer_bytes: int

    def check_size(self, session: Session, dim: int, pointer: str) -> None:
        """Raises InvalidInput for too many inputs, or if the learner for them exceeds the memory cap from the start."""
        if dim > self.dim:
            raise invalid(pointer, f"{dim} inputs; this service takes at most {self.dim}")
        try:
            size = session.initial_bytes(dim)
        except ConfigError as error:
            raise invalid(pointer, str(error)) from error
        if size > self.bytes:
            raise invalid(
                pointer,
                f"{dim} inputs; with them this learner takes {size} bytes from the start, the cap is "
                f"{self.bytes}: give it fewer, or a smaller config",
            )

    def check_input(self, session: Session, raw: Raw) -> None:
        """As `check_size` of this input, unless it is known what a row is: then the learner has its size."""
        if session.preparation is None:
            self.check_size(session, session.definition.columns_of(raw), "/x")

    def check_room(self, name: str, size: int) -> None:
        """Raises SessionFull for a learner above the memory cap."""
        if size > self.bytes:
            raise SessionFull(
                f"The learner of {name!r} takes {size} bytes, the cap is {self.bytes}; "
                "it still predicts. Create a session with a budgeted learner to go on learning.",
                session=name,
                limit=self.bytes,
            )

    def check_batch(self, rounds: int, truths: Truths, *, has_intervals: bool) -> None:
        """Raises PayloadTooLarge for more rounds than one request may have, or than fit into one answer."""
        names = truths.names
        # Numbers in each round: all probabilities; or score and probability; or a value, with the ends of its interval.
        numbers = len(names) if truths.has_classes else 2 if names else 3 if has_intervals else 1
        labels = [len(to_json(name)) + 1 for name in names]
        # A prediction set may hold every label.
        label = max(labels, default=0) + (sum(labels) + 2 if has_intervals and names else 0)
        most = min(self.batch, max(1, self.answer_bytes // (NUMBER_BYTES * numbers + label)))
        if rounds > most:
            raise PayloadTooLarge(f"{rounds} rounds; send at most {most} in one request to this session.", limit=most)
