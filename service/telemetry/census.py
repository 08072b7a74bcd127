"""Metrics of all sessions, read periodically from the store: the same from every worker."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Final, final

from okl.errors import StoreCorrupt, StoreError

from ..session.summary import Summary, decode_summary
from ..store.base import Gone, Head, Store
from .counts import Sample

log = logging.getLogger("okl.http")

FRESH_S: Final = 1.0
"""The shortest time for which a reading is reused."""

SHARE: Final = 10.0
"""A reading is reused for this multiple of its duration, so that scrapes take at most a tenth of the store's time."""

PAGE, PAGES = 1_000, 10
"""Sessions per page, and pages per reading: enough for the default OKL_MAX_SESSIONS."""

PATIENCE_S: Final = 5.0
"""The longest wait of a scrape for a reading, which continues for the next scrape."""

OLDER_S: Final = (60.0, 3_600.0, 86_400.0)
"""Ages beyond which waiting predictions are counted separately."""

_BETTER: Final = {"better": 1.0, "worse": -1.0}


@final
class Census:
    """The metrics of all sessions. The `most` sessions with the latest rounds have separate series; `waiting_s` is how long a
    prediction waits unless its session says otherwise."""

    def __init__(self, store: Store, *, most: int, waiting_s: float) -> None:
        self._store = store
        self._most = most
        self._waiting_s = waiting_s
        self._read: tuple[Sequence[Sample], float] | None = None
        self._under_way: asyncio.Task[Sequence[Sample]] | None = None

    async def samples(self) -> Sequence[Sample]:
        """The samples of the latest reading. Never raises: a store that does not answer is reported as down."""
        if self._read is not None and time.monotonic() < self._read[1]:
            return self._read[0]
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._take())
            self._under_way.add_done_callback(self._taken)
        try:
            return await asyncio.wait_for(asyncio.shield(self._under_way), PATIENCE_S)
        except TimeoutError:
            return _DOWN

    async def close(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    def _taken(self, _: object) -> None:
        self._under_way = None

    async def _take(self) -> Sequence[Sample]:
        started = time.monotonic()
        try:
            found: Sequence[Sample] = await self._count()
        except StoreError as error:
            log.warning("sessions cannot be counted", extra={"detail": error.detail})
            found = _DOWN
        now = time.monotonic()
        self._read = found, now + max(FRESH_S, SHARE * (now - started))
        return found

    async def _count(self) -> list[Sample]:
        sessions = await self._store.count()
        latest: list[tuple[float, str, Head]] = []
        read = waiting = journal_bytes = snapshot_bytes = 0
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._store.list(cursor, PAGE)
            read += len(page.heads)
            for head in page.heads:
                waiting += head.waiting
                journal_bytes += head.journal_bytes
                snapshot_bytes += head.snapshot_bytes
            seen = [(head.updated_at or head.created_at, head.name, head) for head in page.heads]
            latest = heapq.nlargest(self._most, latest + seen, key=lambda one: one[:2])
            cursor = page.cursor
            if cursor is None:
                break
        found: list[Sample] = [
            ("okl_store_up", [], 1.0),
            ("okl_sessions", [], sessions),
            ("okl_sessions_read", [], read),
            ("okl_sessions_waiting", [], waiting),
            ("okl_sessions_journal_bytes", [], journal_bytes),
            ("okl_sessions_snapshot_bytes", [], snapshot_bytes),
        ]
        for _, _, head in sorted(latest, key=lambda one: one[1]):
            summary = decode_summary(head.summary)
            found += _of_session(head, summary)
            if head.waiting:
                found += await self._older(head, summary)
        return found

    async def _older(self, head: Head, summary: Summary) -> list[Sample]:
        """Counts by age, derived from the expiry: a prediction that has waited longer expires sooner."""
        wait_s = summary.expires_s or self._waiting_s
        ages = [age for age in OLDER_S if age < wait_s]
        try:
            counts = await self._store.count_waiting(head.name, [wait_s - age for age in ages])
        except StoreCorrupt as error:
            log.warning("waiting predictions of a session cannot be counted", extra={"detail": error.detail})
            return []
        if isinstance(counts, Gone):
            return []
        labels = [head.name, summary.kind]
        pairs = zip(ages, counts, strict=True)
        return [("okl_session_waiting_older", [*labels, f"{age:.0f}"], count) for age, count in pairs]


_DOWN: Final[Sequence[Sample]] = (("okl_store_up", [], 0.0),)


def _of_session(head: Head, summary: Summary) -> Iterator[Sample]:
    labels = [head.name, summary.kind]
    verdict = summary.verdict
    for name, value in (
        ("rounds", head.tip.round),
        ("loss", summary.loss),
        ("error", summary.error),
        ("better", None if verdict is None else _BETTER.get(verdict.state, 0.0)),
        ("coverage", summary.coverage),
        ("waiting", head.waiting),
        ("never_came", head.never_came),
        ("alarms", summary.alarms),
        ("learner_bytes", summary.nbytes),
        ("journal_bytes", head.journal_bytes),
        ("journal_rounds", head.journal_rounds),
        ("snapshot_bytes", head.snapshot_bytes),
        ("round_seconds", summary.took_s),
        ("last_round_timestamp_seconds", head.updated_at),
    ):
        if value is not None and math.isfinite(value):
            yield f"okl_session_{name}", labels, value
