"""Workers behind nginx: `python -m bench.balanced [--rounds N] [--learner KIND] [--sessions N]`.

Does a second worker bring what it should, and what does nginx's ring save? Sessions are played by `step` on rows of MAGIC,
a request of each under way all the time, by one process whose requests are made before. The contestants take turns in
bursts, each with a Redis server of its own that keeps an append-only file:

    one        one worker behind nginx
    two        two workers behind nginx, which sends each session to one of them
    in turn    two workers, each round of a session at the next one, without nginx

Rounds/s are those on the wall clock. They say what a worker can do only where each part has a core; `cores` is how many all
parts together got. So CPU microseconds a round are told of each part. `fit` is how many times the rounds of one worker these
do by their CPU alone. `replayed` are rounds that a worker learned since another one had served them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.balancer import Balancer, balancer
from bench.http import rows
from bench.http_client import HOST, Process, RawClient, redis_server, start_okl

BURSTS = 6
WARM_UP = 600
"""Rounds of each session; more than those from which it finds its scale."""

AGAIN = 20
"""Rounds of each session after them, as those that are measured."""


@dataclass
class Contestant:
    name: str
    workers: list[Process]
    front: Balancer | None
    rounds: int = 0
    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    replayed: float = 0.0

    @property
    def ports(self) -> list[int]:
        return [self.front.port] if self.front else [worker.port for worker in self.workers]

    def taken(self, store: Process) -> dict[str, float]:
        """CPU seconds of each part."""
        workers = sum(worker.cpu_s() for worker in self.workers)
        return {"worker": workers, "nginx": self.front.cpu_s() if self.front else 0.0, "redis": store.cpu_s()}

    def count_replayed(self) -> float:
        lines = (
            line
            for worker in self.workers
            for line in httpx.get(f"http://{HOST}:{worker.port}/metrics", trust_env=False).text.splitlines()
        )
        return sum(float(line.split()[-1]) for line in lines if line.startswith("okl_replayed_rounds_total"))


def requests(sessions: int, first: int, rounds: int) -> list[list[bytes]]:
    """For each session its requests: each reports the truth of the round before and asks for the next prediction."""
    X, y = rows()
    made = []
    for session in range(sessions):
        path = f"/sessions/s{session}"
        mine = []
        for number in range(first, first + rounds):
            row = (number * sessions + session) % len(y)
            predict = {"x": X[row].tolist(), "id": f"p{number}"}
            if number:
                truth = int(y[(row - sessions) % len(y)])
                mine.append(
                    _request(f"{path}/step", {"update": {"id": f"p{number - 1}", "y": truth}, "predict": predict})
                )
            else:
                mine.append(_request(f"{path}/predict", predict))
        made.append(mine)
    return made


def _request(path: str, body: Any) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def play(ports: Sequence[int], made: Sequence[Sequence[bytes]], results: Any) -> None:
    """A request of each session is under way all the time; the next one goes to the next port. Seconds, and CPU of them."""
    started, before = time.perf_counter(), time.process_time()
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        for session, mine in enumerate(made):
            sockets = [stack.enter_context(socket.create_connection((HOST, port))) for port in ports]
            turn = session % len(sockets)
            request = next(requests := iter(mine))
            state = [requests, sockets, turn, b"", request]
            sockets[turn].sendall(request)
            selector.register(sockets[turn], selectors.EVENT_READ, state)
        left = len(made)
        while left:
            for key, _ in selector.select():
                state = key.data
                received = key.fileobj.recv(65536)  # pyright: ignore
                if not received:
                    # It was idle for too long, and closed before the request came: its id makes it safe to say it again.
                    selector.unregister(key.fileobj)
                    again = stack.enter_context(socket.create_connection((HOST, ports[state[2]])))
                    again.sendall(state[4])
                    state[1][state[2]] = again
                    selector.register(again, selectors.EVENT_READ, state)
                    continue
                state[3] += received
                if not _is_whole(state[3]):
                    continue
                if not state[3].startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(state[3].decode(errors="replace"))
                state[3] = b""
                request = next(state[0], None)
                selector.unregister(key.fileobj)
                if request is None:
                    left -= 1
                    continue
                state[2] = (state[2] + 1) % len(state[1])
                state[4] = request
                following = state[1][state[2]]
                following.sendall(request)
                selector.register(following, selectors.EVENT_READ, state)
    results.put((time.perf_counter() - started, time.process_time() - before))


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    return len(body) >= int(length)


def burst(one: Contestant, store: Process, made: Sequence[Sequence[bytes]], *, keep: bool = True) -> None:
    results: Any = multiprocessing.Queue()
    before, replayed = one.taken(store), one.count_replayed()
    client = multiprocessing.Process(target=play, args=(one.ports, made, results))
    client.start()
    seconds, client_s = results.get(timeout=600)
    client.join()
    if keep:
        one.seconds += seconds
        one.rounds += sum(map(len, made))
        one.replayed += one.count_replayed() - replayed
        for name, after in one.taken(store).items():
            one.cpu[name] = one.cpu.get(name, 0.0) + after - before[name]
        one.cpu["client"] = one.cpu.get("client", 0.0) + client_s


def compare(rounds: int, learner: str, sessions: int) -> list[Contestant]:
    """`rounds` are those of each contestant, all sessions together."""
    with ExitStack() as stack:
        # A server for each contestant: its CPU is told of one alone.
        found: list[tuple[Contestant, Process]] = []
        for name, count in (("one", 1), ("two", 2), ("in turn", 2)):
            store = stack.enter_context(redis_server())
            settings = {"OKL_STORE": f"redis://{HOST}:{store.port}/0"}
            workers = [stack.enter_context(start_okl(settings)) for _ in range(count)]
            front = None
            if name != "in turn":
                addresses = [f"{HOST}:{worker.port}" for worker in workers]
                front = stack.enter_context(balancer(addresses))
            found.append((Contestant(name, workers, front), store))
        X, y = rows()
        for one, store in found:
            client = RawClient(one.ports[0])
            for number in range(sessions):
                body = {"name": f"s{number}", "learner": learner, "labels": [-1, 1]}
                first = {"x": X[:WARM_UP].tolist(), "y": y[:WARM_UP].tolist()}
                for path, content in (("/sessions", body), (f"/sessions/s{number}/rounds", first)):
                    status, answer = client.send(client.prepare(path, json.dumps(content).encode()))
                    if status not in (200, 201):
                        raise RuntimeError(answer.decode())
            client.close()
            burst(one, store, requests(sessions, 0, AGAIN), keep=False)
        each = rounds // (BURSTS * sessions)
        for number in range(BURSTS):
            made = requests(sessions, AGAIN + number * each, each)
            for one, store in found if number % 2 == 0 else reversed(found):
                burst(one, store, made)
    return [one for one, _ in found]


def show(found: Sequence[Contestant]) -> None:
    parts = ("worker", "nginx", "redis", "client")
    print(
        f"{'':<10}{'rounds/s':>9}{'cores':>7}" + "".join(f"{part:>9}" for part in parts) + f"{'fit':>7}{'replayed':>10}"
    )
    alone = 0.0
    for one in found:
        costs = [1e6 * one.cpu[part] / one.rounds for part in parts]
        cores = sum(one.cpu.values()) / one.seconds
        alone = alone or costs[0] / len(one.workers)
        fit = len(one.workers) * alone / costs[0]
        print(
            f"{one.name:<10}{one.rounds / one.seconds:9.0f}{cores:7.2f}"
            + "".join(f"{cost:9.0f}" for cost in costs)
            + f"{fit:7.2f}{one.replayed / one.rounds:10.2%}"
        )
    one, two = (contestant.cpu["worker"] / contestant.rounds for contestant in found[:2])
    print(f"CPU a round of two workers over that of one: {two / one:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12_000, help="of each contestant, after the warm-up")
    parser.add_argument("--learner", default="auto", help="the kind of the sessions' learner")
    parser.add_argument("--sessions", type=int, default=16)
    options = parser.parse_args(arguments)
    show(compare(options.rounds, options.learner, options.sessions))


if __name__ == "__main__":
    main()
