"""Rounds from a Redis stream beside the same rounds over a socket: `python -m bench.consumed [--learner KIND] [--rounds N]`.

One worker and one consumer on one Redis with its append-only file; all entries are there before the consumer starts, and its
first tenth is not counted. Each way has a session of its own. Both get the same messages:

    rounds      each input with its truth, one message a round
    late        a prediction, and its truth 100 rounds later: two messages a round
    at once     a prediction, and its truth right behind it: a truth waits until the answer of its prediction is written
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import redis

from bench.http_client import HOST, Process, redis_server, start_okl
from bench.transports import EXACT, LEARNERS, Rows
from okl.client import Client

TOGETHER: Final = 16
DELAYS: Final = {"rounds": None, "late": 100, "at once": 0}


def messages(rows: Rows, rounds: int, delay: int | None) -> Iterator[dict[str, Any]]:
    taken = rows.take(rounds)
    if delay is None:
        yield from ({"x": x, "y": y, "id": id} for id, x, y in taken)
        return
    for i in range(rounds + delay):
        if i < rounds:
            yield {"x": taken[i][1], "id": taken[i][0]}
        if i >= delay:
            yield {"id": taken[i - delay][0], "y": taken[i - delay][2]}


def by_socket(okl: Client, session: str, asked: list[dict[str, Any]]) -> float:
    """Messages a second."""
    with okl.stream(session) as stream:
        warm = len(asked) // 10
        for answer in stream.ask(asked[:warm], together=TOGETHER):
            assert "refused" not in answer, answer
        began = time.perf_counter()
        for answer in stream.ask(asked[warm:], together=TOGETHER):
            assert "refused" not in answer, answer
        return (len(asked) - warm) / (time.perf_counter() - began)


def by_stream(client: Any, url: str, port: int, session: str, asked: list[dict[str, Any]]) -> tuple[float, float]:
    """Messages a second, and CPU seconds of the consumer a message."""
    names = f"in-{session}", f"out-{session}"
    for start in range(0, len(asked), 1_000):
        pipe = client.pipeline(transaction=False)
        for message in asked[start : start + 1_000]:
            pipe.xadd(names[0], {"session": session, "message": json.dumps(message)})
        pipe.execute()
    command = [sys.executable, "-m", "service.start", "consume", "--create", "--stream", names[0], "--to", names[1]]
    command += ["--redis", f"redis://{HOST}:{port}/0", "--url", url]
    with Process(command, 0, {"OKL_LOG_LEVEL": "warning"}) as process:
        warm, began, cpu_s = 0, 0.0, 0.0
        while warm < len(asked) // 10:
            time.sleep(0.005)
            warm, began, cpu_s = client.xlen(names[1]), time.perf_counter(), process.cpu_s()
        while client.xlen(names[1]) < len(asked):
            time.sleep(0.005)
        counted = len(asked) - warm
        rate, cost_s = counted / (time.perf_counter() - began), (process.cpu_s() - cpu_s) / counted
    assert not any(b'"refused"' in fields[b"answer"] for _, fields in client.xrange(names[1]))
    return rate, cost_s


def compare(learner: dict[str, Any], rounds: int) -> None:
    rows = Rows()
    print(f"\n{learner['kind']}, {rows.X.shape[1]} inputs, rounds/s")
    print(f"{'':10}{'socket':>10}{'stream':>10}{'ratio':>8}{'CPU us':>9}")
    with redis_server() as server, start_okl({"OKL_STORE": f"redis://{HOST}:{server.port}/0"}) as worker:
        url = f"http://{HOST}:{worker.port}"
        with Client(url) as okl, redis.Redis(HOST, server.port) as client:
            for name, delay in DELAYS.items():
                asked = {way: list(messages(rows, rounds, delay)) for way in ("socket", "stream")}
                for way in asked:
                    okl.create(named(way, name), learner, labels=[-1, 1], **EXACT)
                size = len(asked["socket"]) / rounds
                socket = by_socket(okl, named("socket", name), asked["socket"]) / size
                rate, cost_s = by_stream(client, url, server.port, named("stream", name), asked["stream"])
                stream, cost_us = rate / size, 1e6 * cost_s * size
                print(f"{name:10}{socket:10,.0f}{stream:10,.0f}{stream / socket:8.2f}{cost_us:9.0f}", flush=True)


def named(way: str, name: str) -> str:
    return f"{way}-{name.replace(' ', '-')}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.consumed", description=__doc__)
    parser.add_argument("--learner", choices=LEARNERS, help="default: each")
    parser.add_argument("--rounds", type=int, default=10_000)
    options = parser.parse_args()
    for name, learner in LEARNERS.items():
        if options.learner in (None, name):
            compare(learner, options.rounds)


if __name__ == "__main__":
    main()
