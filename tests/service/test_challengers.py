"""Challengers see the champion's rounds, once and in order; they are compared with it, and may take its place."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from okl_core.monitoring.duel import Duel
from service.session.played import Fixed
from service.session.scorecard import Issued
from service.session.session import Session
from tests.service.api import Api, serving, serving_on
from tests.service.challenged import AUTO, CHAMPION, CLIPPED, LABELS, X, Y, attach, caught_up, named, session_of
from tests.service.definitions import GAUSSIAN, POMDR, RIDGE, define

pytestmark = pytest.mark.anyio


async def test_a_challenger_plays_the_rounds_of_its_champion(api: Api) -> None:
    await api.create(**CHAMPION)
    await attach(api)
    for row in range(60):
        await api.update(named(row), x=X[row].tolist())
    told = await caught_up(api)
    assert (told["t"], told["missed"], told["skipped"], told["trouble"]) == (60, 0, 0, None)
    # The same as a session of its own that was given the same rounds.
    await api.create(POMDR, "alone", labels=LABELS)
    mistakes = [(await api.update(named(row), "alone", x=X[row].tolist()))["mistake"] for row in range(60)]
    alone, own = await session_of(api, "alone"), await session_of(api, "s~c")
    assert alone.learner is not None
    assert own.learner is not None
    for name, array in alone.learner.state().items():
        np.testing.assert_array_equal(own.learner.state()[name], array)
    # The comparison by hand: mistakes of both, one after the other.
    duel, champion = Duel(is_of_numbers=False), 0.0
    session = Session(define({"kind": "majority"}, labels=LABELS))
    for row in range(60):
        y, task = session.read_truth(named(row))
        pending = session.play(session.read_input(X[row]), y, task)
        duel.add(float(mistakes[row]), pending.error)
        champion += pending.error
        session.learn(pending)
    assert own.pairing is not None
    assert own.pairing.duel == duel
    assert told["comparison"]["rounds"] == 60
    page = (await api.http.get("/sessions/s/page", headers={"Accept": "text/html"})).text
    assert told["comparison"]["text"] in page
    assert 'href="/sessions/s~c/page"' in page
    assert (await api.http.get("/sessions/s~c/page", headers={"Accept": "text/html"})).status_code == 200
    assert told["comparison"]["challenger"] == pytest.approx(sum(mistakes) / 60)
    assert told["comparison"]["champion"] == pytest.approx(champion / 60)


async def test_late_truths_are_forecast_when_the_champion_forecast_them(api: Api) -> None:
    await api.create(RIDGE, y_range=[-1, 1])
    await attach(
        api, {"kind": "kernel-ogd", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "squared"}}
    )
    delay, n = 7, 24
    for row in range(n + delay):
        if row < n:
            await api.predict(X[row].tolist(), id=f"r{row}")
        for _ in range(1000):
            if (await api.inspect("s~c"))["waiting"] == (await api.inspect())["waiting"]:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError(f"The challenger has not the predictions that wait at row {row}.")
        if row >= delay:
            await api.update(float(Y[row - delay]), id=f"r{row - delay}")
    told = await caught_up(api)
    assert (told["t"], told["missed"]) == (n, 0)
    own = await session_of(api, "s~c")
    # Directly: the same learner with the same delay.
    direct = Session(own.definition)
    waiting: list[Any] = []
    errors = []
    for row in range(n + delay):
        if row < n:
            raw = direct.read_input(X[row])
            waiting.append((raw, direct.forecast(raw)))
        if row >= delay:
            raw, forecast = waiting[row - delay]
            y, task = direct.read_truth(float(Y[row - delay]))
            pending = direct.play(raw, y, task, fixed=Fixed(Issued.of(forecast, y)))
            errors.append(pending.error)
            direct.learn(pending)
    assert own.card.error == pytest.approx(sum(errors))
    assert own.pairing is not None
    assert own.pairing.duel is not None
    assert own.pairing.duel.seen == n
    assert (await api.inspect("s~c"))["waiting"] == 0


async def test_a_challenger_answers_nobody(api: Api) -> None:
    await api.create(**CHAMPION)
    await attach(api)
    for path, body in (
        ("predict", {"x": X[0].tolist()}),
        ("update", {"x": X[0].tolist(), "y": "no"}),
        ("rounds", {"x": [X[0].tolist()], "y": ["no"]}),
        ("rename", {"name": "other"}),
        ("challengers", {"name": "d"}),
    ):
        await api.refused("session-follows", "POST", f"/sessions/s~c/{path}", body)
    assert (await api.inspect("s~c"))["t"] == 0


async def test_a_restarted_worker_knows_what_was_known(store_url: str) -> None:
    async with serving(store_url) as api:
        await api.create(**CHAMPION)
        await attach(api)
        for row in range(40):
            await api.update(named(row), x=X[row].tolist())
        before = await caught_up(api)
    async with serving(store_url) as api:
        assert await caught_up(api) == before
        for row in range(40, 50):
            await api.update(named(row), x=X[row].tolist())
        told = await caught_up(api)
        assert (told["t"], told["comparison"]["rounds"]) == (50, 50)


async def test_promotion_keeps_what_waits(api: Api) -> None:
    await api.create(**CHAMPION)
    for row in range(30):
        await api.update(named(row), x=X[row].tolist(), id=f"u{row}")
    await attach(api, **{"from": "journal"})
    issued = await api.predict(X[30].tolist(), id="w")
    await api.call("POST", "/sessions/s/challengers/c/promote")
    told = await api.inspect()
    assert (told["learner"]["kind"], told["t"]) == ("pomdr", 30)
    assert (await api.update(named(3), id="u3", x=X[3].tolist()))["duplicate"]
    settled = await api.update(named(30), id="w")
    assert settled["t"] == 31
    assert settled["mistake"] == (issued["label"] != named(30))
    await api.refused("session-not-found", "GET", "/sessions/s/challengers/c")
    assert [one["name"] for one in (await api.call("GET", "/sessions/s/checkpoints"))["checkpoints"]] == ["before-c"]
    await api.call("POST", "/sessions/s/rollback", {"checkpoint": "before-c"}, headers={"If-Match": "*"})
    assert (await api.inspect())["learner"]["kind"] == "majority"


async def test_nulls_texts_and_new_fields_are_followed(memory: Api) -> None:
    """Inputs as they come, to sessions that find out by themselves what they are."""
    loose: dict[str, Any] = {"strict": False, "scale": {"kind": "learned"}, "warmup_rounds": 20}
    await memory.create(AUTO, **loose)
    await memory.create(AUTO, "rows", **loose)
    await memory.call("POST", "/sessions/s/challengers", {"name": "c"}, status=201)
    await memory.call("POST", "/sessions/rows/challengers", {"name": "c"}, status=201)
    rng = np.random.default_rng(1)
    for row in range(40):
        x: dict[str, Any] = {
            "a.b": row % 3,
            "deep": {"er": float(rng.normal()), "no": None},
            "text": "some words" * (row % 2),
        }
        if row > 30:
            x["late"] = "new"
        await memory.update(["u", "v", "w"][row % 3], x=x)
        await memory.update(float(rng.normal()), "rows", x=[1.0, None, float(row)])
    for name in ("s", "rows"):
        told = await caught_up(memory, name=name)
        assert (told["t"], told["missed"], told["trouble"]) == (40, 0, None)
        one, other = await session_of(memory, name), await session_of(memory, f"{name}~c")
        # The same learner as the champion's, on the same rounds.
        assert one.card.tally() == other.card.tally()
        assert one.preparation is not None
        assert other.preparation is not None
        assert one.preparation.fields == other.preparation.fields


async def test_blocks_are_compared_round_by_round(memory: Api) -> None:
    """Those of several classes too, with the labels that were named."""
    await memory.create({"kind": "one-vs-rest"}, strict=False, scale={"kind": "learned"}, labels=["a", "b", "c"])
    await attach(memory, {"kind": "frequencies"})
    y = [["a", "b", "c"][int(abs(x[0]) * 7) % 3] for x in X[:90].tolist()]
    labels: list[str] = []
    for start in range(0, 90, 30):
        told = await memory.rounds(X[start : start + 30].tolist(), y[start : start + 30])
        labels += told["labels"]
    found = await caught_up(memory)
    assert (found["t"], found["missed"], found["comparison"]["rounds"]) == (90, 0, 90)
    wrong = sum(one != truth for one, truth in zip(labels, y, strict=True))
    assert found["comparison"]["champion"] == pytest.approx(wrong / 90)


async def test_rounds_that_a_challenger_refuses_are_left_out(memory: Api) -> None:
    await memory.create({"kind": "mean"})
    # It takes truths from -1 to 1.
    await attach(memory, CLIPPED)
    for row in range(30):
        await memory.update(5.0 if row % 10 == 3 else float(Y[row]), x=X[row].tolist())
    told: dict[str, Any] = {}
    for _ in range(200):
        told = await memory.call("GET", "/sessions/s/challengers/c")
        if told["t"] + told["skipped"] == 30:
            break
        await asyncio.sleep(0.02)
    assert (told["t"], told["skipped"], told["behind"]) == (27, 3, 0)
    assert "5.0" in told["trouble"]
    assert told["comparison"]["rounds"] == 27 - 16


async def test_a_challenger_takes_what_its_champion_takes() -> None:
    """A record of thousands of names, which are hashed to a few columns."""
    async with serving("sqlite://", session_bytes=4 << 20) as api:
        await api.create({"kind": "ons"}, y_range=[0, 9], strict=False)
        await attach(api, {"kind": "ons"})
        for y in range(3):
            await api.update(float(y), x={f"name {i}": float(i + y) for i in range(1000)})
        assert (await caught_up(api))["t"] == 3


async def test_a_block_is_divided_as_each_of_the_two_needs_it(memory: Api) -> None:
    """The champion's warm-up ends within its first block, the challenger's learner is known from the start."""
    await memory.create(AUTO, strict=False, scale={"kind": "learned"}, y_range=[-1, 1])
    await memory.rounds(X[:150].tolist(), Y[:150].tolist())
    await attach(memory, RIDGE)
    for start in (150, 250):
        await memory.rounds(X[start : start + 100].tolist(), Y[start : start + 100].tolist())
    assert (await caught_up(memory))["t"] == 200


@pytest.mark.parametrize("takes_weights", [True, False])
async def test_a_challenger_learns_with_the_weights_of_its_champion(memory: Api, takes_weights: bool) -> None:
    """One that takes none leaves those rounds out, of a block too."""
    learner = {"kind": "nystrom-ridge", "config": {"kernel": GAUSSIAN}} if takes_weights else {"kind": "mean"}
    await memory.create(RIDGE, y_range=[-1, 1])
    await attach(memory, learner)
    await memory.create(learner, "alone", y_range=[-1, 1])
    x, y, weight = X[:40].tolist(), Y[:40].tolist(), [1.0, 3.0, 0.5, 1.0] * 10
    names = ("s", "alone") if takes_weights else ("s",)
    for name in names:
        for row in range(4):
            await memory.update(y[row], name, x=x[row], weight=weight[row])
        await memory.rounds(x[4:], y[4:], name, weight=weight[4:])
    if not takes_weights:
        for row in (row for row in range(40) if weight[row] == 1.0):
            await memory.update(y[row], "alone", x=x[row])
    told: dict[str, Any] = {}
    for _ in range(500):
        told = await memory.call("GET", "/sessions/s/challengers/c")
        if told["t"] + told["skipped"] == 40:
            break
        await asyncio.sleep(0.02)
    assert (told["t"], told["skipped"]) == ((40, 0) if takes_weights else (20, 20))
    assert (told["trouble"] is None) == takes_weights
    own, alone = await session_of(memory, "s~c"), await session_of(memory, "alone")
    assert own.learner is not None
    assert alone.learner is not None
    for name, array in alone.learner.state().items():
        np.testing.assert_allclose(own.learner.state()[name], array, rtol=1e-9, atol=1e-9)


async def test_what_cannot_be_attached(memory: Api) -> None:
    await memory.refused("session-not-found", "POST", "/sessions/s/challengers", {"name": "c"})
    await memory.create(AUTO, strict=False, scale={"kind": "learned"})
    await memory.refused("invalid-request", "POST", "/sessions/s/challengers", {"name": "c", "learner": POMDR})
    await memory.refused("unknown-learner", "POST", "/sessions/s/challengers", {"name": "c", "learner": {"kind": "no"}})
    await memory.create({"kind": "mean"}, "numbers")
    await memory.refused("invalid-request", "POST", "/sessions/numbers/challengers", {"name": "c", "learner": POMDR})
    await memory.call("DELETE", "/sessions/numbers", status=204)
    await memory.refused("invalid-name", "POST", "/sessions/s/challengers", {"name": "a~c"})
    blob = (await memory.http.get("/sessions/s/snapshot")).content
    headers = {"Content-Type": "application/octet-stream", "If-None-Match": "*"}
    for name in ("s~put", "nobody~put"):
        await memory.refused("session-follows", "PUT", f"/sessions/{name}/snapshot", content=blob, headers=headers)
    for i in range(8):
        await memory.call("POST", "/sessions/s/challengers", {"name": f"c{i}"}, status=201)
    await memory.refused("limit-reached", "POST", "/sessions/s/challengers", {"name": "c8"})
    await memory.call("DELETE", "/sessions/s/challengers/c3", status=204)
    await memory.refused("session-exists", "POST", "/sessions/s/challengers", {"name": "c4"})
    await memory.refused("cannot-promote", "POST", "/sessions/s/challengers/c4/promote")
    await memory.call("POST", "/sessions/s/rename", {"name": "n"})
    told = await memory.call("GET", "/sessions/n/challengers")
    assert [one["name"] for one in told["challengers"]] == [f"c{i}" for i in range(8) if i != 3]
    await memory.call("DELETE", "/sessions/n", status=204)
    assert (await memory.call("GET", "/sessions"))["sessions"] == []


async def test_a_promotion_that_is_refused_leaves_no_checkpoint(memory: Api) -> None:
    await memory.create(AUTO, strict=False, scale={"kind": "learned"}, labels=LABELS)
    await attach(memory, POMDR)
    missing = await memory.refused("session-not-found", "POST", "/sessions/s/challengers/no/promote")
    assert missing["detail"] == "There is no session 's~no'; create it with POST /sessions/s/challengers."
    await memory.refused("cannot-promote", "POST", "/sessions/s/challengers/c/promote")
    at = (await memory.call("GET", "/sessions/s"))["etag"]
    for row in range(10):
        await memory.update(named(row), x=X[row].tolist())
    headers = {"If-Match": at}
    await memory.refused("precondition-failed", "POST", "/sessions/s/challengers/c/promote", headers=headers)
    await memory.predict(X[10].tolist(), id="waits")
    # `auto` learns classes, and what waits has the probabilities of all of them.
    await memory.refused("cannot-promote", "POST", "/sessions/s/challengers/c/promote")
    assert (await memory.call("GET", "/sessions/s/checkpoints"))["checkpoints"] == []
    await memory.update(named(10), id="waits")
    assert (await memory.call("POST", "/sessions/s/challengers/c/promote"))["kind"] == "pomdr"
    assert [one["name"] for one in (await memory.call("GET", "/sessions/s/checkpoints"))["checkpoints"]] == ["before-c"]


async def test_a_challenger_goes_on_after_a_roll_back_and_a_promotion(api: Api) -> None:
    """From snapshots, in another life of its champion; with another learner the comparison begins again."""
    await api.create(**CHAMPION, snapshot_every=7)
    await attach(api, {"kind": "last-label"})
    await attach(api, POMDR, "d")
    for row in range(20):
        await api.update(named(row), x=X[row].tolist())
        if row == 9:
            await api.call("POST", "/sessions/s/checkpoints", {"name": "k"}, status=201)
    assert (await caught_up(api))["comparison"]["rounds"] == 20
    await api.call("POST", "/sessions/s/rollback", {"checkpoint": "k"}, headers={"If-Match": "*"})
    for row in range(20, 30):
        await api.update(named(row), x=X[row].tolist())
    for name in ("c", "d"):
        await api.worker.feeder.feed("s", name)
        told = await caught_up(api, name)
        assert (told["t"], told["skipped"], told["comparison"]["rounds"]) == (30, 0, 30)
    await api.call("POST", "/sessions/s/challengers/d/promote")
    for row in range(30, 35):
        await api.update(named(row), x=X[row].tolist())
    await api.worker.feeder.feed("s", "c")
    told = await caught_up(api)
    assert (told["t"], told["skipped"], told["missed"], told["comparison"]["rounds"]) == (35, 0, 0, 5)
    # And from what is stored.
    before = await session_of(api, "s~c")
    async with serving_on(api.store) as fresh:
        again = await session_of(fresh, "s~c")
        assert again.pairing == before.pairing
        assert again.card.tally() == before.card.tally()
