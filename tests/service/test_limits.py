"""Limits: each has its own answer, and what is below it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.service.api import NDJSON, Api, serving
from tests.service.bad_requests import LARGE, METRIC, PACKING, member_of, pool_of
from tests.service.definitions import MEAN, POMDR

pytestmark = pytest.mark.anyio


async def test_max_sessions(store_url: str) -> None:
    async with serving(store_url, max_sessions=2) as api:
        for name in ("a", "b"):
            await api.create(name=name)
        await api.refused("limit-reached", "POST", "/sessions", {"name": "c", "learner": MEAN})
        await api.call("DELETE", "/sessions/a", status=204)
        await api.create(name="c")


async def test_requests_at_once_do_not_exceed_the_limits(store_url: str) -> None:
    async with serving(store_url, max_sessions=5, max_challengers=2) as api:
        body = {"learner": MEAN}
        made = [api.http.post("/sessions", json=body | {"name": f"s{i}"}) for i in range(12)]
        assert sorted(one.status_code for one in await asyncio.gather(*made)) == [201] * 5 + [429] * 7
        for i in range(1, 5):
            await api.call("DELETE", f"/sessions/s{i}", status=204)
        attached = [api.http.post("/sessions/s0/challengers", json={"name": f"c{i}"}) for i in range(8)]
        assert sorted(one.status_code for one in await asyncio.gather(*attached)) == [201] * 2 + [429] * 6
        assert await api.store.count() == 3


@pytest.mark.parametrize("kind", ["packing", "metric-packing"])
async def test_linear_fits_have_a_limit_of_their_own(store_url: str, kind: str) -> None:
    """It is told before a round: before the first stage of a warm-up another learner answers."""
    learner = {"kind": kind, "config": {"estimate": "linear"}}
    scale = {"kind": "learned"}
    async with serving(store_url) as api:
        refused = {"name": "s", "learner": learner, "dim": 101, "scale": scale, "strict": True}
        problem = await api.refused("invalid-request", "POST", "/sessions", refused)
        assert problem["errors"][0]["pointer"] == "/dim"
        assert "100 inputs at most" in problem["detail"]
        await api.create(learner, scale=scale, warmup_rounds=2)
        problem = await api.refused("invalid-request", "POST", "/sessions/s/update", {"x": [0.0] * 101, "y": 0.5})
        assert problem["errors"][0]["pointer"] == "/x"
        for value in (0.0, 1.0, 0.5):
            await api.update(0.5, x=[value] * 100)


async def test_max_dim(store_url: str) -> None:
    async with serving(store_url, max_dim=3) as api:
        too_many = {"a": {"type": "category", "categories": list("wxyz")}}
        for extra in ({"dim": 4}, {"schema": too_many, "strict": True}, {"hashed": 4}):
            await api.refused("invalid-request", "POST", "/sessions", {"name": "s", "learner": MEAN} | extra)
        await api.create()
        four = [1.0] * 4
        for action, body in (
            ("predict", {"x": four}),
            ("predict", {"x": four, "wait": False}),
            ("predict", {"x": dict.fromkeys("abcd", 1.0)}),
            ("update", {"x": four, "y": 1.0}),
            ("rounds", {"x": [four], "y": [1.0]}),
        ):
            await api.refused("invalid-request", "POST", f"/sessions/s/{action}", body)
        found = await api.inspect()
        assert (found["t"], found["dim"], found["waiting"]) == (0, None, 0)
        await api.update(1.0, x=[1.0] * 3)


async def test_max_waiting(store_url: str) -> None:
    async with serving(store_url, max_waiting=2) as api:
        await api.create()
        for id in ("a", "b"):
            await api.predict([1.0], id=id)
        await api.refused("limit-reached", "POST", "/sessions/s/predict", {"x": [1.0]})
        await api.predict([1.0], wait=False)
        await api.predict([1.0], id="a")
        await api.update(1.0, id="a")
        await api.predict([1.0], id="c")
        assert (await api.inspect())["waiting"] == 2


async def test_max_batch(store_url: str) -> None:
    async with serving(store_url, max_batch=3) as api:
        await api.create()
        body = {"x": [[1.0]] * 4, "y": [1.0] * 4}
        assert (await api.refused("payload-too-large", "POST", "/sessions/s/rounds", body))["limit"] == 3
        await api.rounds([[1.0]] * 3, [1.0] * 3)


async def test_max_body(store_url: str) -> None:
    async with serving(store_url, max_body_bytes=1024) as api:
        await api.create()
        for body in ({"x": [1.0], "id": "i" * 900}, {"x": [1.0] * 400}):
            expected = "payload-too-large" if len(body["x"]) > 1 else "invalid-request"
            await api.refused(expected, "POST", "/sessions/s/predict", body)


GROWING = {"kind": "pomdr", "config": POMDR["config"] | {"budget": 100_000}}


async def test_a_full_session_still_predicts_and_is_readable(store_url: str) -> None:
    """A learner that grows is refused past the cap, by every worker, and stays as it is."""
    async with serving(store_url, session_bytes=40_000) as api, serving(store_url, session_bytes=40_000) as other:
        await api.create(GROWING)
        t = 0
        response = None
        while t < 2_000:
            body = {"x": [t / 50.0, t % 7 / 3.0], "y": 1 if t % 3 else -1, "id": f"r{t}"}
            response = await api.http.post("/sessions/s/update", json=body)
            if response.status_code != 200:
                break
            t += 1
        assert response is not None
        assert (response.status_code, response.json()["type"]) == (409, "/problems/session-full")
        assert 40_000 < (await api.inspect())["bytes"] < 120_000
        before = await api.inspect()
        assert before["t"] == t
        await api.predict([0.0, 0.0], wait=False)
        await api.predict([0.0, 0.0], id="p")
        for worker in (api, other):
            for action, more in (
                ("update", {"x": [0.0, 0.0], "y": 1}),
                ("update", {"id": "p", "y": 1}),
                ("rounds", {"x": [[0.0, 0.0]], "y": [1]}),
            ):
                problem = await worker.refused("session-full", "POST", f"/sessions/s/{action}", more)
                assert (problem["session"], problem["limit"]) == ("s", 40_000)
            found = await worker.inspect()
            assert found == before | {"waiting": 1, "storage": found["storage"]}
        again = {"x": [0.0, 0.0], "y": -1, "id": "r0"}
        assert (await other.call("POST", "/sessions/s/update", again))["duplicate"]


async def test_a_block_that_would_fill_a_session_is_refused_whole(store_url: str) -> None:
    """The session has room before it, and then for smaller ones."""
    async with serving(store_url, session_bytes=60_000) as api:
        await api.create(GROWING)
        rows = {"x": [[t / 50.0, t % 7 / 3.0] for t in range(2_000)], "y": [1 if t % 3 else -1 for t in range(2_000)]}
        await api.refused("session-full", "POST", "/sessions/s/rounds", rows)
        few = {name: values[:20] for name, values in rows.items()}
        assert (await api.call("POST", "/sessions/s/rounds", few))["t"] == 20
        assert (await api.inspect())["bytes"] < 60_000


@pytest.mark.parametrize("settings", [{}, {"scale": {"kind": "learned"}, "warmup_rounds": 2}], ids=["at once", "later"])
@pytest.mark.parametrize("learner", [METRIC, member_of(METRIC), pool_of(METRIC), PACKING])
async def test_the_first_input_must_be_one_that_the_learner_takes(
    memory: Api, learner: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Found out before a round is learned, also where a warm-up would learn it without the learner."""
    created = await memory.create(learner, **settings)
    y = 1.0 if created["labels"] is None else created["labels"][0]
    for action, body in (
        ("predict", {"x": [0.1] * 3}),
        ("update", {"x": [0.1] * 3, "y": y}),
        ("rounds", {"x": [[0.1] * 3], "y": [y]}),
    ):
        problem = await memory.refused("wrong-dimension", "POST", f"/sessions/s/{action}", body)
        assert "this learner takes 2" in problem["detail"]
    for t in range(3):
        assert (await memory.update(y, x=[0.1, 0.1 * t]))["t"] == t + 1


MANY_CLASSES = {
    "kind": "pool",
    "config": {"truth": "classes", "classes": 1000, "experts": [{"kind": "softmax-aioli", "half_lives": [16] * 20}]},
}


@pytest.mark.parametrize(
    "learner",
    [LARGE, member_of(LARGE), pool_of(LARGE), {"kind": "foster-1d", "config": {"nodes": 10**10 + 1}}, MANY_CLASSES],
)
async def test_a_learner_that_cannot_be_held_is_refused_before_it_is_made(memory: Api, learner: dict[str, Any]) -> None:
    await memory.create(learner)
    for action, body in (
        ("predict", {"x": [0.1]}),
        ("update", {"x": [0.1], "y": 1}),
        ("rounds", {"x": [[0.1]], "y": [1]}),
    ):
        problem = await memory.refused("invalid-request", "POST", f"/sessions/s/{action}", body)
        assert "bytes from the start" in problem["detail"]
    assert (await memory.inspect())["t"] == 0


async def test_workers_forget_sessions_that_nobody_uses(store_url: str) -> None:
    """With room for hardly any session, every one of them still answers as if it had never left."""
    async with serving(store_url, resident_bytes=4096) as small, serving(store_url) as large:
        for name in "abc":
            await small.create(POMDR, name)
        for i in range(30):
            for name in "abc":
                await small.update(1 if i % 2 else -1, name, x=[0.1 * i, float(ord(name))])
        for name in "abc":
            assert await small.inspect(name) == await large.inspect(name)
        assert len(small.worker.rounds.replicas) < 3
        assert len(large.worker.rounds.replicas) == 3


async def test_no_more_streams_than_may_be_open() -> None:
    async with serving("sqlite://", max_streams=2) as api:
        await api.create(MEAN)
        body: dict[str, Any] = {"content": b'{"x": [1.0], "y": 1.0}\n', "headers": NDJSON}
        open_streams = api.worker.conversations
        with open_streams.room():
            assert (await api.http.post("/sessions/s/stream", **body)).status_code == 200
            with open_streams.room():
                problem = await api.refused("overloaded", "POST", "/sessions/s/stream", **body)
            assert "already has 2 streams" in problem["detail"]
            assert (await api.http.post("/sessions/s/stream", **body)).status_code == 200
        assert (await api.inspect())["t"] == 2
