"""Two worker processes, one session, eight clients that alternate between them: nothing lost, nothing twice, no error."""

from __future__ import annotations

import numpy as np
import pytest

import okl_core
from bench.processes import workers
from bench.workers import LEARNER, SESSION, stream
from service.client import OklClient
from service.demo_data import magic
from service.session.codec import RoundEntry, decode_entry
from tests.service.worker import replay
from tests.slow.reading import read

pytestmark = pytest.mark.slow

ROUNDS = 5_000
CLIENTS = 8
NEVER = 10**9


@pytest.mark.parametrize("snapshot_every", [NEVER, None], ids=["journal", "snapshots"])
def test_every_round_counts_once(
    store_url: str, snapshot_every: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    X, _ = magic()
    with workers(store_url, 2) as pair, OklClient(pair[0].url) as here, OklClient(pair[1].url) as there:
        here.create(SESSION, LEARNER, snapshot_every=snapshot_every)
        told = stream(pair, rounds=ROUNDS, clients=CLIENTS)
        assert told.errors == []
        found, other = here.inspect(SESSION), there.inspect(SESSION)
        issued = [client.predict(SESSION, X[-1].tolist(), wait=False) for client in (here, there)]
    assert found == other
    assert (found["t"], found["metrics"]["rounds"], found["waiting"]) == (ROUNDS, ROUNDS, 0)

    reading = read(store_url, SESSION)
    session = replay(reading)
    assert session.t == ROUNDS
    for answer in issued:
        assert answer["score"] == pytest.approx(session.forecast(X[-1]).value, rel=1e-9)
    tally = session.card.tally()
    assert (found["metrics"]["loss"], found["metrics"]["mistakes"]) == (tally.loss, tally.error)
    assert (reading.snapshot is None) == (snapshot_every == NEVER)
    if reading.snapshot is None:
        assert_every_row_once([decode_entry(entry.blob) for entry in reading.entries], session.forecast(X[-1]).value)
    with capsys.disabled():
        rate, p99 = ROUNDS / told.seconds, told.percentile("update", 99) * 1e3
        print(f"\n{store_url.split(':')[0]}: {rate:.0f} rounds/s, p99 of update {p99:.1f} ms")


def assert_every_row_once(entries: list[object], value: float) -> None:
    """The journal holds each row once, and a learner without any service comes to the same forecast."""
    X, _ = magic()
    rows = np.array([entry.x for entry in entries if isinstance(entry, RoundEntry)])
    assert sorted(map(bytes, rows)) == sorted(map(bytes, X[:ROUNDS]))
    learner = okl_core.create(LEARNER, 10)
    for entry in entries:
        assert isinstance(entry, RoundEntry)
        learner.update(entry.x, entry.y)
    assert learner.predict(X[-1]).value == pytest.approx(value, rel=1e-9)
