"""nginx as docker/nginx starts it, in front of real workers and of servers that tell what reached them."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from bench.balancer import Balancer, balancer
from bench.http_client import free_port
from bench.processes import workers
from bench.ring import Ring
from okl.client import Client
from okl.errors import PROBLEMS
from tests.deployment.kept import limit
from tests.deployment.upstreams import upstreams

MEMBERS = {"type", "title", "status", "detail", "instance"}


def asking(front: Balancer, *, connections_kept: int | None = None) -> httpx.Client:
    limits = httpx.Limits(max_keepalive_connections=connections_kept)
    return httpx.Client(base_url=front.url, trust_env=False, timeout=20.0, limits=limits)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# What goes where


def test_a_session_stays_with_its_worker_whatever_the_route() -> None:
    with upstreams(3) as servers, balancer([server.name for server in servers]) as front, asking(front) as http:
        met = set()
        for name in ("a", "b", "c.d", "e_f", "g-1", "predictor", "h", "i"):
            answers = [http.post(f"/sessions/{name}/{verb}").text for verb in ("predict", "update", "step", "rounds")]
            answers += [http.get(f"/sessions/{name}{rest}").text for rest in ("", "/history", "/rounds?limit=3")]
            answers += [http.delete(f"/sessions/{name}/predictions/x%2Fy").text]
            assert len(set(answers)) == 1, name
            met |= set(answers)
        assert len(met) > 1
        for path in ("/predict", "/sessions/predict", "/sessions/step"):
            # No session is named: any worker, all of them in time.
            assert {http.post(path).text for _ in range(60)} == {server.name for server in servers}


def test_workers_that_come_and_go_are_found(tmp_path: Path) -> None:
    found = tmp_path / "found"
    getent = tmp_path / "getent"
    getent.write_text(f'#!/bin/sh\ntest "$2" = okl && cat {found} 2>/dev/null\nexit 0\n')
    getent.chmod(getent.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # Two addresses of this machine, one port: as the replicas of a service have.
    with upstreams(1) as (one,), upstreams(1, "127.0.0.2", one.server_port) as (other,):
        found.write_text("127.0.0.1 STREAM okl\n127.0.0.1 DGRAM\n")
        # To take up another list nginx closes the connections that rest, also while a request is on its way on one.
        with balancer([f"okl:{one.server_port}"], environment) as front, asking(front, connections_kept=0) as http:
            assert {http.get(f"/sessions/s{n}").text for n in range(20)} == {one.name}
            found.write_text("127.0.0.1 STREAM okl\n127.0.0.2 STREAM okl\n")
            eventually(lambda: {http.get(f"/sessions/s{n}").text for n in range(20)} == {one.name, other.name})
            # Each address has a place of its own in the ring, once no process of nginx is left that has the list of before.
            ring = Ring([one.name, other.name])
            places = {f"s{n}": ring.server(f"s{n}") for n in range(20)}
            eventually(lambda: all(http.get(f"/sessions/{n}").text == places[n] for n in places for _ in range(3)))
            found.write_text("127.0.0.2 STREAM okl\n")
            eventually(lambda: {http.get(f"/sessions/s{n}").text for n in range(20)} == {other.name})
            # A name server that is away takes nobody away.
            found.write_text("")
            time.sleep(0.6)
            assert http.get("/sessions/s").text == other.name


def test_it_has_as_many_processes_as_it_is_told_whatever_the_machine_has() -> None:
    with upstreams(1) as (server,):
        for environment, count in (({}, 2), ({"OKL_PROCESSES": "3"}, 3)):
            with balancer([server.name], environment) as front, asking(front) as http:
                assert http.get("/sessions/s").text == server.name
                assert len(front.processes()) == 1 + count


# What is sent twice


@pytest.mark.parametrize(
    ("method", "path", "key", "is_repeated"),
    [
        ("GET", "", None, True),
        ("POST", "/update", None, False),
        ("POST", "/update", "u-1", True),
        ("POST", "/rounds", "r-1", True),
        # A route that does not take the header as an id.
        ("POST", "/step", "u-1", False),
        ("PUT", "/snapshot", None, False),
        ("DELETE", "", None, False),
        ("DELETE", "/checkpoints/c", None, False),
    ],
)
def test_what_may_have_been_done_is_asked_again_only_with_an_id(
    method: str, path: str, key: str | None, is_repeated: bool
) -> None:
    with upstreams(2) as servers:
        ring = Ring([server.name for server in servers])
        name = next(f"s{number}" for number in range(100) if ring.server(f"s{number}") == servers[0].name)
        servers[0].breaks = True
        headers = {} if key is None else {"Idempotency-Key": key}
        with balancer([server.name for server in servers]) as front, asking(front) as http:
            content = b"x" * 100_000 if method in ("POST", "PUT") else None
            answer = http.request(method, f"/sessions/{name}{path}", headers=headers, content=content)
        asked = [len(server.asked) for server in servers]
    if is_repeated:
        assert (answer.text, asked) == (servers[1].name, [1, 1])
    else:
        assert (answer.status_code, asked) == (502, [1, 0])
        assert "same id" in answer.json()["detail"]


def test_a_worker_that_is_gone_is_asked_nothing() -> None:
    """Then nothing was sent, and the next one may be asked whatever it is."""
    gone = f"127.0.0.1:{free_port()}"
    with upstreams(1) as (here,), balancer([here.name, gone]) as front, asking(front) as http:
        for number in range(20):
            assert http.post(f"/sessions/s{number}/step", content=b"{}").text == here.name


# What nginx refuses


def problem(answer: httpx.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert (set(found), found["status"]) == (MEMBERS, status)
    assert found["instance"] == answer.headers["x-request-id"]
    assert ("retry-after" in answer.headers) == (status in (408, 429, 500, 502, 503, 504))
    slug = found["type"].removeprefix("/problems/")
    if found["type"] != "about:blank":
        assert (PROBLEMS[slug].status, PROBLEMS[slug].title) == (status, found["title"])
    return found


def test_what_it_refuses_is_a_problem_document() -> None:
    with balancer([f"127.0.0.1:{free_port()}"]) as front, asking(front) as http:
        nobody = problem(http.post("/update", headers={"X-Request-Id": "mine"}), 502)
        assert nobody["instance"] == "mine"
        assert problem(http.get("/", headers={"X-Request-Id": 'a"b'}), 502)["instance"] != 'a"b'
        problem(http.post("/update", headers={"Idempotency-Key": "u"}), 502)
        assert (
            problem(http.post("/update", content=b"x" * (8 << 20) + b"x"), 413)["type"] == "/problems/payload-too-large"
        )
        assert problem(http.get("/metrics"), 404)["type"] == "/problems/not-found"
        assert problem(http.get("/" + "x" * 20_000), 414)["type"] == "/problems/uri-too-long"
        problem(http.get("/", headers={"X": "x" * 20_000}), 400)
        problem(http.request("TRACE", "/"), 405)
        assert http.get("/nginx-healthz").text == "ok\n"


def test_its_log_tells_what_was_asked() -> None:
    """Of its own refusals too, and in JSON whatever the path."""
    asked = {
        b"GET /metrics?secret=1 HTTP/1.1": (404, "GET", "/metrics"),
        b"TRACE /a?secret=1 HTTP/1.1": (405, "TRACE", "/a"),
        b"POST /update?secret=1 HTTP/1.1": (502, "POST", "/update"),
        b"DELETE /%ff%20x HTTP/1.1": (502, "DELETE", "/%ff%20x"),
        b"GET /a\xffb HTTP/1.1": (502, "GET", "/a"),
        b"GET /a HTTP/3.7": (505, "GET", ""),
        b"POST /b HTTP/1.1\r\nTransfer-Encoding: gzip": (501, "POST", "/b"),
    }
    with balancer([f"127.0.0.1:{free_port()}"]) as front:
        for line in asked:
            with socket.create_connection(("127.0.0.1", front.port)) as client:
                client.sendall(line + b"\r\nHost: okl\r\nIdempotency-Key: u\r\nContent-Length: 0\r\n\r\n")
                assert b"problem+json" in client.recv(65536)

        def told() -> list[dict[str, object]]:
            return [json.loads(line) for line in front.log.splitlines() if line.startswith("{")]

        eventually(lambda: len(told()) == len(asked))
        assert {(line["status"], line["method"], line["path"]) for line in told()} == set(asked.values())


def test_large_bodies_leave_room_for_each_other_and_for_all_else() -> None:
    """Whoever sends many and never ends them holds up other large ones of the same address, and nothing else."""
    most = limit("limit_conn kept_of_address")
    head = "POST /sessions/s/rounds HTTP/1.1\r\nHost: okl\r\n"
    with upstreams(1) as (server,), balancer([server.name]) as front, asking(front) as http, ExitStack() as stack:
        # One more, since the first of those below may come before the last of these, which is then refused.
        for number in range(most + 1):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", front.port)))
            length = "Content-Length: 1000000" if number % 2 else "Transfer-Encoding: chunked"
            client.sendall(f"{head}{length}\r\n\r\n".encode())
        large = b"x" * 100_000

        def refused() -> bool:
            return http.post("/sessions/s/rounds", content=large).status_code == 429

        eventually(refused)
        assert problem(http.post("/sessions/s/rounds", content=large), 429)
        assert http.post("/sessions/s/rounds", content=large[1:]).text == server.name
        assert http.post("/sessions/s/stream", content=large).text == server.name
        assert http.get("/sessions/s").text == server.name
        stack.close()
        eventually(lambda: not refused())


# What a worker is told


def test_a_worker_is_told_how_the_client_came() -> None:
    """An ingress may have terminated TLS in front of nginx."""
    with upstreams(1) as (server,), balancer([server.name]) as front, asking(front) as http:
        for told, scheme in ((None, "http"), ("https", "https"), ("http", "http"), ("gopher", "http")):
            http.get("/", headers={} if told is None else {"X-Forwarded-Proto": told})
            assert server.heads[-1]["X-Forwarded-Proto"] == scheme


def test_an_upgrade_to_http_2_is_not_offered_to_a_worker() -> None:
    with upstreams(1) as (server,), balancer([server.name]) as front, asking(front) as http:
        offer = {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA",
        }
        assert http.get("/sessions/s", headers=offer).text == server.name
        assert "upgrade" not in server.heads[-1].get("Connection", "").lower()


# Streams


def test_an_upgrade_passes_both_ways() -> None:
    """A WebSocket handshake, and bytes after it, by a server that echoes."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        seen: list[bytes] = []

        def echo() -> None:
            connection = upstream.accept()[0]
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
                )
                while data := connection.recv(65536):
                    connection.sendall(data[::-1])

        thread = threading.Thread(target=echo)
        thread.start()
        with balancer([f"127.0.0.1:{upstream.getsockname()[1]}"]) as front:
            with socket.create_connection(("127.0.0.1", front.port)) as client:
                key = base64.b64encode(bytes(16)).decode()
                head = "GET /sessions/s/stream HTTP/1.1\r\nHost: okl\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                client.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
                assert client.recv(65536).startswith(b"HTTP/1.1 101")
                for word in (b"abc", b"defg"):
                    client.sendall(word)
                    assert client.recv(65536) == word[::-1]
            thread.join(10.0)
    lower = seen[0].lower()
    assert b"upgrade: websocket" in lower
    assert b"connection: upgrade" in lower
    assert b"sec-websocket-key" in lower


def test_a_body_is_passed_on_while_it_is_sent_and_answered() -> None:
    """`stream`: the answer to the first line comes before the second line is sent."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:

        def answer() -> None:
            connection = upstream.accept()[0]
            with connection:
                data = b""
                while b"one\n" not in data:
                    data += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                while b"two\n" not in data:
                    data += connection.recv(65536)
                connection.sendall(b"6\r\nsecond\r\n0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with balancer([f"127.0.0.1:{upstream.getsockname()[1]}"]) as front:
            with socket.create_connection(("127.0.0.1", front.port), timeout=5.0) as client:
                client.sendall(
                    b"POST /sessions/s/stream HTTP/1.1\r\nHost: okl\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"
                )
                received = b""
                while b"first" not in received:
                    received += client.recv(65536)
                client.sendall(b"4\r\ntwo\n\r\n0\r\n\r\n")
                while b"second" not in received:
                    received += client.recv(65536)
            thread.join(10.0)


# Real workers


def test_no_round_is_lost_or_learned_twice_when_a_worker_is_killed(tmp_path: Path) -> None:
    """Its requests are sent again by nginx, by their ids; whoever streams sees no error."""
    rounds, names = 40, ["a", "b", "c", "d"]
    with workers(f"sqlite:///{tmp_path / 'okl.sqlite3'}", 2) as pair:
        addresses = [f"127.0.0.1:{worker.port}" for worker in pair]
        with balancer(addresses) as front, Client(front.url) as okl, asking(front) as http:
            for name in names:
                okl.create(name, "mean")
            # Events come when they happen: nginx keeps none back.
            events = okl.events(names[0])
            next(events)
            for number in range(rounds):
                if number == rounds // 2:
                    while next(events)[1]["t"] < number:
                        pass
                    events.close()
                    pair[0].kill()
                for name in names:
                    body = {"x": [1.0], "y": float(number)}
                    headers = {"Idempotency-Key": f"{name}-{number}"}
                    answer = http.post(f"/sessions/{name}/update", json=body, headers=headers)
                    assert answer.status_code == 200, answer.text
                    assert answer.json()["t"] == number + 1
            for name in names:
                found = okl.inspect(name)
                assert (found["t"], found["metrics"]["rounds"]) == (rounds, rounds)
