"""Frozen sessions against the library's frozen learners: on every store, at every worker, across restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import okl_core
from okl_core import OnlineLearner, ReservoirLearner
from okl_core.records.scaling import Scaling
from okl_core.types import F64
from service.demo_data import magic
from tests.service.api import Api, serving
from tests.service.definitions import GAUSSIAN, MEAN, POMDR
from tests.service.worker import replayed

pytestmark = pytest.mark.anyio

X, Y = magic()
D = X.shape[1]
ROUNDS = 40
MEDIAN = {"kind": "pomdr", "seed": 4, "config": {"kernel": {"kind": "gaussian", "sigma": "median"}, "budget": 30}}


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other


async def feed(apis: tuple[Api, ...], first: int, last: int) -> None:
    for row in range(first, last):
        await apis[row % len(apis)].update(int(Y[row]), x=X[row].tolist())


async def freeze(api: Api, name: str, rule: str, source: str = "s") -> dict[str, Any]:
    return await api.call("POST", f"/sessions/{source}/freeze", {"name": name, "rule": rule}, status=201)


async def scores(api: Api, name: str) -> list[float]:
    return [(await api.predict(x.tolist(), name, wait=False))["score"] for x in X[100:110]]


def scores_of(learner: OnlineLearner, rows: F64 = X[100:110]) -> list[float]:
    return [learner.predict(x).value for x in rows]


async def test_the_present_state(workers: tuple[Api, Api]) -> None:
    one, other = workers
    await one.create(POMDR, labels=["no", "yes"], expires_s=60.0)
    learner = okl_core.create(POMDR, D)
    for row in range(ROUNDS):
        await workers[row % 2].update("yes" if Y[row] > 0 else "no", x=X[row].tolist())
        learner.update(X[row], Y[row])
    expected = scores_of(learner)
    # The other worker may be a round behind; what is frozen is what the store has.
    created = await freeze(other, "fixed", "last")
    assert created["frozen"] == {"session": "s", "t": ROUNDS, "rule": "last"}
    assert (created["t"], created["kind"], created["dim"], created["warming_up"]) == (ROUNDS, "pomdr", D, False)
    assert without_bytes(created["describe"]) == without_bytes(learner.describe())
    assert (created["metrics"]["rounds"], created["settings"]["expires_s"]) == (0, 60.0)
    await one.rounds(X[ROUNDS:100].tolist(), ["yes" if y > 0 else "no" for y in Y[ROUNDS:100]])
    for api in workers:
        assert await scores(api, "fixed") == expected
        assert await scores(api, "s") != expected
        assert (await api.predict(X[0].tolist(), "fixed"))["label"] in ("no", "yes")
        assert (await api.inspect("s"))["frozen"] is None
    listed = (await one.call("GET", "/sessions"))["sessions"]
    assert [(entry["name"], entry["t"]) for entry in listed] == [("fixed", ROUNDS), ("s", 100)]


def without_bytes(numbers: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if name != "bytes"}


@pytest.mark.each
@pytest.mark.parametrize("snapshot_every", [None, 1, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_the_state_of_a_drawn_round(store_url: str, seed: int, snapshot_every: int | None) -> None:
    """Two workers in turn, one block, a restart; then the round that the library draws, from the journal or a snapshot."""
    spec = POMDR | {"seed": seed}
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create(spec, reservoir=True, snapshot_every=snapshot_every)
        await feed((one, other), 0, 20)
        await other.rounds(X[20:30].tolist(), [int(y) for y in Y[20:30]])
    async with serving(store_url) as again:
        await feed((again,), 30, ROUNDS)
        created = await freeze(again, "drawn", "uniform")
        found = await replayed(again.store)
    reservoir = ReservoirLearner.create(spec, D)
    reservoir.run(X[:ROUNDS], Y[:ROUNDS])
    t = reservoir.kept_round - 1
    assert created["t"] == t
    assert created["frozen"] == {"session": "s", "t": ROUNDS, "rule": "uniform"}
    learner = okl_core.create(spec, D)
    for row in range(t):
        learner.update(X[row], Y[row])
    async with serving(store_url) as fresh:
        assert await scores(fresh, "drawn") == pytest.approx(scores_of(learner), rel=1e-9, abs=1e-9)
        assert (await fresh.inspect("drawn"))["frozen"] == created["frozen"]
        # What the store holds of the source leads to the same draw.
        assert (await freeze(fresh, "twice", "uniform"))["t"] == t
        assert await scores(fresh, "twice") == await scores(fresh, "drawn")
        live = await fresh.inspect("s")
    assert live["describe"] == found.describe()
    assert live["describe"]["kept_round"] == t + 1
    assert live["settings"]["reservoir"]
    assert created["settings"]["reservoir"] is False


async def test_the_first_round_may_be_drawn(api: Api) -> None:
    await api.create(POMDR, reservoir=True)
    await feed((api,), 0, 1)
    created = await freeze(api, "drawn", "uniform")
    assert (created["t"], created["frozen"]["t"], created["dim"]) == (0, 1, D)
    assert await scores(api, "drawn") == [0.0] * 10


async def test_a_drawn_round_after_a_warmup(workers: tuple[Api, Api]) -> None:
    """Of the rounds that the warm-up taught, too; with its scale and its sigma."""
    one, other = workers
    await one.create(MEDIAN, scale={"kind": "learned"}, warmup_rounds=20, reservoir=True)
    await feed(workers, 0, 7)
    problem = await one.refused("cannot-freeze", "POST", "/sessions/s/freeze", {"name": "n", "rule": "last"})
    assert "after 8 rounds" in problem["detail"]
    await feed(workers, 7, 50)
    scaled = Scaling.found(X[:20], np.ones(D, dtype=bool), np.zeros(D, dtype=bool), None)(X)
    spec = okl_core.resolve(MEDIAN, scaled[:20])
    reservoir = ReservoirLearner.create(spec, D)
    reservoir.run(scaled[:50], Y[:50])
    created = await freeze(other, "drawn", "uniform")
    assert created["t"] == reservoir.kept_round - 1
    assert created["learner"]["config"]["kernel"]["sigma"] == pytest.approx(spec.config["kernel"]["sigma"])
    expected = scores_of(reservoir.kept(), scaled[100:110])
    for api in workers:
        assert await scores(api, "drawn") == pytest.approx(expected, rel=1e-9, abs=1e-9)


async def test_a_frozen_session_learns_nothing(workers: tuple[Api, Api]) -> None:
    one, other = workers
    await one.create(POMDR)
    await feed((one,), 0, ROUNDS)
    await one.predict(X[ROUNDS].tolist(), id="waits")
    await freeze(one, "fixed", "last")
    before = await scores(one, "fixed")
    for api in workers:
        for body in ({"x": X[0].tolist(), "y": 1}, {"id": "waits", "y": 1}, {"x": X[0].tolist(), "y": 1, "id": "u"}):
            problem = await api.refused("session-frozen", "POST", "/sessions/fixed/update", body)
            assert problem["session"] == "fixed"
            # Where to report the truth instead.
            assert problem["detail"].endswith("made from 's'.")
        await api.refused("session-frozen", "POST", "/update", {"session": "fixed", "x": X[0].tolist(), "y": 1})
        rounds = {"x": [X[0].tolist()], "y": [1]}
        await api.refused("session-frozen", "POST", "/sessions/fixed/rounds", rounds)
        assert await scores(api, "fixed") == before
        assert (await api.inspect("fixed"))["t"] == ROUNDS
    # The source still has its waiting prediction.
    assert (await other.update(1, id="waits"))["t"] == ROUNDS + 1


async def test_no_prediction_of_a_frozen_session_waits(workers: tuple[Api, Api]) -> None:
    await workers[0].create(POMDR)
    await feed(workers, 0, ROUNDS)
    await freeze(workers[0], "fixed", "last")
    for api in workers:
        answers = [await api.predict(X[1].tolist(), "fixed", **more) for more in ({}, {"id": "mine"}, {"wait": False})]
        assert answers[0] == answers[1] == answers[2]
        assert ("id" in answers[0], answers[0]["t"]) == (False, ROUNDS)
        assert (await api.inspect("fixed"))["waiting"] == 0
        await api.refused("wrong-dimension", "POST", "/sessions/fixed/predict", {"x": [1.0]})


async def test_features_and_units_are_those_of_the_source(api: Api) -> None:
    schema = {"a": "number", "b": {"type": "category", "categories": ["x", "y"]}}
    await api.create(MEAN, schema=schema, y_range=[0.0, 10.0])
    await api.update(8.0, x={"a": 1.0, "b": "x"})
    created = await freeze(api, "fixed", "last")
    assert (created["fields"], created["dim"]) == ((await api.inspect())["fields"], 3)
    await api.update(0.0, x={"a": 1.0, "b": "y"})
    assert (await api.predict({"a": 0.0, "b": "y"}, "fixed"))["value"] == pytest.approx(8.0)
    await api.refused("wrong-features", "POST", "/sessions/fixed/predict", {"x": [0.0, 0.0, 1.0]})


async def test_lags_are_those_of_the_moment(api: Api) -> None:
    await api.create({"kind": "pomdr", "lags": 2, "config": {"kernel": GAUSSIAN}}, reservoir=True)
    await feed((api,), 0, 10)
    live, frozen = await api.inspect(), await freeze(api, "fixed", "last")
    assert live["lags"] == frozen["lags"] == [Y[9], Y[8]]
    expected = await scores(api, "s")
    await feed((api,), 10, 15)
    assert await scores(api, "fixed") == expected
    drawn = await freeze(api, "drawn", "uniform")
    t = drawn["t"]
    assert drawn["lags"] == [Y[i] if i >= 0 else 0.0 for i in (t - 1, t - 2)]


async def test_what_cannot_be_frozen(api: Api) -> None:
    path, body = "/sessions/s/freeze", {"name": "n", "rule": "uniform"}
    await api.create(POMDR)
    problem = await api.refused("cannot-freeze", "POST", path, body | {"rule": "last"})
    assert "no round" in problem["detail"]
    for rounds in (0, 5):
        # No round could mend that.
        await feed((api,), 0, rounds)
        problem = await api.refused("cannot-freeze", "POST", path, body)
        assert ("reservoir" in problem["detail"], problem["session"]) == (True, "s")
    await api.refused("session-exists", "POST", path, {"name": "s"})
    await api.refused("session-not-found", "POST", "/sessions/none/freeze", {"name": "n"})
    for wrong, slug in (({"name": "a b"}, "invalid-name"), ({"name": "n", "rule": "first"}, "invalid-request")):
        await api.refused(slug, "POST", path, wrong)
    assert [entry["name"] for entry in (await api.call("GET", "/sessions"))["sessions"]] == ["s"]
    await api.call("POST", path, {"name": "n"}, status=201)
    problem = await api.refused("cannot-freeze", "POST", "/sessions/n/freeze", {"name": "m"})
    assert "already" in problem["detail"]


async def test_a_frozen_session_counts_as_one(store_url: str) -> None:
    async with serving(store_url, max_sessions=2) as api:
        await api.create(MEAN)
        await api.update(1.0, x=[1.0])
        await freeze(api, "fixed", "last")
        await api.refused("limit-reached", "POST", "/sessions/s/freeze", {"name": "more"})
        await api.call("DELETE", "/sessions/s", status=204)
        assert (await api.predict([1.0], "fixed"))["value"] == 1.0
        await api.call("DELETE", "/sessions/fixed", status=204)
        assert await api.store.count() == 0


async def test_made_again_the_other_way_round(workers: tuple[Api, Api]) -> None:
    """A worker that knows a frozen session finds a learning one of its name, and the reverse."""
    one, other = workers
    await one.create(MEAN, "source")
    await one.update(3.0, "source", x=[1.0])
    await freeze(one, "s", "last", "source")
    await other.predict([1.0])
    await one.call("DELETE", "/sessions/s", status=204)
    await one.create(MEAN)
    assert (await other.update(5.0, x=[1.0]))["t"] == 1
    assert (await other.predict([1.0], id="p"))["id"] == "p"
    await one.call("DELETE", "/sessions/s", status=204)
    await freeze(one, "s", "last", "source")
    answer = await other.predict([1.0], id="q")
    assert answer == {"session": "s", "t": 1, "value": 3.0}
    await one.call("DELETE", "/sessions/s", status=204)
    await one.create(MEAN)
    await other.update(5.0, x=[1.0])
    await one.call("DELETE", "/sessions/s", status=204)
    await freeze(one, "s", "last", "source")
    await other.refused("session-frozen", "POST", "/sessions/s/update", {"x": [1.0], "y": 5.0})


async def test_freezing_while_others_learn(workers: tuple[Api, Api]) -> None:
    """Each frozen session is the learner at the round that it names."""
    one, other = workers
    await one.create(POMDR, reservoir=True)
    await feed((one,), 0, 5)

    async def learn() -> None:
        await feed((one,), 5, 60)

    async def take() -> list[dict[str, Any]]:
        return [await freeze(other, f"f{i}", ("last", "uniform")[i % 2]) for i in range(8)]

    _, frozen = await asyncio.gather(learn(), take())
    reservoir = ReservoirLearner.create(POMDR, D)
    learners = {0: okl_core.create(POMDR, D)}
    drawn = {}
    for row in range(60):
        reservoir.update(X[row], Y[row])
        learners[row + 1] = okl_core.restore(POMDR, reservoir.learner.state(), D)
        drawn[row + 1] = reservoir.kept_round - 1
    for found in frozen:
        source_t = found["frozen"]["t"]
        assert found["t"] == (source_t if found["frozen"]["rule"] == "last" else drawn[source_t])
        assert await scores(one, found["name"]) == scores_of(learners[found["t"]])
