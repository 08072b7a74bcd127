"""Nothing is learned twice by a challenger, and nothing lost, where something is repeated, refused or taken back."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest

from okl.errors import StoreUnavailable
from service.challengers.feeder import Feeder, FeedResult
from service.challengers.roster import Roster
from service.session.record import decode_record
from service.session.session import Session
from service.session.snapshot import pack
from service.session.summary import decode_summary
from service.store.base import Gone, Head, Reading, Tip
from tests.service.api import Api, serving, serving_on
from tests.service.challenged import AUTO, CHAMPION, CLIPPED, attach, caught_up, session_of
from tests.service.definitions import POMDR
from tests.service.worker import Call, Watched

pytestmark = pytest.mark.anyio

MEAN = {"kind": "mean"}
BINARY = {"Content-Type": "application/octet-stream"}


async def test_a_block_whose_last_round_is_refused_is_past(memory: Api) -> None:
    await memory.create(AUTO, strict=False, scale={"kind": "learned"}, warmup_rounds=20)
    await memory.rounds([[i, 1] for i in range(30)], ["a", "b"] * 15)
    # It has the labels that there are, and refuses others.
    await memory.call("POST", "/sessions/s/challengers", {"name": "c", "learner": POMDR}, status=201)
    await memory.rounds([[i, 2] for i in range(6)], ["a", "b", "c", "b", "a", "c"])
    for _ in range(3):
        await memory.worker.feeder.feed("s", "c")
        told = await memory.call("GET", "/sessions/s/challengers/c")
        assert (told["t"], told["behind"], told["skipped"]) == (4, 0, 2)
    # A replay of its journal says the same.
    live, reading = await session_of(memory, "s~c"), await memory.store.read("s~c")
    assert isinstance(reading, Reading)
    replayed = Session(decode_record("s~c", reading.record or b"")[0])
    for entry in reading.entries:
        replayed.replay(entry.blob)
    assert pack(replayed, "here") == pack(live, "here")


async def test_rounds_that_are_taken_back_are_not_followed_by_all_others(memory: Api) -> None:
    await memory.create(MEAN)
    await memory.call("POST", "/sessions/s/challengers", {"name": "c", "learner": MEAN}, status=201)
    for i in range(10):
        await memory.update(float(i), x=[1.0])
    await memory.worker.feeder.feed("s", "c")
    entries, head = await memory.store.last("s", 10), await memory.store.head("s")
    assert not isinstance(entries, Gone)
    assert isinstance(head, Head)
    assert await memory.store.rewind("s", head.tip, entries[7].tip) is True
    for learned in (10, 11):
        await memory.worker.feeder.feed("s", "c")
        assert (await memory.call("GET", "/sessions/s/challengers/c"))["t"] == learned
        await memory.update(1.0, x=[1.0])


async def test_how_far_a_challenger_is_behind_after_a_roll_back(memory: Api) -> None:
    await memory.create(MEAN)
    await attach(memory, CLIPPED)
    await memory.worker.roster.close()
    await memory.rounds([[1.0, 1.0]] * 5, [0.5] * 5)
    await memory.call("POST", "/sessions/s/checkpoints", {"name": "k"}, status=201)
    await memory.rounds([[1.0, 1.0]] * 5, [0.5] * 5)
    await memory.worker.feeder.feed("s", "c")
    await memory.call("POST", "/sessions/s/rollback", {"checkpoint": "k"}, headers={"If-Match": "*"})
    await memory.worker.feeder.feed("s", "c")
    # The latter rounds have truths that it does not take.
    for y, learned, skipped in ((0.5, 13, 0), (5.0, 13, 3)):
        await memory.rounds([[1.0, 1.0]] * 3, [y] * 3)
        assert (await memory.call("GET", "/sessions/s/challengers/c"))["behind"] == 3
        await memory.worker.feeder.feed("s", "c")
        told = await memory.call("GET", "/sessions/s/challengers/c")
        assert (told["t"], told["behind"], told["skipped"]) == (learned, 0, skipped)


async def test_a_promotion_that_is_repeated_keeps_the_champion_from_before_it(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api:
        await api.create(MEAN)
        await api.rounds([[1.0]] * 50, [0.5] * 50)
        await api.call("POST", "/sessions/s/challengers", {"name": "c", "learner": {"kind": "last-label"}}, status=201)
        await api.rounds([[1.0]] * 5, [0.5] * 5)

        async def before(call: Call) -> None:
            if call.method == "delete":
                raise StoreUnavailable("Killed.")

        watched.before = before
        await api.refused("store-unavailable", "POST", "/sessions/s/challengers/c/promote")
        watched.before = None
        await api.rounds([[1.0]] * 2, [0.5] * 2)
        assert (await api.call("POST", "/sessions/s/challengers/c/promote"))["kind"] == "last-label"
        assert await api.store.count() == 1
        back = await api.call("POST", "/sessions/s/rollback", {"checkpoint": "before-c"}, headers={"If-Match": "*"})
        assert (back["kind"], back["t"]) == ("mean", 55)
        # To go back is use of the session, which a template's expiry goes by.
        head = await api.store.head("s")
        assert isinstance(head, Head)
        assert decode_summary(head.summary).asked_at is not None


async def test_a_fresh_start_of_the_same_learner_is_promoted(memory: Api) -> None:
    """It has its champion's definition, but not its state; a promotion that was cut off leaves both the same."""
    await memory.create(MEAN)
    await memory.rounds([[1.0]] * 50, [0.0] * 50)
    await attach(memory, MEAN)
    await memory.rounds([[1.0]] * 5, [1.0] * 5)
    assert (await memory.call("POST", "/sessions/s/challengers/c/promote"))["t"] == 5
    assert (await memory.predict([1.0], wait=False))["value"] == 1.0


async def test_a_full_challenger_refuses_each_round_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy is not loaded again for that, and no copy of it stays in memory until garbage is collected."""
    # What a worker freezes then is not listed any more.
    monkeypatch.setattr("service.app.LOADED_AFTER_S", 3600.0)
    async with serving("sqlite://", session_bytes=40_000) as api:
        await api.create(MEAN)
        await attach(api, {"kind": "kernel-ridge"})
        await api.worker.roster.close()
        counts, loads = api.worker.counts, 0
        gc.collect()
        gc.disable()
        try:
            for n in (300, 600, 900, 900):
                for _ in range((await api.inspect())["t"], n, 20):
                    await api.rounds([[float(i)] for i in range(20)], [1.0] * 20)
                fed = await api.worker.feeder.feed("s", "c")
                assert "the cap is 40000" in fed.refused
                full = await api.call("GET", "/sessions/s/challengers/c")
                assert (full["behind"], full["t"] + full["skipped"]) == (0, n)
                copies = [one for one in gc.get_objects() if isinstance(one, Session) and one.definition.name == "s~c"]
                loads = loads or counts.replays
                assert (len(copies), counts.replays) == (1, loads)
        finally:
            gc.enable()


async def test_a_challenger_too_wide_for_its_memory_cap_learns_nothing() -> None:
    """Its champion has the same inputs, and needs far less for them."""
    async with serving("sqlite://", session_bytes=1 << 20) as api:
        await api.create(MEAN)
        await attach(api, {"kind": "ons"})
        await api.worker.roster.close()
        wide = [float(i) for i in range(600)]
        await api.predict(wide, id="waits")
        await api.update(1.0, x=wide)
        await api.rounds([wide] * 2, [1.0] * 2)
        fed = await api.worker.feeder.feed("s", "c")
        assert "the cap is 1048576" in fed.refused
        told = await api.call("GET", "/sessions/s/challengers/c")
        assert (told["t"], told["behind"], told["skipped"]) == (0, 0, 3)


async def test_an_error_that_passes_costs_no_rounds(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The challenger is fed again at once, not after the pause of one that failed."""
    monkeypatch.setattr("service.challengers.roster.SOON_S", 0.01)
    async with serving_on(watched.as_store) as api:
        await api.create(MEAN)
        await attach(api, MEAN)
        left = 3

        async def before(call: Any) -> None:
            nonlocal left
            if call.method == "commit" and call.arguments[0] == "s~c" and left:
                left -= 1
                raise StoreUnavailable("The store is away.")

        watched.before = before
        api.worker.roster.start(api.worker.feeder)
        await api.rounds([[1.0]] * 10, [1.0] * 10)
        told = await caught_up(api)
        assert (left, told["t"], told["skipped"]) == (0, 10, 0)


async def test_a_challenger_that_another_worker_was_feeding_is_fed_again(memory: Api) -> None:
    """The other may not know of the last round yet, and the next sweep is a while away."""
    fed: list[str] = []

    class Busy:
        async def feed(self, champion: str, name: str) -> FeedResult | None:
            fed.append(f"{champion}~{name}")
            return None if len(fed) == 1 else FeedResult(Tip(0, bytes(16)), 0, None)

    await memory.create(MEAN)
    await attach(memory, MEAN)
    roster = Roster(memory.store, memory.worker.counts)
    # It looks for all challengers at once, and again after 12 seconds.
    roster.start(cast(Feeder, Busy()))
    for _ in range(100):
        if len(fed) == 2:
            break
        await asyncio.sleep(0.02)
    await roster.close()
    assert fed == ["s~c", "s~c"]


@pytest.mark.parametrize("how", ["promotion", "snapshot", "roll back"])
async def test_challengers_are_fed_before_the_journal_begins_anew(store_url: str, how: str) -> None:
    """The worker that does it did not commit the rounds; it knows a challenger that is gone, not the one in its place."""
    anywhere = {"If-Match": "*"}
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create(MEAN)
        await attach(other, MEAN, "old")
        await attach(other, {"kind": "kernel-ridge"}, "d")
        await one.call("DELETE", "/sessions/s/challengers/old", status=204)
        await attach(one, MEAN, "c")
        await one.call("POST", "/sessions/s/checkpoints", {"name": "k"}, status=201)
        blob = (await one.http.get("/sessions/s/snapshot")).content
        await one.worker.roster.close()
        await one.rounds([[1.0]] * 60, [1.0] * 60)
        match how:
            case "promotion":
                await other.call("POST", "/sessions/s/challengers/d/promote")
            case "snapshot":
                put = await other.http.put("/sessions/s/snapshot", content=blob, headers=anywhere | BINARY)
                assert put.status_code == 200, put.text
            case _:
                await other.call("POST", "/sessions/s/rollback", {"checkpoint": "k"}, headers=anywhere)
        told = await caught_up(other)
        assert (told["t"], told["skipped"]) == (60, 0)


async def test_a_cancelled_prediction_waits_in_no_challenger(memory: Api) -> None:
    await memory.create(MEAN)
    await attach(memory, MEAN)
    await memory.update(1.0, x=[1.0])
    for id in ("a", "b"):
        await memory.predict([1.0], id=id)
    await memory.worker.feeder.feed("s", "c")
    await memory.refused("session-follows", "DELETE", "/sessions/s~c/predictions/a")
    await memory.call("DELETE", "/sessions/s/predictions/a", status=204)
    for name in ("s", "s~c"):
        page = await memory.call("GET", f"/sessions/{name}/predictions")
        assert [one["id"] for one in page["predictions"]] == ["b"]


async def test_predictions_that_wait_for_a_shorter_time_than_those_before_are_followed(memory: Api) -> None:
    """The worker has read the waiting predictions of an earlier session of this name, which expire later."""
    for expires_s in (3600, 60):
        await memory.create(MEAN, expires_s=expires_s)
        await attach(memory, MEAN)
        await memory.update(1.0, x=[1.0])
        await memory.predict([1.0], id="a")
        # The truth comes after a round, so only a challenger that has predicted meanwhile can be compared.
        await memory.update(2.0, x=[2.0])
        await memory.worker.feeder.feed("s", "c")
        page = await memory.call("GET", "/sessions/s~c/predictions")
        assert [one["id"] for one in page["predictions"]] == ["a"]
        await memory.update(1.0, id="a")
        await memory.worker.feeder.feed("s", "c")
        told = await memory.call("GET", "/sessions/s/challengers/c")
        assert (told["t"], told["missed"]) == (3, 0)
        await memory.call("DELETE", "/sessions/s", status=204)


@pytest.mark.parametrize("where", ["s", "s~c"])
async def test_a_cancellation_that_is_cut_off_is_completed_by_another(watched: Watched, where: str) -> None:
    async with serving_on(watched.as_store) as api:
        await api.create(MEAN)
        await attach(api, MEAN)
        await api.update(1.0, x=[1.0])
        await api.predict([1.0], id="a")
        await api.worker.feeder.feed("s", "c")

        async def before(call: Call) -> None:
            if call.method == "cancel" and call.arguments[0] == where:
                watched.work()
                raise StoreUnavailable("The store is away.")

        watched.before = before
        await api.refused("store-unavailable", "DELETE", "/sessions/s/predictions/a")
        await api.call("DELETE", "/sessions/s/predictions/a", status=204)
        for name in ("s", "s~c"):
            assert (await api.call("GET", f"/sessions/{name}/predictions"))["predictions"] == []


async def test_a_refused_snapshot_waits_for_no_challenger(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.challengers.roster.BEFORE_TRIM_S", 3600.0)
    async with serving_on(watched.as_store) as api:
        await api.create(MEAN)
        await attach(api, MEAN)
        blob = (await api.http.get("/sessions/s/snapshot")).content

        async def before(call: Call) -> None:
            if call.method == "commit" and call.arguments[0] == "s~c":
                await asyncio.Event().wait()

        watched.before = before
        api.worker.roster.start(api.worker.feeder)
        await api.rounds([[1.0]] * 10, [1.0] * 10)
        stale = BINARY | {"If-Match": f'"{"0" * 32}-0-{"0" * 32}"'}
        put = await asyncio.wait_for(api.http.put("/sessions/s/snapshot", content=blob, headers=stale), 20.0)
        assert put.status_code == 412, put.text
        watched.work()


async def test_a_challenger_that_is_detached_meanwhile_is_left_out_of_the_list(watched: Watched) -> None:
    """An open page of its champion that is told of a missing session says that its own is gone, and ends."""
    async with serving_on(watched.as_store) as api:
        await api.create(**CHAMPION)
        for name in ("c", "d"):
            await attach(api, challenger=name)

        async def after(call: Call, answer: Any) -> Any:
            if (call.method, *call.arguments) == ("head", "s~c"):
                watched.work()
                await api.call("DELETE", "/sessions/s/challengers/c", status=204)
            return answer

        watched.after = after
        told = await api.call("GET", "/sessions/s/challengers")
        assert [one["name"] for one in told["challengers"]] == ["d"]
