"""The store contract for failing callers: cancelled, with a lost reply, or in competition with many others."""

from __future__ import annotations

import asyncio

import pytest

from okl.errors import ConfigurationError, SessionExists
from service.store.base import Applied, Behind, Committed, Store
from service.store.opening import open_store
from tests.contract.store_calls import (
    FIRST,
    NAME,
    OTHER,
    RECORD,
    append_ids,
    bare,
    chain,
    entry,
    head,
    hold,
    outcomes_of,
    read,
    what,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def session(store: Store) -> Store:
    await store.create(NAME, RECORD, FIRST)
    return store


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_a_caller_that_gave_up_may_send_its_commit_again(session: Store, steps: int) -> None:
    """Whether or not the first commit was written, it is written once after the second."""
    entries, holds = chain(FIRST, "a", "b"), [hold("p")]
    call = asyncio.ensure_future(session.commit(NAME, FIRST, entries, holds))
    for _ in range(steps):
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert outcomes_of(await session.commit(NAME, FIRST, entries, holds)) == [None]
    assert (await read(session)).entries == bare(entries)
    assert (await head(session)).waiting == 1


async def test_another_caller_was_faster_after_a_lost_reply(session: Store) -> None:
    """The caller that lost its reply learns that its rounds are stored, and gets the other's rounds with its next call."""
    (a,) = await append_ids(session, "a")
    (b,) = await append_ids(session, "b")
    assert outcomes_of(await session.commit(NAME, FIRST, [a])) == []
    answer = await session.commit(NAME, a.tip, [entry(a.tip, "c")])
    assert isinstance(answer, Behind)
    assert answer.reading.entries == bare([b])


async def test_two_callers_with_one_id_and_one_of_them_wins(session: Store) -> None:
    rivals = [entry(FIRST, "p", blob=b"%d" % number, answer=b"answer of %d" % number) for number in range(8)]
    answers = await asyncio.gather(*(session.commit(NAME, FIRST, [rival]) for rival in rivals))
    winners = [rival for rival, answer in zip(rivals, answers, strict=True) if isinstance(answer, Committed)]
    assert len(winners) == 1
    assert [answer for answer in answers if not isinstance(answer, Committed)] == [
        Applied("p", winners[0].answer or b"")
    ] * 7
    assert (await head(session)).tip == winners[0].tip


async def test_two_callers_with_one_name_and_one_of_them_wins(store: Store) -> None:
    tips = [FIRST, OTHER, FIRST, OTHER]
    answers = await asyncio.gather(*(store.create(NAME, RECORD, tip) for tip in tips), return_exceptions=True)
    winner = (await head(store)).tip
    assert [isinstance(answer, SessionExists) for answer in answers] == [tip != winner for tip in tips]
    assert await store.count() == 1


async def test_a_session_deleted_under_a_caller_that_holds_on(session: Store) -> None:
    (a,) = await append_ids(session, "a")
    await asyncio.gather(session.delete(NAME), session.commit(NAME, a.tip, [], [hold("p")]))
    await session.create(NAME, RECORD, OTHER)
    assert isinstance(await session.commit(NAME, a.tip, [entry(a.tip, "b")]), Behind)
    assert [await what(session, id) for id in ("a", "p")] == [None, None]


async def test_many_first_calls_at_once(store: Store) -> None:
    await asyncio.gather(*(store.create(f"s{number}", RECORD, FIRST) for number in range(50)))
    assert await store.count() == 50


@pytest.mark.parametrize("url", ["unknown://", "path/to/file", ""])
async def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="known: sqlite"):
        open_store(url)
