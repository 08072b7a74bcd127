"""Rounds over one connection, side by side: `python -m bench.transports [--learner KIND] [--bursts N] [--together N]`.

One worker on one Redis with its append-only file, one client, one session a transport, all with the same learner and the same
rows; the transports take turns in short bursts, so that a drift of the machine meets all of them. A round is a prediction
that waits, and then its truth:

    requests    POST predict, POST update: one after the other
    socket      the two messages over one socket, many under way, `--together` in a frame
    steps       the same, the truth of one round with the next prediction
    lines       rounds as lines, with their truths: a stream of 40,000, answered in blocks of about 9,500 (1 MiB)
    json        the same as JSON bodies of 10,000 rounds, two under way
    arrow       the same as streams of Arrow
    core        the learner alone, `run` on 10,000 rounds at a time; no session, no store

`CPU us` is what a round costs the worker, of `core` the learner; bodies of rounds are made before the clock runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pyarrow as pa

import okl_core
from bench.http_client import HOST, RawClient, redis_server, start_okl
from okl.client import Client
from okl.stream import Stream
from okl_core.types import F64
from service.api.arrow import ARROW

BLOCK: Final = 10_000
"""The most rounds that a body may have by default."""
LEARNERS: Final[dict[str, dict[str, Any]]] = {
    "aioli": {"kind": "aioli"},
    "pomdr": {"kind": "pomdr"},
}
EXACT: Final[dict[str, Any]] = {"strict": True, "scale": {"kind": "none"}}
BURST: Final = {
    "requests": 150,
    "socket": 600,
    "steps": 600,
    "lines": 40_000,
    "json": 40_000,
    "arrow": 60_000,
    "core": 60_000,
}
"""Rounds of a burst, so that each takes a few tenths of a second."""


class Rows:
    """MAGIC again and again; ids count all rounds."""

    def __init__(self) -> None:
        with np.load(Path(okl_core.__file__).parents[1] / "service" / "data" / "magic04.npz") as data:
            self.X: F64 = data["X"].astype(np.float64)[:10_000].round(4)
            self.y: F64 = data["y"].astype(np.float64)[:10_000]
        self._rows = self.X.tolist()
        self._count = 0

    def take(self, n: int) -> list[tuple[str, list[float], int]]:
        """n rounds: an id, an input, a truth."""
        first, self._count = self._count, self._count + n
        places = [(first + i) % len(self._rows) for i in range(n)]
        return [(f"r{first + i}", self._rows[place], int(self.y[place])) for i, place in enumerate(places)]


def by_requests(port: int, rows: Rows, n: int) -> None:
    # A connection of its own: the worker closes those that are idle for as long as the other transports may take.
    client = RawClient(port)
    for id, x, y in rows.take(n):
        for action, body in (("predict", {"x": x, "id": id}), ("update", {"id": id, "y": y})):
            status, answer = client.send(client.prepare(f"/sessions/requests/{action}", json.dumps(body).encode()))
            assert status == 200, answer
    client.close()


def by_messages(stream: Stream, rows: Rows, n: int, together: int, *, has_steps: bool) -> None:
    def messages() -> Iterator[dict[str, Any]]:
        taken = rows.take(n)
        if not has_steps:
            for id, x, y in taken:
                yield {"x": x, "id": id}
                yield {"id": id, "y": y}
            return
        yield {"x": taken[0][1], "id": taken[0][0]}
        for (id, _, y), (following, x, _) in itertools.pairwise(taken):
            yield {"update": {"id": id, "y": y}, "predict": {"x": x, "id": following}}
        yield {"id": taken[-1][0], "y": taken[-1][2]}

    for answer in stream.ask(messages(), together=together):
        assert "refused" not in answer, answer


def body_of(kind: str, taken: list[tuple[str, list[float], int]]) -> tuple[bytes, str]:
    """The rounds as a body, and what it is."""
    x, y = [x for _, x, _ in taken], [y for _, _, y in taken]
    if kind == "lines":
        return b"".join(json.dumps({"x": x, "y": y}).encode() + b"\n" for _, x, y in taken), "application/x-ndjson"
    if kind == "json":
        return json.dumps({"x": x, "y": y}).encode(), "application/json"
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.array(x).ravel()), len(x[0]))
    table = pa.table({"x": rows, "y": y})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes(), ARROW


def by_bodies(port: int, bodies: Iterator[tuple[bytes, str]], count: int, kind: str) -> None:
    def send(shares: Sequence[tuple[bytes, str]]) -> None:
        client = RawClient(port)
        for content, named in shares:
            status, answer = client.send(client.prepare(f"/sessions/{kind}/rounds", content, named))
            assert status == 200, answer
        client.close()

    sent = list(itertools.islice(bodies, count))
    with ThreadPoolExecutor(2) as clients:
        list(clients.map(send, (sent[::2], sent[1::2])))


def by_lines(http: httpx.Client, bodies: Iterator[tuple[bytes, str]]) -> None:
    content, named = next(bodies)
    path = f"/sessions/lines/rounds?block={BLOCK}"
    answer = http.post(path, content=content, headers={"Content-Type": named})
    assert answer.is_success, answer.text
    assert "refused" not in answer.text, answer.text


def compare(learner: dict[str, Any], bursts: int, together: int) -> None:
    rows = Rows()
    core = okl_core.create(learner, dim=rows.X.shape[1])
    with redis_server() as redis, start_okl({"OKL_STORE": f"redis://{HOST}:{redis.port}/0"}) as worker:
        url = f"http://{HOST}:{worker.port}"
        with Client(url) as okl, httpx.Client(base_url=url, timeout=60.0, trust_env=False) as http:
            for name in list(BURST)[:-1]:
                okl.create(name, learner, labels=[-1, 1], **EXACT)
            with okl.stream("socket") as socket, okl.stream("steps") as steps:

                def run_core(n: int) -> None:
                    for start in range(0, n, BLOCK):
                        places = np.arange(start, start + BLOCK) % len(rows.X)
                        core.run(rows.X[places], rows.y[places])

                bodies = {
                    kind: itertools.cycle([body_of(kind, rows.take(size)) for _ in range(4)])
                    for kind, size in (("lines", BURST["lines"]), ("json", BLOCK), ("arrow", BLOCK))
                }
                ways: dict[str, Callable[[int], None]] = {
                    "requests": lambda n: by_requests(worker.port, rows, n),
                    "socket": lambda n: by_messages(socket, rows, n, together, has_steps=False),
                    "steps": lambda n: by_messages(steps, rows, n, together, has_steps=True),
                    "lines": lambda _: by_lines(http, bodies["lines"]),
                    "json": lambda n: by_bodies(worker.port, bodies["json"], n // BLOCK, "json"),
                    "arrow": lambda n: by_bodies(worker.port, bodies["arrow"], n // BLOCK, "arrow"),
                    "core": run_core,
                }
                rates: dict[str, list[float]] = {name: [] for name in ways}
                costs: dict[str, list[float]] = {name: [] for name in ways}
                for burst in range(bursts + 1):
                    for name, play in ways.items():
                        cpu_s = time.process_time if name == "core" else worker.cpu_s
                        cpu, began = cpu_s(), time.perf_counter()
                        play(BURST[name])
                        if burst:  # the first one warms up
                            rates[name].append(BURST[name] / (time.perf_counter() - began))
                            costs[name].append(1e6 * (cpu_s() - cpu) / BURST[name])
    plain, alone, least = (statistics.median(one) for one in (rates["requests"], rates["core"], costs["core"]))
    print(f"\n{learner['kind']}, {rows.X.shape[1]} inputs, {together} messages in a frame")
    print(f"{'':10}{'rounds/s':>10}{'CPU us':>9}{'x requests':>12}{'x core':>8}{'by CPU':>8}")
    for name, found in rates.items():
        rate, cost = statistics.median(found), statistics.median(costs[name])
        print(f"{name:10}{rate:10,.0f}{cost:9.1f}{rate / plain:12.1f}{rate / alone:8.2f}{least / cost:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transports", description=__doc__)
    parser.add_argument("--learner", choices=LEARNERS, help="default: each")
    parser.add_argument("--bursts", type=int, default=8)
    parser.add_argument("--together", type=int, default=64)
    options = parser.parse_args()
    for name, learner in LEARNERS.items():
        if options.learner in (None, name):
            compare(learner, options.bursts, options.together)


if __name__ == "__main__":
    main()
