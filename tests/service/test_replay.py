"""A replay is held to what was recorded: to 1e-9 on the same arithmetic, on another to what the learner's conditioning
explains."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator

import pytest

from okl.errors import StateCorrupt
from okl_core.contract.facade import REPLAY_TOLERANCE, replay_tolerance
from service.demo_data import magic
from service.session.codec import BlockEntry, decode_entry, encode_block
from service.session.played import ARITHMETIC
from service.session.requests import Batch, Report
from service.store.base import Reading
from tests.oracles.model_store import ModelStore
from tests.service.definitions import GAUSSIAN, MEAN, define
from tests.service.stored import rewritten, saying
from tests.service.worker import Watched, read, replay, replayed, working

pytestmark = pytest.mark.anyio

DATA, TRUTHS = magic()
X, Y = DATA.tolist(), TRUTHS.tolist()
SENSITIVE = {"kind": "kernel-ridge", "config": {"kernel": GAUSSIAN | {"sigma": 5.0}, "regularization": 1e-8}}
ELSEWHERE = ARITHMETIC ^ 1
ROUNDS = 30


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, text: str) -> list[logging.LogRecord]:
        return [record for record in self.records if text in record.getMessage()]


@pytest.fixture
def log() -> Iterator[Kept]:
    kept = Kept()
    logger = logging.getLogger("okl.sessions")
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(level)


async def lived(learner: dict[str, object] = SENSITIVE, last: list[float] | None = None) -> Reading:
    store = ModelStore()
    async with working(store) as worker:
        await worker.sessions.create(define(learner))
        for i in range(ROUNDS):
            x = X[i] if i < ROUNDS - 1 or last is None else last
            await worker.rounds.update("s", Report(Y[i], None, x))
    return await read(store)


async def tolerance_of(reading: Reading) -> float:
    learner = replay(reading).learner
    assert learner is not None
    return replay_tolerance(learner.conditioning)


def value_of(reading: Reading, place: int) -> float:
    return decode_entry(reading.entries[place].blob).value  # type: ignore[union-attr]


async def test_on_another_arithmetic_within_the_conditioning_it_stands(log: Kept) -> None:
    """It is told in the log, and the next snapshot ends the matter: nobody has to replay that again."""
    reading = await lived()
    tolerance = await tolerance_of(reading)
    assert tolerance > 10.0 * REPLAY_TOLERANCE
    value = value_of(reading, -1)
    off = 0.5 * tolerance * max(1.0, abs(value))
    store = Watched(await rewritten(reading, {-1: saying(arithmetic=ELSEWHERE, value=value + off)}))
    async with working(store.as_store) as worker:
        assert (await worker.rounds.predict("s", X[40], wait=False)).t == ROUNDS
        [record] = log.of("another arithmetic")
        assert (record.levelno, record.session, record.t) == (logging.WARNING, "s", ROUNDS)  # type: ignore[attr-defined]
        assert record.divergence == pytest.approx(0.5 * tolerance, rel=1e-3)  # type: ignore[attr-defined]
        await worker.rounds.update("s", Report(Y[40], None, X[40]))
        live = await worker.rounds.predict("s", X[41], wait=False)
    found = await read(store.store)
    assert found.head.snapshot_tip is not None
    assert found.head.snapshot_tip.round == ROUNDS + 1
    async with working(store.store) as fresh:
        assert await fresh.rounds.predict("s", X[41], wait=False) == live
    assert len(log.of("another arithmetic")) == 1


@pytest.mark.parametrize("kind", ["fogd", "fourier-aioli"])
async def test_the_first_input_that_is_far_away_counts_in_its_own_round(log: Kept, kind: str) -> None:
    """Its random features have lost digits that those of all rounds before it have."""
    reading = await lived({"kind": kind}, last=[1e9 * value for value in X[40]])
    value = value_of(reading, -1) + 1e-7
    async with working(await rewritten(reading, {-1: saying(arithmetic=ELSEWHERE, value=value)})) as worker:
        assert (await worker.rounds.predict("s", X[40], wait=False)).t == ROUNDS
    assert log.of("another arithmetic")


async def test_what_was_computed_here_follows_the_replay_of_what_was_not() -> None:
    """The divergence of one entry is no licence for the next."""
    reading = await lived()
    off = 0.5 * await tolerance_of(reading)
    before, last = value_of(reading, -2), value_of(reading, -1)
    changes = {-2: saying(arithmetic=ELSEWHERE, value=before + off), -1: saying(value=last + off)}
    async with working(await rewritten(reading, changes)) as worker:
        with pytest.raises(StateCorrupt):
            await worker.rounds.predict("s", X[40])


@pytest.mark.parametrize("place", [0, 10, -1])
@pytest.mark.parametrize("factor", [2.0, 1e6, math.inf, math.nan])
async def test_on_another_arithmetic_beyond_it_the_session_is_corrupt(log: Kept, factor: float, place: int) -> None:
    reading = await lived()
    value = value_of(reading, place) + factor * await tolerance_of(reading)
    store = await rewritten(reading, {place: saying(arithmetic=ELSEWHERE, value=value)})
    async with working(store) as worker:
        with pytest.raises(StateCorrupt, match="does not replay"):
            await worker.rounds.predict("s", X[40])
        with pytest.raises(StateCorrupt, match="does not replay"):
            await worker.sessions.inspect("s")
        assert log.of("replay diverged")


@pytest.mark.parametrize(("off", "stands"), [(0.5e-9, True), (2e-9, False), (math.nan, False)])
async def test_on_the_same_arithmetic_it_is_exact(log: Kept, off: float, stands: bool) -> None:
    reading = await lived()
    store = await rewritten(reading, {-1: saying(value=value_of(reading, -1) + off)})
    async with working(store) as worker:
        if stands:
            assert (await worker.rounds.predict("s", X[40])).t == ROUNDS
        else:
            with pytest.raises(StateCorrupt, match="does not replay"):
                await worker.rounds.predict("s", X[40])
    assert not log.of("another arithmetic")


async def test_a_learner_that_explains_nothing_is_held_to_the_same_everywhere(log: Kept) -> None:
    reading = await lived(MEAN)
    store = await rewritten(reading, {-1: saying(arithmetic=ELSEWHERE, value=value_of(reading, -1) + 2e-9)})
    async with working(store) as worker:
        with pytest.raises(StateCorrupt, match="does not replay"):
            await worker.rounds.predict("s", X[40])


@pytest.mark.parametrize(("factor", "stands"), [(0.5, True), (2.0, False), (math.nan, False)])
async def test_a_block_is_held_to_the_same(log: Kept, factor: float, stands: bool) -> None:
    store = ModelStore()
    async with working(store) as worker:
        await worker.sessions.create(define(SENSITIVE, dim=10))
        # The first round of a session is an entry by itself.
        await worker.rounds.rounds("s", Batch(X[:1], Y[:1]))
        await worker.rounds.rounds("s", Batch(X[1:ROUNDS], Y[1:ROUNDS]))
    reading = await read(store)
    off = factor * await tolerance_of(reading)

    def change(blob: bytes) -> bytes:
        entry = decode_entry(blob)
        assert isinstance(entry, BlockEntry)
        values = entry.values.copy()
        values[7] += off * max(1.0, abs(values[7]))
        return encode_block(dataclasses.replace(entry, values=values, arithmetic=ELSEWHERE))

    async with working(await rewritten(reading, {1: change})) as worker:
        if stands:
            assert (await worker.rounds.predict("s", X[40])).t == ROUNDS
            assert log.of("another arithmetic")
        else:
            with pytest.raises(StateCorrupt, match="does not replay"):
                await worker.rounds.predict("s", X[40])


async def test_each_entry_names_what_computed_it() -> None:
    reading = await lived()
    assert {decode_entry(entry.blob).arithmetic for entry in reading.entries} == {ARITHMETIC}
    assert (await replayed(await rewritten(reading, {}))).divergence == 0.0
