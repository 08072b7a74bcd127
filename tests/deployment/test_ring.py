"""The simulated ring is nginx's: the same session goes to the same worker, and to the same next one."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.balancer import balancer
from bench.http_client import free_port
from bench.ring import Ring, hot_share, imbalance, moved
from tests.deployment.upstreams import upstreams

KEYS = [f"clicks-{number}" for number in range(300)]
MANY = [f"session-{number}" for number in range(5_000)]


def nodes(count: int) -> list[str]:
    return [f"10.0.0.{number + 2}:8000" for number in range(count)]


def test_it_is_the_ring_of_nginx() -> None:

    with upstreams(3) as servers:
        gone = f"127.0.0.1:{free_port()}"
        names = [server.name for server in servers]
        with balancer([*names, gone]) as front, httpx.Client(base_url=front.url, trust_env=False) as http:
            ring = Ring([*names, gone])
            for key in KEYS:
                first = next(name for name in ring.order(key) if name != gone)
                assert http.get(f"/sessions/{key}/rounds").text == first, key


@given(st.integers(1, 12), st.data())
def test_a_worker_that_comes_or_goes_moves_its_own_sessions_only(count: int, data: st.DataObject) -> None:
    before = nodes(count)
    after = [*before, "10.0.1.1:8000"]
    old, new = Ring(before), Ring(after)
    for key in data.draw(st.lists(st.text("abc-_.019", min_size=1), max_size=50)):
        assert new.server(key) in (old.server(key), after[-1])
        assert new.order(key)[0] == new.server(key)
        assert [name for name in new.order(key) if name != after[-1]] == old.order(key)


@pytest.mark.parametrize("count", [2, 8, 32])
def test_about_as_many_move_as_must(count: int) -> None:
    assert moved(nodes(count), nodes(count), MANY) == 0.0
    assert moved(nodes(count), nodes(count + 1), MANY) == pytest.approx(1 / (count + 1), rel=0.35)
    assert 1.0 <= imbalance(nodes(count), MANY) < 1.4


def test_a_hot_session_is_its_workers_load() -> None:
    assert hot_share(nodes(1), MANY, 0.5) == pytest.approx(1.0)
    assert 0.5 < hot_share(nodes(32), MANY, 0.5) < 0.55
