"""kill -9 of a worker at any instant: every acknowledged round is durable, and the stream continues undisturbed."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

import okl_core
from bench.http_client import BadAnswer, Timed
from bench.processes import Worker
from okl.client import Client
from service.demo_data import magic
from tests.budget import TIMES

ROUNDS = 200
KILLS = 2
LEARNERS: dict[str, dict[str, Any]] = {
    "pomdr": {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 100}},
    "one-vs-rest": {"kind": "one-vs-rest"},
}
"""Each has a session of its name, and a client; the worker is that of both."""
SNAPSHOT_MIN_BYTES = 2_000
"""A snapshot every few dozen rounds, so that kills hit some of them."""

X, Y = magic()


@dataclass(slots=True)
class Streamer:
    """Streams rows in order from round t; stops at the last, or when the worker dies. `acknowledged` rounds are answered."""

    worker: Worker
    session: str
    acknowledged: int
    kill_at: int
    moment: threading.Event
    refused: list[str] = field(default_factory=list)

    def run(self) -> None:
        try:
            with self.worker.connection() as connection:
                while self.acknowledged < ROUNDS:
                    self._play(connection, self.acknowledged)
        except BadAnswer as error:
            self.refused.append(str(error))
        except (OSError, ValueError):
            pass
        finally:
            self.moment.set()

    def _play(self, connection: Timed, row: int) -> None:
        if row >= self.kill_at:
            self.moment.set()
        # The id is derived from the row, as a careful client would do, so that a retry is not learned twice.
        x, id = X[row].tolist(), f"row-{row}"
        connection.post(f"/sessions/{self.session}/predict", {"x": x, "id": id})
        connection.post(f"/sessions/{self.session}/update", {"id": id, "y": int(Y[row])})
        self.acknowledged += 1


@pytest.mark.parametrize("run", range(TIMES))
def test_nothing_acknowledged_is_lost(store_url: str, run: int) -> None:
    dice = random.Random(run)
    worker = Worker(store_url, snapshot_min_bytes=SNAPSHOT_MIN_BYTES)
    worker.start()
    try:
        with Client(worker.url) as client:
            for session, learner in LEARNERS.items():
                client.create(session, learner, labels=[-1, 1], strict=True, scale={"kind": "none"})
        rounds, snapshots = dict.fromkeys(LEARNERS, 0), 0
        for kill_at in sorted(dice.sample(range(ROUNDS // 4, ROUNDS - 5), KILLS)):
            for session, found in stream_and_kill(worker, rounds, kill_at, dice).items():
                rounds[session] = found["t"]
                snapshots += found["storage"]["snapshot_round"] is not None
        assert snapshots > 0, "the kills were to hit sessions that have snapshots"
        for session, learner in LEARNERS.items():
            last = Streamer(worker, session, rounds[session], ROUNDS, threading.Event())
            last.run()
            assert (last.refused, last.acknowledged) == ([], ROUNDS)
            with Client(worker.url) as client:
                assert_undisturbed(client, session, learner)
    finally:
        worker.kill()


def stream_and_kill(
    worker: Worker, rounds: dict[str, int], kill_at: int, dice: random.Random
) -> dict[str, dict[str, Any]]:
    """Kill the worker a moment after a session's round `kill_at` began, and restart it. Returns what it reports of them."""
    moment = threading.Event()
    clients = [Streamer(worker, session, t, kill_at, moment) for session, t in rounds.items()]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    moment.wait()
    # During the round, or one of the next few.
    threading.Event().wait(dice.uniform(0.0, 0.004))
    worker.kill()
    for thread in threads:
        thread.join()
    worker.start()
    told = {}
    with Client(worker.url) as again:
        for client in clients:
            found = told[client.session] = again.inspect(client.session)
            assert client.refused == []
            assert client.acknowledged <= found["t"] <= client.acknowledged + 1
            assert found["metrics"]["rounds"] == found["t"]
    return told


def assert_undisturbed(client: Client, session: str, spec: dict[str, Any]) -> None:
    """Check that the next forecast is that of a learner that was never killed."""
    learner = okl_core.create(spec, 10)
    y = (Y + 1.0) / 2.0 if learner.target == "class" else Y
    mistakes = 0
    for row in range(ROUNDS):
        mistakes += learner.update(X[row], y[row]).forecast.label != y[row]
    for row in range(ROUNDS, ROUNDS + 20):
        issued = client.predict(session, X[row].tolist(), wait=False)
        expected = learner.predict(X[row])
        told = issued["score"] if expected.probabilities is None else issued["probabilities"][issued["label"] > 0]
        assert told == pytest.approx(expected.value, rel=1e-9)
    found = client.inspect(session)
    assert found["t"] == ROUNDS
    assert found["metrics"]["mistakes"] == mistakes
    assert found["describe"]["dictionary"] == learner.describe()["dictionary"]
