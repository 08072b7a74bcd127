"""Sessions whose learner has lags, against the learner run by hand: each round is learned from what it was predicted from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import okl_core
from okl_core import OnlineLearner
from okl_core.records.scaling import Scaling
from okl_core.types import F64
from service.demo_data import magic
from tests.service.api import Api, serving
from tests.service.definitions import GAUSSIAN, MEAN, POMDR
from tests.service.worker import replayed

pytestmark = pytest.mark.anyio

X, Y = magic()
D = X.shape[1]
K = 3
LAGGED = POMDR | {"lags": K}
KONS = {"kind": "kons", "lags": K, "config": {"kernel": GAUSSIAN, "clip": 2.0}}
MEDIAN = {"kind": "pomdr", "lags": K, "config": {"kernel": {"kind": "gaussian", "sigma": "median"}, "budget": 30}}


class ByHand:
    """A learner of d + k inputs, and the truths that it was given. `X` are the inputs as the learner is to see them."""

    def __init__(self, learner: OnlineLearner, X: F64) -> None:
        self.learner = learner
        self.X = X
        self.truths: list[float] = []

    def inputs(self, row: int) -> F64:
        """Those of a forecast that is made now."""
        return np.array([*self.X[row], *lags_of(self.truths)])

    def learn(self, inputs: F64, y: float) -> None:
        self.learner.update(inputs, y)
        self.truths.append(y)


def lags_of(truths: list[float]) -> list[float]:
    return [*truths[::-1], *[0.0] * K][:K]


def without_lags(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name != "lags"}


def by_hand(spec: dict[str, Any] = LAGGED, X: F64 = X) -> ByHand:
    return ByHand(okl_core.create(without_lags(spec), D + K), X)


def late(rows: range, waiting: int) -> Iterator[tuple[int, bool]]:
    """(row, is it its truth?): each truth comes after its prediction, when so many wait, in no order."""
    rng = np.random.default_rng(5)
    open_rows: list[int] = []
    for row in rows:
        yield row, False
        open_rows.append(row)
        while len(open_rows) >= waiting or (open_rows and rng.random() < 0.3):
            yield open_rows.pop(rng.integers(len(open_rows))), True
    for row in open_rows[::-1]:
        yield row, True


async def live(apis: tuple[Api, ...], hand: ByHand, rows: range, waiting: int = 5) -> None:
    """Predictions and late truths through several workers in turn; each answer is that of the learner by hand."""
    made_with: dict[int, F64] = {}
    for step, (row, is_truth) in enumerate(late(rows, waiting)):
        api = apis[step % len(apis)]
        if not is_truth:
            made_with[row] = hand.inputs(row)
            answer = await api.predict(X[row].tolist(), id=f"p{row}")
            assert answer["score"] == hand.learner.predict(made_with[row]).value
        else:
            assert (await api.update(int(Y[row]), id=f"p{row}"))["t"] == hand.learner.t + 1
            hand.learn(made_with[row], Y[row])
            assert (await api.inspect())["lags"] == lags_of(hand.truths)


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, ...]]:
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other


async def test_a_session_without_lags_shows_none(memory: Api) -> None:
    assert (await memory.create())["lags"] is None


async def test_rounds_one_after_the_other(memory: Api) -> None:
    """The truths of the session in the learner's terms; an update without a prediction takes the present ones."""
    created = await memory.create(LAGGED, labels=["no", "yes"])
    assert (created["lags"], created["learner"]["lags"]) == ([0.0] * K, K)
    hand = by_hand()
    for row in range(40):
        expected = hand.learner.predict(hand.inputs(row)).value
        assert (await memory.predict(X[row].tolist(), wait=False))["score"] == expected
        answer = await memory.update("yes" if Y[row] > 0 else "no", x=X[row].tolist())
        assert answer["loss"] == max(0.0, 1.0 - Y[row] * expected)
        hand.learn(hand.inputs(row), Y[row])
    found = await memory.inspect()
    assert (found["dim"], found["lags"]) == (D, lags_of(hand.truths))


async def test_units_are_the_learners_and_inputs_alone_are_scaled(memory: Api) -> None:
    low, high = X.min(axis=0) - 1.0, X.max(axis=0)
    scale = {"kind": "ranges", "low": low.tolist(), "high": high.tolist()}
    await memory.create(KONS, y_range=[100.0, 200.0], scale=scale)
    hand = by_hand(KONS, (X - low) / (high - low))
    for row, truth in enumerate(np.random.default_rng(1).uniform(100.0, 200.0, 30).tolist()):
        expected = hand.learner.predict(hand.inputs(row)).value
        prediction = await memory.predict(X[row].tolist())
        assert prediction["value"] == pytest.approx(150.0 + 25.0 * expected, rel=1e-9)
        await memory.update(truth, id=prediction["id"])
        hand.learn(hand.inputs(row), (truth - 150.0) / 25.0)
    assert (await memory.inspect())["lags"] == pytest.approx(lags_of(hand.truths), rel=1e-9)


@pytest.mark.each
@pytest.mark.parametrize("snapshot_every", [None, 1, 7])
async def test_late_truths_at_two_workers(workers: tuple[Api, ...], snapshot_every: int | None) -> None:
    await workers[0].create(LAGGED, snapshot_every=snapshot_every)
    hand = by_hand()
    await live(workers, hand, range(30))
    from_the_store = await replayed(workers[0].store)
    assert from_the_store.forecast(X[-1]).value == hand.learner.predict(np.array([*X[-1], *lags_of(hand.truths)])).value
    assert from_the_store.card.tally().loss == (await workers[1].inspect())["metrics"]["loss"]


@pytest.mark.each
@pytest.mark.parametrize("snapshot_every", [None, 4])
async def test_a_prediction_outlives_its_worker(store_url: str, snapshot_every: int | None) -> None:
    hand = by_hand()
    async with serving(store_url) as one:
        await one.create(LAGGED, snapshot_every=snapshot_every)
        await live((one,), hand, range(15))
        made_with = hand.inputs(25)
        await one.predict(X[25].tolist(), id="early")
        await live((one,), hand, range(30, 40))
    async with serving(store_url) as other:
        # Asked again, it is the first prediction, whatever was learned since.
        again = await other.predict(X[25].tolist(), id="early")
        assert again["t"] == 15
        await other.update(int(Y[25]), id="early", x=X[25].tolist())
        hand.learn(made_with, Y[25])
        assert (await other.update(int(Y[25]), id="early"))["duplicate"]
        await live((other,), hand, range(50, 60))


@pytest.mark.each
@pytest.mark.parametrize("settings", [{}, {"scale": {"kind": "learned"}}], ids=["median", "scale and median"])
async def test_a_warmup_with_late_truths(workers: tuple[Api, ...], settings: dict[str, Any]) -> None:
    """What each of its stages teaches are the inputs that its predictions were made from."""
    n = 12
    await workers[0].create(MEDIAN, warmup_rounds=n, **settings)
    majority, truths, made_with, seen = okl_core.create({"kind": "majority"}, D), [], {}, []
    schedule = late(range(n + 10), 4)
    for step, (row, is_truth) in enumerate(schedule):
        api = workers[step % 2]
        if not is_truth:
            made_with[row] = lags_of(truths)
            score = (await api.predict(X[row].tolist(), id=f"p{row}"))["score"]
            assert len(seen) >= 8 or score == majority.predict(X[row]).value
            continue
        await api.update(int(Y[row]), id=f"p{row}")
        majority.update(X[row], Y[row])
        truths.append(Y[row])
        seen.append(row)
        assert (await api.inspect())["lags"] == lags_of(truths)
        if len(seen) == n:
            break
    rows, lags = X[seen], np.array([made_with[row] for row in seen])
    scaled = Scaling.found(rows, np.ones(D, dtype=bool), np.zeros(D, dtype=bool), None)(X) if settings else X
    inputs = np.hstack((scaled[seen], lags))
    hand = ByHand(okl_core.create(okl_core.resolve(without_lags(MEDIAN), inputs), D + K), scaled)
    hand.learner.run(inputs, np.array(truths))
    hand.truths = truths
    for row, is_truth in schedule:
        if is_truth and row in made_with:
            await workers[0].update(int(Y[row]), id=f"p{row}")
            hand.learn(np.array([*hand.X[row], *made_with[row]]), Y[row])
    for worker in workers:
        found = await worker.inspect()
        assert (found["warming_up"], found["lags"]) == (False, lags_of(truths))
        answer = await worker.predict(X[50].tolist(), wait=False)
        assert answer["score"] == pytest.approx(hand.learner.predict(hand.inputs(50)).value, rel=1e-9)
    await live(workers, hand, range(60, 70))


async def test_many_rounds_in_one_request(workers: tuple[Api, ...]) -> None:
    """Between others, and with a prediction that waits across them."""
    await workers[0].create(LAGGED)
    hand = by_hand()
    await live(workers, hand, range(12))
    made_with = hand.inputs(12)
    await workers[0].predict(X[12].tolist(), id="across")
    block = await workers[1].rounds(X[13:60].tolist(), Y[13:60].tolist())
    expected = []
    for row in range(13, 60):
        expected.append(hand.learner.predict(hand.inputs(row)).value)
        hand.learn(hand.inputs(row), Y[row])
    assert block["scores"] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert (await workers[0].inspect())["lags"] == lags_of(hand.truths)
    await workers[0].update(int(Y[12]), id="across")
    hand.learn(made_with, Y[12])
    for worker in workers:
        answer = await worker.predict(X[70].tolist(), wait=False)
        assert answer["score"] == pytest.approx(hand.learner.predict(hand.inputs(70)).value, rel=1e-9, abs=1e-9)


async def test_named_features_keep_their_names(memory: Api) -> None:
    await memory.create(MEAN | {"lags": 2})
    await memory.predict({"a": 1.0, "b": True}, id="p")
    await memory.update(0.5, id="p")
    found = await memory.inspect()
    assert [one["name"] for one in found["fields"]] == ["a", "b"]
    assert (found["dim"], found["lags"]) == (2, [0.5, 0.0])
    await memory.refused("wrong-features", "POST", "/sessions/s/predict", {"x": [1.0, 1.0, 0.5, 0.0]})


async def test_a_truth_that_could_not_be_an_input_is_refused(memory: Api) -> None:
    await memory.create(MEAN | {"lags": 2})
    await memory.update(0.5, x=[1.0])
    problem = await memory.refused("wrong-truth", "POST", "/sessions/s/update", {"x": [1.0], "y": 1e160})
    assert problem["errors"][0]["pointer"] == "/y"
    problem = await memory.refused("wrong-truth", "POST", "/sessions/s/rounds", {"x": [[1.0]] * 2, "y": [0, 1e160]})
    assert problem["errors"][0]["pointer"] == "/y/1"
    assert (await memory.inspect())["t"] == 1
