"""What is watched of sessions over HTTP: the same from every worker, bounded, and no more than there is."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from service.replica import summaries
from service.session.requests import Report
from service.watching import past
from service.watching.event_streams import EventStreams
from tests.oracles.model_store import ModelStore
from tests.service.api import Api, check_problem, serving
from tests.service.definitions import MEAN, POMDR, define
from tests.service.worker import working

pytestmark = pytest.mark.anyio

LABELS = ["no", "yes"]


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other


def row(i: int) -> tuple[list[float], str]:
    x = [(i * 7 % 11) / 11, (i * 5 % 13) / 13]
    return x, LABELS[int(x[0] > x[1])]


async def play(apis: tuple[Api, ...], rounds: int, start: int = 0) -> None:
    for i in range(start, start + rounds):
        x, y = row(i)
        api = apis[i % len(apis)]
        found = await api.predict(x)
        await apis[(i + 1) % len(apis)].update(y, id=found["id"])


async def test_every_worker_tells_the_same_history(workers: tuple[Api, Api]) -> None:
    await workers[0].create(POMDR, labels=LABELS)
    empty = await workers[1].call("GET", "/sessions/s/history")
    assert (empty["t"], empty["points"], empty["alarms"]) == (0, None, [])
    await play(workers, 45)
    one, other = [await worker.call("GET", "/sessions/s/history") for worker in workers]
    assert one == other
    points = one["points"]
    assert one["t"] == points["t"][-1] == 45
    assert {len(column) for column in points.values()} == {6}
    assert points["late"] == points["rounds"]
    assert sum(entry["rounds"] for entry in one["delays"]) == 45
    assert one["verdict"]["rounds"] == 45
    # A third one that comes later has it from the journal or a snapshot.
    async with serving(workers[0].worker.settings.store) as late:
        assert await late.call("GET", "/sessions/s/history") == one
    text = await workers[0].http.get("/sessions/s/history?format=csv")
    lines = list(csv.DictReader(io.StringIO(text.text)))
    assert [int(line["t"]) for line in lines] == points["t"]
    assert [float(line["total_error"]) for line in lines] == points["total_error"]


async def test_the_verdict_is_told_where_a_session_is_inspected(api: Api) -> None:
    created = await api.create(POMDR, labels=LABELS, alarm={"rate": None, "error_above": 0.25})
    assert (created["verdict"], created["alarms"]) == (None, [])
    assert created["settings"]["alarm"] == {"rate": None, "error_above": 0.25}
    await play((api,), 20)
    found = await api.inspect()
    assert "so far" in found["verdict"]["text"]
    assert found["verdict"]["state"] == "undecided"


@pytest.mark.parametrize("alarm", [{"rate": 0.0}, {"rate": 0.9}, {"error_above": -1}, {"error": 1}, 3])
async def test_alarm_rules_that_make_no_sense_are_refused(memory: Api, alarm: Any) -> None:
    problem = await memory.refused("invalid-request", "POST", "/sessions", {"name": "s", "alarm": alarm})
    assert problem["errors"][0]["pointer"].startswith("/alarm")


async def test_the_last_rounds_are_told_as_they_were(api: Api) -> None:
    await api.create(POMDR, labels=LABELS)
    assert (await api.call("GET", "/sessions/s/rounds"))["rounds"] == []
    x, y = row(1)
    first = await api.predict(x, id="a")
    told = await api.update(y, id="a")
    await api.rounds([row(2)[0], row(3)[0]], [row(2)[1], row(3)[1]], id="block")
    rounds = (await api.call("GET", "/sessions/s/rounds?last=3"))["rounds"]
    assert [(one["t"], one["id"]) for one in rounds] == [(3, "block"), (2, "block"), (1, "a")]
    oldest = rounds[-1]
    assert (oldest["x"], oldest["y"], oldest["label"], oldest["loss"]) == (x, y, first["label"], told["loss"])
    assert oldest["mistake"] is told["mistake"]
    assert oldest["waited_s"] >= 0.0
    assert [one["waited_s"] for one in rounds[:2]] == [None, None]
    assert [one["t"] for one in (await api.call("GET", "/sessions/s/rounds?last=1"))["rounds"]] == [3]


@pytest.mark.parametrize("kind", ["aioli", "frequencies", "pool"])
async def test_the_probability_of_a_past_round_is_that_of_its_label(api: Api, kind: str) -> None:
    await api.create({"kind": kind}, labels=LABELS)
    asked = []
    for i in range(12):
        asked.append(await api.predict([1.0, 0.5]))
        await api.update(LABELS[i < 6 or i == 9], id=asked[-1]["id"])
    rounds = (await api.call("GET", "/sessions/s/rounds"))["rounds"][::-1]
    assert {one["label"] for one in rounds} == set(LABELS)
    for one, said in zip(rounds, asked, strict=True):
        second = said["probability"]
        expected = second if said["label"] == LABELS[1] else 1.0 - second
        assert (one["label"], one["probability"]) == (said["label"], pytest.approx(expected))


@pytest.mark.parametrize("learner", [None, "aioli", "pool"])
async def test_the_rounds_of_a_block_are_told_as_if_alone(memory: Api, learner: str | None) -> None:
    rows = [(row(i)[0], LABELS[i % 4 == 0]) for i in range(30)]
    for name in ("s", "alone"):
        settings = {"name": name, "labels": LABELS} | ({} if learner is None else {"learner": learner})
        await memory.call("POST", "/sessions", settings, status=201)
    for x, y in rows:
        await memory.update(y, name="alone", x=x)
    await memory.rounds([x for x, _ in rows], [y for _, y in rows])
    block, alone = [(await memory.call("GET", f"/sessions/{name}/rounds"))["rounds"] for name in ("s", "alone")]
    assert {one["mistake"] for one in block[:15]} == {True, False}
    for one, other in zip(block, alone, strict=True):
        assert [one[name] for name in ("t", "x", "y", "label", "mistake")] == [
            other[name] for name in ("t", "x", "y", "label", "mistake")
        ]
        assert (one["probability"], one["loss"]) == pytest.approx((other["probability"], other["loss"]), rel=1e-6)


async def test_a_history_counts_what_waits_after_a_round_and_knows_no_zeros(api: Api) -> None:
    await api.create(POMDR, labels=LABELS)
    await play((api,), 24)
    points = (await api.call("GET", "/sessions/s/history"))["points"]
    assert points["waiting"] == [0, 0, 0]
    assert 0.0 not in points["bytes"] + points["took_s"]
    for i in range(3):
        await api.predict(row(i)[0], id=f"p{i}")
    await asyncio.gather(*(api.update(row(i)[1], id=f"p{i}") for i in range(2)), api.predict(row(3)[0]))
    await api.update("no", x=[0.1, 0.2])
    assert (await api.call("GET", "/sessions/s/history"))["points"]["waiting"][-1] == 2


async def test_of_a_large_block_only_what_is_asked_for_is_decoded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.create(MEAN)
    await api.rounds([[1.0]], [1.0])
    await api.rounds([[float(i)] for i in range(50)], [float(i) for i in range(50)])
    decoded = []
    real = past.PastRound
    monkeypatch.setattr(past, "PastRound", lambda t, *given: decoded.append(t) or real(t, *given))
    rounds = (await api.call("GET", "/sessions/s/rounds?last=3"))["rounds"]
    assert [(one["t"], one["y"]) for one in rounds] == [(51, 49.0), (50, 48.0), (49, 47.0)]
    assert decoded == [51, 50, 49]
    rounds = (await api.call("GET", "/sessions/s/rounds?last=100"))["rounds"]
    assert [one["t"] for one in rounds] == [*range(51, 0, -1)]


async def test_a_label_that_is_new_while_somebody_looks(
    workers: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, other = workers
    await api.http.post("/sessions", json={"name": "s"})
    await api.update("a", x=[1.0])
    read = api.store.last

    async def read_late(name: str, rounds: int) -> Any:
        await other.update("b", x=[2.0])
        found = await read(name, rounds)
        await other.update("c", x=[3.0])
        return found

    monkeypatch.setattr(api.store, "last", read_late)
    rounds = (await api.call("GET", "/sessions/s/rounds"))["rounds"]
    assert [one["y"] for one in rounds] == ["b", "a"]


async def test_a_regressors_last_rounds_are_in_its_units(api: Api) -> None:
    await api.create(MEAN, y_range=[0, 1000])
    found = await api.predict({"a": 1.5, "b": 2.5})
    told = await api.update(700.0, id=found["id"])
    [only] = (await api.call("GET", "/sessions/s/rounds"))["rounds"]
    assert (only["x"], only["y"], only["value"]) == ({"a": 1.5, "b": 2.5}, 700.0, found["value"])
    assert (only["error"], only["mistake"], only["label"]) == (told["error"], None, None)


async def test_what_waits_is_listed_counted_and_cancelled(workers: tuple[Api, Api]) -> None:
    api, other = workers
    await api.create(MEAN)
    for i in range(5):
        await workers[i % 2].predict([float(i)], id=f"p{i}")
    listed = await other.call("GET", "/sessions/s/predictions?limit=3")
    rest = await other.call("GET", f"/sessions/s/predictions?limit=3&cursor={listed['next']}")
    found = listed["predictions"] + rest["predictions"]
    assert [(one["id"], one["x"]) for one in found] == [(f"p{i}", [float(i)]) for i in range(5)]
    assert rest["next"] is None
    assert all(one["at"] < one["expires_at"] for one in found)
    assert (listed["waiting"], sum(bin["predictions"] for bin in listed["ages"])) == (5, 5)
    assert await other.call("DELETE", "/sessions/s/predictions/p1", status=204) is None
    await other.refused("prediction-not-found", "DELETE", "/sessions/s/predictions/p1")
    await other.refused("prediction-not-found", "DELETE", "/sessions/s/predictions/p9")
    await other.refused("session-not-found", "DELETE", "/sessions/none/predictions/p1")
    left = await api.call("GET", "/sessions/s/predictions")
    assert ([one["id"] for one in left["predictions"]], left["waiting"], left["never_came"]) == (
        ["p0", "p2", "p3", "p4"],
        4,
        1,
    )
    assert (await api.inspect())["never_came"] == 1
    await other.refused("prediction-expired", "POST", "/sessions/s/update", {"id": "p1", "y": 1.0})
    # Its truth comes after all.
    await other.update(1.0, id="p1", x=[1.0])
    assert (await api.inspect())["never_came"] == 0


async def test_what_has_expired_never_came(api: Api) -> None:
    """Before any other request to the session sweeps it, too."""
    await api.create(MEAN, expires_s=1.0)
    for i in range(3):
        await api.predict([float(i)], id=f"p{i}")
    for _ in range(300):
        left = await api.call("GET", "/sessions/s/predictions")
        assert left["waiting"] + left["never_came"] == 3
        if not (left["waiting"] or left["predictions"]):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(left)


@pytest.mark.parametrize("cursor", ["", "garbage", "nan:a", "1e400:a", "1-a", "\x00", "x" * 300])
async def test_a_cursor_that_no_page_gave(api: Api, cursor: str) -> None:
    await api.create(MEAN)
    answer = await api.http.get("/sessions/s/predictions", params={"cursor": cursor})
    problem = check_problem(answer, "invalid-request")
    assert problem["errors"][0]["pointer"] == "/cursor"


@pytest.mark.parametrize("id", ["a/b", "a/../../..", "/", "...", ".a", "..a", "%2F", "x?y#z", "<b>", "\\", '"'])
async def test_a_prediction_of_any_id_can_be_cancelled(api: Api, id: str) -> None:
    await api.create(MEAN)
    await api.predict([1.0], id=id)
    await api.call("DELETE", f"/sessions/s/predictions/{quote(id, safe='')}", status=204)
    assert (await api.inspect())["never_came"] == 1


@pytest.mark.parametrize("id", [".", ".."])
async def test_an_id_that_a_client_takes_out_of_a_path_is_refused(api: Api, id: str) -> None:
    """To cancel the prediction `..` a client would send DELETE /sessions/s."""
    await api.create(MEAN)
    await api.refused("invalid-request", "POST", "/sessions/s/predict", {"x": [1.0], "id": id})


@pytest.mark.parametrize("labels", [None, LABELS])
async def test_rivals_of_forecasts_before_the_first_truth_had_seen_none_either(
    api: Api, labels: list[str] | None
) -> None:
    await api.create(MEAN if labels is None else POMDR, labels=labels)
    ids = [(await api.predict([0.5, 0.5]))["id"] for _ in range(40)]
    for id in ids:
        await api.update(0.9 if labels is None else "yes", id=id)
    points = (await api.call("GET", "/sessions/s/history"))["points"]
    assert points["total_rival_error"][-1] == pytest.approx(0.9 if labels is None else 1.0)


async def test_many_predictions_in_one_request(api: Api) -> None:
    await api.create(POMDR, labels=LABELS)
    await play((api,), 12)
    X = [row(i)[0] for i in range(4)]
    path = "/sessions/s/predictions"
    alone = [await api.predict(x, wait=False) for x in X]
    told = (await api.call("POST", path, {"x": X, "ids": ["a", "b", "c", "d"]}))["predictions"]
    assert [one["score"] for one in told] == [one["score"] for one in alone]
    assert [one["id"] for one in told] == ["a", "b", "c", "d"]
    again = (await api.call("POST", path, {"x": X, "ids": ["a", "b", "c", "d"]}))["predictions"]
    assert again == told
    # One id is used for another input: that one is told why, the others wait.
    mixed = (await api.call("POST", path, {"x": [X[1], X[0]], "ids": ["a", "e"]}))["predictions"]
    assert mixed[0]["refused"]["type"] == "/problems/id-conflict"
    assert mixed[1]["id"] == "e"
    assert (await api.inspect())["waiting"] == 5
    for id in "abcde":
        await api.update("yes", id=id)
    problem = await api.refused("wrong-dimension", "POST", path, {"x": [X[0], [1.0, 2.0, 3.0]]})
    assert problem["errors"][0]["pointer"].startswith("/x/1")
    assert (await api.inspect())["waiting"] == 0
    free = (await api.call("POST", path, {"x": X, "wait": False}))["predictions"]
    assert all("id" not in one for one in free)
    for body in (
        {"x": X, "ids": ["a"]},
        {"x": X[:2], "ids": ["a", "a"]},
        {"x": [], "ids": []},
        {"x": X[:1], "ids": ["a"], "wait": False},
        {"x": [[0.1, 0.2]] * 1001},
    ):
        await api.refused("invalid-request", "POST", path, body)


class Stream:
    """The events of a session, from the event streams themselves: a client in this process sees no answer before its end."""

    def __init__(self, event_streams: EventStreams, position: str | None = None) -> None:
        self.stream = event_streams.watch("s", position)

    async def next(self) -> tuple[str, int]:
        position, listed = await asyncio.wait_for(anext(self.stream), 20)
        return position, listed.head.tip.round


async def test_events_tell_what_has_changed_and_no_more(api: Api) -> None:
    await api.create(POMDR, labels=LABELS)
    event_streams = api.worker.event_streams
    stream = Stream(event_streams)
    position, t = await stream.next()
    assert t == 0
    await play((api,), 3)
    seen = [t]
    while seen[-1] < 3:
        position, t = await stream.next()
        seen.append(t)
    assert seen == sorted(set(seen))
    # Who knows this position is told the next.
    again = Stream(event_streams, position)
    waits = asyncio.create_task(again.next())
    await asyncio.sleep(0.05)
    assert not waits.done()
    await api.predict(row(9)[0])
    assert (await waits)[1] == 3
    assert event_streams.count == 2
    await stream.stream.aclose()
    assert event_streams.count == 1
    await api.call("DELETE", "/sessions/s", status=204)
    with pytest.raises(StopAsyncIteration):
        await again.next()
    assert event_streams.count == 0


async def test_a_worker_that_stops_ends_its_streams(api: Api) -> None:
    await api.create()
    stream = Stream(api.worker.event_streams)
    await stream.next()
    api.worker.event_streams.close()
    with pytest.raises(StopAsyncIteration):
        await stream.next()
    await api.refused("overloaded", "GET", "/sessions/s/events")


async def test_events_of_no_session_are_refused(memory: Api) -> None:
    check_problem(await memory.http.get("/sessions/none/events"), "session-not-found")


async def test_a_list_tells_what_a_session_came_to(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary is written beside the rounds, and has those that came meanwhile."""
    await api.create(POMDR, labels=LABELS)
    await play((api,), 10)
    # By then the last round is learned, which may be later than its answer.
    live = await api.worker.past.line("s")
    await api.worker.rounds.summaries.close()
    page = await api.worker.sessions.list(None, 10)
    [listed] = page.sessions
    assert listed.summary.t == 10
    assert json.dumps(listed.summary.verdict) == json.dumps(live.summary.verdict)
    assert len(listed.summary.sparkline) == 2
    assert listed.head.summary_round == 10
    assert summaries.EVERY_S <= 1.0


async def test_a_worker_that_has_closed_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due is written when it closes, and its timer is no more."""
    monkeypatch.setattr(summaries, "EVERY_S", 0.02)
    started = []
    start = summaries.Summaries._start
    monkeypatch.setattr(summaries.Summaries, "_start", lambda self: (started.append(self), start(self)))
    async with working(ModelStore()) as worker:
        await worker.sessions.create(define())
        await worker.rounds.update("s", Report(1.0, None, [1.0]))
    await asyncio.sleep(0.1)
    assert len(started) == 1
