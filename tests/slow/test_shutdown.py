"""SIGTERM: requests in flight are answered if time permits; then the process exits in time by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from bench.processes import Worker, workers
from okl.client import Client
from service.demo_data import magic
from tests.command import serving
from tests.slow.reading import read

GRACE_S = 10
SLACK_S = 2.0
"""For closing the store, and for a machine that has more to do than this."""

GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
LEARNER = {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 6_000}}
ENDLESS = {"kind": "kons", "config": {"kernel": GAUSSIAN, "clip": 1.0}}
"""It stores every point: a block of 10,000 rounds takes minutes."""

X, Y = magic()


class Asking(threading.Thread):
    """A client that sends one request of many rounds, and how that ended."""

    def __init__(self, url: str, rounds: int) -> None:
        super().__init__()
        self.answer: httpx.Response | None = None
        self._url = url
        self._body = json.dumps({"x": X[:rounds].tolist(), "y": Y[:rounds].tolist(), "id": "long"}).encode()
        self._sent = threading.Event()
        self.start()

    def run(self) -> None:
        headers = {"Content-Type": "application/json"}
        with suppress(httpx.TransportError):
            self.answer = httpx.post(
                f"{self._url}/sessions/s/rounds", content=self._pieces(), headers=headers, timeout=60, trust_env=False
            )

    def _pieces(self) -> Iterator[bytes]:
        yield self._body
        self._sent.set()

    def is_under_way(self, after_s: float) -> bool:
        """Whether it is still unanswered `after_s` after the service received all of it."""
        assert self._sent.wait(60)
        self.join(after_s)
        return self.is_alive()


def test_a_long_request_is_answered(store_url: str, tmp_path: Path) -> None:
    """The signal arrives while many rounds are being learned: they are answered and stored."""
    settings = {"OKL_SHUTDOWN_GRACE_S": str(GRACE_S), "OKL_MAX_BATCH": str(len(Y))}
    with serving(store_url, tmp_path, **settings) as (process, url), Client(url) as client:
        client.create("s", LEARNER)
        asking = Asking(url, len(Y))
        assert asking.is_under_way(after_s=0.1)
        seconds, said = terminate(process)
        asking.join()
        assert asking.answer is not None
        assert asking.answer.json()["t"] == len(Y)
        assert process.returncode == 0
        assert "Traceback" not in said
        assert seconds < GRACE_S
    assert rounds_of(store_url) == len(Y)


def test_what_takes_longer_than_the_grace_holds_up_nobody(store_url: str, tmp_path: Path) -> None:
    """A block is all or nothing: the process exits, and no part of the block is stored."""
    grace_s = 0 if store_url.startswith("redis:") else 1
    settings = {"OKL_SHUTDOWN_GRACE_S": str(grace_s), "OKL_SESSION_BYTES": str(4 << 30)}
    with serving(store_url, tmp_path, **settings) as (process, url), Client(url) as client:
        client.create("s", ENDLESS)
        asking = Asking(url, 10_000)
        assert asking.is_under_way(after_s=1.0)
        seconds, said = terminate(process)
        asking.join()
        assert process.returncode == 0
        assert seconds < grace_s + SLACK_S
        assert "Traceback" not in said
        assert asking.answer is None or asking.answer.status_code >= 500
    assert rounds_of(store_url) == 0


def test_connections_without_a_request_hold_up_nobody(tmp_path: Path) -> None:
    """A signal sent twice, by an impatient operator, has the effect of one."""
    with serving("sqlite://", tmp_path, OKL_SHUTDOWN_GRACE_S="2") as (process, url), Client(url) as client:
        client.create("s", {"kind": "mean"})
        address = ("127.0.0.1", urlsplit(url).port)
        with socket.create_connection(address), socket.create_connection(address) as half:
            half.sendall(b"GET / HT")
            os.kill(process.pid, signal.SIGTERM)
            seconds, said = terminate(process)
        assert process.returncode == 0
        assert seconds < 2 + SLACK_S
        assert "Traceback" not in said


def test_streaming_clients_see_no_half_answers(store_url: str) -> None:
    """Each client's answers are complete; the store holds exactly the answered rounds and the round in flight."""
    with workers(store_url, 1, shutdown_grace_s=GRACE_S) as (worker,), Client(worker.url) as client:
        client.create("s", LEARNER)
        rounds = []
        threads = [threading.Thread(target=lambda: rounds.append(stream(worker))) for _ in range(4)]
        for thread in threads:
            thread.start()
        while client.inspect("s")["t"] < 100:
            time.sleep(0.05)
        started = time.perf_counter()
        worker.process.send_signal(signal.SIGTERM)
        worker.process.wait(timeout=3 * GRACE_S)
        seconds = time.perf_counter() - started
        for thread in threads:
            thread.join()
        assert worker.process.returncode == 0
        assert seconds < GRACE_S
        assert all(count > 0 for count in rounds)
    assert sum(rounds) <= rounds_of(store_url) <= sum(rounds) + len(threads)


def test_a_socket_is_answered_what_was_read_from_it(store_url: str, tmp_path: Path) -> None:
    with serving(store_url, tmp_path, OKL_SHUTDOWN_GRACE_S=str(GRACE_S)) as (process, url), Client(url) as client:
        client.create("s", LEARNER)
        with connect(f"ws{url.removeprefix('http')}/sessions/s/stream") as connection:
            for row in range(1_000):
                connection.send(json.dumps({"x": X[row].tolist(), "y": int(Y[row])}))
            # On a busy machine the signal could come before the worker has read any.
            connection.recv(timeout=30.0)
            process.send_signal(signal.SIGTERM)
            answered, code = rest_of(connection)
        _, said = terminate(process)
        assert "Traceback" not in said
    assert code == 1012
    assert 1 + answered == rounds_of(store_url)


def rest_of(connection: ClientConnection) -> tuple[int, int | None]:
    """How many messages arrive until the other side closes, and its close code."""
    count = 0
    with suppress(ConnectionClosed):
        for _ in connection:
            count += 1
    return count, connection.close_code


def stream(worker: Worker) -> int:
    """The number of rounds answered until the connection closed."""
    with worker.connection() as connection:
        for row in range(len(Y)):
            try:
                connection.post("/sessions/s/update", {"x": X[row].tolist(), "y": int(Y[row])})
            except OSError:
                return row
    return len(Y)


def rounds_of(store_url: str) -> int:
    """The number of the session's rounds in the store."""
    return read(store_url, "s").head.tip.round


def terminate(process: subprocess.Popen[str]) -> tuple[float, str]:
    """Seconds from the signal to the exit, and the standard error of the process."""
    started = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=3 * GRACE_S)
    return time.perf_counter() - started, said
