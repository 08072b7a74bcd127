"""The store contract: where sessions live. A store handles bytes, numbers and tips; it knows nothing about learners.

A session in the store is a *head* (a small record and its counters), the latest *snapshot* (the bytes of the whole state at
one tip), the *journal* of entries after it, the *waiting* predictions, and the *remembered* ids with their answers.

A session's position is a `Tip`: a round number and the digest of all entries up to it. This is optimistic concurrency: a
caller names the tip that it knows, and the store acts only if the session is at that tip. A caller with an earlier tip gets
the entries that it has not seen. A caller whose tip is not on the chain (after a fail-over, a restored backup, or a session
deleted and created again) gets everything: the snapshot and the journal.

`commit` is the only write on the hot path: one atomic round trip.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, TypeVar

from okl.errors import SessionNotFound

from .moving import Moving

DIGEST_BYTES = 16

REMEMBERED_AFTER_EXPIRY_S = 86_400.0
"""An expired prediction is remembered for as long again as it waited, at most a day."""

SWEPT_AT_ONCE = 1_000
"""One commit expires and forgets at most this many, so that a session that returns after a day blocks nobody."""

SUMMARY_BYTES = 4 << 10
"""The largest summary. A list of 1,000 sessions carries 1,000 summaries."""

PAGE_ITEMS, PAGE_BYTES = 1_000, 4 << 20
"""The largest page of waiting predictions or entries, in items and in bytes of blobs; a larger item is a page of its own."""

LAST_BYTES = 4 << 20
"""The most bytes of blobs in a reply with the newest entries."""

EDGES = 32
"""The most counts of waiting predictions per call."""

_LINK = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a store keeps per session. The oldest is evicted first, except that a full waiting room refuses."""

    waiting: int = 100_000
    waiting_bytes: int = 64 << 20
    remembered: int = 100_000
    remembered_bytes: int = 32 << 20
    remembered_s: float = 86_400.0
    tail: int = 256
    """Entries kept behind the snapshot, so that a worker that lags a little need not read the snapshot."""
    tail_bytes: int = 256 << 10
    checkpoints: int = 16
    checkpoint_bytes: int = 256 << 20


class Tip(NamedTuple):
    """A session's position: the rounds committed, and the digest of the chain of entries that led there.

    The first tip of a session is its identity: its digest is drawn at random when the session is created.
    """

    round: int
    digest: bytes

    @property
    def label(self) -> str:
        """The tip as text, for people and for HTTP's ETag."""
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

    Every entry has an id, chosen by the client or by a worker, so two equal entries at one tip are a request and its retry.
    An `answer` is remembered under the id; it is None if nobody will use the id again.
    """

    tip: Tip
    count: int
    id: str
    blob: bytes
    answer: bytes | None = None
    is_fresh: bool = False
    """For an entry with an answer: refuse it if a prediction waits under its id, or has expired and is remembered."""
    link: Tip | None = field(default=None, init=False, compare=False, repr=False)
    """The tip that it is known to follow: `after` computed this entry's tip from it."""

    @classmethod
    def after(
        cls, tip: Tip, count: int, id: str, blob: bytes, answer: bytes | None = None, *, is_fresh: bool = False
    ) -> Self:
        """The entry that follows a tip."""
        entry = cls(tip.then(count, id, blob), count, id, blob, answer, is_fresh)
        object.__setattr__(entry, "link", tip)
        return entry


class Hold(NamedTuple):
    """A prediction to keep until its truth comes, for at most `wait_s` seconds by the store's clock."""

    id: str
    blob: bytes
    wait_s: float


class Waiting(NamedTuple):
    """A prediction that waits for its truth, or has expired and is still remembered."""

    id: str
    blob: bytes
    is_expired: bool = False


class Applied(NamedTuple):
    """The id belongs to a committed round. `answer` is the reply that its client got."""

    id: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class Full:
    """The session is at its limit of waiting predictions, in number or in bytes."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no session of this name."""


T = TypeVar("T")


def unless_gone(answer: T | Gone, name: str) -> T:
    """The answer about a session. Raises SessionNotFound if there is none of this name."""
    if isinstance(answer, Gone):
        raise SessionNotFound(name)
    return answer


@dataclass(frozen=True, slots=True)
class Head:
    """A session's metadata, which the store knows without decoding anything; `summary` is its entry in a list.

    Times are seconds since the epoch by the store's clock. `journal_rounds` and `journal_bytes` count the journal after the
    snapshot, `tail_bytes` the blobs that are kept behind it. `never_came` counts the predictions that expired or were
    cancelled and whose truth has not come since. `waiting` and `never_came` are as of the last commit or cancellation: a
    prediction that has expired since then still counts as waiting until the next one.
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
    """The round that the summary describes; initially the session's first."""
    told: int = 0
    """The number of the session's alarms that were delivered, as its workers count them. Only `replace` lowers it."""
    seal: bytes = b""
    """The note of a permanent seal; empty without one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The entries that lead from `start` to the head's tip; a `snapshot` is the state at `start`.

    Without a snapshot `start` is the tip that the caller named, or the session's first.
    """

    head: Head
    start: Tip
    entries: Sequence[Entry]
    snapshot: bytes | None = None
    record: bytes | None = None
    """Present if the reading is the whole session, not what follows the caller's tip: the caller starts from scratch."""

    @property
    def is_whole(self) -> bool:
        return self.record is not None


# Answers of `commit` and `find`.


class Committed(NamedTuple):
    """The entries are in the journal. `holds` has one outcome per hold, in order: None if it now waits, else why it was not
    kept (what is stored under its id, or Full). `waiting` and `never_came` are the head's after the commit."""

    holds: Sequence[Waiting | Applied | Full | None] = ()
    waiting: int = 0
    never_came: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """The session is not at the caller's tip, and nothing was written."""

    reading: Reading


@dataclass(frozen=True, slots=True)
class Found:
    """What is stored under an id. `missed` leads from the caller's tip to the head; None if the caller is up to date."""

    what: Waiting | Applied | None
    missed: Reading | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Heads ordered by name; `cursor` asks for the next page, None at the end."""

    heads: Sequence[Head]
    cursor: str | None


class WaitingItem(NamedTuple):
    """A prediction that waits until `expires_at`, in seconds since the epoch by the store's clock."""

    id: str
    blob: bytes
    expires_at: float


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """Predictions that wait at `now`, by the store's clock, ordered by expiry; `cursor` asks for the next page, None at the
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
        """Faults in the store's configuration, as sentences that say what may be lost and what to set."""
        ...

    async def create(
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b"", told: int = 0
    ) -> None:
        """Add a session at its first tip, with the snapshot of that tip if it does not start at round 0. The first `told`
        alarms of this state count as delivered.

        Raises SessionExists, unless the existing session has the same first tip (a retry whose first reply was lost);
        ValueError for a summary of more than SUMMARY_BYTES.
        """
        ...

    async def head(self, name: str) -> Head | Gone:
        """The head alone."""
        ...

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        """The entries after a tip; the record, the snapshot and all entries after it if `after` is None or not on the
        chain."""
        ...

    async def salvage(self, name: str) -> Reading | Gone:
        """The whole session up to the first entry that does not follow from the one before it; the entries need not lead to
        the head."""
        ...

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        """What is stored under an id, and what the caller has missed since its tip."""
        ...

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Committed | Applied | Waiting | Behind | Gone:
        """Append entries that follow `tip`, settle the waiting predictions that they name, remember their answers; then
        keep predictions that wait for their truth, made at the tip after the entries. With entries, `progress` is remembered
        too, and replaces what is remembered under its id.

        Checks, in this order:

        - there is no session -> Gone;
        - the last entry is in the journal -> Committed, without appending (a retry whose first reply was lost);
        - an entry's id was applied before -> Applied, for the first such entry;
        - the session is not at `tip` -> Behind;
        - a prediction is stored under the id of a fresh entry -> Waiting, for the first such entry.

        A refused commit writes nothing. Outcomes of the holds, in order: the id was applied -> Applied; it waits -> Waiting
        (None if the blob is equal: a retry); no room -> Full. An empty commit writes nothing: it only checks that the session
        is at `tip`, and returns the head's counts.

        Each commit also expires and forgets what is due, at most SWEPT_AT_ONCE of each. A prediction that expires adds one
        to `never_came`; if its truth comes while it is still remembered, the count decreases again.
        """
        ...

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        """Keep the state at a tip, then trim the journal behind it to the tail. False, and nothing is kept, unless the tip is
        on the chain and later than the present snapshot."""
        ...

    async def last(self, name: str, rounds: int) -> Sequence[Entry] | Gone:
        """The newest entries, oldest first, including the tail behind the snapshot: the fewest that cover `rounds` rounds, or
        all that are kept; of these the newest with at most LAST_BYTES of blobs in total, none if the newest has more."""
        ...

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        """Waiting predictions that have not expired, ordered by expiry and then by id, from the start or after a page's
        cursor; at most `limit`, PAGE_ITEMS and PAGE_BYTES. Commits between two pages never cause a prediction that keeps
        waiting to be skipped or repeated.

        Raises ValueError for a limit below 1, and for a malformed cursor.
        """
        ...

    async def count_waiting(self, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
        """For each number of seconds, how many waiting predictions expire within it from now; infinity counts all.

        Raises ValueError for more than EDGES numbers, and for NaN.
        """
        ...

    async def cancel(self, name: str, id: str) -> bool:
        """Expire a prediction now: it frees its room, counts in `never_came`, and is remembered for as long as one that
        expires by itself. Also expires and forgets what is due.

        False if none waits under the id: none was made, it was applied, or it has expired. A retry after a lost reply returns
        False although the first attempt cancelled the prediction.
        """
        ...

    async def summarize(self, name: str, tip: Tip, summary: bytes) -> bool:
        """Replace the head's summary by that of the session at `tip`; False if it has a later round's, or if there is no
        session of this name with the tip on its chain: it was replaced meanwhile, or has gone on for long.

        Independent of commits: it moves no tip and refuses no commit. It may be lost if the store loses acknowledged writes;
        the next summary makes up for that. Raises ValueError for more than SUMMARY_BYTES.
        """
        ...

    async def told(self, name: str, tip: Tip, count: int) -> bool:
        """Note that `count` alarms of the session at `tip` were delivered; False unless that is more than before, or if there
        is no session of this name with the tip on its chain.

        Independent of commits, as `summarize`. Raises ValueError for a count below 0 or above 2^53.
        """
        ...

    async def list(self, cursor: str | None, limit: int) -> Page:
        """Sessions ordered by name, after the one that the cursor names."""
        ...

    async def count(self, prefix: str = "") -> int:
        """The number of sessions whose names begin with `prefix`, by an index."""
        ...

    async def delete(
        self, name: str, at: Tip | None = None, *, unless_waiting: bool = False, remains: bytes = b""
    ) -> bool:
        """Remove the session and all it holds; False if there was none, if it is not at the tip `at`, or with
        `unless_waiting` if a prediction waits for its truth. With `remains` False unless the session is sealed for good with
        that note and none has arrived aside to replace it."""
        ...
