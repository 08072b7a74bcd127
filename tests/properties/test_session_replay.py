"""Whatever a session is made of and whatever its traffic was: its journal, from any snapshot on, leads to what it is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from okl.errors import InvalidInput
from okl_core import LearnerSpec, get_learner, learner_kinds
from okl_core.contract.state import from_bytes
from okl_core.errors import ConfigError, InputError, NumericalError
from okl_core.types import F64
from service.session.codec import WaitingEntry, decode_waiting, encode_round, encode_waiting
from service.session.coverage import promise_of
from service.session.definition import Definition, Ranges, Scalar
from service.session.played import Fixed
from service.session.record import decode_record, encode_record
from service.session.scorecard import Issued
from service.session.session import Session
from service.session.snapshot import pack, unpack
from service.session.task import check_weights, read_truth
from tests.budget import TIMES

IDENTITY, HERE = bytes(16), "here"
REFUSALS = (InvalidInput, InputError, NumericalError)
STATIONARY = {"kind": ["gaussian", "laplacian", "matern"], "sigma": [0.5, "median"]}
CHOICES: dict[str, list[Any]] = {
    "kernel": [{"kind": "polynomial"}]
    + [{"kind": kind, "sigma": sigma} for kind in STATIONARY["kind"] for sigma in STATIONARY["sigma"]]
    + [{"kind": "gaussian", "sigma": "median", "metric": "learned"}],
    "half_life": [16, "learned", "learned"],
    "input_norm": [2.0, "warmup"],
    "loss": ["squared", "logistic", "hinge"],
    "truth": ["labels", "numbers", "classes"],
    "truth_range": [[-2.0, 2.0]],
    "experts": [["mean"], ["majority"], [{"kind": "nystrom-ridge", "lags": 1, "half_lives": "learned"}]],
    "member": ["nystrom-aioli", {"kind": "kons", "config": {"loss": "logistic", "kernel": {"sigma": "median"}}}],
    "clip": [2.0],
    "window": [8],
    "budget": [12],
    "frequencies": [8],
    "nodes": [11],
}
"""For the fields of a config; a learner takes those that it has."""
POOL_OF_CLASSES = {
    "truth": ["classes"],
    "experts": [[{"kind": "softmax-aioli", "half_lives": "learned"}, "one-vs-rest"]],
    "loss": ["logistic"],
    "clip": [1.0],
    "resting": [1, 4],
}
"""Another form of a kind: it takes none of the others' choices."""
SMALL = ("budget", "frequencies", "nodes")
"""Fields that are left out of no config, since a learner is slow with what it has then."""


def drawn_definition(kind: str | None, rng: random.Random) -> Definition:
    """The first drawn that makes a session."""
    kind, _, form = (kind or "").partition(" ")
    choices = POOL_OF_CLASSES if form else CHOICES
    for _ in range(1000):
        learner = None
        if kind:
            own = [name for name in choices if name in get_learner(kind).config_type.model_fields]
            config = {name: rng.choice(choices[name]) for name in own if name in SMALL or rng.random() < 0.7}
            learner = LearnerSpec(kind=kind, config=config, lags=rng.choice([0, 0, 2]), seed=rng.randrange(10))
        truths = rng.choice(["open", "labels", "classes", "units"])
        definition = Definition(
            "s",
            learner,
            is_strict=rng.random() < 0.3,
            labels={"labels": ("no", "yes"), "classes": ("a", "b", True)}.get(truths),
            y_range=(-2.0, 2.0) if truths == "units" else None,
            scale=rng.choice(["none", "learned", Ranges((-3.0,) * 2, (3.0,) * 2)]),
            warmup_rounds=rng.choice([2, 8, 9, 20]),
            interval=rng.choice([None, 0.9]),
            reservoir=rng.random() < 0.3,
        )
        try:
            Session(definition)
        except (ConfigError, InvalidInput):
            continue
        return definition
    raise AssertionError(f"no drawn config of {kind} is valid")


class Life:
    """A session in use; the journal since each of its snapshots, the first of which is nothing yet."""

    def __init__(self, definition: Definition, seed: int) -> None:
        self.session, self.rng = Session(definition), np.random.default_rng(seed)
        self.snapshots: list[tuple[bytes | None, list[bytes]]] = [(None, [])]
        self.waiting: list[bytes] = []

    def truth(self) -> Scalar:
        task, y = self.session.task, self.rng.normal()
        if task is None or task.is_open:
            return "abcd"[: 1 + self.session.t // 5][int(self.rng.integers(1 + min(3, self.session.t // 5)))]
        names = task.truths.names
        return names[int(self.rng.integers(len(names)))] if names else float(np.clip(y, -1.0, 1.0))

    def input(self) -> dict[str, Any]:
        """One column is constant at first, and one comes late."""
        task, t = self.session.task, self.session.t
        found: dict[str, Any] = {"a": self.rng.normal()}
        if task is None or task.dims is None:
            found["b"] = 3.0 if t < 12 else self.rng.normal()
        return found if self.session.definition.is_strict or t < 10 else found | {"late": "pq"[t % 2]}

    def ask(self) -> None:
        session = self.session
        raw = session.read_input(self.input())
        threshold = None if session.coverage is None else session.coverage.threshold
        trivial = session.history.trivial_forecasts(session.task)
        entry = WaitingEntry(session.t, session.forecast(raw), raw, session.lags, threshold, 0.0, trivial)
        self.waiting.append(encode_waiting(IDENTITY, "id", entry))

    def settle(self) -> None:
        if not self.waiting:
            return
        session, made = self.session, decode_waiting(IDENTITY, "id", self.waiting.pop(0))
        y, task = session.read_truth(self.truth())
        trivial, issued, promise = None if made.t == session.t else made.trivial, None, None
        if not np.isnan(made.forecast.value):
            issued = Issued.of(made.forecast, y)
            if made.threshold is not None:
                promise = promise_of(task, made.forecast, made.threshold, y, session.t - made.t)
        self._learn(made.x, y, task, fixed=Fixed(issued, made.lags, promise, trivial))

    def update(self) -> None:
        self._learn(self.session.read_input(self.input()), *self.session.read_truth(self.truth()))

    def update_weighted(self) -> None:
        y, task = self.session.read_truth(self.truth())
        check_weights(task)
        self._learn(self.session.read_input(self.input()), y, task, weight=3.0)

    def _learn(self, *round: Any, **told: Any) -> None:
        pending = self.session.play(*round, **told)
        self._note(encode_round(pending.entry))
        self.session.learn(pending)

    def run(self, weight: F64 | None = None) -> None:
        """On a copy, as what refuses one of its rounds has learned those before it."""
        twin, raws, y, tasks, task, fields = self.session.copy(), [], [], [], self.session.task, None
        for _ in range(6):
            raws.append(twin.read_input(self.input(), fields))
            fields = twin.fields_after(raws[0])
            known, task = read_truth(twin.definition, task, self.truth())
            y.append(known)
            tasks.append(task)
        if weight is not None:
            check_weights(tasks[-1])
        ran = twin.run(raws, np.array(y), tasks, weight=weight)
        self.session = twin
        for _, blob in ran.entries:
            self._note(blob)

    def run_weighted(self) -> None:
        self.run(self.rng.choice([0.5, 1.0, 3.0], 6))

    def snapshot(self) -> None:
        self.snapshots.append((pack(self.session, HERE), []))

    def _note(self, blob: bytes) -> None:
        for _, journal in self.snapshots:
            journal.append(blob)


def assert_same(one: Session, other: Session) -> None:
    packed, expected = pack(one, HERE), pack(other, HERE)
    if packed == expected:
        return
    (first, told), (second, known) = from_bytes(packed), from_bytes(expected)
    assert told == known
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)
    raise AssertionError("the same state has two encodings")


STEPS = (
    *(Life.update,) * 4,
    *(Life.run, Life.ask, Life.settle) * 2,
    *(Life.update_weighted, Life.run_weighted),
    Life.snapshot,
)


@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize("kind", [None, *learner_kinds(), "pool of classes"])
def test_a_session_is_what_its_journal_says(kind: str | None, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    definition = drawn_definition(kind, rng)
    life = Life(definition, seed)
    for step in rng.choices(STEPS, k=36):
        before = life.session.copy()
        try:
            step(life)
        except REFUSALS:
            assert_same(life.session, before)
    stored, _ = decode_record("s", encode_record(definition, IDENTITY))
    for blob, journal in life.snapshots:
        again = Session(stored) if blob is None else unpack(stored, blob, HERE)
        for entry in journal:
            again.replay(entry)
        assert_same(again, life.session)
