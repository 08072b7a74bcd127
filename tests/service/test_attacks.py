"""Attacks on a real `okl serve` process: the answer is short and quick, the worker grows by little, others do not notice."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bench.processes import Worker
from service.client import OklClient
from tests.service.attacker import Bystander, connect, forget_peak, memory_mib, post, talk

MIB = 1 << 20
MAX_ANSWER_BYTES = 8 << 10
MAX_ANSWER_S = 1.0
MAX_GROWTH_MIB = 64
MAX_P99_S = 0.025
SLACK_S = 1.5
"""On a loaded machine a clock is looked at late."""

HEAD_S, BODY_S, GRACE_S = 2.0, 2.0, 1
ATTACK_S = 2.5
LOADED = 8
CONNECTIONS = 60
MANY = 8_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacks") / "log"


@pytest.fixture(scope="module")
def worker(log: Path) -> Iterator[Worker]:
    bounds = {"head_timeout_s": HEAD_S, "body_timeout_s": BODY_S, "max_connections": CONNECTIONS}
    worker = Worker("sqlite://", log=log, shutdown_grace_s=GRACE_S, **bounds)
    worker.start()
    try:
        with OklClient(worker.url) as client:
            client.create("s", {"kind": "mean"}, y_range=[0.0, 10.0])
            client.rounds("s", [[0.1, 0.2], [0.3, 0.4]], [1.0, 2.0])
            client.create("f", {"kind": "mean"}, schema=[{"name": "a"}, {"name": "b"}])
        yield worker
    finally:
        worker.kill()


@pytest.fixture(scope="module")
def decoy() -> Iterator[Worker]:
    """Another worker, to be attacked in place of the first."""
    worker = Worker("sqlite://")
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def port(worker: Worker) -> int:
    return worker.port


def repeated(before: bytes, piece: bytes, after: bytes, size: int = MANY) -> bytes:
    return before + piece * ((size - len(before) - len(after)) // len(piece)) + after


def numbered(form: str, size: int = MANY) -> bytes:
    """Members with names of their own, as many as there is room for."""
    count = size // (len(form) + 5)
    return ",".join(form % i for i in range(count)).encode()


SAY: dict[str, Callable[[], tuple[str, bytes]]] = {
    "booleans": lambda: ("/predict", repeated(b'{"session": "s", "x": [', b"true,", b"1]}")),
    "booleans of a row": lambda: ("/predict", repeated(b'{"session": "s", "x": [', b"true,", b"1]}", MIB)),
    "rows of the wrong type": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b"1,", b'1], "y": [1]}')),
    "few rows of the wrong type": lambda: (
        "/sessions/s/rounds",
        repeated(b'{"x": [', b"1,", b'1], "y": [1]}', 2 * MIB),
    ),
    "empty rows": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b"[],", b'[1]], "y": [1]}')),
    "rows of one number": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b"[1],", b'[1]], "y": [1]}')),
    "rows of nothing but names": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b'{"":1},', b'[1]], "y": [1]}')),
    "truths of the wrong type": lambda: ("/sessions/s/rounds", repeated(b'{"x": [[1, 2]], "y": [', b"[],", b"1]}")),
    "good rows, and a bad one": lambda: (
        "/sessions/s/rounds",
        json.dumps({"x": [[0.123456789] * 40] * 9000 + [[True]], "y": [1.0] * 9001}).encode(),
    ),
    "unknown members": lambda: ("/predict", b'{"session": "s", "x": [1, 2],' + numbered('"k%d":1') + b"}"),
    "some unknown members": lambda: (
        "/predict",
        b'{"session": "s", "x": [1, 2],' + numbered('"k%d":1', MIB // 4) + b"}",
    ),
    "unknown members of rounds": lambda: ("/sessions/s/rounds", b"{" + numbered('"k%d":1') + b"}"),
    "unknown features": lambda: ("/sessions/f/predict", b'{"x": {' + numbered('"k%d":1', MIB // 4) + b"}}"),
    "features of the wrong type": lambda: ("/sessions/f/predict", b'{"x": {' + numbered('"k%d":[]', MIB // 5) + b"}}"),
    "rows of unknown features": lambda: (
        "/sessions/f/rounds",
        b'{"x": [' + b",".join([b"{" + numbered('"k%d":1', 600) + b"}"] * 9000) + b'], "y": [' + b"1," * 8999 + b"1]}",
    ),
    "brackets": lambda: ("/predict", b"[" * MANY),
    "brackets of a row": lambda: ("/predict", b'{"x":' + b"[" * (MIB // 2)),
    "brackets in rounds": lambda: ("/sessions/s/rounds", b'{"x": [' + b"[" * MANY),
    "one long text": lambda: ("/predict", b'{"session": "' + b"s" * (MIB - 100) + b'", "x": [1]}'),
    "one long name": lambda: ("/predict", b'{"' + b"s" * (MIB - 100) + b'": "", "x": [1]}'),
    "one long name in rounds": lambda: ("/sessions/s/rounds", b'{"' + b"s" * MANY + b'": "", "x": [1]}'),
    "escapes": lambda: ("/sessions/s/rounds", repeated(b'{"id": "', b"\\u0000", b'", "x": [[1]], "y": [1]}')),
    "blanks": lambda: ("/sessions/s/rounds", b" " * MANY),
    "a long number": lambda: ("/predict", b'{"session": "s", "x": [' + b"1" * (MIB - 100) + b"]}"),
    "a long name of a session": lambda: ("/predict", b'{"session": "' + b"a" * 60_000 + b'", "x": [1, 2]}'),
    "a long name in the path": lambda: ("/sessions/" + "a" * 60_000 + "/predict", b'{"x": [1, 2]}'),
    "a long id": lambda: ("/predict", b'{"session": "s", "x": [1, 2], "id": "' + b"a" * 60_000 + b'"}'),
    "a config of booleans": lambda: (
        "/sessions",
        repeated(b'{"name": "n", "learner": {"kind": "packing", "config": {"metric": [', b"true,", b"1]}}}", MIB // 9),
    ),
    "a config of unknown members": lambda: (
        "/sessions",
        b'{"name": "n", "learner": {"kind": "mean", "config": {' + numbered('"k%d":1', MIB // 4) + b"}}}",
    ),
    "a schema of nothing": lambda: (
        "/sessions",
        repeated(b'{"name": "n", "learner": {"kind": "mean"}, "schema": [', b"{},", b"1]}", MIB // 20),
    ),
}


@pytest.mark.parametrize("name", SAY)
def test_a_bad_body_costs_little(worker: Worker, name: str) -> None:
    path, body = SAY[name]()
    request = [post(path, body)]
    calm_mib = memory_mib(worker.process.pid)
    forget_peak(worker.process.pid)
    answers = [talk(worker.port, request) for _ in range(3)]
    grown_mib = memory_mib(worker.process.pid, "VmHWM") - calm_mib
    for answer in answers:
        assert answer.status in (400, 404, 413, 422, 431), answer.data[:500]
        assert len(answer.data) <= MAX_ANSWER_BYTES
        assert answer.document["instance"]
        assert len(answer.document.get("errors", [])) <= 10
    assert min(answer.seconds for answer in answers) < MAX_ANSWER_S
    assert grown_mib < MAX_GROWTH_MIB


def stuffed(before: bytes, piece: bytes, count: int) -> Iterator[bytes]:
    yield before
    for _ in range(count):
        yield piece


HEADS: dict[str, tuple[Callable[[], Iterator[bytes]], set[int | None]]] = {
    "a header of 300 MB": (lambda: stuffed(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ", b"a" * MIB, 300), {431, None}),
    "a URL of 100 MB": (lambda: stuffed(b"GET /", b"a" * MIB, 100), {431, None}),
    "a URL that is too long": (
        lambda: stuffed(b"GET /", b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        {414},
    ),
    "headers without end": (lambda: stuffed(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000, 1000), {431, None}),
    "headers that are too large": (
        lambda: stuffed(b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"a: " + b"b" * 20_000 + b"\r\n\r\n", 1),
        {431},
    ),
    "empty lines without end": (lambda: stuffed(b"", b"\r\n" * 10_000, 500), {408, None}),
    "no HTTP": (lambda: stuffed(b"\x16\x03\x01\x02\x00" * 100, b"", 0), {400}),
    "a body of 1 GB in chunks": (
        lambda: stuffed(
            b"POST /sessions/s/rounds HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n" % MIB + b"[" * MIB + b"\r\n",
            1000,
        ),
        {413, 408, None},
    ),
    "a body of 1 GB, announced": (
        lambda: stuffed(post("/predict", b"", "Content-Length: 1000000000"), b"a" * MIB, 1000),
        {400, 413, None},
    ),
    "a second head of 300 MB": (
        lambda: stuffed(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nA: ", b"a" * MIB, 300),
        {200},
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_bad_head_costs_little(worker: Worker, name: str) -> None:
    """It is cut off, with an answer unless the client is too busy to read one."""
    parts, statuses = HEADS[name]
    calm_mib = memory_mib(worker.process.pid)
    forget_peak(worker.process.pid)
    started = time.monotonic()
    answer = talk(worker.port, parts())
    assert time.monotonic() - started < 10
    assert answer.status in statuses, answer.data[:300]
    assert len(answer.data) <= MAX_ANSWER_BYTES
    assert memory_mib(worker.process.pid, "VmHWM") - calm_mib < MAX_GROWTH_MIB


def attack(port: int, names: list[str], until: float) -> None:
    requests = [post(*SAY[name]()) for name in names]
    while time.monotonic() < until:
        for request in requests:
            with suppress(OSError):
                talk(port, [request])


ATTACKS = {
    "bodies": ["booleans", "rows of the wrong type", "empty rows", "unknown members of rounds", "rows of one number"],
    "rows": ["booleans of a row", "some unknown members", "unknown features", "features of the wrong type"],
    "rounds": ["good rows, and a bad one", "rows of unknown features", "few rows of the wrong type"],
    "names": ["a long name of a session", "a long name in the path", "a long id", "one long text"],
    "configs": ["a config of booleans", "a config of unknown members", "a schema of nothing"],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_bystander_does_not_notice(worker: Worker, decoy: Worker, name: str) -> None:
    """Its p99 stays low while bad bodies come one after the other.

    Where the machine is loaded by others each turn of the loop takes longer, and each wait for a processor: the time is
    compared with what it is while the same is sent to another worker, and with how many want a processor.
    """
    tries = []
    for _ in range(3):
        calm_s, p99_s = [p99_under_attack(worker, attacked.port, name) for attacked in (decoy, worker)]
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        tries.append((p99_s, calm_s, load))
        print(f"{name}: p99 {p99_s * 1e3:.1f} ms; attack on another worker {calm_s * 1e3:.1f} ms; load {load:.1f}")
        if p99_s < max(MAX_P99_S * load**2, LOADED * calm_s):
            return
    pytest.fail(f"p99, in calm, load: {tries}")


def p99_under_attack(worker: Worker, port: int, name: str) -> float:
    bystander = Bystander(worker.port, ATTACK_S)
    attack(port, ATTACKS[name], time.monotonic() + ATTACK_S)
    return bystander.p99_s()


def test_a_bystander_does_not_notice_long_heads(worker: Worker) -> None:
    bystander = Bystander(worker.port, ATTACK_S)
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        for name in ("a header of 300 MB", "a URL of 100 MB", "headers without end"):
            talk(worker.port, HEADS[name][0](), until_closed=True)
    load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert bystander.p99_s() < 2 * MAX_P99_S * load**2


# -- time ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "within_s", "statuses"),
    [
        pytest.param(b"", HEAD_S, {None}, id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: local", HEAD_S, {408}, id="half a head"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n", HEAD_S, {408}, id="a head but for its end"),
        pytest.param(post("/predict", b"{}").replace(b": 2", b": 99"), BODY_S + 1, {408}, id="half a body"),
        pytest.param(
            post("/nowhere", b"{}").replace(b": 2", b": 99"), BODY_S + 1, {404}, id="half a body that nobody reads"
        ),
        pytest.param(
            post("/predict", b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"") + b"5\r\nab",
            BODY_S + 1,
            {408},
            id="half a chunk",
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he", HEAD_S + 1, {200}, id="half a second head"
        ),
    ],
)
def test_who_is_too_slow_is_cut_off(port: int, sent: bytes, within_s: float, statuses: set[int | None]) -> None:
    started = time.monotonic()
    answer = talk(port, [sent], until_closed=True)
    assert answer.status in statuses, answer.data[:300]
    # The connection stays open for a moment after the answer, so that it can be read.
    assert time.monotonic() - started < within_s + 2.0 + 2 * SLACK_S


def test_a_head_in_drops_is_cut_off(port: int) -> None:
    """A byte now and then does not keep the connection."""
    started = time.monotonic()
    with connect(port) as connection, suppress(ConnectionError):
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
            if time.monotonic() - started > HEAD_S + 5:
                pytest.fail("still open")
    assert time.monotonic() - started > HEAD_S - 0.5


def test_connections_have_a_number(worker: Worker) -> None:
    """One too many is told so. When the idle ones are closed there is room again."""
    held = [connect(worker.port) for _ in range(CONNECTIONS)]
    try:
        time.sleep(0.3)
        answer = talk(worker.port, [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"], until_closed=True)
        assert answer.status in (503, None)
        with connect(worker.port) as silent:
            data = silent.recv(1 << 16)
        assert data.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in data
    finally:
        time.sleep(HEAD_S + SLACK_S)
        for one in held:
            one.close()
    assert talk(worker.port, [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]).status == 200


# -- conversations that must go on -------------------------------------------------------------------------------------

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
ASK = post("/predict", b'{"session": "s", "x": [1, 2], "wait": false}')
NOWHERE = post("/nowhere", b"x" * 70_000)
LARGE = post("/predict", b"x" * (2 * MIB))
CHUNKED = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'2\r\n{"\r\n28\r\nsession": "s", "x": [1, 2], "wait": 0   \r\n1\r\n}\r\n0\r\n\r\n'
)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("parts", "statuses"),
    [
        pytest.param([GET, GET, LAST], [200, 200, 200], id="one after the other"),
        pytest.param([GET + GET + ASK + LAST], [200, 200, 200, 200], id="pipelined"),
        pytest.param(split(GET + ASK + LAST, 1), [200, 200, 200], id="byte by byte"),
        pytest.param(split(ASK + GET + ASK + LAST, 7), [200, 200, 200, 200], id="in pieces"),
        pytest.param([b"\r\n\r\n" + GET + b"\r\n" + LAST], [200, 200], id="empty lines before"),
        pytest.param([b"\r\n", b"\r\n", GET, b"\r\n", LAST], [200, 200], id="empty lines by themselves"),
        pytest.param([NOWHERE + LAST], [404, 200], id="behind a body that nobody read"),
        pytest.param([*split(NOWHERE, 9000), LAST], [404, 200], id="behind pieces that nobody read"),
        pytest.param([*split(LARGE, 60_000), LAST], [413, 200], id="behind a body that is too large"),
        pytest.param([CHUNKED, LAST], [422, 200], id="behind chunks"),
        pytest.param([NOWHERE + ASK * 20 + LAST], [404] + [200] * 21, id="many pipelined"),
    ],
)
def test_a_connection_goes_on(port: int, parts: list[bytes], statuses: list[int]) -> None:
    with connect(port) as connection:
        for part in parts:
            connection.sendall(part)
            if len(parts) < 20:
                time.sleep(0.02)
        data = b""
        while received := connection.recv(1 << 16):
            data += received
    found = [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]
    assert found == statuses, data


def test_a_client_that_waits_to_be_asked_for_its_body(port: int) -> None:
    head, _, body = post("/predict", b'{"session": "s", "x": [1, 2]}', "Expect: 100-continue").partition(b"\r\n\r\n")
    with connect(port) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY + b"\r\n", id="a socket"),
        pytest.param(b"GET /predict HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n", id="without a key"),
        pytest.param(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"Content-Length: 2\r\n\r\n{}", id="a POST"
        ),
        pytest.param(
            b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY + b"\r\n", id="long"
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + UPGRADE + KEY + b"\r\n", id="many headers"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n" + UPGRADE + KEY + b"\r\n", id="a foreign name"),
    ],
)
def test_an_upgrade_is_answered(port: int, request_: bytes) -> None:
    answer = talk(port, [request_])
    assert answer.status in (400, 403, 404, 405, 421, 431), answer.data
    assert answer.seconds < 1.0 + SLACK_S


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_that_sends_no_more_is_answered(port: int, method: str) -> None:
    """It shuts its side of the connection down behind the request."""
    for _ in range(20):
        with connect(port) as connection:
            connection.sendall(f"{method} /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_computes_stops_in_time(tmp_path: Path) -> None:
    """The grace is over while a request still learns in a thread: the process goes, and says so in one line."""
    log = tmp_path / "log"
    worker = Worker(f"sqlite:///{tmp_path / 'okl.sqlite3'}", log=log, shutdown_grace_s=GRACE_S)
    worker.start()
    try:
        with OklClient(worker.url) as client:
            client.create("long", {"kind": "kons"})
        rows = [[i % 17 / 17, i % 101 / 101] for i in range(10_000)]
        body = json.dumps({"x": rows, "y": [i % 3 - 1.0 for i in range(10_000)]}).encode()
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(talk(worker.port, [post("/sessions/long/rounds", body)]))
        )
        thread.start()
        time.sleep(1.5)
        assert thread.is_alive(), "the request is to be under way"
        started = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(timeout=30) == 0
        assert time.monotonic() - started < GRACE_S + 1.0 + SLACK_S
        thread.join()
        assert answers[0].status in (503, None)
    finally:
        worker.kill()
    assert "Traceback" not in log.read_text()


def test_a_worker_with_open_connections_stops_in_time(tmp_path: Path) -> None:
    worker = Worker("sqlite://", log=tmp_path / "log", shutdown_grace_s=GRACE_S)
    worker.start()
    try:
        with connect(worker.port), connect(worker.port) as half:
            half.sendall(b"GET / HT")
            time.sleep(0.2)
            started = time.monotonic()
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(timeout=30) == 0
            assert time.monotonic() - started < GRACE_S + 1.0 + SLACK_S
    finally:
        worker.kill()


def test_nothing_of_this_left_a_traceback(worker: Worker, log: Path) -> None:
    """The last test of the module: its worker has seen all of them."""
    with OklClient(worker.url) as client:
        assert client.predict("s", [0.1, 0.2], wait=False)["t"] == 2
    text = log.read_text()
    assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:2000]
    assert all(len(line) < 20_000 for line in text.splitlines())
