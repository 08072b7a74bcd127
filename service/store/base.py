"""The store contract: where sessions live. Bytes and numbers only; a store has no idea what a learner is.

A session in the store is a *head* (a small record), the latest *snapshot* (bytes of the whole state at one round), the
*journal* of events after it, the *waiting* predictions, and the recently *applied* ids with their answers.
`hold` and `append` are the only writes on the hot path. Each is one round trip, atomic, all or nothing, and
compare-and-set on the round number: a caller that has not seen every event gets `Behind`, with the events it missed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol
from urllib.parse import urlsplit

from service.errors import ConfigurationError, StoreCorrupt

TAIL_EVENTS = 256
"""Events kept behind a snapshot, so that workers that are a little behind catch up without reading the snapshot."""

APPLIED_KEPT = 10_000
"""How many of the latest applied ids are remembered at least: an update sent again within this many events is a duplicate."""

REMEMBERED_S = 86_400.0
"""An expired prediction is remembered for as long again as it waited, and for a day at most."""

SWEPT_AT_ONCE = 1_000
"""One `hold` forgets at most so many, so that a session that comes back after a day does not hold up the others."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows of a session without decoding anything.

    `uid` is drawn at creation, so that a session deleted and created again under the same name is never mistaken for
    the old one. `round` counts the rounds committed. Times are seconds since the epoch, given by the callers:
    `updated_at` by the last `append`, `snapshot_at` by the last `snapshot`. `journal_bytes` is the length of the event
    blobs after the snapshot. `waiting` leaves out what a `hold` has found expired.
    """

    name: str
    uid: str
    meta: bytes
    created_at: float
    round: int = 0
    updated_at: float | None = None
    snapshot_round: int = -1
    snapshot_at: float | None = None
    snapshot_bytes: int = 0
    journal_rounds: int = 0
    journal_bytes: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One journal entry: `count` rounds committed together. `round` is the last of them.

    `id` is the prediction id that the event settles (or the client's own id of a direct update), None for an event
    that nobody will name again (an empty id counts as None). `answer` is what a repeated update of this id is answered
    with. An event without an id needs something of its own in `blob`: two that are equal byte for byte at one round are
    one event, sent twice.
    """

    round: int
    blob: bytes
    id: str | None = None
    answer: bytes = b""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """A prediction that waits for its truth until `expires_at` (seconds since the epoch)."""

    id: str
    blob: bytes
    expires_at: float

    def forget_at(self, now: float) -> float:
        """Until when a prediction that is held at `now` is remembered."""
        return self.expires_at + min(max(self.expires_at - now, 0.0), REMEMBERED_S)


@dataclass(frozen=True, slots=True)
class Reading:
    """`events` follow each other without a gap; they start after `snapshot_round` if `snapshot` is given, else after the
    round that was asked for."""

    head: Head
    events: Sequence[Event]
    snapshot: bytes | None = None
    snapshot_round: int = -1


# Answers of `hold`, `append` and `look_up`.


@dataclass(frozen=True, slots=True)
class Held:
    """The prediction waits in the store."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The events are in the journal. `replayed`: they were there already, byte for byte (a reply got lost)."""

    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Behind:
    """The session is not at the expected round. `reading` starts after it: with a snapshot if the journal no longer
    reaches back that far."""

    reading: Reading


@dataclass(frozen=True, slots=True)
class AlreadyWaiting:
    """The id is taken by a prediction that waits (or has expired, and is still remembered)."""

    waiting: Waiting


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The id was applied before; nothing was written. `answer` is the first answer."""

    id: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class TooManyWaiting:
    """The session is at its cap of waiting predictions."""


@dataclass(frozen=True, slots=True)
class Gone:
    """No session of this name and uid."""


@dataclass(frozen=True, slots=True)
class Page:
    """Heads in the order of their names; `cursor` asks for the next page, None at the end."""

    heads: Sequence[Head]
    cursor: str | None


class Store(Protocol):
    """Errors: StoreUnavailable, StoreTimeout, StoreCorrupt; a driver's own exceptions never leave a store."""

    schemes: ClassVar[tuple[str, ...]]

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None: ...

    async def create(self, head: Head, snapshot: bytes | None = None) -> None:
        """Add a session at `head.round`, where it has the snapshot; without one at round 0. Of the head it takes the
        name, uid, meta, created_at and round.

        Raises SessionExists, but not for the uid that is there (a reply got lost).
        """
        ...

    async def read(self, name: str, uid: str | None = None, after: int = -1) -> Reading | Gone:
        """The head, the events after round `after`, and the snapshot where the events alone do not reach `after`.

        With `after=-1` (nothing is known yet) the latest snapshot is always given where there is one; without one the
        events start at round 0. The same goes for any `after` that is not the end of an event in the journal, such as
        a round that the session has not reached. A `uid` that is not the session's answers Gone; None takes any.
        """
        ...

    async def head(self, name: str) -> Head | Gone:
        """The head alone: no snapshot and no event is read."""
        ...

    async def hold(
        self, name: str, uid: str, expected: int, waiting: Waiting, *, now: float, limit: int
    ) -> Held | Behind | AlreadyWaiting | AlreadyApplied | TooManyWaiting | Gone:
        """Keep a prediction that waits for its truth, made at round `expected`.

        Checks in this order: Gone, AlreadyApplied, AlreadyWaiting, Behind, TooManyWaiting (`limit` are waiting and none
        has expired by `now`). The same Waiting sent again finds itself: AlreadyWaiting with an equal blob.
        Expired entries are remembered for as long again as they waited, at most a day, then swept.
        """
        ...

    async def append(
        self, name: str, uid: str, expected: int, events: Sequence[Event], *, now: float
    ) -> Appended | Behind | AlreadyApplied | Gone:
        """Commit rounds `expected + 1 ..`: journal the events, settle the waiting ids they name, remember the answers.

        Checks in this order: Gone; events already in the journal at their rounds byte for byte -> Appended(replayed);
        an id applied before -> AlreadyApplied; Behind.
        """
        ...

    async def look_up(self, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
        """The waiting prediction (expired ones included, while remembered), or the answer of an applied id."""
        ...

    async def snapshot(self, name: str, uid: str, round: int, blob: bytes, *, now: float) -> bool:
        """Keep the state at `round` if it is newer than the one kept (else False), then trim the journal behind it.

        False as well where `round` is not the end of an event: ahead of the session, or inside a block of rounds.
        The last TAIL_EVENTS events at or before `round` stay. `journal_rounds` and `journal_bytes` of the head count
        what lies after the snapshot.
        """
        ...

    async def list(self, cursor: str | None, limit: int) -> Page: ...

    async def count(self) -> int:
        """How many sessions there are."""
        ...

    async def delete(self, name: str) -> bool:
        """Remove the session and all it holds; False if there was none."""
        ...


def check_events(expected: int, events: Sequence[Event]) -> None:
    """Raises ValueError unless the events follow `expected` without a gap and no two share an id."""
    ids = [event.id for event in events if event.id]
    if not events or end_of(expected, events) is None or len(set(ids)) != len(ids):
        raise ValueError(f"events must follow round {expected} one after the other, each with an id of its own")


def make_reading(head: Head, start: int, events: Sequence[Event], snapshot: bytes | None) -> Reading:
    """Raises StoreCorrupt unless the events lead from round `start` to the head without a gap."""
    if end_of(start, events) != head.round:
        raise StoreCorrupt(f"The journal of session {head.name!r} does not lead from round {start} to {head.round}.")
    return Reading(head, events, snapshot, -1 if snapshot is None else head.snapshot_round)


def end_of(after: int, events: Sequence[Event]) -> int | None:
    """The round that the events lead to from round `after`; None at a gap."""
    for event in events:
        after += event.count
        if event.count < 1 or event.round != after:
            return None
    return after


STORE_MODULES = {
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "redis+sentinel": "redis",
    "redis+cluster": "redis",
}


def open_store(url: str) -> Store:
    """The store that `url` names, not yet opened. Raises ConfigurationError for a scheme that nothing serves.

    sqlite:///relative/path.sqlite3, sqlite:////absolute/path.sqlite3, sqlite:// (in memory, for tests);
    redis://host:port/db, rediss://..., redis+sentinel://host:port,host:port/service, redis+cluster://host:port.
    """
    scheme = urlsplit(url).scheme
    if scheme not in STORE_MODULES:
        raise ConfigurationError(f"store url {url!r}: unknown scheme {scheme!r}; known: {', '.join(STORE_MODULES)}")
    return importlib.import_module(f"service.store.{STORE_MODULES[scheme]}").from_url(url)
