"""What another worker predicts between the looks of a promotion, or of a roll back, and its swap."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.service.api import Api, serving_on
from tests.service.challenged import AUTO, X, attach, named
from tests.service.definitions import POMDR
from tests.service.worker import Call, Watched

pytestmark = pytest.mark.anyio


def predicting(watched: Watched, other: Api, x: list[float]) -> list[dict[str, Any]]:
    """What the other worker tells when the swap is on its way to the store."""
    issued: list[dict[str, Any]] = []

    async def before(call: Call) -> None:
        if call.method == "replace":
            watched.work()
            issued.append(await other.predict(x, id="waits"))

    watched.before = before
    return issued


async def test_no_challenger_takes_over_a_prediction_that_it_cannot_settle(watched: Watched) -> None:
    """A prediction moves no tip. This one names a class by its place, to the challenger a truth is -1 or 1."""
    async with serving_on(watched.as_store) as api, serving_on(watched.as_store) as other:
        await api.create(AUTO, strict=False, scale={"kind": "learned"}, labels=["no", "yes"])
        await attach(api, POMDR)
        for row in range(10):
            await api.update(named(row), x=X[row].tolist())
        issued = predicting(watched, other, X[10].tolist())
        await api.refused("cannot-promote", "POST", "/sessions/s/challengers/c/promote")
        settled = await other.update(issued[0]["label"], id="waits")
        assert (settled["t"], settled["mistake"]) == (11, False)
        assert (await api.call("POST", "/sessions/s/challengers/c/promote"))["kind"] == "pomdr"


async def test_a_prediction_that_can_be_settled_holds_up_no_promotion(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api, serving_on(watched.as_store) as other:
        await api.create({"kind": "majority"}, labels=["no", "yes"])
        await attach(api, POMDR)
        for row in range(10):
            await api.update(named(row), x=X[row].tolist())
        issued = predicting(watched, other, X[10].tolist())
        assert (await api.call("POST", "/sessions/s/challengers/c/promote"))["kind"] == "pomdr"
        assert len(watched.of("replace")) == 1
        settled = await other.update(issued[0]["label"], id="waits")
        assert (settled["t"], settled["mistake"]) == (11, False)


async def test_no_roll_back_leaves_a_prediction_without_its_label(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api, serving_on(watched.as_store) as other:
        await api.http.post("/sessions", json={"name": "s"})
        await api.update("a", x=[1.0])
        await api.call("POST", "/sessions/s/checkpoints", {"name": "a"}, status=201)
        for row in range(10):
            await api.update("b", x=[float(row)])
        issued = predicting(watched, other, [1.0])
        rollback: Any = ("POST", "/sessions/s/rollback", {"checkpoint": "a"})
        await api.refused("invalid-snapshot", *rollback, headers={"If-Match": "*"})
        assert issued[0]["label"] == "b"
        assert (await other.update("b", id="waits"))["mistake"] is False
        assert (await api.call(*rollback, headers={"If-Match": "*"}))["labels"] == ["a"]


async def test_predictions_that_have_expired_hold_up_neither_promotion_nor_snapshot(watched: Watched) -> None:
    """The head counts them as waiting until the next commit, which may never come."""
    async with serving_on(watched.as_store) as api:
        await api.create({"kind": "majority"}, labels=["no", "yes"])
        other = (await api.http.get("/sessions/s/snapshot")).content
        await api.call("DELETE", "/sessions/s", status=204)
        await api.create(AUTO, strict=False, scale={"kind": "learned"}, labels=["yes", "no"], expires_s=0.05)
        await attach(api, POMDR)
        for row in range(10):
            await api.update(named(row), x=X[row].tolist())
        for way in ("promote", "put"):
            await api.predict(X[10].tolist(), id=way)
            await asyncio.sleep(0.1)
            assert (await api.call("GET", "/sessions/s/predictions"))["predictions"] == []
            assert (await api.inspect())["waiting"] == 1
            if way == "promote":
                assert (await api.call("POST", "/sessions/s/challengers/c/promote"))["kind"] == "pomdr"
            else:
                headers = {"If-Match": "*", "Content-Type": "application/octet-stream"}
                put = await api.http.put("/sessions/s/snapshot", content=other, headers=headers)
                assert put.status_code == 200, put.text
