"""Products of a learner in one thread of BLAS, whatever the process has set, and what it has set left as it was."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import okl_core
from okl_core import Forecast, Learner
from okl_core.contract.learner import registered
from okl_core.contract.rng import RoundRng
from okl_core.contract.threads import UNDIVIDED_BYTES, OneBlasThread, needs_one_thread
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, LearnerConfig, LearnerState, Round


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_it_is_one_inside_and_what_it_was_outside() -> None:
    with threadpool_limits(2):
        with OneBlasThread():
            assert threads() == {1}
            with OneBlasThread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == {2}
        with pytest.raises(ZeroDivisionError), OneBlasThread():
            raise ZeroDivisionError
        assert threads() == {2}


def test_threads_that_meet_in_it_leave_what_was_there() -> None:
    is_in, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with OneBlasThread():
            is_in.set()
            may_leave.wait(10.0)

    with threadpool_limits(2):
        thread = threading.Thread(target=other)
        with OneBlasThread():
            thread.start()
            assert is_in.wait(10.0)
        assert threads() == {2}
        may_leave.set()
        thread.join()
        assert threads() == {2}


def test_small_learners_and_processes_of_one_thread_are_spared() -> None:
    with threadpool_limits(2):
        assert needs_one_thread(UNDIVIDED_BYTES)
        assert not needs_one_thread(UNDIVIDED_BYTES - 1)
    with threadpool_limits(1):
        assert not needs_one_thread(UNDIVIDED_BYTES)


class WatcherConfig(LearnerConfig):
    """Nothing to choose."""


@dataclass(slots=True)
class WatcherState(LearnerState):
    """Its rounds alone."""


@final
class Watcher(Learner[WatcherConfig, WatcherState, Round]):
    """Says that it takes `nbytes`, and notes in how many threads BLAS computes while it is at work."""

    kind: ClassVar[str] = "watcher"
    references: ClassVar[tuple[str, ...]] = ()
    config_type = WatcherConfig
    state_type = WatcherState

    def __init__(self) -> None:
        self.nbytes = UNDIVIDED_BYTES
        self.seen: list[set[int]] = []

    def loss(self, config: WatcherConfig) -> Loss:
        return LOSSES["squared"]

    def init(self, config: WatcherConfig, dim: int) -> WatcherState:
        return WatcherState(t=0)

    def predict(self, config: WatcherConfig, state: WatcherState, x: F64) -> Forecast:
        self.seen.append(threads())
        return Forecast(0.0)

    def play(self, config: WatcherConfig, state: WatcherState, x: F64, y: float, rng: RoundRng) -> Round:
        return Round(state.t + 1, x, y, self.predict(config, state, x), y * y, rng.choices())

    def learn(self, config: WatcherConfig, state: WatcherState, played: Round) -> None:
        self.seen.append(threads())
        state.t += 1

    def describe(self, config: WatcherConfig, state: WatcherState) -> dict[str, float]:
        return {"t": state.t, "dictionary": 0, "bytes": self.nbytes}


def test_a_large_learner_is_at_work_in_one_thread() -> None:
    watcher, x = Watcher(), np.zeros(1)
    with registered(watcher), threadpool_limits(2):
        learner = okl_core.create({"kind": "watcher"}, 1)
        learner.predict(x)
        learner.update(x, 1.0)
        learner.learn(learner.play(x, 1.0))
        learner.run(np.zeros((3, 1)), np.ones(3))
        assert watcher.seen == [{1}] * len(watcher.seen)
        assert len(watcher.seen) == 1 + 2 + 2 + 6
        assert threads() == {2}


def test_one_that_grows_is_seen_to_within_some_rounds() -> None:
    watcher, x = Watcher(), np.zeros(1)
    with registered(watcher), threadpool_limits(2):
        watcher.nbytes = 0
        learner = okl_core.create({"kind": "watcher"}, 1)
        learner.update(x, 1.0)
        assert watcher.seen == [{2}, {2}]
        watcher.nbytes = UNDIVIDED_BYTES
        for _ in range(100):
            learner.update(x, 1.0)
        assert watcher.seen[-1] == {1}


def test_a_learner_that_was_seen_to_can_be_pickled() -> None:
    with threadpool_limits(2):
        learner = okl_core.create({"kind": "kernel-ridge"}, 1)
        learner.run(np.random.default_rng(0).random((300, 1)), np.zeros(300))
        assert needs_one_thread(learner.nbytes)
        again = pickle.loads(pickle.dumps(learner))
        assert again.predict(np.zeros(1)) == learner.predict(np.zeros(1))


class Asked:
    """An input that notes in how many threads BLAS computes when it is read."""

    def __init__(self) -> None:
        self.seen: list[set[int]] = []

    def __array__(self, dtype: object = None, copy: object = None) -> F64:
        self.seen.append(threads())
        return np.full(4, 0.5)


def test_delayed_forms_are_at_work_in_one_thread_once_they_are_large() -> None:
    asked, rng = Asked(), np.random.default_rng(0)
    with threadpool_limits(2):
        learner = okl_core.create_delayed({"kind": "kons"}, 4)
        learner.issue(asked)
        for x in rng.random((200, 4)):
            learner.learn(learner.issue(x).id, rng.choice((-1.0, 1.0)))
        assert needs_one_thread(learner.describe()["bytes"])
        learner.issue(asked)
        assert asked.seen[0] == {2}
        assert asked.seen[-1] == {1}
        assert threads() == {2}
