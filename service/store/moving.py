"""The part of the store contract that moves sessions: checkpoints, seals, and the export and import of whole sessions.

A *seal* blocks changes to a session: each such call raises SessionMoving or SessionMoved. A temporary seal lapses by itself,
by the store's clock, so that its maker may die; a permanent one stays until it is removed. The content of a seal is its
*note*; only a caller that knows the note may change the seal.

A session leaves as a `Whole` and pages of `Luggage`, and arrives in another store, or under another name, in the same parts.
It arrives sealed for good, so that nobody sees a part of it; removing this seal opens it. If the remains of a session that
moved away have the name, the new one arrives *aside* and takes their place when it is opened; until then nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pydantic_core import from_json, to_json

from okl.errors import ServiceError, SessionMoved, SessionMoving

if TYPE_CHECKING:
    from .base import Entry, Full, Gone, Head, Tip

FOR_GOOD = float("inf")
LONGEST_SEAL_S = 3600.0
"""The longest time of a seal that is not for good."""
_ASIDE = "}"
NOTE_BYTES = 1024
TO_BYTES = 480
"""The longest destination of a seal, in UTF-8. Its quotes are escaped in the note, which makes it twice as long at most."""
LUGGAGE_PARTS = ("held", "expired", "remembered")
"""Each has pages of its own, so that a session gives the same file from every store."""
LUGGAGE_ITEMS, LUGGAGE_BYTES = 2_000, 4 << 20
"""The largest page of luggage, in items and in bytes; a single larger item is a page of its own."""


class Seal(NamedTuple):
    """Why a session is sealed. `token` is drawn at random by the caller that seals it; `to` is the destination as clients
    know it, if they may be told."""

    kind: Literal["held", "arriving", "moved"]
    token: str
    to: str = ""

    def note(self) -> bytes:
        return to_json(self)

    @classmethod
    def of(cls, note: bytes) -> Seal:
        """Decode a note; a damaged one still seals the session."""
        try:
            kind, token, to = from_json(note)
            return cls(kind, str(token), str(to))
        except (ValueError, TypeError):
            return cls("held", "")


def is_in_force(sealed_until: float, now: float) -> bool:
    """Whether a seal until this time holds. One that would last longer than any was made before the clock was set back: if
    its copier has died, it would keep clients out until the clock is there again."""
    return sealed_until == FOR_GOOD or now < sealed_until <= now + LONGEST_SEAL_S


def sealed(name: str, note: bytes) -> ServiceError:
    """The error for an attempt to change a sealed session."""
    seal = Seal.of(note)
    if seal.kind == "moved":
        where = f"; it continues at {seal.to}" if seal.to else ""
        return SessionMoved(
            f"Session {name!r} has moved{where}.", session=name, **({"location": seal.to} if seal.to else {})
        )
    return SessionMoving(f"Session {name!r} is being copied to another place; try again in a moment.", session=name)


class Checkpoint(NamedTuple):
    """A state kept beside the session: its tip, its time by the store's clock, and its size."""

    name: str
    tip: Tip
    at: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A session without its luggage: the head, the first tip, `base` (the tip before the oldest entry kept), the entries
    from there, and the snapshot and record that it starts from."""

    head: Head
    first: Tip
    base: Tip
    record: bytes
    snapshot: bytes | None
    entries: Sequence[Entry]


class HeldItem(NamedTuple):
    """A prediction that waits, or has expired and is remembered. Times are seconds since the epoch by the store's clock,
    to the microsecond; `expires_at` is 0 for one that has expired."""

    id: str
    blob: bytes
    expires_at: float
    forget_at: float
    is_expired: bool


class RememberedItem(NamedTuple):
    """The id of an applied update, its answer, and the time."""

    id: str
    answer: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Luggage:
    """A page of what a session holds beside its journal: predictions, expired ones, then remembered ids, oldest first.
    `cursor` asks for the next page, None at the end; it is valid only while nobody changes the session."""

    held: Sequence[HeldItem]
    remembered: Sequence[RememberedItem]
    cursor: str | None = None


class Moving(Protocol):
    """Errors as in `Store`."""

    async def replace(
        self,
        name: str,
        at: Tip,
        record: bytes,
        to: Tip,
        snapshot: bytes,
        *,
        summary: bytes = b"",
        told: int = 0,
        unless_waiting: bool = False,
    ) -> bool:
        """Continue from another state: replace the record, the snapshot and the tip, and empty the journal and its tail.
        False unless the session is at `at`, or `to` is on its chain already (a retry); with `unless_waiting` also False if
        a prediction waits for its truth.

        `to` has a new random digest, which takes every copy of the old state off the chain. Waiting predictions and
        remembered ids stay, and so do the first tip, the times and the counts; `told` of the new state's alarms count as
        delivered. Raises ValueError for a summary of more than SUMMARY_BYTES.
        """
        ...

    async def rewind(self, name: str, tip: Tip, to: Tip, alarms: int = 0) -> bool:
        """Take back the entries after `to`, and forget their ids; False unless the session is at `tip`, and `to` is the tip
        of its snapshot (else its first) or of an entry after that. A summary of a later round counts as one of `to`, and of
        the `alarms` until then no more than these as delivered.

        Progress that was remembered with these entries or later is forgotten too, if the id of the first block is still
        remembered, and so those of all: with a progress P it is P0.
        """
        ...

    async def keep(
        self,
        name: str,
        identity: bytes,
        checkpoint: str,
        tip: Tip,
        blob: bytes,
        *,
        at: float | None = None,
        note: bytes = b"",
    ) -> bool | Full:
        """Keep a state beside the session, in place of one of the same name. Full at the limit of checkpoints or of their
        bytes; False if there is no session of this name whose first tip has the digest `identity`.

        `at` defaults to now; `note` is that of the seal under which a session arrives.
        """
        ...

    async def kept(self, name: str) -> Sequence[Checkpoint] | Gone:
        """The session's checkpoints, ordered by name."""
        ...

    async def kept_state(self, name: str, checkpoint: str) -> bytes | None:
        """The state of a checkpoint; None if there is none of this name."""
        ...

    async def drop(self, name: str, checkpoint: str) -> bool:
        """Delete a checkpoint; False if there is none of this name."""
        ...

    async def seal(self, name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        """Seal the session for `for_s` seconds, at most LONGEST_SEAL_S, or for good (infinity). False if there is no session,
        or if it is sealed with another note; with `over` False unless it is sealed with that note, or already with this one.

        Raises ValueError for a note of more than NOTE_BYTES.
        """
        ...

    async def unseal(self, name: str, note: bytes, identity: bytes = b"") -> bool:
        """Remove a seal; False if there is no such session, or if it is sealed with another note. A session aside with this
        note atomically takes the place of the session; False if that is not sealed for good. With `identity` also False if
        the session that is then in this place has another one: its first tip has another digest."""
        ...

    async def whole(self, name: str) -> Whole | Gone:
        """A consistent copy of the session without its luggage. Raises StoreCorrupt if the entries do not lead to its tip."""
        ...

    async def luggage(self, name: str, cursor: str | None = None) -> Luggage | Gone:
        """The page of a sealed session's luggage after a cursor. Raises ValueError for a malformed cursor."""
        ...

    async def arrive(self, name: str, whole: Whole, note: bytes) -> None:
        """Create a session from these parts without the entries, sealed for good with this note. It replaces a session of
        the name that is sealed for good; any other raises SessionExists.

        A session that arrives aside is in no list and no count, and is deleted with the session that it is to replace.
        """
        ...

    async def unload(
        self, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage, then: bytes = b""
    ) -> bool:
        """Add to an arriving session: entries in order, predictions, remembered ids in order. Items that exist already stay
        as they are. False unless the session is sealed for good with this note.

        With `then` it is sealed with that note from now on, so that a store that loses the part refuses the next one; a
        session that is sealed with it already takes the part too (a retry).
        """
        ...


def aside(name: str) -> str:
    """The name under which a session arrives that is to replace another. No client can use such a name, and its keys are in
    the same slot of a cluster."""
    return name + _ASIDE


def is_aside(name: str) -> bool:
    return name.endswith(_ASIDE)


def page_cursor(part: str, offset: int) -> str:
    return f"{part}:{offset}"


def page_after(part: str) -> str | None:
    """The cursor of the page after the last one of a part."""
    later = LUGGAGE_PARTS[LUGGAGE_PARTS.index(part) + 1 :]
    return page_cursor(later[0], 0) if later else None


def page_place(cursor: str | None) -> tuple[str, int]:
    """The part in which a page begins, and the offset in it. Raises ValueError."""
    if cursor is None:
        return LUGGAGE_PARTS[0], 0
    part, _, offset = cursor.partition(":")
    return LUGGAGE_PARTS[LUGGAGE_PARTS.index(part)], int(offset)


def check_note(note: bytes) -> None:
    """Raises ValueError."""
    if len(note) > NOTE_BYTES:
        raise ValueError(f"the note of a seal has at most {NOTE_BYTES} bytes, this one {len(note)}")
