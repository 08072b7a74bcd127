"""The history checker finds planted violations, and none in the history of the service itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

import okl_core
from bench.history.attempts import Attempt, Cut, Fault, History
from bench.history.final import PROBES, FinalState, View
from bench.history.injection import schedule
from bench.history.inputs import DIM, LEARNERS, input_of, learned, truth_of
from bench.history.plants import PLANTS, plant
from bench.history.report import lost_by_cut, report
from bench.history.run import RunOptions, run
from bench.history.verdict import check

KIND = "kernel-ogd"
SESSIONS = ("a", "b")
ROUNDS = 60
SECOND = 0.1
"""Time between two rounds of a made-up history; each request takes a tenth of it."""


class MadeUp:
    """A faultless history of one service, which a test may damage, and the service's final state."""

    def __init__(self) -> None:
        self.history = History(7, "made up", dict.fromkeys(SESSIONS, KIND))
        self.learners = {
            name: okl_core.create({"kind": KIND, "config": dict(LEARNERS[KIND])}, DIM) for name in SESSIONS
        }
        self.losses = dict.fromkeys(SESSIONS, 0.0)
        self.now = 0.0
        self.serial = 0

    def play(self, session: str, *, late: bool = False, status: int | None = 200, runs: bool = True) -> Attempt:
        """Play one round, predicted or direct; it is unanswered if `status` is not 200, and without effect if not `runs`."""
        serial, learner = self.serial, self.learners[session]
        self.serial += 1
        x, y = np.array(input_of(serial)), truth_of(serial)
        given = learner.predict(x).value
        if late:
            asked = Attempt("predict", session, 0, *self.times(), 200, asked=serial, asked_id=f"i{serial}")
            asked.predicted_t, asked.value = learner.t, given
            self.history.attempts.append(asked)
        told = Attempt("update", session, 1, *self.times(), status, id=f"i{serial}", serials=(serial,))
        if runs:
            loss = learner.update(x, y).loss
            self.losses[session] += loss
            if status == 200:
                told.t, told.loss, told.given = learner.t, loss, given if late else None
        self.history.attempts.append(told)
        return told

    def again(self, attempt: Attempt) -> Attempt:
        sent, ended = self.times()
        told = replace(attempt, sent=sent, ended=ended, worker=2, is_again=True, is_duplicate=True)
        self.history.attempts.append(told)
        return told

    def times(self) -> tuple[float, float]:
        self.now += SECOND
        return self.now, self.now + SECOND / 10

    def finals(self) -> Mapping[str, FinalState]:
        return {name: self.final(name) for name in SESSIONS}

    def final(self, session: str) -> FinalState:
        learner, loss = self.learners[session], self.losses[session]
        t, etag = learner.t, f'"{learner.t}"'
        values = [learner.predict(np.array(input_of(probe))).value for probe in PROBES]
        metrics = {"rounds": t, "loss": loss}
        views = [View(worker, t, etag, metrics, values) for worker in range(4)]
        return FinalState(session, list(learned(learner.state())), t, etag, t, loss, values, views)


@pytest.fixture
def made_up() -> MadeUp:
    made_up = MadeUp()
    dice = Random(1)
    for _ in range(ROUNDS):
        told = made_up.play(dice.choice(SESSIONS), late=dice.random() < 0.5)
        if dice.random() < 0.2:
            made_up.again(told)
    return made_up


def broken(history: History, finals: Mapping[str, FinalState]) -> set[str]:
    """The names of the broken rules."""
    return {violation.check for violation in check(history, finals)}


# Made-up histories


def test_nothing_is_wrong_with_a_history_without_faults(made_up: MadeUp) -> None:
    finals = made_up.finals()
    assert check(made_up.history, finals) == []
    assert "All is well" in report(made_up.history, finals, [], "again")


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("lose", {"lost", "reordered"}),
        ("twice", {"twice"}),
        ("reorder", {"reordered"}),
        ("stale", {"stale"}),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_each_planted_fault_is_found(made_up: MadeUp, name: str, rules: set[str], seed: int) -> None:
    assert PLANTS.keys() == {"lose", "twice", "reorder", "stale"}
    made_up.history.seed = seed
    finals = made_up.finals()
    assert plant(name, made_up.history, finals)
    assert broken(made_up.history, finals) & rules


def test_a_lost_round_is_named(made_up: MadeUp) -> None:
    finals = made_up.finals()
    final = finals["a"]
    lost = final.serials[5]
    final.serials = [serial for serial in final.serials if serial != lost]
    told = [violation.detail for violation in check(made_up.history, finals) if violation.check == "lost"]
    assert len(told) == 1
    assert f"round {lost}, acknowledged at t = 6, is nowhere" in told[0]


def test_the_last_acknowledged_round_may_not_be_lost(made_up: MadeUp) -> None:
    finals = made_up.finals()
    made_up.play("a")
    assert "lost" in broken(made_up.history, finals)


@pytest.mark.parametrize("runs", [False, True])
def test_what_nobody_answered_may_be_there_or_not(made_up: MadeUp, runs: bool) -> None:
    made_up.history.faults.append(Fault("kill-worker", made_up.now, made_up.now + 1.0))
    made_up.play("a", status=None, runs=runs)
    made_up.play("a")
    assert check(made_up.history, made_up.finals()) == []


def test_what_was_refused_may_not_be_there(made_up: MadeUp) -> None:
    made_up.play("a", status=422)
    assert broken(made_up.history, made_up.finals()) >= {"phantom", "status"}


@pytest.mark.parametrize("status", [500, 502])
def test_no_error_of_the_service_is_excused(made_up: MadeUp, status: int) -> None:
    made_up.history.faults.append(Fault("kill-redis", 0.0, made_up.now + 10.0))
    made_up.play("a", status=status, runs=False)
    assert broken(made_up.history, made_up.finals()) == {"status"}


@pytest.mark.parametrize("status", [None, 503, 504])
def test_what_fails_long_after_a_fault_is_not_excused(made_up: MadeUp, status: int | None) -> None:
    made_up.history.faults.append(Fault("kill-redis", 0.0, 1.0))
    made_up.now += 60.0
    made_up.play("a", status=status, runs=False)
    assert "unexplained" in broken(made_up.history, made_up.finals())


def test_an_answer_that_is_first_twice(made_up: MadeUp) -> None:
    """The same round is acknowledged at two positions."""
    told = made_up.again(made_up.play("a"))
    made_up.play("a")
    made_up.history.attempts.remove(told)
    made_up.history.attempts.append(replace(told, t=(told.t or 0) + 1, is_duplicate=False))
    assert "twice" in broken(made_up.history, made_up.finals())


def test_a_first_request_is_no_duplicate(made_up: MadeUp) -> None:
    made_up.play("a").is_duplicate = True
    assert broken(made_up.history, made_up.finals()) == {"duplicate"}


def test_a_prediction_may_not_be_lost(made_up: MadeUp) -> None:
    lost = made_up.play("a", late=True, status=404, runs=False)
    lost.problem = "prediction-not-found"
    assert broken(made_up.history, made_up.finals()) == {"lost-prediction"}


def test_a_wrong_forecast_on_the_way(made_up: MadeUp) -> None:
    made_up.play("a", late=True)
    made_up.history.attempts[-2].value = (made_up.history.attempts[-2].value or 0.0) + 1e-6
    assert broken(made_up.history, made_up.finals()) == {"forecast"}


def test_a_wrong_loss(made_up: MadeUp) -> None:
    told = made_up.play("a")
    told.loss = (told.loss or 0.0) + 1e-6
    assert broken(made_up.history, made_up.finals()) == {"loss"}


def test_a_worker_that_says_something_else(made_up: MadeUp) -> None:
    finals = made_up.finals()
    finals["a"].views[1].t -= 1  # type: ignore[index]
    finals["b"].views[2].problem = "500 state-corrupt"  # type: ignore[index]
    assert broken(made_up.history, finals) == {"stale", "unserved"}


def test_a_final_state_that_is_not_what_its_rounds_make(made_up: MadeUp) -> None:
    finals = made_up.finals()
    finals["a"].values = [value + 1e-6 for value in finals["a"].values]
    assert broken(made_up.history, finals) == {"disagreement", "forecast"}


# Cuts


def gone_back(made_up: MadeUp, *, by: int, exact: bool) -> tuple[Cut, list[int]]:
    """Session a loses its last rounds; b, which is idle, loses nothing. Returns the cut and the lost rounds."""
    start = made_up.now + SECOND / 2
    before = list(learned(made_up.learners["a"].state()))
    kept_until = start
    lost = [made_up.play("a") for _ in range(by)]
    cut_at = made_up.now + SECOND / 2
    fresh = okl_core.create({"kind": KIND, "config": dict(LEARNERS[KIND])}, DIM)
    made_up.losses["a"] = sum(fresh.update(np.array(input_of(one)), truth_of(one)).loss for one in before)
    made_up.learners["a"] = fresh
    gone_from = kept_until if exact else cut_at
    cut = Cut("restore-backup", None, kept_until, gone_from, cut_at, cut_at, {"a": before} if exact else None)
    made_up.history.cuts.append(cut)
    return cut, [serial for one in lost for serial in one.serials]


@pytest.mark.parametrize("exact", [False, True])
def test_what_a_fault_took_is_explained(made_up: MadeUp, exact: bool) -> None:
    """Everything acknowledged after the fault is there."""
    _, lost = gone_back(made_up, by=4, exact=exact)
    for _ in range(3):
        made_up.play("a")
    finals = made_up.finals()
    assert check(made_up.history, finals) == []
    assert lost_by_cut(made_up.history, finals) == {"restore-backup": len(lost)}


def test_what_was_acknowledged_after_a_fault_may_not_be_lost(made_up: MadeUp) -> None:
    gone_back(made_up, by=4, exact=True)
    finals = made_up.finals()
    made_up.play("a")
    assert "lost" in broken(made_up.history, finals)


def test_what_was_kept_may_not_be_lost(made_up: MadeUp) -> None:
    """The fault happened one round later than its cut says."""
    cut, _ = gone_back(made_up, by=4, exact=True)
    cut.kept_until += 1.5 * SECOND
    cut.gone_from = cut.kept_until
    cut.kept = None
    assert "lost" in broken(made_up.history, made_up.finals())


def test_a_session_goes_on_from_what_the_backup_has(made_up: MadeUp) -> None:
    cut, lost = gone_back(made_up, by=4, exact=True)
    assert cut.kept is not None
    cut.kept = {"a": [*cut.kept["a"], lost[0]]}
    assert "lost" in broken(made_up.history, made_up.finals())


def test_what_was_discarded_may_not_come_back(made_up: MadeUp) -> None:
    """A worker continued from the store's previous state."""
    made_up.play("a")
    cut_at = made_up.now + SECOND / 2
    kept_until = cut_at - 1.2 * SECOND
    made_up.history.cuts.append(Cut("restore-backup", None, kept_until, kept_until, cut_at, cut_at))
    made_up.play("a")
    assert "phantom" in broken(made_up.history, made_up.finals())


def test_nothing_is_kept_behind_what_is_lost(made_up: MadeUp) -> None:
    start = made_up.now + SECOND / 2
    lost = made_up.play("a")
    kept = made_up.play("a")
    cut_at = made_up.now + SECOND / 2
    made_up.history.cuts.append(Cut("promote", None, start, cut_at, cut_at, cut_at))
    finals = made_up.finals()
    # The store's state if it had lost only the first of the two.
    finals["a"].serials = [*finals["a"].serials[:-2], -1, *kept.serials]
    assert lost.serials not in finals["a"].serials
    assert "hole" in broken(made_up.history, finals)


def test_a_session_that_was_made_again_has_nothing_of_the_old_one(made_up: MadeUp) -> None:
    start = made_up.now + SECOND / 2
    made_up.now += SECOND
    made_up.history.cuts.append(Cut("recreate", "a", -math.inf, -math.inf, start, made_up.now))
    assert "phantom" in broken(made_up.history, made_up.finals())
    made_up.learners["a"] = okl_core.create({"kind": KIND, "config": dict(LEARNERS[KIND])}, DIM)
    made_up.losses["a"] = 0.0
    made_up.play("a", late=True)
    assert check(made_up.history, made_up.finals()) == []


def test_a_schedule_follows_from_its_seed() -> None:
    kinds = ("kill-worker", "kill-redis", "restore-backup")
    plans = [schedule(Random(seed), kinds, 3, 10_000) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    order = [planned.kind for planned in plans[0]]
    assert [order.count(kind) for kind in (*kinds, "take-backup")] == [3, 3, 3, 3]
    assert order.index("take-backup") < order.index("restore-backup")
    assert [planned.at for planned in plans[0]] == sorted(planned.at for planned in plans[0])


# The service itself


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def test_a_worker_is_killed_and_nothing_is_lost(store: str, tmp_path: Path) -> None:
    """`python -m bench.history` has the long runs, with all faults."""
    options = RunOptions(
        store, rounds=200, workers=3, clients=9, sessions=4, seed=5, faults=("kill-worker",), each=1, transport="mixed"
    )
    history, finals = run(options, tmp_path)
    violations = check(history, finals)
    assert violations == [], report(history, finals, violations, "pytest")
    assert [fault.kind for fault in history.faults] == ["kill-worker"]
    acknowledged = {serial for one in history.attempts if one.is_answered for serial in one.serials}
    assert acknowledged <= {serial for final in finals.values() for serial in final.serials}
    assert len(acknowledged) > 160
