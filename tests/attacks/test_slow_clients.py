"""Who is too slow, or one too many, does not keep a connection."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.processes import Worker
from tests.attacks.attacker import SLACK_S, Answer, connect, post, talk
from tests.attacks.conftest import BODY_S, HEAD_S

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CONNECTIONS = 20
ANSWERED_S = 2.0
"""A connection stays open for a moment after the answer, so that it can be read."""


def drops() -> Iterator[bytes]:
    """A byte now and then."""
    for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 100:
        yield bytes([byte])
        time.sleep(0.05)


SLOW: dict[str, tuple[Iterable[bytes], float, set[int | None]]] = {
    "nothing": ([b""], HEAD_S, {None}),
    "half a head": ([b"GET / HTTP/1.1\r\nHost: local"], HEAD_S, {408}),
    "a head but for its end": ([b"GET / HTTP/1.1\r\nHost: localhost\r\n"], HEAD_S, {408}),
    "a head in drops": (drops(), HEAD_S, {408, None}),
    "half a body": ([post("/predict", b"{}").replace(b": 2", b": 99")], BODY_S + 1, {408}),
    "half a body that nobody reads": ([post("/nowhere", b"{}").replace(b": 2", b": 99")], BODY_S + 1, {404}),
    "half a chunk": (
        [post("/predict", b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b""), b"5\r\nab"],
        BODY_S + 1,
        {408},
    ),
    "half a second head": ([GET + b"GET /he"], HEAD_S + 1, {200}),
}
"""What is sent, when the connection is to be cut, and the status of the answer."""


@pytest.fixture(scope="module")
def cut_off(worker: Worker) -> dict[str, tuple[Answer, float]]:
    """What each of the slow was told before its connection was closed, and how long it had it: all at the same time."""

    def converse(name: str) -> tuple[Answer, float]:
        started = time.monotonic()
        return talk(worker.port, SLOW[name][0], until_closed=True), time.monotonic() - started

    with ThreadPoolExecutor(len(SLOW)) as pool:
        return dict(zip(SLOW, pool.map(converse, SLOW), strict=True))


@pytest.mark.parametrize("name", SLOW)
def test_who_is_too_slow_is_cut_off(cut_off: dict[str, tuple[Answer, float]], name: str) -> None:
    _, within_s, statuses = SLOW[name]
    answer, took_s = cut_off[name]
    assert answer.status in statuses, answer.data[:300]
    assert HEAD_S - 0.5 < took_s < within_s + ANSWERED_S + SLACK_S


@pytest.fixture
def small_worker() -> Iterator[Worker]:
    """Of the shared one some connections may be those of an attack before, until they are cut off."""
    worker = Worker("sqlite://", head_timeout_s=HEAD_S, body_timeout_s=BODY_S, max_connections=CONNECTIONS)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def test_connections_have_a_number(small_worker: Worker) -> None:
    """One too many is told so. When the idle ones are closed there is room again."""
    port = small_worker.port
    held = [connect(port) for _ in range(CONNECTIONS)]
    try:
        assert talk(port, [GET], until_closed=True).status in (503, None)
        with connect(port) as silent:
            data = silent.recv(1 << 16)
        assert data.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in data
        assert [one.recv(1) for one in held] == [b""] * CONNECTIONS
    finally:
        for one in held:
            one.close()
    assert talk(port, [GET]).status == 200
