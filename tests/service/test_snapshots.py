"""When a session gets its next snapshot: in proportion to what is written, before a replay takes long, or when it is told."""

from __future__ import annotations

import asyncio
import math

import pytest

from service.replica import snapshots
from service.session.requests import Batch, Report
from tests.service.definitions import GAUSSIAN, MEAN, RIDGE, SIGMA, define
from tests.service.worker import (
    DATA,
    TRUTHS,
    Call,
    Gate,
    Watched,
    direct,
    replayed,
    settle,
    together,
    told,
    working,
)

pytestmark = pytest.mark.anyio

X, Y = DATA.tolist(), TRUTHS.tolist()


BUDGETED = {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 20}}
WARMED_UP = {"kind": "pomdr", "config": {"kernel": SIGMA, "budget": 20}}


def written(store: Watched) -> tuple[int, int]:
    """Bytes of all entries, and of all snapshots."""
    entries = sum(len(entry.blob) for call in store.of("commit") for entry in call.entries)
    return entries, sum(len(call.arguments[2]) for call in store.of("snapshot"))


def rounds_of(store: Watched) -> list[int]:
    """Those at which snapshots were written."""
    return [call.arguments[1].round for call in store.of("snapshot")]


@pytest.mark.parametrize("learner", [BUDGETED, MEAN, WARMED_UP], ids=["budgeted", "small", "warm-up"])
async def test_snapshots_at_most_double_what_is_written(watched: Watched, learner: dict[str, object]) -> None:
    async with working(watched.as_store, snapshot_min_bytes=1_000) as worker:
        await worker.sessions.create(define(learner))
        for i in range(600):
            await worker.rounds.update("s", direct(i))
    entries, snapshots = written(watched)
    assert 0 < snapshots <= 1.1 * entries
    assert (await replayed(watched.as_store)).t == 600


async def test_a_learner_that_outgrows_its_journal_has_no_snapshots(watched: Watched) -> None:
    """A replay is less to read than its state would be, as long as it does not take long."""
    async with working(watched.as_store, snapshot_min_bytes=1_000) as worker:
        await worker.sessions.create(define(RIDGE))
        for i in range(300):
            await worker.rounds.update("s", direct(i))
        found = await worker.sessions.inspect("s")
    assert found.nbytes > found.head.journal_bytes
    assert not watched.of("snapshot")


async def test_a_round_of_magic_takes_few_bytes(watched: Watched) -> None:
    """Journal and snapshots together, through pomdr with default settings."""
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define({"kind": "pomdr"}))
        for start in range(0, 3_000, 50):
            tasks = together(*(worker.rounds.update("s", direct(i)) for i in range(start, start + 50)))
            await asyncio.gather(*tasks)
    entries, snapshots = written(watched)
    assert entries <= 3_000 * 190
    assert entries + snapshots <= 3_000 * 380


async def test_no_snapshot_before_the_journal_has_a_size(watched: Watched) -> None:
    async with working(watched.as_store, snapshot_min_bytes=10_000) as worker:
        await worker.sessions.create(define())
        for i in range(400):
            await worker.rounds.update("s", direct(i))
    per_round = written(watched)[0] / 400
    first = rounds_of(watched)[0]
    assert 10_000 <= first * per_round <= 10_000 + 2 * per_round


@pytest.mark.parametrize(("most_bytes", "blocks"), [(1 << 30, 16), (0, 1)], ids=["sixteen", "bounded"])
async def test_large_blocks_share_a_snapshot(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, most_bytes: int, blocks: int
) -> None:
    """One after each block would cost a fast learner a twentieth of its time; the journal is bounded all the same."""
    monkeypatch.setattr(snapshots, "LARGE_BYTES", most_bytes)
    size = 800
    # No decimals, so that all blocks take equally many bytes.
    inputs = DATA[:size] / math.pi
    async with working(watched.as_store, snapshot_min_bytes=0, snapshot_replay_s=1e6) as worker:
        await worker.sessions.create(define(MEAN))
        for _ in range(34):
            await worker.rounds.rounds("s", Batch(inputs, TRUTHS[:size]))
            await settle()
        found = await worker.sessions.inspect("s")
    assert found.nbytes < written(watched)[0] / 34, "else the state decides"
    first = rounds_of(watched)[0]
    assert len(rounds_of(watched)) > 1
    assert rounds_of(watched) == list(range(first, 34 * size + 1, blocks * size))


@pytest.mark.parametrize("every", [1, 7])
async def test_every_so_many_rounds_if_the_session_says_so(watched: Watched, every: int) -> None:
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define(snapshot_every=every))
        for i in range(30):
            await worker.rounds.update("s", direct(i))
        await worker.rounds.rounds("s", Batch(X[30:45], Y[30:45]))
    assert rounds_of(watched) == [*range(every, 31, every), 45]


@pytest.mark.parametrize(
    ("most_s", "bytes_per_s", "is_due"), [(1e-6, math.inf, True), (1e6, math.inf, False), (1e-6, 1.0, False)]
)
async def test_before_a_replay_would_take_too_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, most_s: float, bytes_per_s: float, is_due: bool
) -> None:
    """Seconds are counted, not bytes: whoever loads the session does not wait for ever. Large states are written seldom."""
    monkeypatch.setattr(snapshots, "BYTES_PER_S", bytes_per_s)
    async with working(watched.as_store, snapshot_min_bytes=1 << 30, snapshot_replay_s=most_s) as worker:
        await worker.sessions.create(define(RIDGE, dim=10))
        for start in range(0, 150, 50):
            await worker.rounds.rounds("s", Batch(X[start : start + 50], Y[start : start + 50]))
            await worker.rounds.update("s", direct(start + 200))
            await settle()
    assert (len(rounds_of(watched)) >= 3) == is_due


async def test_one_snapshot_at_a_time_and_nobody_waits_for_it(watched: Watched) -> None:
    async with working(watched.as_store, snapshot_min_bytes=500) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched, "snapshot")
        for i in range(60):
            await worker.rounds.update("s", direct(i))
        assert len(watched.of("snapshot")) == 1
        gate.open()
        await settle()
        for i in range(60, 120):
            await worker.rounds.update("s", direct(i))
        await settle()
    assert len(watched.of("snapshot")) > 1


async def test_a_snapshot_that_another_worker_wrote_counts(watched: Watched) -> None:
    async with working(watched.as_store) as one, working(watched.as_store) as other:
        await one.sessions.create(define(snapshot_every=10))
        for i in range(40):
            await (one, other)[i % 2].rounds.update("s", direct(i))
            await settle()
    assert rounds_of(watched) == [10, 20, 30, 40]


async def test_rounds_go_on_while_a_snapshot_is_packed(watched: Watched) -> None:
    """What is packed is the state at its tip, whatever is learned meanwhile."""
    async with working(watched.as_store, snapshot_min_bytes=0) as worker:
        await worker.sessions.create(define(RIDGE))

        async def before(call: Call) -> None:
            if call.method == "snapshot":
                await asyncio.sleep(0.002)

        watched.before = before
        tasks = together(*(worker.rounds.update("s", direct(i)) for i in range(200)))
        assert {type(answer).__name__ for answer in await told(tasks)} == {"Updated"}
    watched.work()
    session = await replayed(watched.as_store)
    assert session.t == 200
    async with working(watched.as_store) as fresh:
        assert (await fresh.rounds.update("s", Report(1.0, None, X[300]))).t == 201
