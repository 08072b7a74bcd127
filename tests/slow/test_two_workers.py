"""Two worker processes, one session, eight clients that alternate between them: no round lost or learned twice, no error."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pytest

import okl_core
from bench.http import LEARNER
from bench.processes import Worker, workers
from okl.client import Client
from service.demo_data import magic
from service.session.codec import RoundEntry, decode_entry
from tests.service.worker import replay
from tests.slow.reading import read

ROUNDS = 240
CLIENTS = 8
NEVER = 10**9
SNAPSHOTS = {"journal": NEVER, "snapshots": 90}
"""How often a session of this name is to have one."""


def test_every_round_counts_once(store_url: str) -> None:
    with workers(store_url, 2) as pair:
        for session, snapshot_every in SNAPSHOTS.items():
            assert_every_round_counts_once(pair, store_url, session, snapshot_every)


def assert_every_round_counts_once(pair: Sequence[Worker], store_url: str, name: str, snapshot_every: int) -> None:
    X, _ = magic()
    with Client(pair[0].url) as here, Client(pair[1].url) as there:
        here.create(name, LEARNER, snapshot_every=snapshot_every, strict=True, scale={"kind": "none"})
        assert stream(pair, name) == []
        found, other = here.inspect(name), there.inspect(name)
        issued = [client.predict(name, X[-1].tolist(), wait=False) for client in (here, there)]
    assert found == other
    assert (found["t"], found["metrics"]["rounds"], found["waiting"]) == (ROUNDS, ROUNDS, 0)

    reading = read(store_url, name)
    session = replay(reading)
    assert session.t == ROUNDS
    for answer in issued:
        assert answer["score"] == pytest.approx(session.forecast(X[-1]).value, rel=1e-9)
    tally = session.card.tally()
    assert (found["metrics"]["loss"], found["metrics"]["mistakes"]) == (tally.loss, tally.error)
    assert (reading.snapshot is None) == (snapshot_every == NEVER)
    if reading.snapshot is None:
        assert_every_row_once([decode_entry(entry.blob) for entry in reading.entries], session.forecast(X[-1]).value)


def stream(pair: Sequence[Worker], name: str) -> list[Exception]:
    """Play each row with the next free client, predicting at one worker and reporting to the other. Returns the errors."""
    X, y = magic()
    rows = iter(range(ROUNDS))
    lock = threading.Lock()
    errors: list[Exception] = []

    def following() -> int | None:
        with lock:
            return next(rows, None)

    def client(number: int) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(worker.connection()) for worker in pair]
            try:
                while (row := following()) is not None:
                    here, there = connections[(number + row) % 2], connections[(number + row + 1) % 2]
                    prediction = here.post(f"/sessions/{name}/predict", {"x": X[row].tolist()})
                    there.post(f"/sessions/{name}/update", {"id": prediction["id"], "y": int(y[row])})
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def assert_every_row_once(entries: list[object], value: float) -> None:
    """Check that the journal holds each row once, and that a bare learner reaches the same forecast."""
    X, _ = magic()
    rows = np.array([entry.x for entry in entries if isinstance(entry, RoundEntry)])
    assert sorted(map(bytes, rows)) == sorted(map(bytes, X[:ROUNDS]))
    learner = okl_core.create(LEARNER, 10)
    for entry in entries:
        assert isinstance(entry, RoundEntry)
        learner.update(entry.x, entry.y)
    assert learner.predict(X[-1]).value == pytest.approx(value, rel=1e-9)
