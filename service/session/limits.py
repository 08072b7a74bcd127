"""The limits of one session: inputs, memory, the time that a prediction waits, the size of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from okl.errors import PayloadTooLarge, SessionFull
from okl_core.errors import ConfigError
from okl_core.records.record import Raw

from ..pointers import invalid
from .session import Session
from .truths import Truths

NUMBER_BYTES = 25
"""The most bytes that a number takes in an answer, as JSON with its comma."""

NAMES_BYTES = 512
"""The most bytes of a prediction's answer beside its forecast: the names of session and members, and the id."""


def forecast_bytes(truths: Truths, *, has_intervals: bool) -> int:
    """The most bytes of a forecast in an answer."""
    names = truths.names
    # All probabilities; or score and probability; or a value, with the ends of its interval.
    numbers = len(names) if truths.has_classes else 2 if names else 3 if has_intervals else 1
    longest, all_labels = truths.label_bytes
    # A prediction set may hold every label.
    return NUMBER_BYTES * numbers + longest + (all_labels + 2 if has_intervals and names else 0)


def prediction_bytes(session: Session) -> int:
    """The most bytes of the answer to a prediction."""
    if session.task is None:
        return NAMES_BYTES
    return NAMES_BYTES + forecast_bytes(session.task.truths, has_intervals=session.coverage is not None)


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
        most = min(self.batch, max(1, self.answer_bytes // forecast_bytes(truths, has_intervals=has_intervals)))
        if rounds > most:
            raise PayloadTooLarge(f"{rounds} rounds; send at most {most} in one request to this session.", limit=most)

    def check_predictions(self, count: int, session: Session) -> None:
        """Raises PayloadTooLarge for more predictions than fit into one answer."""
        most = max(1, self.answer_bytes // prediction_bytes(session))
        if count > most:
            raise PayloadTooLarge(
                f"`x` has {count} inputs; send at most {most} in one request to this session.", limit=most
            )
