"""The store contract: where sessions live. Bytes, numbers and tips only; a store has no idea what a learner is.

A session in the store is a *head* (a small record and its counters), the latest *snapshot* (the bytes of the whole state at
one tip), the *journal* of entries after it, the *waiting* predictions, and the *remembered* ids with their answers.

Where a session stands is a `Tip`: a round number and the digest of all entries up to it. A caller names the tip that it
knows; the store does what was asked only at that tip. A caller whose tip is an earlier one is told the entries that it has
not seen. A caller whose tip never was, or is no more (a fail-over, a restored backup, a session deleted and made again), is
told everything: the snapshot and the journal.

`commit` is the only write on the hot path: one round trip, atomic, all or nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from okl.errors import ConfigurationError

from .moving import Moving

DIGEST_BYTES = 16

REMEMBERED_AFTER_EXPIRY_S = 86_400.0
"""An expired prediction is remembered for as long again as it waited, and for a day at most."""

SWEPT_AT_ONCE = 1_000
"""One commit expires and forgets at most so many, so that a session that comes back after a day holds up nobody."""

SUMMARY_BYTES = 4 << 10
"""A summary's most bytes: a list of 1,000 sessions has as many summaries."""

PAGE_ITEMS, PAGE_BYTES = 1_000, 4 << 20
"""A page of what waits has at most so many, and so many bytes of blobs unless the first one has more."""

LAST_BYTES = 4 << 20
"""The newest entries are told up to so many bytes of blobs."""

EDGES = 32
"""Of what waits so many counts are given at once."""

_LINK = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store keeps of one session, at most. The oldest goes first, except that a full waiting room refuses."""

    waiting: int = 100_000
    waiting_bytes: int = 64 << 20
    remembered: int = 100_000
    remembered_bytes: int = 32 << 20
    remembered_s: float = 86_400.0
    tail: int = 256
    """Entries behind the snapshot, so that a worker that is a little behind need not read the snapshot."""
    tail_bytes: int = 256 << 10
    checkpoints: int = 16
    checkpoint_bytes: int = 256 << 20


class Tip(NamedTuple):
    """A session's position: the rounds committed, and the digest of the chain of entries that led there.

    The first tip of a session is its identity: its digest is drawn at random when the session is made.
    """

    round: int
    digest: bytes

    @property
    def label(self) -> str:
        """The tip as text, for people and for the ETag of HTTP."""
        return f"{self.round}-{self.digest.hex()}"

    def then(self, count: int, id: str, blob: bytes) -> Tip:
        """The tip after an entry of `count` rounds."""
        round = self.round + count
        link = hashlib.blake2b(_LINK.pack(round, len(id)), digest_size=DIGEST_BYTES, key=self.digest)
        link.update(id.encode())
        link.update(blob)
        return Tip(round, link.digest())


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the journal: `count` rounds that were committed together and lead to `tip`.

    Every entry has an id, the client's or one that a worker made, so two equal entries at one tip are one request, sent
    twice. An `answer` is remembered under the id; an id that nobody will name again has None.
    """

    tip: Tip
    count: int
    id: str
    blob: bytes
    answer: bytes | None = None
    is_fresh: bool = False
    """Of one with an answer: it is refused where a prediction waits under its id, or has expired and is remembered."""


class Hold(NamedTuple):
    """A prediction to be kept for `wait_s` seconds, by the store's clock, or until its truth comes."""

    id: str
    blob: bytes
    wait_s: float


class Waiting(NamedTuple):
    """A prediction that waits for its truth, or has expired and is still remembered."""

    id: str
    blob: bytes
    is_expired: bool = False


class Applied(NamedTuple):
    """The id belongs to a committed round. `answer` is what its client was told."""

    id: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class Full:
    """The session is at its limit of waiting predictions, in number or in bytes."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no session of this name."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows of a session without decoding anything; `summary` is what is told of it in a list.

    Times are seconds since the epoch by the store's clock. `journal_rounds` and `journal_bytes` count what lies after the
    snapshot, `tail_bytes` the blobs that are kept behind it. `never_came` counts the predictions that expired or were
    cancelled and whose truth has not come after all. `waiting` and `never_came` are as of the last commit or cancellation:
    what has expired since is among those that wait until the next one.
    """

    name: str
    summary: bytes
    tip: Tip
    created_at: float
    updated_at: float | None = None
    snapshot_tip: Tip | None = None
    snapshot_at: float | None = None
    snapshot_bytes: int = 0
    journal_rounds: int = 0
    journal_bytes: int = 0
    tail_bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    remembered: int = 0
    remembered_bytes: int = 0
    never_came: int = 0
    summary_round: int = 0
    """The round of which the summary tells; at first the session's first."""
    told: int = 0
    """How many of the session's alarms were delivered, as its workers count them. It only grows."""
    seal: bytes = b""
    """The note of the seal that it has for good."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The entries that lead from `start` to the head's tip; with a `snapshot` that is the state at `start`.

    Without a snapshot `start` is the tip that was asked for, or the session's first.
    """

    head: Head
    start: Tip
    entries: Sequence[Entry]
    snapshot: bytes | None = None
    record: bytes | None = None
    """Given where the reading is all there is, and not what follows the tip that was asked for: the caller starts from
    nothing."""

    @property
    def is_whole(self) -> bool:
        return self.record is not None


# Answers of `commit` and `find`.


class Committed(NamedTuple):
    """The entries are in the journal. `holds` has one outcome a hold, in order: None for one that waits now, or what is
    there under its id. A hold with an outcome was not kept. `waiting` and `never_came` are the head's after the commit."""

    holds: Sequence[Waiting | Applied | Full | None] = ()
    waiting: int = 0
    never_came: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """The session is not at the tip that was named, and nothing was written."""

    reading: Reading


@dataclass(frozen=True, slots=True)
class Found:
    """What is there under an id. `missed` leads from the caller's tip to the head, None where there is nothing to miss."""

    what: Waiting | Applied | None
    missed: Reading | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Heads in the order of their names; `cursor` asks for the next page, None at the end."""

    heads: Sequence[Head]
    cursor: str | None


class WaitingItem(NamedTuple):
    """A prediction that waits until `expires_at`, in seconds since the epoch by the store's clock."""

    id: str
    blob: bytes
    expires_at: float


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """What waits at `now`, by the store's clock, what expires first first; `cursor` asks for the next page, None at the
    end."""

    items: Sequence[WaitingItem]
    cursor: str | None
    now: float


class Store(Moving, Protocol):
    """Errors: StoreUnavailable, StoreTimeout, StoreCorrupt; a driver's own exceptions never leave a store."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None: ...

    async def warnings(self) -> Sequence[str]:
        """What is wrong with the store's configuration, in sentences that say what may be lost and what to set."""
        ...

    async def create(
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b""
    ) -> None:
        """Add a session at its first tip, with the snapshot of that tip if it does not start at round 0.

        Raises SessionExists, but not where the session's first tip is this one (a reply got lost); ValueError for a summary
        of more than SUMMARY_BYTES.
        """
        ...

    async def head(self, name: str) -> Head | Gone:
        """The head alone."""
        ...

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        """The entries after a tip; the record, the snapshot and all entries after it where `after` is None or not on the
        chain."""
        ...

    async def salvage(self, name: str) -> Reading | Gone:
        """All there is, up to the first entry that does not follow from the one before it: its entries need not lead to the
        head."""
        ...

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        """What is there under an id, and what the caller has missed since its tip."""
        ...

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Committed | Applied | Waiting | Behind | Gone:
        """Append entries that follow `tip`, settle the waiting predictions that they name, remember their answers; then
        keep predictions that wait for their truth, made at the tip after the entries. With entries, `progress` is remembered
        too, in the place of what is under its id.

        Checks in this order: Gone; the last entry is in the journal -> Committed, without appending (a reply got lost);
        an entry's id was applied before -> Applied, the first such; Behind; what is there under the id of an entry that is
        fresh -> Waiting, the first such. A refused commit writes nothing.

        Of the holds, in order: the id was applied -> Applied; it waits -> Waiting (None if the blob is equal: a reply got
        lost); no room -> Full. A commit of nothing writes nothing: it asks whether the session is at `tip`, and is told
        the head's counts as they are.

        Each commit also expires and forgets what is due, at most SWEPT_AT_ONCE of each. A prediction that expires adds one
        to `never_came`; the truth of one that has expired and is still remembered takes it off again.
        """
        ...

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        """Keep the state at a tip, if that is on the chain and later than the snapshot there is (else False), then trim the
        journal behind it to the tail."""
        ...

    async def rewind(self, name: str, tip: Tip, to: Tip) -> bool:
        """Take back the entries after `to`, and forget their ids; False unless the session is at `tip`, and `to` is its
        snapshot's tip or that of an entry after it. A summary of a later round counts as one of `to`."""
        ...

    async def last(self, name: str, rounds: int) -> Sequence[Entry] | Gone:
        """The newest entries, oldest first, the tail behind the snapshot included: the fewest that have `rounds` rounds
        together, or all that are kept; of these the newest with at most LAST_BYTES of blobs, none if one has more."""
        ...

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        """What waits and has not expired, in the order of expiry and then of ids, from the start or after a page's cursor;
        at most `limit`, PAGE_ITEMS and PAGE_BYTES. Whatever is committed between two pages, nothing that waits all the
        while is left out or told twice.

        Raises ValueError for a limit below 1, and for a cursor that no page gives.
        """
        ...

    async def count_waiting(self, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
        """For each number of seconds how many of those that wait expire within it from now; all of them for infinity.

        Raises ValueError for more than EDGES numbers, and for one that is none.
        """
        ...

    async def cancel(self, name: str, id: str) -> bool:
        """Have a prediction expire now: it takes no room, counts in `never_came`, and is remembered for as long as one that
        expires by itself. Expires and forgets what is due, too.

        False if none waits under the id: none was made, it was applied, or it has expired. A driver that sends this again
        because the reply got lost answers False for what it has cancelled itself.
        """
        ...

    async def summarize(self, name: str, identity: bytes, round: int, summary: bytes) -> bool:
        """Replace the head's summary by that of a round; False if there is a later round's, or no session of this name whose
        first tip has the digest `identity`.

        Beside the commits: it moves no tip, and no commit is refused for it. It may be lost where the store loses writes
        that it has acknowledged; the next one makes up for that. Raises ValueError for more than SUMMARY_BYTES.
        """
        ...

    async def told(self, name: str, identity: bytes, count: int) -> bool:
        """Note that `count` alarms were delivered; False if not fewer were before, or there is no such session.

        Beside the commits, as `summarize`. Raises ValueError for a count below 0 or above 2^53.
        """
        ...

    async def list(self, cursor: str | None, limit: int) -> Page:
        """Sessions in the order of their names, after the one that is the cursor."""
        ...

    async def count(self, prefix: str = "") -> int:
        """How many sessions there are whose names begin so, by an index."""
        ...

    async def delete(self, name: str, at: Tip | None = None, *, unless_waiting: bool = False) -> bool:
        """Remove the session and all it holds; False if there was none, if it is not at the tip that is given, or with
        `unless_waiting` if a prediction waits for its truth."""
        ...


STORE_MODULES = {
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "redis+sentinel": "redis",
    "redis+cluster": "redis",
}


def open_store(url: str, limits: Limits | None = None) -> Store:
    """The store that `url` names, not yet opened. Raises ConfigurationError for a scheme that nothing serves.

    sqlite:///relative/path.sqlite3, sqlite:////absolute/path.sqlite3, sqlite:// (in memory, for tests);
    redis://host:port/db, rediss://..., redis+sentinel://host:port,host:port/service, redis+cluster://host:port.
    """
    scheme = urlsplit(url).scheme
    if scheme not in STORE_MODULES:
        raise ConfigurationError(f"store url: unknown scheme {scheme!r}; known: {', '.join(STORE_MODULES)}")
    return importlib.import_module(f".{STORE_MODULES[scheme]}", __package__).from_url(url, limits or Limits())
