"""A champion that is deleted, renamed or moved meanwhile, even by a worker that is killed, leaves no challenger behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from okl.errors import StoreUnavailable
from service.store.moving import FOR_GOOD, Seal
from tests.service.api import Api, serving_on
from tests.service.challenged import CHAMPION, X, attach, caught_up
from tests.service.definitions import POMDR
from tests.service.worker import Call, Watched

pytestmark = pytest.mark.anyio


async def test_no_challenger_is_left_of_a_champion_that_is_deleted_meanwhile(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api:
        await api.create(**CHAMPION)

        async def before(call: Call) -> None:
            if call.method == "create":
                watched.work()
                await api.call("DELETE", "/sessions/s", status=204)

        watched.before = before
        await api.refused("session-not-found", "POST", "/sessions/s/challengers", {"name": "c", "learner": POMDR})
        assert (await api.store.list(None, 10)).heads == []


@asynccontextmanager
async def feeding_on(watched: Watched) -> AsyncIterator[Api]:
    async with serving_on(watched.as_store) as api:
        api.worker.roster.start(api.worker.feeder)
        yield api


def dying(store: Watched, method: str, name: str) -> None:
    """Whoever makes this call is killed before it."""

    async def before(call: Call) -> None:
        if call.method == method and call.arguments[0] == name:
            raise StoreUnavailable("Killed.")

    store.before = before


async def names_in(api: Api) -> list[str]:
    return [head.name for head in (await api.store.list(None, 100)).heads]


async def orphaned(watched: Watched) -> None:
    """A challenger whose champion was deleted by a worker that was killed before it came to the challenger."""
    async with feeding_on(watched) as api:
        await api.create(**CHAMPION)
        await attach(api)
        await api.create(**CHAMPION, name="other")
        await attach(api, name="other")
        await api.update("no", x=X[0].tolist())
        await caught_up(api)
        dying(watched, "delete", "s~c")
        await api.refused("store-unavailable", "DELETE", "/sessions/s")
        watched.work()
        assert await names_in(api) == ["other", "other~c", "s~c"]


async def test_a_challenger_whose_champion_was_deleted_by_one_that_was_killed_is_found(watched: Watched) -> None:
    await orphaned(watched)
    async with feeding_on(watched) as fresh:
        for _ in range(100):
            await fresh.worker.roster.sweep()
            await asyncio.sleep(0.05)
            if "s~c" not in await names_in(fresh):
                break
        assert await names_in(fresh) == ["other", "other~c"]
        await caught_up(fresh, name="other")


async def test_a_new_session_has_no_challengers_of_a_former_one(watched: Watched) -> None:
    await orphaned(watched)
    async with feeding_on(watched) as fresh:
        await fresh.create(**CHAMPION)
        assert await names_in(fresh) == ["other", "other~c", "s"]
        assert (await fresh.call("GET", "/sessions/s/challengers"))["challengers"] == []
        # One that is there keeps those that it has.
        await attach(fresh)
        await fresh.refused("session-exists", "POST", "/sessions", {"name": "s"})
        assert await names_in(fresh) == ["other", "other~c", "s", "s~c"]


@pytest.mark.parametrize(("method", "name"), [("whole", "s~c"), ("delete", "s~c"), ("delete", "s")])
async def test_a_renaming_that_was_cut_off_loses_no_challenger(watched: Watched, method: str, name: str) -> None:
    async with feeding_on(watched) as api:
        await api.create(**CHAMPION)
        await attach(api)
        await api.update("no", x=X[0].tolist())
        await caught_up(api)
        dying(watched, method, name)
        await api.refused("store-unavailable", "POST", "/sessions/s/rename", {"name": "new"})
        watched.work()
        for _ in range(4):
            await api.worker.roster.sweep()
            await asyncio.sleep(0.05)
        await api.call("POST", "/sessions/s/rename", {"name": "new"})
        assert await names_in(api) == ["new", "new~c"]
        await api.worker.roster.sweep()  # which comes by itself every 15 s
        await api.update("no", x=X[0].tolist(), name="new")
        assert (await caught_up(api, name="new"))["t"] == 2


async def test_no_challenger_is_attached_to_a_session_that_has_moved_meanwhile(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api:
        await api.create(**CHAMPION)

        async def before(call: Call) -> None:
            if call.method == "create":
                watched.work()
                await api.store.seal("s", Seal("moved", "t").note(), FOR_GOOD)

        watched.before = before
        await api.refused("session-moved", "POST", "/sessions/s/challengers", {"name": "c", "learner": POMDR})
        assert await names_in(api) == ["s"]
