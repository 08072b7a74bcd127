"""Alarms are delivered to a webhook: at least once, signed, by whichever worker lives, and nobody waits for it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.app import make_worker
from service.archive.mover import move
from service.rounds import Rounds
from service.session.summary import decode_summary
from service.settings import Settings
from service.store.base import Head
from service.store.sqlite import SqliteStore
from service.watching import webhook
from service.watching.webhook import Webhook
from tests.contract.store_calls import append, chain
from tests.service.api import Api, serving
from tests.service.challenged import attach, caught_up
from tests.service.definitions import MEAN
from tests.service.kept_lines import kept_lines
from tests.service.receiver import CLOSE, HANG, Receiver, receiving

pytestmark = pytest.mark.anyio
SECRET = "a-secret-of-the-test"
ALARM = {"rate": None, "error_above": 0.5}
ALARMING = {"x": [[0.0]] * 64, "y": [0.0, 10.0] * 32}
ANYWHERE = {"if-match": "*"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, and what others left is taken at once."""
    monkeypatch.setattr("service.watching.webhook.Webhook", partial(Webhook, wait_s=0.02, sweep_s=0.05, left_s=0.0))


@pytest.fixture
def logged() -> Iterator[list[str]]:
    with kept_lines("okl.webhook", "DEBUG") as lines:
        yield lines


def served(path: Path, receiver: Receiver, **settings: Any) -> Any:
    url = f"sqlite:///{path / 'okl.sqlite3'}"
    return serving(url, webhook=receiver.url, webhook_secret=SECRET, webhook_timeout_s=0.5, **settings)


async def alarm(api: Api, name: str = "s", **request: Any) -> None:
    """A session with one alarm: an RMSE of 5 is above a half."""
    await api.create(name=name, alarm=ALARM)
    await api.call("POST", f"/sessions/{name}/rounds", ALARMING, **request)


async def told(api: Api, name: str = "s") -> int:
    head = await api.store.head(name)
    assert isinstance(head, Head)
    return head.told


async def until_told(api: Api, count: int = 1, name: str = "s") -> None:
    for _ in range(3_000):
        if await told(api, name) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the store does not say that it was told")


async def test_an_alarm_is_delivered_once_and_signed(tmp_path: Path, receiver: Receiver) -> None:
    async with served(tmp_path, receiver) as api:
        traceparent = f"00-{TRACE}-00f067aa0ba902b7-01"
        await alarm(api, headers={"traceparent": traceparent})
        await until_told(api)
        await asyncio.sleep(0.2)
        [found] = (await api.inspect())["alarms"]
    [(headers, body)] = receiver.posts
    [document] = receiver.documents()
    assert document == {"id": document["id"], "session": "s", **found}
    assert headers["okl-alarm"] == document["id"]
    assert document["id"].endswith(f"-{found['t']}-error-{found['at'] * 1e6:.0f}")
    stamp, _, signed = headers["okl-signature"].partition(",v1=")
    assert abs(int(stamp.removeprefix("t=")) - time.time()) < 30
    expected = hmac.new(SECRET.encode(), stamp.removeprefix("t=").encode() + b"." + body, hashlib.sha256)
    assert hmac.compare_digest(signed, expected.hexdigest())
    assert headers["traceparent"].startswith(f"00-{TRACE}-")
    assert headers["traceparent"] != traceparent


async def test_it_is_tried_until_it_is_taken(tmp_path: Path, receiver: Receiver, logged: list[str]) -> None:
    """A redirect is not followed; each failure is logged, without the secret, the url's path or its password."""
    receiver.answers = [500, 302, CLOSE, 404]
    async with served(tmp_path, receiver) as api:
        await alarm(api)
        await until_told(api)
        assert api.worker.counts.webhook_failures == 4
        assert api.worker.counts.alarms_told == 1
        assert api.worker.webhook is not None
        found = api.worker.webhook
        await receiver.until(lambda: not found.waiting)
    assert len(receiver.posts) == 5
    assert len({document["id"] for document in receiver.documents()}) == 1
    assert len(logged) == 4
    assert all("alarm not delivered" in line and "session=s" in line for line in logged)
    assert not any(word in line for line in logged for word in (SECRET, "hidden"))


async def test_a_receiver_that_hangs_holds_up_no_round(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [HANG] * 100
    async with served(tmp_path, receiver) as api:
        await alarm(api)
        await receiver.until(lambda: len(receiver.posts) > 0)
        for _ in range(20):
            started = time.perf_counter()
            await api.rounds([[0.0]], [0.0])
            assert time.perf_counter() - started < 0.4
        await receiver.until(lambda: len(receiver.posts) > 1)
        assert await told(api) == 0
        receiver.answers = []
        await until_told(api)


async def test_what_a_dead_worker_delivered_and_did_not_note_comes_again(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> bool:
        await asyncio.sleep(60.0)
        return False

    with monkeypatch.context() as broken:
        broken.setattr(SqliteStore, "told", hang)
        async with served(tmp_path, receiver) as api:
            await alarm(api)
            await receiver.until(lambda: len(receiver.posts) == 1)
    async with served(tmp_path, receiver) as api:
        await until_told(api)
    first, second = receiver.documents()
    assert first == second


async def test_a_delivery_is_not_noted_of_a_state_without_the_alarm(tmp_path: Path, receiver: Receiver) -> None:
    """It is rolled back while the receiver takes its time; the next alarm is the first of the new state."""
    async with served(tmp_path, receiver) as api:
        await api.create(alarm=ALARM)
        await api.call("POST", "/sessions/s/checkpoints", {"name": "calm"}, status=201)

        async def roll_back() -> None:
            receiver.meanwhile = None
            await api.call("POST", "/sessions/s/rollback", {"checkpoint": "calm"}, headers=ANYWHERE)

        receiver.meanwhile = roll_back
        await api.call("POST", "/sessions/s/rounds", ALARMING)
        found = api.worker.webhook
        assert found is not None
        await receiver.until(lambda: len(receiver.posts) == 1 and not found.waiting)
        assert await told(api) == 0
        await api.call("POST", "/sessions/s/rounds", ALARMING)
        await until_told(api)
    assert len(receiver.posts) == 2


async def test_alarms_of_the_same_round_before_and_after_a_roll_back_have_different_ids(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with served(tmp_path, receiver) as api:
        await api.create(alarm=ALARM)
        await api.call("POST", "/sessions/s/checkpoints", {"name": "calm"}, status=201)
        for _ in range(2):
            await api.call("POST", "/sessions/s/rollback", {"checkpoint": "calm"}, headers=ANYWHERE)
            await api.call("POST", "/sessions/s/rounds", ALARMING)
            await until_told(api)
    first, second = receiver.documents()
    assert (first["t"], first["kind"]) == (second["t"], second["kind"])
    assert first["at"] != second["at"]
    assert first["id"] != second["id"]


async def rolled_back(api: Api) -> None:
    await api.call("POST", "/sessions/s/checkpoints", {"name": "now"}, status=201)
    await api.call("POST", "/sessions/s/rollback", {"checkpoint": "now"}, headers=ANYWHERE)


async def put_back(api: Api, name: str = "s") -> None:
    state = (await api.http.get(f"/sessions/{name}/snapshot")).content
    headers = ANYWHERE | {"content-type": "application/octet-stream"}
    assert (await api.http.put("/sessions/s/snapshot", content=state, headers=headers)).status_code == 200


@pytest.mark.parametrize("goes_on", [rolled_back, put_back])
async def test_alarms_that_wait_are_delivered_after_the_session_went_on_from_a_state_that_has_them(
    tmp_path: Path, receiver: Receiver, goes_on: Callable[[Api], Awaitable[None]]
) -> None:
    """Another worker delivers them, and none that was delivered before."""
    async with served(tmp_path, receiver) as api:
        await alarm(api)
        await until_told(api)
    async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
        await api.rounds([[0.0]] * 2_064, [0.0] * 2_000 + [0.0, 10.0] * 32)
        await goes_on(api)
        assert await told(api) == 1
        alarms = (await api.inspect())["alarms"]
    async with served(tmp_path, receiver) as api:
        await until_told(api, 2)
    assert len(alarms) == 2
    assert [document["t"] for document in receiver.documents()] == [one["t"] for one in alarms]


async def calmed(api: Api) -> None:
    await api.call("POST", "/sessions/s/rollback", {"checkpoint": "calm"}, headers=ANYWHERE)


async def exchanged(api: Api) -> None:
    await put_back(api, "other")


async def promoted(api: Api) -> None:
    await attach(api, MEAN)
    await api.rounds([[0.0]] * 8, [0.0] * 8)
    await caught_up(api)
    await api.call("POST", "/sessions/s/challengers/c/promote", {})


@pytest.mark.parametrize("goes_on", [calmed, exchanged, promoted])
async def test_alarms_that_wait_are_delivered_after_the_session_went_on_from_a_state_that_lacks_them(
    tmp_path: Path, receiver: Receiver, goes_on: Callable[[Api], Awaitable[None]]
) -> None:
    """By the worker that raised them. Those of the other state are not delivered."""
    async with served(tmp_path, receiver) as api:
        await api.create(alarm=ALARM)
        await api.call("POST", "/sessions/s/checkpoints", {"name": "calm"}, status=201)
        await alarm(api, "other")
        await until_told(api, name="other")
        receiver.answers = [500] * 1_000
        await api.call("POST", "/sessions/s/rounds", ALARMING)
        [raised] = (await api.inspect())["alarms"]
        await receiver.until(lambda: len(receiver.posts) > 1)
        await goes_on(api)
        assert raised not in (await api.inspect())["alarms"]
        since = len(receiver.posts)
        await receiver.until(lambda: len(receiver.posts) > since + 1)
        receiver.answers, tried = [], len(receiver.posts)
        found = api.worker.webhook
        assert found is not None
        await receiver.until(lambda: len(receiver.posts) > tried and not found.waiting)
        await asyncio.sleep(0.2)
    assert [document["at"] for document in receiver.documents()[tried:]] == [raised["at"]]
    assert {document["session"] for document in receiver.documents()[1:]} == {"s"}


@pytest.mark.parametrize("goes_on", [calmed, exchanged, promoted])
async def test_alarms_that_nobody_has_tried_to_deliver_survive_the_state_that_raised_them(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, goes_on: Callable[[Api], Awaitable[None]]
) -> None:
    """The worker that raised them is dead, and no sweep has found them yet."""
    monkeypatch.setattr("service.watching.webhook.Webhook", partial(Webhook, wait_s=0.02, left_s=3600.0))
    async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
        await api.create(alarm=ALARM)
        await api.call("POST", "/sessions/s/checkpoints", {"name": "calm"}, status=201)
        await api.create(name="other", alarm=ALARM)
        await api.call("POST", "/sessions/s/rounds", ALARMING)
        [raised] = (await api.inspect())["alarms"]
    async with served(tmp_path, receiver) as api:
        await goes_on(api)
        assert raised not in (await api.inspect())["alarms"]
        found = api.worker.webhook
        assert found is not None
        await receiver.until(lambda: bool(receiver.posts) and not found.waiting)
    assert [document["at"] for document in receiver.documents()] == [raised["at"]]


async def test_what_a_dead_worker_has_left_is_found(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
        await alarm(api)
    async with served(tmp_path, receiver) as api:
        await until_told(api)
    assert len(receiver.posts) == 1


async def test_the_search_for_what_was_left_loads_no_session_that_lacks_nothing(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
        await api.create()
        await api.call("POST", "/sessions/s/rounds", ALARMING)
    async with served(tmp_path, receiver) as api:
        await asyncio.sleep(0.3)
        assert len(api.worker.rounds.replicas) == 0


async def lose(*_: object) -> bool:
    """In place of the store's `summarize`: the worker dies before it has written the summary."""
    return False


async def test_alarms_whose_summary_a_dead_worker_has_not_written_are_found(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that cannot be loaded are tried once, and hold up no other."""
    with monkeypatch.context() as dying, kept_lines("okl.sessions", "ERROR") as failures:
        dying.setattr(SqliteStore, "summarize", lose)
        async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
            await alarm(api)
            await alarm(api, "quiet")
            await alarm(api, "broken")
            broken = await api.store.head("broken")
            assert isinstance(broken, Head)
            entry = chain(broken.tip, "u1", blob=b"no entry")
            await append(api.store, entry, "broken")
        dying.undo()
        async with served(tmp_path, receiver) as api:
            await until_told(api)
            await until_told(api, name="quiet")
            for name in ("s", "quiet"):
                head = await api.store.head(name)
                assert isinstance(head, Head)
                assert (head.summary_round, decode_summary(head.summary).alarms) == (64, 1)
            await receiver.until(lambda: bool(failures))
            tries = len(failures)
            await asyncio.sleep(0.2)
            assert len(failures) == tries
    assert sorted(document["session"] for document in receiver.documents()) == ["quiet", "s"]


async def test_alarms_of_the_original_are_not_those_of_its_copies(tmp_path: Path, receiver: Receiver) -> None:
    async with served(tmp_path, receiver) as api:
        await alarm(api)
        await until_told(api)
        state = (await api.http.get("/sessions/s/snapshot")).content
        await api.call("POST", "/sessions/s/clone", {"name": "clone"}, status=201)
        await api.call("POST", "/sessions/s/freeze", {"name": "frozen"}, status=201)
        headers = {"if-none-match": "*", "content-type": "application/octet-stream"}
        assert (await api.http.put("/sessions/put/snapshot", content=state, headers=headers)).status_code == 201
        for name in ("clone", "frozen", "put"):
            assert await told(api, name) == len((await api.inspect(name))["alarms"])
        await api.rounds([[0.0]] * 2_064, [0.0] * 2_000 + [0.0, 10.0] * 32, "clone")
        await until_told(api, 2, "clone")
    assert [document["session"] for document in receiver.documents()] == ["s", "clone"]


async def test_a_young_alarm_is_left_to_its_worker(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.watching.webhook.Webhook", partial(Webhook, wait_s=0.02, sweep_s=0.02, left_s=20.0))
    async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
        await alarm(api)
    async with served(tmp_path, receiver) as api:
        await asyncio.sleep(0.3)
        assert await told(api) == 0
    assert receiver.posts == []


@pytest.mark.parametrize("ahead_s", [-10_000.0, 10_000.0])
@pytest.mark.parametrize("is_summary_lost", [False, True])
async def test_the_clock_of_a_dead_worker_delays_no_alarm(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, ahead_s: float, *, is_summary_lost: bool
) -> None:
    found = partial(Webhook, wait_s=0.02, sweep_s=0.02, left_s=0.5)
    monkeypatch.setattr("service.watching.webhook.Webhook", found)
    right = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr("time.time", lambda: right() + ahead_s)
        wrong.setattr("service.app.Rounds", partial(Rounds, clock=time.time))
        if is_summary_lost:
            wrong.setattr(SqliteStore, "summarize", lose)
        async with serving(f"sqlite:///{tmp_path / 'okl.sqlite3'}") as api:
            await alarm(api)
    async with served(tmp_path, receiver) as api:
        await asyncio.sleep(0.2)
        assert await told(api) == 0
        await until_told(api)
    assert len(receiver.posts) == 1


async def test_a_deleted_session_is_forgotten(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [500] * 1_000
    async with served(tmp_path, receiver) as api:
        await alarm(api)
        await receiver.until(lambda: len(receiver.posts) > 1)
        await api.call("DELETE", "/sessions/s", status=204)
        found = api.worker.webhook
        assert found is not None
        await receiver.until(lambda: not found.waiting)


async def test_a_session_that_has_moved_is_left_to_its_new_workers(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [500] * 1_000
    target = SqliteStore(str(tmp_path / "target.sqlite3"))
    await target.open()
    async with served(tmp_path, receiver) as api:
        await alarm(api)
        await receiver.until(lambda: len(receiver.posts) > 1)
        await move(api.store, target, "s")
        found = api.worker.webhook
        assert found is not None
        await receiver.until(lambda: not found.waiting)
    await target.close()
    receiver.answers = []
    async with serving(f"sqlite:///{tmp_path / 'target.sqlite3'}", webhook=receiver.url) as api:
        await until_told(api)


async def test_sessions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    monkeypatch.setattr(webhook, "MOST", 3)
    found = make_worker(Settings(webhook=receiver.url), SqliteStore(":memory:")).webhook
    assert found is not None
    for i in range(10):
        found.note(f"s{i}")
    assert found.waiting == 3
    await found.close()


def test_settings_show_neither_secret_nor_url() -> None:
    shown = repr(Settings(webhook="https://user:password@example.com/token", webhook_secret=SECRET))
    assert not any(word in shown for word in (SECRET, "password", "token"))


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "example.com", "http://", "http://[", "http://example:b/", "http://example\n/"]
)
def test_a_webhook_is_a_web_address(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(webhook=url)
    assert "example" not in str(refused.value)
