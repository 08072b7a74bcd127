"""A worker's copies of sessions: loading, catching up, snapshots, eviction.

A copy is a cache. Whatever a worker does, it does at round t, and the store accepts it only if the session is at t;
otherwise the worker is told what it missed, and replays that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from okl_core.errors import OklError
from service.errors import SessionFailed, SessionNotFound, StateCorrupt, StoreError
from service.hosted import HostedLearner
from service.journal import WaitingEntry
from service.schemas import SessionCreate
from service.settings import Settings
from service.store.base import Gone, Head, Reading, Store, Waiting

log = logging.getLogger("okl.sessions")

THREAD_FROM_S = 0.005
"""Arithmetic longer than this goes to a thread, so that other sessions are not held up; a hop costs 50 us."""

ROUNDS_AT_ONCE = 16
"""More rounds than this go to a thread as long as nobody knows how long one takes."""

THREAD_FROM_BYTES = 1 << 20
"""So does packing a state larger than this."""

WAITING_CACHED_BYTES = 1 << 20
"""Waiting predictions of a session that a worker remembers; the store has them all."""

SIZE_EVERY = 64
"""Rounds between two looks at the memory that a learner takes."""

T = TypeVar("T")


@dataclass(slots=True)
class Resident:
    """One session's copy. `hosted` is None until it is loaded, and while it is being changed; `lock` guards everything.

    `journal_*` count what lies after the latest snapshot; `journal_s` is about the time that replaying it takes.
    """

    name: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    uid: str = ""
    hosted: HostedLearner | None = None
    waiting: dict[str, tuple[Waiting, WaitingEntry]] = field(default_factory=dict)
    waiting_bytes: int = 0
    bytes: int = 0
    round_s: float = 0.0
    snapshot_round: int = -1
    snapshot_bytes: int = 0
    journal_bytes: int = 0
    journal_rounds: int = 0
    journal_s: float = 0.0
    snapshot_task: asyncio.Task[None] | None = None

    def remember(self, waiting: Waiting, entry: WaitingEntry) -> None:
        self.forget(waiting.id)
        self.waiting[waiting.id] = waiting, entry
        self.waiting_bytes += len(waiting.blob)
        while self.waiting_bytes > WAITING_CACHED_BYTES:
            self.forget(next(iter(self.waiting)))

    def forget(self, prediction_id: str) -> None:
        waiting, _ = self.waiting.pop(prediction_id, (None, None))
        if waiting is not None:
            self.waiting_bytes -= len(waiting.blob)

    def start_journal(self, t: int, snapshot_bytes: int) -> None:
        """A snapshot of this size, at round t, is where the journal starts."""
        self.snapshot_round = t
        self.snapshot_bytes = snapshot_bytes
        self.journal_bytes = self.journal_rounds = 0
        self.journal_s = 0.0

    def see(self, head: Head) -> None:
        """What the store counts; another worker may have written a snapshot."""
        if head.snapshot_round != self.snapshot_round:
            self.start_journal(head.snapshot_round, head.snapshot_bytes)
        self.journal_rounds = head.journal_rounds
        self.journal_bytes = head.journal_bytes

    def count_journal(self, rounds: int, size: int) -> None:
        self.journal_rounds += rounds
        self.journal_bytes += size
        self.journal_s += rounds * self.round_s


class Residents:
    """The sessions that this worker has in memory. Its methods are called under the resident's lock."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._residents: OrderedDict[str, Resident] = OrderedDict()
        self._snapshots: set[asyncio.Task[None]] = set()

    def get(self, name: str) -> Resident:
        """The place of this session; nothing is loaded yet."""
        resident = self._residents.get(name)
        if resident is None:
            resident = self._residents[name] = Resident(name)
        self._residents.move_to_end(name)
        return resident

    def drop(self, name: str) -> None:
        self._residents.pop(name, None)

    def gone(self, resident: Resident) -> SessionNotFound:
        """Forget a session that the store does not have (any more)."""
        resident.hosted = None
        if self._residents.get(resident.name) is resident:
            self.drop(resident.name)
        return SessionNotFound(resident.name)

    async def close(self) -> None:
        """Wait for the snapshots under way."""
        await asyncio.gather(*self._snapshots, return_exceptions=True)

    # -- loading and catching up --------------------------------------------------------------------------------------

    async def loaded(self, resident: Resident) -> HostedLearner:
        """The session's learner at some round that this worker knows; read from the store if it is not here."""
        if resident.hosted is not None:
            return resident.hosted
        started = time.perf_counter()
        reading = await self.store.read(resident.name)
        if isinstance(reading, Gone):
            raise self.gone(resident)
        resident.uid = reading.head.uid
        resident.waiting.clear()
        resident.waiting_bytes = 0
        hosted = await self.catch_up(resident, reading)
        seconds = round(time.perf_counter() - started, 3)
        log.info("session loaded", extra={"session": resident.name, "t": hosted.t, "seconds": seconds})
        self._evict(resident)
        return hosted

    async def current(self, resident: Resident) -> HostedLearner:
        """The session's learner at the store's present round."""
        hosted = await self.loaded(resident)
        reading = await self.store.read(resident.name, resident.uid, hosted.t)
        if isinstance(reading, Gone):
            # Deleted; perhaps there is a new one of this name.
            resident.hosted = None
            return await self.loaded(resident)
        return await self.catch_up(resident, reading)

    async def catch_up(self, resident: Resident, reading: Reading) -> HostedLearner:
        """Replay what this worker has not seen. Raises StateCorrupt, SessionFailed."""
        hosted, resident.hosted = resident.hosted, None
        start = reading.events[0].round - reading.events[0].count if reading.events else reading.head.round
        # A store that lost its latest rounds (Redis after a power cut) reads from the start again.
        if hosted is None or reading.snapshot is not None or start != hosted.t:
            settings = parse_settings(reading.head)
            blob = reading.snapshot
            hosted = HostedLearner(settings) if blob is None else HostedLearner.from_bytes(settings, blob)
        resident.see(reading.head)
        if reading.events:
            await self._replay(resident, hosted, reading)
        if hosted.t != reading.head.round:
            raise StateCorrupt(
                f"The snapshot and journal of {resident.name!r} lead to round {hosted.t}, not {reading.head.round}.",
                session=resident.name,
            )
        resident.hosted = hosted
        resident.bytes = hosted.nbytes
        return hosted

    async def _replay(self, resident: Resident, hosted: HostedLearner, reading: Reading) -> None:
        rounds = sum(event.count for event in reading.events)
        resident.hosted = None

        def replay() -> None:
            for event in reading.events:
                hosted.replay(event.blob)

        try:
            await self.compute(resident, replay, rounds, is_long=hosted.ends_warmup(rounds))
        except StateCorrupt as error:
            log.error("replay diverged", extra={"session": resident.name, "detail": error.detail})
            raise
        except OklError as error:
            raise self._failed(resident, hosted, error) from error
        for event in reading.events:
            if event.id is not None:
                resident.forget(event.id)
        resident.journal_s += rounds * resident.round_s

    async def learn(self, resident: Resident, hosted: HostedLearner, work: Callable[[], None]) -> None:
        """Change the learner by a committed round: one that it cannot learn now would fail on every replay too."""
        resident.hosted = None
        try:
            await self.compute(resident, work)
        except OklError as error:
            raise self._failed(resident, hosted, error) from error
        resident.hosted = hosted

    def _failed(self, resident: Resident, hosted: HostedLearner, error: OklError) -> SessionFailed:
        log.error("session failed", extra={"session": resident.name, "t": hosted.t, "detail": str(error)})
        return SessionFailed(
            f"Session {resident.name!r} cannot learn round {hosted.t + 1}: {error}. Delete it and create it anew.",
            session=resident.name,
        )

    async def compute(self, resident: Resident, work: Callable[[], T], rounds: int = 1, *, is_long: bool = False) -> T:
        """Run arithmetic here, or in a thread if it `is_long` or this session's rounds take long."""
        if is_long:
            # Not a round like others: it says nothing of theirs.
            result, took = await asyncio.get_running_loop().run_in_executor(None, _timed, work)
            resident.journal_s += took
            return result
        is_unknown = resident.round_s == 0.0
        if resident.round_s * rounds > THREAD_FROM_S or (is_unknown and rounds > ROUNDS_AT_ONCE):
            result, took = await asyncio.get_running_loop().run_in_executor(None, _timed, work)
        else:
            result, took = _timed(work)
        took /= rounds
        resident.round_s += took if is_unknown else 0.1 * (took - resident.round_s)
        return result

    def _evict(self, newcomer: Resident) -> None:
        """Make room for a newcomer: the least recently used sessions that nobody works on go."""
        total = sum(resident.bytes for resident in self._residents.values())
        for resident in list(self._residents.values()):
            if total <= self.settings.resident_bytes:
                return
            if resident is not newcomer and not resident.lock.locked():
                total -= resident.bytes
                self.drop(resident.name)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def committed(self, resident: Resident, hosted: HostedLearner, rounds: int, size: int) -> None:
        """Count what was committed and learned; write a snapshot if one is due."""
        resident.count_journal(rounds, size)
        if hosted.t % SIZE_EVERY < rounds:
            resident.bytes = hosted.nbytes
            self._evict(resident)
        every = hosted.settings.snapshot_every
        if every is not None:
            if resident.journal_rounds >= every:
                blob = await self.by_size(hosted, hosted.to_bytes)
                resident.start_journal(hosted.t, len(blob))
                await self._snapshot(resident, hosted.t, blob)
        elif self._is_snapshot_due(resident, hosted):
            blob = await self.by_size(hosted, hosted.to_bytes)
            resident.start_journal(hosted.t, len(blob))
            task = asyncio.create_task(self._snapshot(resident, hosted.t, blob))
            resident.snapshot_task = task
            # The event loop itself holds no task, and the resident may be evicted.
            self._snapshots.add(task)
            task.add_done_callback(self._snapshots.discard)

    def _is_snapshot_due(self, resident: Resident, hosted: HostedLearner) -> bool:
        """A snapshot no larger than the journal it replaces at most doubles what is written; but nobody replays for long."""
        if resident.snapshot_task is not None and not resident.snapshot_task.done():
            return False
        if resident.journal_s > self.settings.snapshot_replay_s:
            return True
        # The size looked at last spares a look after each round: the journal has to reach that one first.
        least = max(self.settings.snapshot_min_bytes, resident.snapshot_bytes, resident.bytes)
        return resident.journal_bytes >= least and resident.journal_bytes >= hosted.nbytes

    async def by_size(self, hosted: HostedLearner, work: Callable[[], T]) -> T:
        """Work that takes as long as the state is large: here, or in a thread."""
        if hosted.nbytes < THREAD_FROM_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _snapshot(self, resident: Resident, t: int, blob: bytes) -> None:
        """The round is committed and the journal complete without it, so a snapshot that fails is no client's error."""
        try:
            await self.store.snapshot(resident.name, resident.uid, t, blob, now=time.time())
        except StoreError as error:
            log.warning("snapshot failed", extra={"session": resident.name, "t": t, "detail": error.detail})


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def parse_settings(head: Head) -> SessionCreate:
    """The request that created the session."""
    return SessionCreate.model_validate_json(head.meta)
