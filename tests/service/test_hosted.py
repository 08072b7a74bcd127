"""A session's brain without any service: a replay of its journal, or a snapshot, is the brain itself, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from okl_core.errors import DivergedError, FrozenError, StateError
from okl_core.freezing import Rule
from service.demo_data import magic
from service.errors import StateCorrupt
from service.hosted import HostedLearner, Pending
from service.journal import encode_round
from service.schemas import SessionCreate
from service.scorecard import Issued
from tests.service.api import GAUSSIAN, MEAN, ONE_VS_REST, POMDR

X, Y = magic()
MEDIAN = {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}, "budget": 30}}
KONS = {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared"}}
NAMES = "abcdefghij"
SIGMA = {"kind": "gaussian", "sigma": "median"}
CLASSES = (Y > 0.0) * (1.0 + (X[:, 8] > 0.3))

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"learner": POMDR},
    "labels": {"learner": POMDR, "labels": ["no", "yes"]},
    "units": {"learner": KONS, "y_range": [-2.0, 5.0]},
    "ranges": {"learner": POMDR, "scale": {"kind": "ranges", "low": [-1.0] * 10, "high": [3.0] * 10}},
    "warm-up": {"learner": POMDR, "scale": {"kind": "warmup"}, "warmup_rounds": 20},
    "median": {"learner": MEDIAN, "scale": {"kind": "warmup"}, "warmup_rounds": 20},
    "named": {"learner": MEDIAN, "warmup_rounds": 20, "schema": [{"name": name} for name in NAMES]},
    "inferred": {"learner": MEAN},
    "reservoir": {"learner": POMDR, "reservoir": True},
    "reservoir and median": {"learner": MEDIAN, "scale": {"kind": "warmup"}, "warmup_rounds": 20, "reservoir": True},
    "lags": {"learner": POMDR | {"lags": 3}},
    "lags and units": {"learner": KONS | {"lags": 2}, "y_range": [-2.0, 5.0], "scale": {"kind": "warmup"}},
    "classes": {"learner": ONE_VS_REST, "labels": ["a", "b", "c"]},
    "classes and median": {
        "learner": {
            "kind": "one-vs-rest",
            "config": {"classes": 3, "member": {"kind": "kons", "config": {"loss": "logistic", "kernel": SIGMA}}},
        },
        "scale": {"kind": "warmup"},
        "warmup_rounds": 20,
        "reservoir": True,
    },
    "lags and median": {"learner": MEDIAN | {"lags": 2}, "scale": {"kind": "warmup"}, "warmup_rounds": 20},
}
PHASES = {"nothing yet": 0, "one round": 1, "in the warm-up": 12, "its last round": 19, "its end": 20, "after it": 60}


def hosted(name: str) -> HostedLearner:
    return HostedLearner(SessionCreate.model_validate_json(json.dumps({"name": "s"} | SETTINGS[name])))


def play(one: HostedLearner, row: int, name: str) -> Pending:
    x = dict(zip(NAMES, X[row].tolist(), strict=True)) if name in ("named", "inferred") else X[row].tolist()
    vector, note = one.read_input(x)
    if one.truths.classes:
        y = float(CLASSES[row])
    else:
        y = one.truths.to_learner("yes" if Y[row] > 0 else "no") if name == "labels" else float(Y[row])
    if row % 3:
        return one.play(vector, y, at=float(row), note=note)
    # One whose truth is late: what the client was told, and the lags of that forecast, are not those of now.
    lags = np.ones(one.spec.lags) if one.spec.lags else None
    issued = Issued(0.25, 1 if one.truths.classes else None)
    return one.play(vector, y, at=float(row), issued=issued, note=note, lags=lags)


def lived(name: str, rounds: int) -> tuple[HostedLearner, list[bytes]]:
    one, journal = hosted(name), []
    for row in range(rounds):
        pending = play(one, row, name)
        journal.append(encode_round(pending.entry))
        one.learn(pending)
    return one, journal


@pytest.mark.parametrize("rounds", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_replay_is_the_life_itself(name: str, rounds: int) -> None:
    live, journal = lived(name, rounds)
    again = hosted(name)
    for blob in journal:
        again.replay(blob)
    assert again.to_bytes() == live.to_bytes()


@pytest.mark.parametrize("rounds", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_snapshot_is_everything(name: str, rounds: int) -> None:
    """In every phase: it packs to the same bytes, and what follows is the same for ever."""
    live, _ = lived(name, rounds)
    blob = live.to_bytes()
    again = HostedLearner.from_bytes(live.settings, blob)
    assert again.to_bytes() == blob
    assert (again.t, again.warming_up, again.metrics()) == (live.t, live.warming_up, live.metrics())
    for row in range(rounds, rounds + 30):
        pendings = [play(one, row, name) for one in (live, again)]
        assert encode_round(pendings[0].entry) == encode_round(pendings[1].entry)
        for one, pending in zip((live, again), pendings, strict=True):
            one.learn(pending)
    assert again.to_bytes() == live.to_bytes()


@pytest.mark.parametrize("name", SETTINGS)
def test_playing_changes_nothing(name: str) -> None:
    for rounds in PHASES.values():
        live, _ = lived(name, rounds)
        before = live.to_bytes()
        for row in range(100, 105):
            live.forecast(play(live, row, name).entry.x)
        assert live.to_bytes() == before


@pytest.mark.parametrize(
    "name",
    [
        "plain", "labels", "ranges", "median", "reservoir", "reservoir and median", "lags", "lags and median", "classes",
        "classes and median",
    ],
)  # fmt: skip
def test_a_block_replays(name: str) -> None:
    live, journal = lived(name, 7)
    y = CLASSES if live.truths.classes else Y
    entries, values, _ = live.run(X[7:90], y[7:90], at=1.0)
    assert sum(count for count, _ in entries) == len(values) == 83
    again = hosted(name)
    for blob in journal + [blob for _, blob in entries]:
        again.replay(blob)
    assert again.t == live.t == 90
    assert again.metrics() == live.metrics()
    assert again.forecast(X[95]) == live.forecast(X[95])


@pytest.mark.parametrize("rule", ["last", "uniform"])
@pytest.mark.parametrize("name", ["reservoir", "reservoir and median"])
def test_a_frozen_one_packs_too(name: str, rule: Rule) -> None:
    live, _ = lived(name, 60)
    frozen = live.freeze("frozen", rule)
    before = live.to_bytes()
    again = HostedLearner.from_bytes(frozen.settings, frozen.to_bytes())
    assert again.to_bytes() == frozen.to_bytes()
    assert (again.t, again.frozen, again.metrics()) == (frozen.t, frozen.frozen, frozen.metrics())
    assert again.forecast(X[0]) == frozen.forecast(X[0])
    with pytest.raises(FrozenError):
        again.play(X[0], 1.0, at=0.0)
    with pytest.raises(StateError, match="already"):
        again.freeze("twice", "last")
    assert live.to_bytes() == before


def test_a_snapshot_of_anything_else_is_refused() -> None:
    live, _ = lived("median", 60)
    blob = live.to_bytes()
    for wrong in (
        b"",
        blob[:-1],
        blob[:100],
        blob[:50] + bytes([blob[50] ^ 1]) + blob[51:],
        lived("plain", 3)[0].to_bytes()[1:],
    ):
        with pytest.raises(StateCorrupt):
            HostedLearner.from_bytes(live.settings, wrong)


def test_a_round_that_does_not_replay_is_refused() -> None:
    _, journal = lived("plain", 10)
    again = hosted("plain")
    for blob in journal[:5]:
        again.replay(blob)
    before = again.to_bytes()
    with pytest.raises(StateCorrupt, match="does not replay"):
        again.replay(journal[7])
    assert again.to_bytes() == before


def test_what_has_no_loss_is_refused() -> None:
    one = hosted("inferred")
    vector, note = one.read_input({"a": 1.0})
    for y in (1e200, -1e308):
        with pytest.raises(DivergedError):
            one.play(vector, y, at=0.0, note=note)
        with pytest.raises(DivergedError):
            hosted("inferred").run(np.array([[1.0], [1.0]]), np.array([0.0, y]), at=0.0)
