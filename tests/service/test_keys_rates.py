"""How often a key may ask: one bucket for all workers, and what a worker takes ahead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from okl.errors import StoreTimeout, TooManyRequests
from service.keys.key import KeyScope, Rate
from service.keys.rates import Allowances, lease_of
from service.store.key_store import Grant
from tests.service.api import Api, serving
from tests.service.keyed import Made, look_again, make, revoke
from tests.service.listening import listening

pytestmark = pytest.mark.anyio


class Bucket:
    """As the stores keep it, by a clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0
        self.fails = False
        self._of: dict[str, tuple[float, float]] = {}

    def __call__(self) -> float:
        return self.now

    async def take(self, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
        self.calls += 1
        await asyncio.sleep(0)
        if self.fails:
            raise StoreTimeout("slow")
        tokens, at = self._of.get(id, (burst, self.now))
        tokens = min(burst, min(burst, tokens + (self.now - at) * rate) - owed)
        granted = min(tokens, wanted) if tokens >= 1.0 else 0.0
        self._of[id] = tokens - granted, self.now
        return Grant(granted, 0.0 if granted else (1.0 - tokens) / rate)


async def admitted(own: Allowances, rate: Rate, bucket: Any, times: int) -> int:
    count = 0
    for _ in range(times):
        try:
            await own.admit("k", rate, bucket)
            count += 1
        except TooManyRequests:
            pass
    return count


@given(
    per_s=st.floats(0.5, 500.0),
    burst=st.floats(1.0, 200.0),
    workers=st.integers(1, 4),
    steps=st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(0, 60)), max_size=15),
)
def test_all_workers_together_let_in_no_more_than_the_bound(
    per_s: float, burst: float, workers: int, steps: list[tuple[float, int]]
) -> None:
    async def play() -> None:
        bucket, rate = Bucket(), Rate(per_s, burst)
        own = [Allowances(bucket) for _ in range(workers)]
        total = 0
        for wait, asked in steps:
            bucket.now += wait
            total += sum([await admitted(one, rate, bucket, asked) for one in own])
            assert total <= burst + per_s * bucket.now + 1e-6

    asyncio.run(play())


async def test_one_worker_lets_in_all_that_the_rate_allows() -> None:
    bucket, rate = Bucket(), Rate(100.0, 20.0)
    own = Allowances(bucket)
    assert await admitted(own, rate, bucket, 50) == 20
    total = 0
    for _ in range(1000):
        bucket.now += 0.01
        total += await admitted(own, rate, bucket, 5)
    assert 990 <= total <= 1001


async def test_the_store_is_asked_once_a_lease_and_by_nobody_who_must_wait() -> None:
    bucket, rate = Bucket(), Rate(1_000.0, 1_000.0)
    own = Allowances(bucket)
    assert lease_of(rate) == 100.0
    assert await admitted(own, rate, bucket, 1_000) == 1_000
    assert bucket.calls == 10
    assert await admitted(own, rate, bucket, 1_000) == 0
    assert bucket.calls == 11


async def test_many_at_once_ask_the_store_once() -> None:
    bucket, rate = Bucket(), Rate(100.0, 100.0)
    own = Allowances(bucket)
    await asyncio.gather(*(own.admit("k", rate, bucket) for _ in range(10)))
    assert bucket.calls == 1
    bucket.fails = True
    found = await asyncio.gather(*(own.admit("k", rate, bucket) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(one, StoreTimeout) for one in found)


async def test_what_a_batch_costs_is_owed_and_waited_for() -> None:
    bucket, rate = Bucket(), Rate(10.0, 10.0)
    own = Allowances(bucket)
    await own.admit("k", rate, bucket)
    await own.settle("k", rate, bucket, 0.0, 99.0)
    with pytest.raises(TooManyRequests) as refused:
        await own.admit("k", rate, bucket)
    # 100 tokens of a bucket of 10: 90 are owed, and there must be one more.
    assert refused.value.retry_after_s == 10
    bucket.now += 9.0
    assert await admitted(own, rate, bucket, 1) == 0
    bucket.now += 0.2
    assert await admitted(own, rate, bucket, 1) == 1


async def test_what_is_under_way_is_held_back_and_owed_only_if_it_is_played() -> None:
    bucket, rate = Bucket(), Rate(10.0, 10.0)
    own = Allowances(bucket)
    await own.admit("k", rate, bucket)
    own.reserve("k", 99.0)
    for _ in range(2):
        with pytest.raises(TooManyRequests) as refused:
            await own.admit("k", rate, bucket)
        assert refused.value.retry_after_s == 10
    await own.settle("k", rate, bucket, 99.0, 0.0)
    # Nothing was owed, so nothing is given back: 9 tokens are left of the bucket.
    assert await admitted(own, rate, bucket, 20) == 9
    own.reserve("k", 5.0)
    await own.settle("k", rate, bucket, 5.0, 5.0)
    bucket.now += 0.5
    assert await admitted(own, rate, bucket, 1) == 0
    bucket.now += 0.2
    assert await admitted(own, rate, bucket, 1) == 1


async def test_what_the_bucket_has_beyond_a_batch_under_way_is_let_in() -> None:
    bucket, rate = Bucket(), Rate(50.0, 200.0)
    own = Allowances(bucket)
    await own.admit("k", rate, bucket)
    own.reserve("k", 19.0)
    assert await admitted(own, rate, bucket, 300) == 180
    await own.settle("k", rate, bucket, 19.0, 19.0)
    assert await admitted(own, rate, bucket, 1) == 0


@pytest.mark.parametrize(("cost", "left"), [(0.0, 198), (150.0, 48)])
async def test_other_workers_learn_at_once_what_a_batch_has_cost(cost: float, left: int) -> None:
    bucket, rate = Bucket(), Rate(50.0, 200.0)
    own, other = Allowances(bucket), Allowances(bucket)
    await own.admit("k", rate, bucket)
    own.reserve("k", 150.0)
    await own.admit("k", rate, bucket)
    await own.settle("k", rate, bucket, 150.0, cost)
    assert left - lease_of(rate) <= await admitted(other, rate, bucket, 300) <= left


async def test_what_a_batch_has_cost_takes_no_other_token() -> None:
    bucket, rate = Bucket(), Rate(10.0, 10.0)
    own, other = Allowances(bucket), Allowances(bucket)
    await own.admit("k", rate, bucket)
    await own.settle("k", rate, bucket, 0.0, 5.0)
    assert await admitted(other, rate, bucket, 20) == 4


async def test_who_is_refused_is_told_when_the_next_token_comes() -> None:
    bucket, rate = Bucket(), Rate(2.0, 1.0)
    own = Allowances(bucket)
    await own.admit("k", rate, bucket)
    with pytest.raises(TooManyRequests) as refused:
        await own.admit("k", rate, bucket)
    assert refused.value.wait_s == 0.5


async def test_a_debt_that_a_store_did_not_take_is_paid_later() -> None:
    bucket, rate = Bucket(), Rate(10.0, 10.0)
    own = Allowances(bucket)
    await own.admit("k", rate, bucket)
    bucket.fails = True
    with pytest.raises(StoreTimeout):
        await own.settle("k", rate, bucket, 0.0, 99.0)
    bucket.fails = False
    with pytest.raises(TooManyRequests) as refused:
        await own.admit("k", rate, bucket)
    assert refused.value.retry_after_s == 10


async def test_allowances_of_keys_that_are_gone_are_forgotten() -> None:
    bucket, rate = Bucket(), Rate(100.0, 100.0)
    own = Allowances(bucket)
    await own.admit("a", rate, bucket)
    await own.admit("b", rate, bucket)
    own.keep({"b"})
    calls = bucket.calls
    await own.admit("b", rate, bucket)
    assert bucket.calls == calls
    await own.admit("a", rate, bucket)
    assert bucket.calls == calls + 1


# -- over HTTP, on the real stores ------------------------------------------------------------------------------------


@pytest.fixture
async def limited(store_url: str) -> AsyncIterator[tuple[Api, Api, Made]]:
    """Two workers of one store, and a key of 20 requests at once that hardly come back."""
    made = await make(store_url, KeyScope.ADMIN, rate=Rate(0.01, 20.0))
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other, made


async def test_two_workers_share_the_bucket(limited: tuple[Api, Api, Made]) -> None:
    one, other, made = limited
    answers = []
    for number in range(40):
        api = one if number % 2 else other
        answers.append(await api.http.get("/sessions", headers=made.headers))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) == 20
    refused = answers[-1]
    assert refused.status_code == 429
    assert refused.json()["type"] == "/problems/too-many-requests"
    assert 1 <= int(refused.headers["retry-after"]) <= 101


async def test_rounds_of_a_batch_count_one_each(limited: tuple[Api, Api, Made]) -> None:
    api, _, made = limited
    assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
    batch = {"x": [[float(i)] for i in range(30)], "y": [0.0] * 30}
    played = await api.http.post("/sessions/s/rounds", json=batch, headers=made.headers)
    assert played.json()["rounds"] == 30
    refused = await api.http.get("/sessions/s", headers=made.headers)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 1_000


async def test_a_batch_that_is_refused_or_sent_again_counts_as_one_request(limited: tuple[Api, Api, Made]) -> None:
    api, _, made = limited
    assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
    batch = {"x": [[float(i)] for i in range(30)], "y": [0.0] * 30}
    lines = b'{"x": [1], "y": 0}\n' * 30
    for _ in range(3):
        refused = [
            await api.http.post("/sessions/no/rounds", json=batch, headers=made.headers),
            await api.http.post("/sessions/no/predictions", json={"x": batch["x"]}, headers=made.headers),
            await api.http.post(
                "/sessions/no/rounds", content=lines, headers=made.headers | {"Content-Type": "application/x-ndjson"}
            ),
        ]
        assert [answer.status_code for answer in refused] == [404] * 3
    small = {"x": batch["x"][:5], "y": [0.0] * 5, "id": "once"}
    told = [await api.http.post("/sessions/s/rounds", json=small, headers=made.headers) for _ in range(6)]
    assert [answer.json()["duplicate"] for answer in told] == [False] + [True] * 5
    # Of 20: the session 1, the refused 9, the batch 5, what was sent again 5.
    assert (await api.http.get("/sessions/s", headers=made.headers)).status_code == 429


async def test_sessions_that_are_asked_together_count_as_they_learn(limited: tuple[Api, Api, Made]) -> None:
    api, _, made = limited
    names = [f"s{i}" for i in range(5)]
    for name in names:
        assert (await api.http.post("/sessions", json={"name": name}, headers=made.headers)).status_code == 201
    truths = {"sessions": [{"session": name, "y": 1.0} for name in names], "x": [1.0], "id": "once"}
    told = [await api.http.post("/sessions/update", json=truths, headers=made.headers) for _ in range(4)]
    assert [{one["duplicate"] for one in answer.json()["updates"]} for answer in told] == [{False}, *[{True}] * 3]
    strangers = {"sessions": [f"no-{i}" for i in range(50)], "x": [1.0], "id": "a"}
    headers = made.headers | {"Idempotency-Key": "b"}
    refused = await api.http.post("/sessions/predict", json=strangers, headers=headers)
    assert refused.status_code == 422
    refused = await api.http.post("/sessions/predict", json=strangers, headers=made.headers)
    assert refused.status_code == 200
    steps = {"steps": [{"session": name, "update": {"x": [1.0], "y": 1.0}, "predict": {"x": [1.0]}} for name in names]}
    assert (await api.http.post("/sessions/step", json=steps, headers=made.headers)).status_code == 200
    # Of 20: the sessions 5, the truths 5, what was sent again 3, the refused 2, the steps 5.
    assert (await api.http.get("/sessions", headers=made.headers)).status_code == 429


async def test_messages_that_are_refused_count_too(limited: tuple[Api, Api, Made]) -> None:
    api, _, made = limited
    assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
    headers = made.headers | {"Content-Type": "application/x-ndjson"}
    answer = await api.http.post("/sessions/s/stream", content=b'{"no": 1}\n' * 100, headers=headers)
    refused = [json.loads(line)["refused"]["type"] for line in answer.text.splitlines()]
    # Of 20: the session 1, the first message none of its own.
    assert refused[:19] == ["/problems/invalid-request"] * 19
    assert set(refused[19:]) == {"/problems/too-many-requests"}


async def test_messages_over_several_streams_cost_a_token_each(limited: tuple[Api, Api, Made]) -> None:
    api, _, made = limited
    assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
    headers = made.headers | {"Content-Type": "application/x-ndjson"}
    for _ in range(3):
        answer = await api.http.post("/sessions/s/stream", content=b'{"x": [1], "y": 0}\n' * 4, headers=headers)
        assert [len(json.loads(line)["session"]) for line in answer.text.splitlines()] == [1] * 4
    # Of 20: the session 1, the messages 12.
    statuses = [(await api.http.get("/sessions", headers=made.headers)).status_code for _ in range(9)]
    assert statuses == [200] * 7 + [429] * 2


def test_every_socket_of_a_key_with_a_low_rate_gets_a_message_through(tmp_path: Path) -> None:
    """The token of its handshake pays for it; the next one would wait too long for its own."""
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    admin, slow = asyncio.run(make(store)), asyncio.run(make(store, KeyScope.WRITE, rate=Rate(0.01, 3.0)))
    with listening(store) as url:
        httpx.post(f"{url}/sessions", json={"name": "s"}, headers=admin.headers).raise_for_status()
        address = f"ws{url.removeprefix('http')}/sessions/s/stream"
        for t in range(1, 4):
            with connect(address, additional_headers=slow.headers) as connection:
                connection.send('{"x": [1], "y": 0}')
                assert json.loads(connection.recv(timeout=20))["t"] == t
                if t == 3:
                    connection.send('{"x": [1], "y": 0}')
                    assert json.loads(connection.recv(timeout=20))["refused"]["status"] == 429
        with pytest.raises(InvalidStatus):
            connect(address, additional_headers=slow.headers)


async def test_blocks_of_an_endless_body_count_too(limited: tuple[Api, Api, Made]) -> None:
    api, _, made = limited
    assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
    headers = made.headers | {"Content-Type": "application/x-ndjson"}
    body = b'{"x": [1], "y": 0}\n' * 100
    answer = await api.http.post("/sessions/s/rounds?block=10", content=body, headers=headers)
    *played, last = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["applied"] for one in played] == [10, 20]
    assert last["applied"] == 20
    assert last["refused"]["type"] == "/problems/too-many-requests"


async def test_blocks_are_slowed_down_to_their_rate(store_url: str) -> None:
    made = await make(store_url, KeyScope.ADMIN, rate=Rate(100.0, 20.0))
    async with serving(store_url) as api:
        assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
        headers = made.headers | {"Content-Type": "application/x-ndjson"}
        body = b'{"x": [1], "y": 0}\n' * 100
        answer = await api.http.post("/sessions/s/rounds?block=20", content=body, headers=headers)
        played = [json.loads(line) for line in answer.text.splitlines()]
        assert [one["applied"] for one in played] == [20, 40, 60, 80, 100]


async def test_a_body_that_is_sent_again_goes_on_where_its_rate_has_ended_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that were learned before cost one each: they are more than ever flow in."""
    monkeypatch.setattr("service.keys.caller.PACED_S", 0.1)
    made, other = await make(store_url, KeyScope.ADMIN, rate=Rate(50.0, 10.0)), await make(store_url)
    async with serving(store_url) as api:
        assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201
        headers = made.headers | {"Content-Type": "application/x-ndjson", "Idempotency-Key": "body"}
        body = b'{"x": [1], "y": 0}\n' * 80
        applied: list[int] = []
        for _ in range(8):
            answer = await api.http.post("/sessions/s/rounds?block=20", content=body, headers=headers)
            applied += [json.loads(line)["applied"] for line in answer.text.splitlines() if answer.status_code == 200]
            if applied[-1:] == [80]:
                break
            await asyncio.sleep(0.5)
        assert applied[-1] == 80
        assert len(applied) > len(set(applied))
        assert (await api.http.get("/sessions/s", headers=other.headers)).json()["t"] == 80


async def test_a_stream_is_slowed_down_to_its_rate(store_url: str) -> None:
    """Unless it would take too long."""
    made, slow = await make(store_url, rate=Rate(50.0, 3.0)), await make(store_url, rate=Rate(0.01, 3.0))
    async with serving(store_url) as api:
        assert (await api.http.post("/sessions", json={"name": "s"}, headers=made.headers)).status_code == 201

        async def told(key: Made) -> list[dict[str, Any]]:
            headers = key.headers | {"Content-Type": "application/x-ndjson"}
            body = b'{"x": [1], "y": 0}\n' * 15
            answer = await api.http.post("/sessions/s/stream", content=body, headers=headers)
            return [json.loads(line) for line in answer.text.splitlines()]

        assert [one["t"] for one in await told(made)] == [*range(1, 16)]
        found = await told(slow)
        assert [one["t"] for one in found[:3]] == [16, 17, 18]
        assert {one["refused"]["type"] for one in found[3:]} == {"/problems/too-many-requests"}


@pytest.mark.parametrize("is_open", [False, True], ids=["with a key", "before the first key"])
@pytest.mark.parametrize("blocks", [0, 3])
async def test_a_slow_body_ends_with_its_key(store_url: str, *, is_open: bool, blocks: int) -> None:
    """Or when keys begin to be required."""
    made = None if is_open else await make(store_url)
    own = {} if made is None else made.headers
    async with serving(store_url) as api:
        assert (await api.http.post("/sessions", json={"name": "s"}, headers=own)).status_code == 201

        async def body() -> AsyncIterator[bytes]:
            for _ in range(blocks):
                yield b'{"x": [1], "y": 0}\n' * 10
            yield b'{"x": [1],'
            await (make(store_url) if made is None else revoke(store_url, made))
            await look_again(api)
            yield b'"y": 0}\n' + b'{"x": [1], "y": 0}\n' * 9

        headers = own | {"Content-Type": "application/x-ndjson"}
        answer = await api.http.post("/sessions/s/rounds?block=10", content=body(), headers=headers)
        last = json.loads(answer.text.splitlines()[-1])
        assert last.get("refused", last)["type"] == "/problems/unauthenticated"
        assert last.get("applied", 0) <= 10 * blocks
