"""Any sequence of operations is answered alike by a real store and by the model, and leaves the same behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from okl.errors import SessionExists, SessionMoved, SessionMoving
from service.store.base import (
    Applied,
    Committed,
    Entry,
    Gone,
    Head,
    Hold,
    Limits,
    Store,
    Tip,
    Waiting,
    WaitingItem,
    WaitingPage,
)
from service.store.moving import FOR_GOOD, Luggage, Seal, Whole, aside
from tests.budget import TIMES
from tests.contract.stores import Place, on_stores
from tests.oracles.model_store import ModelStore, Sessions

# Small enough that a few operations go past them.
LIMITS = Limits(
    waiting=3,
    waiting_bytes=400,
    remembered=4,
    remembered_bytes=900,
    remembered_s=40.0,
    tail=2,
    tail_bytes=500,
    checkpoints=2,
    checkpoint_bytes=400,
)
NAMES, IDS = ("a", "b"), ("p", "q", "r", "s", "body0")
HOUR_S = 3600.0

Call = Callable[[Store], Awaitable[object]]

NOTES = (Seal("held", "one").note(), Seal("moved", "two", "there").note())
notes = st.sampled_from(NOTES)
backs = st.sampled_from([0, 0, 0, 1])
names = st.sampled_from(["a"] * 7 + ["b"])
blobs = st.sampled_from([b"", b"x", b"\x00\xff", bytes(200), bytes(350)])
answers = st.sampled_from([None, b"", b"yes", bytes(350)])
# How far back the tip is that a caller names: mostly it is the session's.
distances = st.sampled_from([0] * 8 + [1, 2, 3, 5, 8])
id_lists = st.lists(st.sampled_from(IDS), unique=True, max_size=3)
specs = st.lists(st.tuples(st.sampled_from([1, 1, 2, 9]), blobs, answers, st.booleans()), min_size=3, max_size=3)
told = st.sampled_from([None, Applied("body", b""), Applied("body", b"so far"), Applied("other", bytes(350))])
waits = st.sampled_from([0.0, 1.0, 3.0, 20.0, HOUR_S, HOUR_S])


def without_cursors(answer: Any) -> Any:
    """Each store has its own."""
    return replace(answer, cursor=answer.cursor and "") if isinstance(answer, WaitingPage) else answer


def without_times(answer: Any) -> Any:
    """The answer without the times that a server's clock wrote into it."""
    if isinstance(answer, WaitingPage):
        answer = replace(answer, now=0.0)
    if isinstance(answer, WaitingItem):
        answer = answer._replace(expires_at=0.0)
    if isinstance(answer, Head):
        answer = replace(answer, created_at=0.0)
        return replace(answer, updated_at=answer.updated_at and 0.0, snapshot_at=answer.snapshot_at and 0.0)
    if isinstance(answer, Waiting | Applied | Committed):
        return type(answer), [without_times(value) for value in answer]
    if isinstance(answer, Sequence) and not isinstance(answer, bytes | str):
        return [without_times(item) for item in answer]
    if is_dataclass(answer) and not isinstance(answer, type):
        return type(answer), [without_times(getattr(answer, field.name)) for field in fields(answer)]
    return answer


async def all_luggage(store: Store, name: str) -> Luggage | Gone:
    """All pages as one."""
    pages: list[Luggage] = []
    while not pages or pages[-1].cursor is not None:
        page = await store.luggage(name, pages[-1].cursor if pages else None)
        if isinstance(page, Gone):
            return page
        pages.append(page)
    return Luggage([one for page in pages for one in page.held], [one for page in pages for one in page.remembered])


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        # Nobody can move a server's clock: nothing expires there but what may not wait at all.
        self.has_clock = place.case.has_manual_clock
        limits = LIMITS if self.has_clock else replace(LIMITS, remembered_s=HOUR_S)
        self.model = ModelStore(limits, place.clock)
        self.store = place.make(limits)
        self.runner = asyncio.Runner()
        self.run(self.store.open())
        for name in NAMES:
            for note in NOTES:
                self.run(self.store.unseal(name, note))
            self.run(self.store.delete(name))
        self.tips: dict[str, list[Tip]] = {name: [] for name in NAMES}
        self.commits: list[Call] = []
        self.replacements: list[Call] = []
        self.backups: list[tuple[Callable[[], None], Sessions]] = []
        self.made = 0

    def run(self, call: Awaitable[Any]) -> Any:
        async def answer() -> object:
            try:
                return await call
            except (SessionExists, SessionMoving, SessionMoved) as error:
                return str(error)

        return self.runner.run(answer())

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()

    def both(self, call: Call) -> Any:
        found, expected = (without_cursors(self.run(call(store))) for store in (self.store, self.model))
        if self.has_clock:
            assert found == expected, (found, expected)
        else:
            assert without_times(found) == without_times(expected), (found, expected)
        return expected

    def tip(self, name: str, distance: int) -> Tip:
        """The session's tip, or one that it had before: in this life, or before it was deleted or taken back."""
        session = self.model.sessions.get(name)
        known = [*self.tips[name], *([session.tip] if session else [])]
        return known[max(-1 - distance, -len(known))] if known else Tip(0, bytes(16))

    @initialize()
    def begin(self) -> None:
        self.create("a", 0, None, 0)

    @rule(
        name=names,
        round=st.sampled_from([0, 0, 1, 7]),
        snapshot=st.sampled_from([None, b"", b"state"]),
        alarms=st.integers(0, 2),
    )
    def create(self, name: str, round: int, snapshot: bytes | None, alarms: int) -> None:
        self.made += 1
        tip = Tip(round if snapshot is not None else 0, self.made.to_bytes(16))
        if name not in self.model.sessions:
            self.tips[name].append(tip)
        record, summary = b"record %d" % self.made, b"%d" % self.made
        self.both(lambda store: store.create(name, record, tip, snapshot, summary=summary, told=alarms))

    @rule(name=names)
    def create_again(self, name: str) -> None:
        session = self.model.sessions.get(name)
        if session is not None:
            self.both(lambda store: store.create(name, session.record, session.first, session.snapshot))

    @rule(name=names, distance=st.sampled_from([None, 0, 1]))
    def delete(self, name: str, distance: int | None) -> None:
        tip = None if distance is None else self.tip(name, distance)
        self.both(lambda store: store.delete(name, tip))

    @rule(
        name=names,
        distance=distances,
        ids=id_lists,
        specs=specs,
        holding=id_lists,
        blob=blobs,
        wait_s=waits,
        progress=told,
    )
    def commit(
        self,
        name: str,
        distance: int,
        ids: list[str],
        specs: list[Any],
        holding: list[str],
        blob: bytes,
        wait_s: float,
        progress: Applied | None,
    ) -> None:
        tip = self.tip(name, distance)
        entries: list[Entry] = []
        for id, (count, content, answer, is_fresh) in zip(ids, specs, strict=False):
            at = entries[-1].tip if entries else tip
            is_fresh &= answer is not None
            entries.append(Entry.after(at, count, id, content, answer, is_fresh=is_fresh))
        wait_s = wait_s if self.has_clock or wait_s == 0.0 else HOUR_S
        holds = [Hold(id, blob, wait_s) for id in holding]

        def call(store: Store) -> Awaitable[object]:
            return store.commit(name, tip, entries, holds, progress)

        if isinstance(self.both(call), Committed):
            self.commits.append(call)
            self.tips[name] += [entry.tip for entry in entries]

    @precondition(lambda self: self.commits)
    @rule(distance=distances)
    def commit_again(self, distance: int) -> None:
        self.both(self.commits[max(-1 - distance, -len(self.commits))])

    @rule(name=names, distance=distances, blob=blobs)
    def snapshot(self, name: str, distance: int, blob: bytes) -> None:
        tip = self.tip(name, distance)
        self.both(lambda store: store.snapshot(name, tip, blob))

    @rule(name=names, distance=distances, back=distances, alarms=st.integers(0, 9))
    def rewind(self, name: str, distance: int, back: int, alarms: int) -> None:
        tip, to = self.tip(name, distance), self.tip(name, back + 1)
        self.both(lambda store: store.rewind(name, tip, to, alarms))

    @rule(name=names, distance=distances, round=st.sampled_from([0, 1, 7]), blob=blobs, unless_waiting=st.booleans())
    def replace(self, name: str, distance: int, round: int, blob: bytes, *, unless_waiting: bool) -> None:
        self.made += 1
        at, to = self.tip(name, distance), Tip(round, self.made.to_bytes(16))
        record, summary = b"record %d" % self.made, b"%d" % self.made

        def call(store: Store) -> Awaitable[object]:
            return store.replace(name, at, record, to, blob, summary=summary, told=round, unless_waiting=unless_waiting)

        if self.both(call) is True:
            self.replacements.append(call)
            self.tips[name].append(to)

    @precondition(lambda self: self.replacements)
    @rule()
    def replace_again(self) -> None:
        self.both(self.replacements[-1])

    @rule(name=names, id=st.sampled_from(IDS))
    def cancel(self, name: str, id: str) -> None:
        self.both(lambda store: store.cancel(name, id))

    @rule(name=names, back=backs)
    def summarize(self, name: str, back: int) -> None:
        tip = self.tip(name, back)
        self.both(lambda store: store.summarize(name, tip, b"of %d" % tip.round))

    @rule(name=names, back=backs, count=st.integers(0, 9))
    def told(self, name: str, back: int, count: int) -> None:
        tip = self.tip(name, back)
        self.both(lambda store: store.told(name, tip, count))

    def identity(self, name: str, back: int) -> bytes:
        """Of the session, or of one of another name or time."""
        session = self.model.sessions.get(name)
        return (self.made if session is None else int.from_bytes(session.first.digest) - back).to_bytes(16)

    @rule(name=names, back=backs, checkpoint=st.sampled_from("xyz"), blob=blobs)
    def keep(self, name: str, back: int, checkpoint: str, blob: bytes) -> None:
        identity, tip = self.identity(name, back), self.tip(name, 0)
        self.both(lambda store: store.keep(name, identity, checkpoint, tip, blob, at=1.0))

    @rule(name=names, checkpoint=st.sampled_from("xyz"))
    def drop(self, name: str, checkpoint: str) -> None:
        self.both(lambda store: store.drop(name, checkpoint))

    @rule(name=names, note=notes, for_s=st.sampled_from([3.0, HOUR_S, FOR_GOOD]), over=st.none() | notes)
    def seal(self, name: str, note: bytes, for_s: float, over: bytes | None) -> None:
        for_s = for_s if self.has_clock or for_s == FOR_GOOD else HOUR_S
        self.both(lambda store: store.seal(name, note, for_s, over))

    @rule(name=names, note=notes)
    def unseal(self, name: str, note: bytes) -> None:
        self.both(lambda store: store.unseal(name, note))

    @rule(note=notes, then=st.just(b"") | notes, blob=blobs)
    def arrive(self, note: bytes, then: bytes, blob: bytes) -> None:
        """The one session in the other's place, with all that it has."""
        whole, luggage = self.run(self.model.whole("a")), self.run(self.model.luggage("a"))
        if isinstance(whole, Whole):
            self.both(lambda store: store.arrive("b", whole, note))
            self.both(lambda store: store.unload("b", note, whole.entries, luggage, then))
            self.both(lambda store: store.unload("b", note, whole.entries, luggage))

    @rule(name=names, limit=st.integers(1, 3))
    def list_waiting(self, name: str, limit: int) -> None:
        """All pages."""
        cursors: dict[Store, str | None] = {self.store: None, self.model: None}

        async def page(store: Store) -> object:
            answer = await store.waiting(name, cursors[store], limit)
            cursors[store] = answer.cursor if isinstance(answer, WaitingPage) else None
            return answer

        self.both(page)
        while cursors[self.model] is not None:
            self.both(page)

    @rule(limit=st.integers(1, 2), cursor=st.sampled_from([None, "a", "b"]))
    def list(self, limit: int, cursor: str | None) -> None:
        self.both(lambda store: store.list(cursor, limit))

    @precondition(lambda self: self.has_clock)
    @rule(seconds=st.sampled_from([0.25, 1.0, 2.0, 7.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.run(self.place.clock.pass_time(seconds))

    @rule(tail=st.sampled_from([0, 1, 2, 4, 256]), tail_bytes=st.sampled_from([0, 200, 500, 1300]))
    def reopen(self, tail: int, tail_bytes: int) -> None:
        """As a worker that starts with other settings."""
        self.run(self.store.close())
        self.model.limits = replace(self.model.limits, tail=tail, tail_bytes=tail_bytes)
        self.store = self.place.make(self.model.limits)
        self.run(self.store.open())

    @rule()
    def back_up(self) -> None:
        self.backups.append((self.place.back_up(), self.model.fork()))

    @precondition(lambda self: self.backups)
    @rule()
    def restore(self) -> None:
        """Acknowledged writes are lost."""
        put_back, sessions = self.backups[-1]
        self.run(self.store.close())
        put_back()
        self.model.restore(sessions)
        self.run(self.store.open())

    @rule(to=st.sampled_from(["a", aside("a")]))
    def move(self, to: str) -> None:
        """The session gives way to its own copy."""
        leaving, arriving = NOTES[::-1]

        async def call(store: Store) -> object:
            if not await store.seal("a", leaving, FOR_GOOD):
                return False
            whole, luggage = await store.whole("a"), await all_luggage(store, "a")
            assert isinstance(whole, Whole)
            assert isinstance(luggage, Luggage)
            await store.arrive(to, whole, arriving)
            for entry in whole.entries:
                await store.unload(to, arriving, [entry], Luggage([], []))
            await store.unload(to, arriving, [], luggage)
            return await store.unseal("a", arriving), whole

        self.both(call)

    @invariant()
    def all_that_is_beside_it(self) -> None:
        for name in NAMES:
            self.both(lambda store, name=name: store.kept(name))
            self.both(lambda store, name=name: store.kept_state(name, "x"))
            self.both(lambda store, name=name: store.head(name))
            self.both(lambda store, name=name: store.whole(name))

    @invariant()
    def all_that_a_caller_can_find_out(self) -> None:
        self.both(lambda store: store.count())
        self.both(lambda store: store.head("b"))
        for distance in (0, 1, 2, 4):
            tip = self.tip("a", distance)
            self.both(lambda store, tip=tip: store.read("a", tip))
        self.both(lambda store: store.read("a"))
        self.both(lambda store: store.salvage("a"))
        self.both(lambda store: store.count_waiting("a", [25.0, -1.0, HOUR_S / 2, float("inf"), 0.0, 3.0]))
        for rounds in (0, 1, 4, 100):
            self.both(lambda store, rounds=rounds: store.last("a", rounds))
        for id in IDS:
            self.both(lambda store, id=id: store.find("a", self.tip("a", 0), id))


@on_stores(lambda case: case.is_shared)
def test_a_store_does_what_the_model_does(place: Place) -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(place)

    run_state_machine_as_test(Machine, settings=settings(max_examples=6 * TIMES, stateful_step_count=25, deadline=None))
