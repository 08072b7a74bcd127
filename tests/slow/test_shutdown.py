"""SIGTERM: what runs is answered, then the process leaves in time and of its own will."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest

from bench.processes import Worker, workers
from service.client import OklClient
from service.demo_data import magic
from tests.slow.reading import read

pytestmark = pytest.mark.slow

GRACE_S = 10
LEARNER = {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 6_000}}

X, Y = magic()


def test_a_long_request_is_answered(store_url: str) -> None:
    """The signal comes while many rounds are being learned: they are answered, and they are in the store."""
    with (
        workers(store_url, 1, shutdown_grace_s=GRACE_S, max_batch=len(Y)) as (worker,),
        OklClient(worker.url) as client,
    ):
        client.create("s", LEARNER)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(client.rounds("s", X.tolist(), Y.tolist(), id="long")))
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive(), "the request is to be under way"
        seconds = terminate(worker)
        thread.join()
        assert answers[0]["t"] == len(Y)
        assert worker.process.returncode == 0
        assert seconds < GRACE_S
    assert read(store_url, "s").head.round == len(Y)


def test_streaming_clients_see_no_half_answers(store_url: str) -> None:
    """Each client's answers are whole; the store holds exactly what was answered, and the round that was under way."""
    with workers(store_url, 1, shutdown_grace_s=GRACE_S) as (worker,), OklClient(worker.url) as client:
        client.create("s", LEARNER)
        rounds = []
        threads = [threading.Thread(target=lambda: rounds.append(stream(worker))) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        seconds = terminate(worker)
        for thread in threads:
            thread.join()
        assert worker.process.returncode == 0
        assert seconds < GRACE_S
        assert all(count > 0 for count in rounds)
    assert sum(rounds) <= read(store_url, "s").head.round <= sum(rounds) + len(threads)


def stream(worker: Worker) -> int:
    """Rounds that were answered until the connection closed."""
    with worker.connection() as connection:
        for row in range(len(Y)):
            try:
                connection.post("/sessions/s/update", {"x": X[row].tolist(), "y": int(Y[row])})
            except OSError:
                return row
    return len(Y)


def terminate(worker: Worker) -> float:
    """Seconds from the signal to the exit."""
    started = time.perf_counter()
    worker.process.send_signal(signal.SIGTERM)
    worker.process.wait(timeout=3 * GRACE_S)
    return time.perf_counter() - started


@pytest.mark.parametrize("path", ["/sessions/s/predict", "/sessions"])
def test_a_body_over_the_limit_closes_nothing_else(store_url: str, path: str) -> None:
    """50 MB over a real socket, announced and in chunks: refused without reading it all, and the worker goes on."""
    with workers(store_url, 1) as (worker,), OklClient(worker.url) as client:
        client.create("s", {"kind": "mean"})
        for body in (bytes(50 << 20), (bytes(1 << 20) for _ in range(50))):
            try:
                response = httpx.post(f"{worker.url}{path}", content=body, trust_env=False)
            except httpx.TransportError:
                continue  # closed while the client was still sending: as HTTP allows
            assert (response.status_code, response.json()["type"]) == (413, "/problems/payload-too-large")
        assert client.predict("s", [1.0])["t"] == 0
