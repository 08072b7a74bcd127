"""Sessions fed with whatever is a record: nothing fails, memory has a bound, and the journal is the life itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from okl.errors import InvalidInput
from okl_core.records.fields import number_of
from okl_core.records.record import as_record
from service.session.codec import encode_round
from service.session.definition import Definition, Input
from service.session.late import play_round, waiting
from service.session.session import Session
from service.session.snapshot import pack, unpack
from tests.service.api import Api, serving
from tests.service.definitions import MEDIAN, POMDR, define

HERE = "the position of a test"
LAGGED = {"kind": "pros-n-kons", "lags": 2, "config": {"kernel": {"kind": "gaussian", "sigma": "median"}, "budget": 20}}

DEFINITIONS: dict[str, Callable[[], Definition]] = {
    "scaled": lambda: define(POMDR, is_strict=False, scale="learned", warmup_rounds=20),
    "as they are": lambda: define(POMDR, is_strict=False, warmup_rounds=20),
    "median": lambda: define(MEDIAN, is_strict=False, scale="learned", warmup_rounds=20),
    "lags": lambda: define(LAGGED, is_strict=False, scale="learned", warmup_rounds=20),
    "hashed": lambda: define(POMDR, is_strict=False, scale="learned", warmup_rounds=20, hashed=8),
    "in a ball": lambda: define({"kind": "ftrl-logistic"}, is_strict=False, scale="learned", warmup_rounds=20),
}

names = st.sampled_from(["a", "b", "c.d", "é/~", "\U0001f600", "0", "", "indices", "values", "x" * 300])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["red", "blue", "2026-11-22", "2026-11-23T10:00:00+02:00", "7", "-1e3", "007", "a text of words"])
    | st.text(max_size=12)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
rows = st.lists(st.none() | st.floats(-1e9, 1e9) | st.integers(-(10**20), 10**20), min_size=1, max_size=4)
inputs: st.SearchStrategy[Input] = (
    rows | st.dictionaries(names, values, min_size=1, max_size=5) | st.lists(values, min_size=1)
)
streams = st.lists(st.tuples(inputs, st.booleans()), min_size=1, max_size=9)

fewer = settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def taken(session: Session, stream: list[tuple[Input, bool]], rounds: int) -> list[tuple[Any, float]]:
    """The inputs of the stream that are records, again and again, and their truths."""
    found = []
    for x, y in stream:
        try:
            raw = session.read_input(x)
        except InvalidInput:
            continue
        # Where nothing is scaled, a number whose square is none is refused by the learner.
        numbers = [number_of(value) or 0.0 for value in as_record(raw).values()]
        if session.definition.scale != "none" or max(map(abs, numbers), default=0.0) < 1e100:
            found.append((raw, 1.0 if y else -1.0))
    return (found * rounds)[:rounds]


def live(session: Session, stream: list[tuple[Any, float]]) -> list[bytes]:
    """Every third truth is late by two rounds: its forecast, and its lags, are those of then."""
    journal: list[bytes] = []
    asked: list[tuple[Any, float]] = []

    def learn(source: Any, y: float) -> None:
        pending = play_round(session, source, *session.read_truth(y))
        journal.append(encode_round(pending.entry))
        session.learn(pending)

    for i, (raw, y) in enumerate(stream):
        if i % 3 == 0:
            asked.append((waiting(session, raw), y))
            continue
        learn(raw, y)
        if len(asked) > 2:
            learn(*asked.pop(0))
    for late in asked:
        learn(*late)
    return journal


@pytest.mark.parametrize("name", DEFINITIONS)
@fewer
@given(streams)
def test_the_journal_and_a_snapshot_are_the_life_itself(name: str, stream: list[tuple[Input, bool]]) -> None:
    """To the byte, in each phase, with truths that are late across the remaking of the learner."""
    for rounds in (3, 8, 17):
        session = Session(DEFINITIONS[name]())
        found = taken(session, stream, rounds)
        journal = live(session, found)
        replayed = Session(DEFINITIONS[name]())
        for blob in journal:
            replayed.replay(blob)
        packed = pack(session, HERE)
        assert pack(replayed, HERE) == packed
        restored = unpack(session.definition, packed, HERE)
        assert pack(restored, HERE) == packed
        more = taken(session, stream, 10)
        assert live(session, more) == live(restored, more)
        assert pack(session, HERE) == pack(restored, HERE)


@pytest.mark.parametrize("name", DEFINITIONS)
@fewer
@given(streams, st.integers(1, 30))
def test_many_rounds_are_the_rounds_one_by_one(name: str, stream: list[tuple[Input, bool]], cut: int) -> None:
    one, many = Session(DEFINITIONS[name]()), Session(DEFINITIONS[name]())
    found = taken(one, stream, 40)
    expected = []
    for raw, y in found:
        pending = one.play(raw, *one.read_truth(y))
        expected.append(pending.played.forecast.value)
        one.learn(pending)
    given: list[float] = []
    entries: list[bytes] = []
    for part in (found[:cut], found[cut:]):
        if part and many.task is not None:
            ran = many.run([raw for raw, _ in part], np.array([y for _, y in part]), [many.task] * len(part))
            given += [value for part in ran.forecasts for value in part.values]
            entries += [blob for _, blob in ran.entries]
    np.testing.assert_allclose(given, expected, rtol=1e-9, atol=1e-9)
    assert (many.t, many.is_warming_up, many.fields) == (one.t, one.is_warming_up, one.fields)
    assert (many.preparation is None) == (one.preparation is None)
    replayed = Session(DEFINITIONS[name]())
    for blob in entries:
        replayed.replay(blob)
    assert replayed.t == many.t
    assert [replayed.forecast(raw) for raw, _ in found[:5]] == [many.forecast(raw) for raw, _ in found[:5]]


def test_a_stream_of_strings_that_are_never_the_same_has_a_bound() -> None:
    """In memory, and in its snapshot: four in each round, 20,000 in all."""
    session = Session(define(is_strict=False, scale="learned", warmup_rounds=64))
    assert session.task is not None
    sizes = []
    for start in range(0, 5_000, 500):
        part = range(start, start + 500)
        raws = [
            session.read_input({"id": f"visitor {i}", "note": f"{i} of many", f"new {i}": f"value {i}"}) for i in part
        ]
        session.run(raws, np.where(np.arange(500) % 2 == 0, 1.0, -1.0), [session.task] * 500)
        sizes.append((session.nbytes, len(pack(session, HERE))))
    assert session.t == 5_000
    assert max(nbytes for nbytes, _ in sizes) < 1 << 20
    assert max(packed for _, packed in sizes) < 1 << 20
    assert sizes[-1][0] <= 1.1 * max(nbytes for nbytes, _ in sizes[:3])


@pytest.mark.anyio
@pytest.mark.parametrize("learner", [None, POMDR, {"kind": "ons"}], ids=["none named", "pomdr", "ons"])
async def test_nothing_that_is_json_is_a_fault_of_the_service(learner: dict[str, Any] | None) -> None:
    """Predictions, truths at once and later, and many rounds of inputs that change from one to the next."""
    drawn: list[tuple[Input, bool]] = []

    @settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(inputs, st.booleans())
    def draw(x: Input, y: bool) -> None:
        drawn.append((x, y))

    draw()
    async with serving("sqlite://") as api:
        body = {"name": "s", "warmup_rounds": 40} | ({} if learner is None else {"learner": learner})
        await api.call("POST", "/sessions", body, status=201)
        rounds = 0
        for i, (x, truth) in enumerate(drawn):
            y: Any = ("yes" if truth else "no") if learner is None else (1 if truth else -1)
            told = await ask(api, "predict", {"x": x, "id": f"p{i}"})
            if told is not None and i % 2:
                rounds += await ask(api, "update", {"id": f"p{i}", "y": y}) is not None
            rounds += await ask(api, "update", {"x": x, "y": y}) is not None
            if i % 10 == 0:
                rounds += 3 * (await ask(api, "rounds", {"x": [x] * 3, "y": [y] * 3}) is not None)
        found = await api.inspect()
        assert found["t"] == rounds
        assert rounds > 40
        json.dumps(found, allow_nan=False)


async def ask(api: Api, action: str, body: Any) -> dict[str, Any] | None:
    """None if it is refused, which must be for what is wrong with it."""
    response = await api.http.post(f"/sessions/s/{action}", json=body)
    assert response.status_code < 500, (body, response.text)
    return response.json() if response.status_code == 200 else None


@pytest.mark.anyio
@pytest.mark.each
@pytest.mark.parametrize(
    "truths", [["a", "b", "c"], [1.0, -2.5, 1e6], [True, False]], ids=["texts", "numbers", "booleans"]
)
async def test_a_session_that_is_told_nothing(store_url: str, truths: list[Any]) -> None:
    """The first truth says what there is to learn; another worker finds the same session in the store, in each phase."""
    phases = (1, 7, 8, 20, 40)
    async with serving(store_url) as api:
        await api.call("POST", "/sessions", {"name": "s", "warmup_rounds": 30}, status=201)
        first = await api.predict({"a": 1.0}, id="late")
        assert first.keys() == {"session", "id", "t"}
        for t in range(1, 41):
            x = {"a": float(t % 3), "colour": ("red", "blue")[t % 2], "when": f"2026-11-{t % 28 + 1:02}"}
            await api.update(truths[t % len(truths)], x=x if t % 5 else {"a": None})
            if t not in phases:
                continue
            live = await api.predict(x, wait=False)
            async with serving(store_url) as other:
                assert await other.predict(x, wait=False) == live
                assert (await other.inspect())["fields"] == (await api.inspect())["fields"]
        assert (await api.update(truths[0], id="late"))["t"] == 41
        other = 3.0 if isinstance(truths[0], str | bool) else "a"
        refused = await api.http.post("/sessions/s/update", json={"x": {"a": 1.0}, "y": other})
        assert refused.status_code in (200, 422)
