"""The part of the store contract by which sessions move: states that are kept beside them, seals, and all that there is.

A *seal* stops whoever would change a session: each such call raises SessionMoving or SessionMoved. One for a while lapses
by itself, by the store's clock, so that whoever made it may die; one for good stays until it is taken off. What a seal
says is its *note*; only who knows the note may change it.

A session is taken out as a `Whole` and pages of `Luggage`, and arrives in another store, or under another name, in the same
parts. It arrives sealed for good, so that nobody sees a part of it; taking off this seal is what opens it. Where what is left
of one that moved away has the name, it arrives *aside*, and takes the place when it is opened; until then nothing changes.
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
_ASIDE = "}"
NOTE_BYTES = 1024
LUGGAGE_ITEMS, LUGGAGE_BYTES = 2_000, 4 << 20
"""A page of luggage has at most so many items, and so many bytes unless the first one has more."""


class Seal(NamedTuple):
    """Why a session is sealed. `token` is drawn at random by who seals it; `to` is where the session goes, as clients know
    the place, if it is to be told."""

    kind: Literal["held", "arriving", "moved"]
    token: str
    to: str = ""

    def note(self) -> bytes:
        return to_json(self)

    @classmethod
    def of(cls, note: bytes) -> Seal:
        """Also of a note that is damaged: the session is sealed all the same."""
        try:
            kind, token, to = from_json(note)
            return cls(kind, str(token), str(to))
        except (ValueError, TypeError):
            return cls("held", "")


def refusal(name: str, note: bytes) -> ServiceError:
    """What is told to whoever would change a sealed session."""
    seal = Seal.of(note)
    if seal.kind == "moved":
        where = f"; it goes on at {seal.to}" if seal.to else ""
        return SessionMoved(
            f"Session {name!r} has moved{where}.", session=name, **({"location": seal.to} if seal.to else {})
        )
    return SessionMoving(f"Session {name!r} is being copied to another place; try again in a moment.", session=name)


class Checkpoint(NamedTuple):
    """A state that is kept beside the session: of which tip, since when by the store's clock, and its size."""

    name: str
    tip: Tip
    at: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A session but for its luggage: the head, the first tip, the tip that the oldest entry kept follows, the entries from
    there, and the snapshot and record that it starts from."""

    head: Head
    first: Tip
    base: Tip
    record: bytes
    snapshot: bytes | None
    entries: Sequence[Entry]


class HeldItem(NamedTuple):
    """A prediction that waits, or has expired and is remembered; in seconds since the epoch by the store's clock."""

    id: str
    blob: bytes
    expires_at: float
    forget_at: float
    is_expired: bool


class RememberedItem(NamedTuple):
    """The id of an applied update, its answer, and when that was."""

    id: str
    answer: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Luggage:
    """A page of what a session holds beside its journal: predictions, and then remembered ids, the oldest first. `cursor`
    asks for the next page, None at the end; it is good only while nobody changes the session."""

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
        """Go on from another state: the record, the snapshot and the tip become these, and the journal is empty, without a
        tail. False unless the session is at `at`, or `to` is on its chain already (a reply got lost); with `unless_waiting`
        if a prediction waits for its truth.

        `to` has a digest of its own, drawn at random, so that every copy of what was is off the chain. What waits and what
        is remembered stay, and so do the first tip, the times and the counts; `told` of the new state's alarms count as
        delivered. Raises ValueError for a summary of more than SUMMARY_BYTES.
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
        """Keep a state beside the session, in place of one of the same name. Full where there are as many as may be, or as
        many bytes; False if there is no session of this name whose first tip has the digest `identity`.

        `at` is now unless it is given; `note` is that of the seal under which a session arrives.
        """
        ...

    async def kept(self, name: str) -> Sequence[Checkpoint] | Gone:
        """In the order of their names."""
        ...

    async def kept_state(self, name: str, checkpoint: str) -> bytes | None:
        """None if there is none of this name."""
        ...

    async def drop(self, name: str, checkpoint: str) -> bool:
        """False if there is none of this name."""
        ...

    async def seal(self, name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        """Seal the session for so many seconds, or for good (infinity). False if there is none, or if it is sealed with
        another note; with `over` False unless it is sealed by that note, or already by this one.

        Raises ValueError for a note of more than NOTE_BYTES.
        """
        ...

    async def unseal(self, name: str, note: bytes) -> bool:
        """False if there is no such session, or if it is sealed with another note. What is aside with this note takes the
        place of the session, if that is sealed for good, in one step."""
        ...

    async def whole(self, name: str) -> Whole | Gone:
        """All that there is but its luggage, as of one moment. Raises StoreCorrupt where the entries lead nowhere."""
        ...

    async def luggage(self, name: str, cursor: str | None = None) -> Luggage | Gone:
        """The page after a cursor, of a session that is sealed. Raises ValueError for what is no cursor."""
        ...

    async def arrive(self, name: str, whole: Whole, note: bytes) -> None:
        """Make a session of these parts without the entries, sealed for good with this note; whatever is there under the
        name and sealed for good gives way. Raises SessionExists if something else is there.

        One that arrives aside is in no list and no count, and is deleted with the session whose place it is to take.
        """
        ...

    async def unload(self, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage) -> bool:
        """Add to what has arrived: entries in order, predictions, remembered ids in order. What is there already is left as
        it is. False unless the session is sealed for good with this note."""
        ...


def aside(name: str) -> str:
    """Under what a session arrives that is to take the place of another. No client may give such a name, and its keys are in
    the same slot of a cluster."""
    return name + _ASIDE


def is_aside(name: str) -> bool:
    return name.endswith(_ASIDE)


def page_cursor(part: str, offset: int) -> str:
    return f"{part}:{offset}"


def page_place(cursor: str | None, parts: Sequence[str]) -> tuple[int, int]:
    """Which of the parts a page begins in, and where there. Raises ValueError."""
    if cursor is None:
        return 0, 0
    part, _, offset = cursor.partition(":")
    return parts.index(part), int(offset)


def check_note(note: bytes) -> None:
    """Raises ValueError."""
    if len(note) > NOTE_BYTES:
        raise ValueError(f"the note of a seal has at most {NOTE_BYTES} bytes, this one {len(note)}")
