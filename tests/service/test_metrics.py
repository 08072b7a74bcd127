"""GET /metrics: every request is counted, every worker answers alike, and what a scrape costs is bounded."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.routing import iter_route_contexts
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from okl.errors import StoreUnavailable
from service.api.route_templates import METHODS, NO_ROUTE
from service.store.base import Page, Store
from service.store.sqlite import SqliteStore
from service.telemetry import census, exposition
from service.telemetry.board import Board
from service.telemetry.census import Census
from service.telemetry.counts import Counts
from service.telemetry.families import OPENMETRICS, STORE_FAMILIES, TEXT, WORKER_FAMILIES
from service.telemetry.timed_store import TimedStore
from tests.contract.store_calls import head
from tests.redis_server import connect
from tests.service.api import Api, serving
from tests.service.definitions import MEAN, define
from tests.service.worker import Clock, working

pytestmark = pytest.mark.anyio


async def scrape(api: Api) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples, by name and labels."""
    response = await api.http.get("/metrics")
    assert response.status_code == 200
    families = parser.text_string_to_metric_families(response.text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    """The sum of the series that have these labels."""
    return sum(one for (of, has), one in found.items() if of == name and labels.items() <= dict(has).items())


def counted(api: Api) -> dict[tuple[str, str, int], int]:
    return {key: sum(one.buckets) for key, one in api.worker.counts.requests.items()}


async def test_every_route_is_counted_under_its_template(memory: Api) -> None:
    paths = {(method, route.path) for route in iter_route_contexts(memory.app.routes) for method in route.methods or ()}
    assert {("POST", "/predict"), ("GET", "/metrics"), ("GET", "/openapi.json"), ("HEAD", "/openapi.json")} <= paths
    for method, path in sorted((method, path) for method, path in paths if path):
        before = counted(memory)
        response = await memory.http.request(method, re.sub(r"{[^}]*}", "some-name", path))
        new = [key for key, count in counted(memory).items() if count == before.get(key, 0) + 1]
        assert new == [(method, path, response.status_code // 100)]
        assert sum(counted(memory).values()) == sum(before.values()) + 1


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/nowhere/at-all", {}, ("GET", NO_ROUTE, 4)),
        ("PUT", "/predict", {}, ("PUT", "/predict", 4)),
        ("BREW", "/sessions/a-name", {}, ("other", "/sessions/{session}", 4)),
        ("HEAD", "/sessions", {}, ("HEAD", "/sessions", 2)),
        ("GET", "/static-offline-docs/swagger-ui.css", {}, ("GET", "/static-offline-docs/{path}", 2)),
        ("GET", "/static-offline-docs/none", {}, ("GET", "/static-offline-docs/{path}", 4)),
        ("GET", "/sessions/a-name", {"host": "evil.example"}, ("GET", NO_ROUTE, 4)),
        ("POST", "/sessions/a-name/update", {"content-length": "99999999999"}, ("POST", NO_ROUTE, 4)),
        ("POST", "/predict", {"origin": "http://evil.example"}, ("POST", NO_ROUTE, 4)),
        ("GET", "/" + "a" * 10_000, {}, ("GET", NO_ROUTE, 4)),
    ],
)
async def test_other_requests_are_counted_too(
    memory: Api, method: str, path: str, headers: dict[str, str], expected: tuple[str, str, int]
) -> None:
    await memory.http.request(method, path, headers=headers)
    assert counted(memory) == {expected: 1}
    text = (await memory.http.get("/metrics")).text
    assert "a-name" not in text
    assert "BREW" not in text


async def test_refused_websockets_are_counted(memory: Api) -> None:
    for host in ("evil.example", "okl"):
        sent: list[Any] = []

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        headers = [(b"host", host.encode())]
        scope = {"type": "websocket", "path": "/stream", "query_string": b"", "headers": headers, "subprotocols": []}
        await memory.app(scope | {"root_path": "", "http_version": "1.1", "extensions": {}}, receive, send)
        assert sent
    assert counted(memory) == {("WEBSOCKET", NO_ROUTE, 4): 2}
    assert memory.worker.counts.refused == {"host-not-allowed": 1}


async def test_methods_are_few() -> None:
    assert len(METHODS) < 10


async def test_what_happened_is_told(memory: Api) -> None:
    await memory.create()
    for i in range(5):
        await memory.predict([1.0], id=f"p{i}")
        await memory.update(float(i), id=f"p{i}")
    await memory.update(4.0, id="p4")
    await memory.predict([1.0])
    await memory.refused("prediction-not-found", "POST", "/sessions/s/update", {"id": "never", "y": 1.0})
    await memory.http.get("/sessions", headers={"host": "evil.example"})
    found = await scrape(memory)
    assert value(found, "okl_rounds_total") == value(found, "okl_journal_entries_total") == 5
    assert value(found, "okl_repeated_requests_total") == 1
    assert value(found, "okl_problems_total", problem="prediction-not-found") == 1
    assert value(found, "okl_refused_requests_total", problem="host-not-allowed") == 1
    assert value(found, "okl_problems_total", problem="host-not-allowed") == 1
    assert value(found, "okl_request_seconds_count", route="/sessions/{session}/update", status="2xx") == 6
    assert value(found, "okl_request_seconds_bucket", route="/sessions/{session}/predict", le="+Inf") == 6
    assert value(found, "okl_store_call_seconds_count", call="commit") >= 11
    assert value(found, "okl_session_rounds_total", session="s", kind="mean") == 5
    assert value(found, "okl_session_waiting", session="s") == value(found, "okl_sessions_waiting") == 1
    assert value(found, "okl_copies") == 1
    assert value(found, "okl_worker_cpu_seconds_total") > 0


async def test_session_series_are_those_of_the_session(memory: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "FRESH_S", 0.0)
    monkeypatch.setattr(census, "SHARE", 0.0)
    await memory.create(alarm={"rate": None, "error_above": 0.5})
    await memory.rounds([[0.0]] * 64, [0.0, 10.0] * 32)
    await memory.predict([0.0], id="gone")
    await memory.call("DELETE", "/sessions/s/predictions/gone", status=204)
    await memory.worker.rounds.summaries.close()
    told, found = await memory.inspect(), await scrape(memory)
    assert value(found, "okl_session_loss_total", session="s") == told["metrics"]["loss"]
    assert value(found, "okl_session_error", session="s") == pytest.approx(told["metrics"]["window_rmse"])
    assert value(found, "okl_session_alarms_total", session="s") == len(told["alarms"]) == 1
    assert value(found, "okl_session_never_came_total", session="s") == told["never_came"] == 1
    assert value(found, "okl_session_learner_bytes", session="s") == told["bytes"]
    assert value(found, "okl_session_journal_bytes", session="s") == told["storage"]["journal_bytes"]
    sign = {"better": 1, "worse": -1, "undecided": 0}[told["verdict"]["state"]]
    assert value(found, "okl_session_better", session="s") == sign


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4", "application/openmetrics-text; version=x"])
async def test_both_formats_can_be_read(memory: Api, accept: str) -> None:
    await memory.create()
    await memory.http.get("/nothing")
    response = await memory.http.get("/metrics", headers={"accept": accept})
    is_open = accept.startswith("application/openmetrics")
    assert response.headers["content-type"] == (OPENMETRICS if is_open else TEXT)
    read = openmetrics_parser if is_open else parser
    families = list(read.text_string_to_metric_families(response.text))
    assert {family.name for family in families} <= {family.name for family in (*WORKER_FAMILIES, *STORE_FAMILIES)}
    assert len(families) > 30


async def test_four_workers_answer_alike(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        options = {"metrics_dir": str(tmp_path / "board")}
        url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
        apis = [await stack.enter_async_context(serving(url, **options)) for _ in range(4)]
        await apis[0].create()
        for i in range(20):
            await apis[i % 4].update(1.0, x=[float(i)])
        await asyncio.sleep(2.2)
        for _ in range(10):
            texts = [(await api.http.get("/metrics")).text for api in apis]
            if len(set(texts)) == 1:
                break
            await asyncio.sleep(0.3)  # a worker has told its numbers between two of these
        assert len(set(texts)) == 1
        found = await scrape(apis[0])
        assert [value(found, "okl_rounds_total", worker=str(i)) for i in range(4)] == [5.0] * 4
        assert value(found, "okl_commit_conflicts_total") > 0
        assert value(found, "okl_replayed_rounds_total") > 0
        assert value(found, "okl_session_rounds_total", session="s") == 20


def test_a_killed_worker_is_told_no_more_and_its_number_is_free(tmp_path: Path) -> None:
    code = "from service.telemetry.board import Board; import sys, time; b = Board(sys.argv[1]); b.open(); "
    code += "b.publish([('okl_rounds', [], 7)]); print(b.worker, flush=True); time.sleep(60)"
    ours = Board(str(tmp_path))
    ours.open()
    ours.publish([("okl_rounds", [], 1)])
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    assert ours.read() == {"0": [("okl_rounds", [], 1)], "1": [("okl_rounds", [], 7)]}
    process.kill()
    process.communicate()
    assert ours.read().keys() == {"0"}
    (tmp_path / "1.json").write_text("[")  # half a file, as nobody writes it
    following = Board(str(tmp_path))
    following.open()
    assert following.worker == "1"
    assert ours.read().keys() == {"0"}
    following.close()
    ours.close()


async def test_the_latest_sessions_have_series_and_all_are_in_the_totals(memory: Api) -> None:
    for i in range(12):
        await memory.create(name=f"s{i}")
    for i in (3, 7, 5):
        await memory.update(1.0, f"s{i}", x=[1.0])
    for most, expected in ((0, set()), (3, {"s3", "s5", "s7"}), (100, {f"s{i}" for i in range(12)})):
        found = await Census(memory.store, most=most, waiting_s=60.0).samples()
        assert {labels[0] for name, labels, _ in found if name == "okl_session_rounds"} == expected
        totals = {name: told for name, labels, told in found if not labels}
        assert totals["okl_sessions"] == totals["okl_sessions_read"] == 12


async def test_those_that_wait_are_told_by_age(clocked: SqliteStore, clock: Clock) -> None:
    async with working(clocked) as worker:
        await worker.sessions.create(define(MEAN, "usual"))
        await worker.sessions.create(define(MEAN, "short", expires_s=7200.0))
        for later_s in (6_900.0, 100.0, 1.0):
            for name in ("usual", "short"):
                await worker.rounds.predict(name, [1.0], id=f"p{later_s:.0f}")
            clock.skip(later_s)
        found = await Census(clocked, most=10, waiting_s=worker.settings.waiting_expires_s).samples()
    told = {(labels[0], labels[2]): count for name, labels, count in found if name == "okl_session_waiting_older"}
    assert told == {
        ("usual", "60"): 2,
        ("usual", "3600"): 1,
        ("usual", "86400"): 0,
        ("short", "60"): 2,
        ("short", "3600"): 1,
    }


async def test_scrapes_cannot_load_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once read once, and one that read for long is told again for long."""
    store, calls = SqliteStore(":memory:"), 0

    async def slow(*_: Any) -> Page:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.2)
        return Page([], None)

    await store.open()
    monkeypatch.setattr(store, "list", slow)
    found = Census(store, most=10, waiting_s=60.0)
    await asyncio.gather(*(found.samples() for _ in range(50)))
    assert calls == 1
    await asyncio.sleep(1.2)
    await found.samples()
    assert calls == 1
    await found.close()
    await store.close()


async def test_what_was_read_fast_is_soon_read_again(memory: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "FRESH_S", 0.0)
    assert value(await scrape(memory), "okl_sessions") == 0
    await memory.create(MEAN)
    await asyncio.sleep(0.5)
    assert value(await scrape(memory), "okl_sessions") == 1


async def test_a_store_that_is_away_is_told(memory: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Page:
        raise StoreUnavailable("It is away.")

    monkeypatch.setattr(SqliteStore, "list", away)
    found = await scrape(memory)
    assert value(found, "okl_store_up") == 0
    assert value(found, "okl_worker_cpu_seconds_total") > 0
    found = await scrape(memory)
    assert value(found, "okl_store_errors_total", call="list") == 1


@pytest.mark.redis
async def test_one_damaged_session_hides_no_other(redis_url: str) -> None:
    async with serving(redis_url) as api:
        for name in ("damaged", "sound"):
            await api.create(MEAN, name)
            await api.predict({"a": 1.0}, name, id="waits")
        with connect(urlsplit(redis_url).port or 6379) as server:
            server.set("okl:{damaged}:expiry", "something else")
        found = await scrape(api)
    assert value(found, "okl_session_waiting") == 2
    assert value(found, "okl_session_waiting_older", session="damaged") == 0
    assert (
        "okl_session_waiting_older",
        frozenset({("session", "sound"), ("kind", "mean"), ("seconds", "60")}),
    ) in found


async def test_a_store_that_does_not_answer_is_not_waited_for(memory: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any) -> Page:
        await asyncio.sleep(60.0)
        return Page([], None)

    monkeypatch.setattr(SqliteStore, "list", hang)
    monkeypatch.setattr(census, "PATIENCE_S", 0.1)
    assert value(await scrape(memory), "okl_store_up") == 0


async def test_a_worker_tells_its_memory_and_the_lag_of_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "EVERY_S", 0.05)
    async with serving("sqlite://") as api:
        await asyncio.sleep(0.3)
        found = await scrape(api)
    assert 1 <= value(found, "okl_loop_lag_seconds_count") < 50
    assert value(found, "okl_loop_lag_seconds_sum") < 10.0
    assert 2**23 < value(found, "okl_worker_memory_bytes") < 2**35


def test_a_timed_store_has_the_calls_of_a_store() -> None:
    for name, call in vars(Store).items():
        if inspect.iscoroutinefunction(call):
            timed = getattr(TimedStore, name)
            assert inspect.signature(timed) == inspect.signature(call), name


def test_every_count_is_told_and_begins_at_zero() -> None:
    found = Counts().samples()
    assert {value for _, _, value in found if not isinstance(value, list)} == {0}
    told = {name for name, _, _ in found}
    counters = {family.name for family in WORKER_FAMILIES if family.type == "counter" and len(family.labels) == 1}
    assert counters - {"okl_worker_cpu_seconds"} <= told


@pytest.mark.parametrize("summary", [b'{"kind": 5}', b'{"kind": "mean", "loss": "1"}', b"[" * 4_000])
async def test_a_summary_that_makes_no_sense_hides_no_other_session(memory: Api, summary: bytes) -> None:
    """It came with a file that was made up, or was damaged in the store."""
    for name in ("damaged", "sound"):
        await memory.create(MEAN, name)
    assert await memory.store.summarize("damaged", (await head(memory.store, "damaged")).tip, summary)
    found = await scrape(memory)
    for name, kind in (("damaged", "unknown"), ("sound", "mean")):
        labels = frozenset({("session", name), ("kind", kind)})
        assert found["okl_session_rounds_total", labels] == 0.0
