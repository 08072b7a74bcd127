"""The history of a session: bounded, the same wherever it is made, and what a direct computation gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from okl_core import LearnerSpec
from okl_core.losses import probabilities
from okl_core.types import F64, BlockInfo, Standing
from service.session.codec import encode_round
from service.session.definition import AlarmRules, Definition, Scalar
from service.session.history import history as history_module
from service.session.history.alarms import Alarm
from service.session.history.history import CHUNK, COLUMNS, LEVELS, WIDTH, History, Lived, LivedRows, Numbers
from service.session.history.spread import BIN_ROUNDS, DELAYS_S, Spread
from service.session.history.standings import MOST_PARTS, OTHERS, Standings
from service.session.history.view import HistoryView, view_of
from service.session.moment import Moment
from service.session.played import Fixed
from service.session.scorecard import WINDOW, Issued, forecasts_of
from service.session.session import Session
from service.session.snapshot import pack, unpack
from service.session.task import Task, read_truth

HERE = "here"
GAUSSIAN = {"kernel": {"kind": "gaussian", "sigma": 0.5}}
POOL = {"truth": "numbers", "experts": [{"kind": "ons"}, {"kind": "mean"}]}
KINDS: dict[str, Definition] = {
    "signs": Definition("s", LearnerSpec(kind="pomdr", config=GAUSSIAN), labels=("no", "yes")),
    "probabilities": Definition("s", LearnerSpec(kind="aioli"), labels=("no", "yes"), interval=0.9),
    "classes": Definition("s", LearnerSpec(kind="frequencies")),
    "numbers": Definition("s", LearnerSpec(kind="nystrom-aar", config=GAUSSIAN), y_range=(-10.0, 30.0), interval=0.9),
    "pool": Definition("s", LearnerSpec(kind="pool", config=POOL), y_range=(-2.0, 2.0)),
}


def truth_of(name: str, x: list[float], i: int) -> Scalar:
    if name in ("numbers", "pool"):
        return x[0] - x[1] + 0.1 * (i % 7)
    if name == "classes":
        return "abc"[int(3 * x[0] ** 2)]
    return "yes" if (x[0] + x[1] > 0.8) else "no"


def moment_of(i: int) -> Moment:
    now = Moment.of(1.8e9 + i, 0.001 * (i % 3), 1000.0 + i, i % 5, i // 50)
    return now if i % 4 else now.after(1.8e9 + i - 10.0 ** (i % 6 - 1))


class Life:
    """A session that was played one by one, what was trivial of each round, and the journal."""

    def __init__(self, name: str, rounds: int, *, block: int = 0, late: int = 0) -> None:
        self.session = Session(KINDS[name])
        self.journal: list[bytes] = []
        self.rounds: list[dict[str, Any]] = []
        rng = np.random.default_rng(3)
        X = rng.random((rounds, 2)).tolist()
        i = 0
        while i < rounds:
            if block and i >= 8:
                self._run(name, X[i : i + block], i)
                i += block
            else:
                self._play(name, X[i], i)
                i += 1

    def _play(self, name: str, x: list[float], i: int) -> None:
        session = self.session
        raw = session.read_input(x)
        y, task = session.read_truth(truth_of(name, x, i))
        trivial = session.history.trivial_forecasts(session.task)
        pending = session.play(raw, y, task, moment=moment_of(i))
        entry = pending.entry
        self.journal.append(encode_round(entry))
        self.rounds.append({"y": y, "loss": pending.loss, "error": pending.error, "trivial": trivial, "entry": entry})
        session.learn(pending)

    def _run(self, name: str, X: list[list[float]], i: int) -> None:
        session = self.session
        raws = [session.read_input(x) for x in X]
        tasks, y, task = [], [], session.task
        for j, x in enumerate(X):
            truth, task = read_truth(session.definition, task, truth_of(name, x, i + j))
            y.append(truth)
            tasks.append(task)
        session.run(raws, np.array(y), tasks, moment_of(i))

    @property
    def view(self) -> HistoryView:
        return view_of(self.session.history)


@pytest.mark.parametrize("name", KINDS)
def test_sums_are_those_of_a_direct_computation(name: str) -> None:
    life = Life(name, 1100)
    rounds, points = life.rounds, life.view.points
    ends = [int(t) for t in points["t"] if t is not None]
    starts = [0, *ends[:-1]]
    assert ends[-1] == 1100
    assert points["rounds"] == [end - start for start, end in zip(starts, ends, strict=True)]
    losses, errors = ([one[what] for one in rounds] for what in ("loss", "error"))

    def error_of(mean: float) -> float:
        return mean if life.session.task is not None and life.session.task.truths.is_classifier else math.sqrt(mean)

    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        assert points["loss"][k] == pytest.approx(np.mean(losses[start:end]), rel=1e-9)
        assert points["error"][k] == pytest.approx(error_of(float(np.mean(errors[start:end]))), rel=1e-9)
        assert points["total_error"][k] == pytest.approx(error_of(float(np.mean(errors[:end]))), rel=1e-9)
        since = max((other for other in (0, *ends) if other <= end - WINDOW), default=0)
        assert points["window"][k] == end - since
        assert points["window_error"][k] == pytest.approx(error_of(float(np.mean(errors[since:end]))), rel=1e-9)
        moments = [moment_of(i) for i in range(start, end)]
        late = [moment.waited_s for moment in moments if not math.isnan(moment.waited_s)]
        assert points["late"][k] == len(late)
        assert points["delay_s"][k] == (pytest.approx(np.mean(late)) if late else None)
        assert points["took_s"][k] == pytest.approx(np.mean([moment.took_s for moment in moments]), rel=1e-6)
        last = moments[-1]
        told = [points[column][k] for column in ("at", "waiting", "never_came")]
        assert told == [last.at, last.waiting, last.never_came]


@pytest.mark.parametrize("name", ["signs", "classes", "numbers"])
def test_the_trivial_forecasters_are_those_of_a_direct_computation(name: str) -> None:
    life = Life(name, 700)
    truths = [one["y"] for one in life.rounds]
    task = life.session.task
    assert task is not None
    errors: list[list[float]] = [[], []]
    for i, y in enumerate(truths):
        past = truths[:i]
        if name == "numbers":
            trivial = [float(np.mean(past)) if past else 0.0, past[-1] if past else 0.0]
            wrong = [((one - y) * task.truths.unit) ** 2 for one in trivial]
        else:
            # The most frequent so far, the first of them in a tie.
            first = 0.0 if name == "classes" else -1.0
            counts = {one: past.count(one) for one in sorted(set(past))}
            trivial = [max(counts, key=lambda one: counts[one]) if past else first, past[-1] if past else first]
            wrong = [float(one != y) for one in trivial]
        errors[0].append(wrong[0])
        errors[1].append(wrong[1])
    rows = life.session.history.rows()
    for k, column in enumerate(("first_error", "second_error")):
        assert rows[:, COLUMNS[column]].sum() == pytest.approx(sum(errors[k]), rel=1e-9)
    judged = life.view.verdict
    assert judged is not None
    names = ("mean", "last-label") if name == "numbers" else ("majority", "last-label")
    assert judged.rival == names[int(sum(errors[1]) < sum(errors[0]))] or name == "numbers"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("block", [0, 37])
def test_it_is_the_same_after_a_replay_and_from_every_snapshot(name: str, block: int) -> None:
    life = Life(name, 300, block=block)
    if not block:
        again = Session(KINDS[name])
        for i, blob in enumerate(life.journal):
            again.replay(blob)
            if i in (3, 8, 130, 131):
                again = unpack(again.definition, pack(again, HERE), HERE)
        assert pack(again, HERE) == pack(life.session, HERE)
    twin = life.session.copy()
    assert pack(twin, HERE) == pack(life.session, HERE)


def info_of(task: Task, y: F64, rng: np.random.Generator) -> BlockInfo:
    """Forecasts that nobody made."""
    if task.truths.has_classes:
        given = rng.dirichlet(np.ones(3), len(y))
        return BlockInfo(0, given.max(axis=1), -np.log(given[np.arange(len(y)), y.astype(int)]), given, b"")
    values = rng.normal(size=len(y)) * 2.0
    return BlockInfo(0, values, task.judge.loss.values(values, y), probabilities(task.judge.loss, values), b"")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_a_block_is_its_rounds_one_by_one(name: str, late: bool) -> None:
    task, rng = Life(name, 40).session.task, np.random.default_rng(5)
    assert task is not None
    moment = Moment.of(1.8e9, 0.01, 500.0, 3, 1)
    moment = moment.after(1.8e9 - 30.0) if late else moment
    one, many = History(AlarmRules(rate=0.2)), History(AlarmRules(rate=0.2))
    standing = Standing(("a", "b"), np.array([0.3, 0.7]), np.array([5.0, 7.0]), 6.0, 2.0)
    numbers = Numbers(7.0, standing if name == "pool" else None)
    for size in (1, 3, 700, 5, 8, 16, 90):
        y = rng.integers(0, 3, size).astype(float) if task.truths.has_classes else np.sign(rng.normal(size=size))
        info = info_of(task, y, rng)
        losses, errors = task.judge.block(info, y)
        kept = rng.random(size) < 0.9 if KINDS[name].interval else None
        for i, forecast in enumerate(forecasts_of(info.values, info.probabilities)):
            is_kept = None if kept is None else bool(kept[i])
            truth, loss, error = (float(column[i]) for column in (y, losses, errors))
            one.add(task, Lived(truth, loss, error, Issued.of(forecast, truth), is_kept), moment, None)
            if one.is_due:
                one.close(numbers)
        many.run(task, LivedRows(y, losses, errors, info, kept), moment, lambda: numbers)
        first, second = one.pack(), many.pack()
        assert first.keys() == second.keys()
        for column, array in first.items():
            np.testing.assert_allclose(second[column], array, rtol=1e-11, atol=1e-11, err_msg=column)


@pytest.mark.parametrize("name", ["numbers", "classes", "probabilities"])
def test_blocks_tell_what_single_rounds_tell(name: str) -> None:
    one, other = Life(name, 260).session.history, Life(name, 260, block=36).session.history
    a, b = one.rows(), other.rows()
    np.testing.assert_allclose(a[:, :9], b[:, :9], rtol=1e-9, atol=1e-9)
    assert (one.verdict is None) == (other.verdict is None)


@pytest.mark.parametrize("kind", ["majority", "fourier-aioli", "pool", "pomdr"])
def test_blocks_and_single_rounds_are_as_reliable(kind: str) -> None:
    """Also where a probability does not follow from the value, as those of `majority`, which answers in a warm-up."""
    definition = Definition("s", LearnerSpec(kind=kind), labels=("no", "yes"), warmup_rounds=40)
    one, many, again = Session(definition), Session(definition), Session(definition)
    raws = list(np.random.default_rng(0).random((60, 2)))
    y = np.array([1.0 if x.sum() > 0.8 else -1.0 for x in raws])
    for raw, truth in zip(raws, y.tolist(), strict=True):
        assert one.task is not None
        pending = one.play(raw, truth, one.task)
        again.replay(encode_round(pending.entry))
        one.learn(pending)
    assert many.task is not None
    many.run(raws, y, [many.task] * 60)
    for other in (many, again):
        np.testing.assert_allclose(one.history.spread.reliability, other.history.spread.reliability, rtol=1e-9)
    assert one.history.spread.reliability[0].sum() == (8 if kind == "pomdr" else 60)


def test_it_is_bounded() -> None:
    """As its rows are those of `Thinned`, which is bounded for ever, a short life with coarse chunks shows it."""
    session = Session(Definition("s", LearnerSpec(kind="mean")))
    raw = session.read_input([0.5])
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(8):
        y = rng.normal(size=8192)
        tasks = [session.read_truth(0.0)[1]] * len(y)
        session.run([raw] * len(y), y, tasks)
        sizes.append((len(session.history.points), len(pack(session, HERE))))
    rows = [n for n, _ in sizes]
    # One more row a level at most, whenever the life doubles.
    assert all(after - before <= 2 * WIDTH for before, after in pairwise(rows))
    assert rows[-1] <= WIDTH * (2 + math.log2(8 * 8192 / CHUNK / WIDTH))
    assert session.history.points.nbytes <= (WIDTH * LEVELS + 1) * 8 * session.history.points.rows.shape[1]


def test_a_late_round_is_compared_with_what_was_said_when_it_was_asked() -> None:
    """The last label knows more when the truth is there: that is no fair rival."""
    session = Session(KINDS["signs"])
    for i in range(40):
        raw = session.read_input([0.1, 0.2])
        y, task = session.read_truth("yes" if i % 2 else "no")
        # Asked a round ago, when the last label was this one; now it is the other.
        trivial = session.history.trivial_forecasts(session.task)
        assert trivial is not None
        old = (trivial[0], trivial[1]._replace(value=1.0 - trivial[1].value))
        session.learn(session.play(raw, y, task, fixed=Fixed(Issued(0.3), trivial=old)))
    wrong = session.history.rows()[:, COLUMNS["second_error"]].sum()
    assert wrong <= 1.0


def test_reliability_counts_and_forgets() -> None:
    spread, rng = Spread(), np.random.default_rng(0)
    p = rng.random(BIN_ROUNDS)
    happened = rng.random(BIN_ROUNDS) < p
    for one, yes in zip(p.tolist(), happened.tolist(), strict=True):
        spread.add_sure(one, yes)
    place = np.minimum((p * 10).astype(int), 9)
    for k in range(10):
        np.testing.assert_allclose(
            spread.reliability[:, k], [(place == k).sum(), p[place == k].sum(), happened[place == k].sum()]
        )
    for _ in range(BIN_ROUNDS):
        spread.add_sure(1.0, False)
    assert spread.reliability[0].sum() == BIN_ROUNDS
    assert spread.reliability[0, 9] == pytest.approx((BIN_ROUNDS + (place == 9).sum()) / 2)


@pytest.mark.parametrize("sizes", [(1, 2, 300, 400), (499, 1, 1), (500, 1), (1200, 3), (0, 5000, 4000, 2 * BIN_ROUNDS)])
def test_many_at_once_are_spread_as_one_by_one(sizes: tuple[int, ...]) -> None:
    one, many, rng = Spread(), Spread(), np.random.default_rng(0)
    for size in sizes:
        p, residuals, ends = rng.random(size), rng.normal(size=size), range(3, size + 1, 8)
        happened = rng.random(size) < p
        expected = []
        for i in range(size):
            one.add_sure(p[i], happened[i])
            one.add_residual(residuals[i])
            if i + 1 in ends:
                expected.append(list(one.quantiles()))
        many.run_sure(p, happened)
        assert many.run_residuals(residuals, ends).tolist() == expected
        for name, array in one.pack().items():
            np.testing.assert_array_equal(array, many.pack()[name], err_msg=name)


def test_residuals_are_those_of_the_last_rounds() -> None:
    spread, rng = Spread(), np.random.default_rng(0)
    residuals = rng.normal(size=1300)
    for one in residuals.tolist():
        spread.add_residual(one)
    last = np.sort(residuals[-500:])
    assert spread.quantiles() == (last[49], last[249], last[449])
    again = Spread.unpack(spread.pack())
    assert again.quantiles() == spread.quantiles()


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.1, 59.9, 60.0, 1e9])
def test_a_delay_is_in_its_bin(seconds: float) -> None:
    spread = Spread()
    spread.add_delay(seconds)
    k = int(np.argmax(spread.delays))
    edges = (-math.inf, *DELAYS_S, math.inf)
    assert edges[k] <= seconds < edges[k + 1]


def test_weights_are_kept_by_name_and_many_are_lumped() -> None:
    standings = Standings()
    few = Standing(("a", "b"), np.array([0.25, 0.75]))
    many = Standing(tuple(f"p{i}" for i in range(30)), np.full(30, 1 / 30))
    for standing in (few, few, many):
        standings.add(CHUNK, standing)
    told = Standings.unpack(standings.pack()).weights()
    assert (told["a"], told["b"]) == ([0.25, 0.25, 0.0], [0.75, 0.75, 0.0])
    assert len(told) == MOST_PARTS + 1
    assert told[OTHERS][-1] == pytest.approx((30 - (MOST_PARTS - 2)) / 30)
    assert [sum(column[k] for column in told.values()) for k in range(3)] == pytest.approx([1.0] * 3)


def stream(definition: Definition, rounds: int, wrong: Callable[[int], bool]) -> Session:
    """Truths that are what `last-label` says, or not."""
    session, last = Session(definition), "no"
    for i in range(rounds):
        raw = session.read_input([0.0])
        truth = last if not wrong(i) else {"no": "yes", "yes": "no"}[last]
        y, task = session.read_truth(truth)
        session.learn(session.play(raw, y, task, moment=Moment.of(100.0 + i, 0.0, 0.0, 0, 0)))
        last = truth
    return session


def test_a_flip_raises_an_alarm_and_a_threshold_another() -> None:
    spec = LearnerSpec(kind="last-label")
    definition = Definition("s", spec, labels=("no", "yes"), alarm=AlarmRules(0.01, 0.3))
    session = stream(definition, 1200, lambda i: i % 20 == 0 if i < 600 else i % 4 != 0)
    alarms = session.history.alarms
    assert alarms is not None
    kinds = {alarm.kind: alarm for alarm in alarms.latest}
    assert set(kinds) == {"drift", "error"}
    drift, error = kinds["drift"], kinds["error"]
    assert 600 < drift.t < 700
    assert drift.at == 100.0 + drift.t - 1
    assert (drift.before, drift.after) == (pytest.approx(0.05, abs=0.02), pytest.approx(0.75, abs=0.1))
    assert 590 <= drift.since <= 610
    assert error.before == 0.3
    assert error.after > 0.3
    # The threshold says it once; the test begins anew.
    assert alarms.count == 2
    quiet = stream(Definition("s", spec, labels=("no", "yes"), alarm=AlarmRules(None)), 1200, lambda i: i > 600)
    assert quiet.history.alarms is not None
    assert quiet.history.alarms.count == 0


@pytest.mark.parametrize("rate", [None, 0.5])
def test_blocks_raise_the_alarms_of_their_rounds(rate: float | None) -> None:
    """An error above the threshold in the middle of a block is no secret, though it is below again at the end."""
    definition = Definition("s", LearnerSpec(kind="majority"), labels=("no", "yes"), alarm=AlarmRules(rate, 0.3))
    X, y = np.zeros((2000, 1)), np.where(np.random.default_rng(0).random(2000) < 0.1, -1.0, 1.0)
    y[700:1000] *= -1.0
    told: list[list[Alarm]] = []
    for sizes in ([1] * 2000, [3, 1997], [700, 333, 967]):
        session = Session(definition)
        assert session.task is not None
        for start, stop in pairwise(np.cumsum([0, *sizes]).tolist()):
            if stop - start == 1:
                session.learn(session.play(X[start], y.item(start), session.task))
            else:
                session.run(X[start:stop], y[start:stop], [session.task] * (stop - start))
        assert session.history.alarms is not None
        told.append([alarm._replace(at=0.0) for alarm in session.history.alarms.latest])
    assert told[0] == told[1] == told[2]
    assert [alarm.t for alarm in told[0] if alarm.kind == "error"] == [832]


def test_no_round_is_left_out_where_points_are_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many millions of rounds, were these not so few points."""
    for name in ("WIDTH", "LEVELS"):
        monkeypatch.setattr(history_module, name, 2)
    session = Session(KINDS["signs"])
    for t in range(1, 150):
        raw = session.read_input([0.1, 0.2])
        y, task = session.read_truth("yes" if t % 3 else "no")
        session.learn(session.play(raw, y, task, moment=moment_of(t)))
        rows = session.history.rows()
        assert rows[:, COLUMNS["rounds"]].sum() == t
        assert rows[:, COLUMNS["error"]].sum() == session.card.error
        assert rows[-1, COLUMNS["at"]] == moment_of(t).at
        assert len(rows) <= 5
