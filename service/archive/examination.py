"""Examination of a session from a file, before anything is written: finds whatever its first use would refuse.

The digests of a file detect damage. They are no signature: forged bytes come with digests that match. So each part is
unpacked, replayed and decoded as a worker does it, and the error names the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, final

from okl.errors import InvalidSnapshot, StateCorrupt

from ..session.codec import decode_entry, decode_waiting
from ..session.definition import Definition
from ..session.idempotency import first_result, is_progress
from ..session.limits import SessionLimits
from ..session.record import decode_record
from ..session.session import Session
from ..session.snapshot import begun
from ..session.turn import Position
from ..store.base import Applied, Entry, Head, Tip
from ..store.moving import Whole
from ..store.store_checks import check_summary, follow
from .parts import Kept, Load, Part
from .portable import state_in, tried, usable


class Examining(Protocol):
    """Receives the parts of one session in order, the Whole first. Raises InvalidSnapshot."""

    def see(self, part: Part) -> None: ...

    def end(self) -> None:
        """Check the session after its last part."""
        ...


Examine = Callable[[], Examining]
"""Begins the examination of another session."""


@final
class Examination:
    """Refuses a learner that exceeds the limits from the start, or has too many inputs; not one that has grown."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._at: _At | None = None

    def see(self, part: Part) -> None:
        """Raises InvalidSnapshot."""
        match part:
            case Whole():
                self._at = self._begun(part)
            case Load(entries, luggage):
                for entry in entries:
                    with _named(f"The entry of round {entry.tip.round} of the journal"):
                        self._now.replay(entry)
                for item in luggage.held:
                    with _named(f"The prediction that waits under {item.id!r}"):
                        decode_waiting(self._now.identity, item.id, item.blob)
                for id, answer, _ in luggage.remembered:
                    with _named(f"The answer that is remembered under {id!r}"):
                        applied = Applied(id, answer)
                        if not is_progress(self._now.identity, applied):
                            first_result(self._now.name, self._now.identity, applied)
            case Kept(checkpoint, state):
                with _named(f"Checkpoint {checkpoint.name!r}"):
                    state_in(self._now.name, state, self._limits)

    def end(self) -> None:
        """Raises InvalidSnapshot."""
        with _named("The journal"):
            self._now.check_end()

    @property
    def _now(self) -> _At:
        assert self._at is not None
        return self._at

    def _begun(self, whole: Whole) -> _At:
        head = whole.head
        with _named("The record"):
            definition, identity = decode_record(head.name, whole.record)
        with _named("The summary"):
            check_summary(head.summary)
        start = head.snapshot_tip or whole.first
        with _named("The snapshot"):
            session = self._session(definition, whole.snapshot, Position(identity, start))
        return _At(head, identity, session, whole.base, start)

    def _session(self, definition: Definition, snapshot: bytes | None, position: Position) -> Session:
        if snapshot is not None:
            session = tried(definition, snapshot, str(position), self._limits)
            if session.pairing is not None and session.pairing.tip is None:
                raise StateCorrupt("it does not say how far the challenger has come.")
            return session
        if position.tip.digest != position.identity:
            raise StateCorrupt("it is missing, and the journal does not begin at this session's first tip.")
        return begun(definition)


@final
class _At:
    """The session as far as it has been seen: its journal from `base` on, which must pass the snapshot's tip `start`."""

    def __init__(self, head: Head, identity: bytes, session: Session, base: Tip, start: Tip) -> None:
        self.name = head.name
        self.identity = identity
        self._head = head
        self._session = session
        self._tip = base
        self._start = start
        self._has_started = base == start
        self._tail_bytes = 0
        self._journal_bytes = 0

    def replay(self, entry: Entry) -> None:
        """Replay an entry; decode one behind the snapshot, which workers that lag a little will replay."""
        if follow(self._tip, [entry]) is None:
            raise StateCorrupt("it does not follow from the one before it.")
        if self._has_started:
            self._session.replay(entry.blob)
            self._journal_bytes += len(entry.blob)
        else:
            decode_entry(entry.blob)
            self._tail_bytes += len(entry.blob)
        self._tip = entry.tip
        self._has_started |= self._tip == self._start

    def check_end(self) -> None:
        end = self._head.tip
        if not self._has_started or self._tip != end:
            raise StateCorrupt(f"it does not lead from the snapshot to round {end.round}.")
        if self._session.t != end.round:
            raise StateCorrupt(f"with the snapshot it leads to round {self._session.t}, not {end.round}.")
        # Stores add to these numbers, and would never find out that they are wrong.
        if (self._tail_bytes, self._journal_bytes) != (self._head.tail_bytes, self._head.journal_bytes):
            raise StateCorrupt("it does not have as many bytes as the session says.")


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Turn errors into InvalidSnapshot that names the part."""
    try:
        with usable(part):
            yield
    except InvalidSnapshot as error:
        detail = error.detail if error.detail.startswith(part) else f"{part} cannot be used: {error.detail}"
        raise InvalidSnapshot(f"{detail.rstrip('.')}. Nothing was imported; export the session again.") from error
