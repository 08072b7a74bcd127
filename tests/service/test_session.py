"""A session without any service: a replay of its journal, or a snapshot, is the session itself, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import okl_core
from okl.errors import InvalidInput, StateCorrupt
from okl_core.contract.frozen import FreezeRule
from okl_core.errors import DivergedError, FrozenError, StateError
from okl_core.records.scaling import Scaling
from okl_core.records.survey import Declared
from okl_core.records.warmup import MOST_BYTES
from service.demo_data import magic
from service.session import maker
from service.session.codec import encode_round
from service.session.definition import Input, Ranges
from service.session.freezing import freeze_session
from service.session.played import Fixed, Pending
from service.session.scorecard import Issued
from service.session.session import Session
from service.session.snapshot import pack, unpack
from service.session.task import check_weights
from tests.service.definitions import GAUSSIAN, MEAN, MEDIAN, ONE_VS_REST, POMDR, SIGMA, define

X, Y = magic()
BUDGETED = {"kind": "pomdr", "config": {"kernel": SIGMA, "budget": 30}}
KONS = {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared"}}
FORGETFUL = {"kind": "nystrom-aioli", "lags": 1, "config": {"kernel": SIGMA, "budget": 10, "half_life": "learned"}}
NAMES = "abcdefghij"
CLASSES = (Y > 0.0) * (1.0 + (X[:, 8] > 0.3))
HERE = "the position of a test"
WARMUP = {"scale": "learned", "warmup_rounds": 20}

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"learner": POMDR},
    "labels": {"learner": POMDR, "labels": ("no", "yes")},
    "units": {"learner": KONS, "y_range": (-2.0, 5.0)},
    "ranges": {"learner": POMDR, "scale": Ranges((-1.0,) * 10, (3.0,) * 10)},
    "warm-up": {"learner": POMDR, **WARMUP},
    "median": {"learner": BUDGETED, **WARMUP},
    "named": {"learner": BUDGETED, "warmup_rounds": 20, "schema": tuple((name, Declared("number")) for name in NAMES)},
    "inferred": {"learner": MEAN},
    "reservoir": {"learner": POMDR, "reservoir": True},
    "reservoir and median": {"learner": BUDGETED, **WARMUP, "reservoir": True},
    "lags": {"learner": POMDR | {"lags": 3}},
    "lags and units": {"learner": KONS | {"lags": 2}, "y_range": (-2.0, 5.0), "scale": "learned"},
    "classes": {"learner": ONE_VS_REST, "labels": ("a", "b", "c")},
    "classes and median": {
        "learner": {
            "kind": "one-vs-rest",
            "config": {"classes": 3, "member": {"kind": "kons", "config": {"loss": "logistic", "kernel": SIGMA}}},
        },
        **WARMUP,
        "reservoir": True,
    },
    "lags and median": {"learner": BUDGETED | {"lags": 2}, **WARMUP},
    "half-life and median": {"learner": FORGETFUL, **WARMUP},
    "records": {"learner": BUDGETED, **WARMUP, "is_strict": False},
    "records as they are": {"learner": MEAN, "warmup_rounds": 20, "is_strict": False},
    "hashed": {"learner": POMDR | {"lags": 1}, **WARMUP, "is_strict": False, "hashed": 16, "reservoir": True},
}
RECORDS = ("records", "records as they are", "hashed")
PHASES = {
    "nothing yet": 0, "one round": 1, "before the first stage": 7, "the first stage": 8, "in the warm-up": 12,
    "its last round": 19, "its end": 20, "after it": 60,
}  # fmt: skip


def made(name: str) -> Session:
    return Session(define(**SETTINGS[name]))


def record(row: int) -> Input:
    """What is there, and what it is, changes from row to row; a field and a category come later."""
    x = X[row].tolist()
    found: dict[str, Any] = {"size": {"length": x[0], "wide": x[1] > 0.06}, "angle": ("flat", "steep")[row % 2]}
    found |= {"at": f"2026-11-{1 + row % 28:02}T10:00:00Z", "rest": [x[2], None if row % 5 == 0 else x[3]]}
    if row % 7 == 0:
        found["size"] = "unknown"
    if row > 15:
        found |= {"late": x[4], "angle": ("flat", "steep", "new")[row % 3], f"once {row}": row}
    return found


def input_of(row: int, name: str) -> Input:
    if name in RECORDS:
        return record(row)
    return dict(zip(NAMES, X[row].tolist(), strict=True)) if name in ("named", "inferred") else X[row].tolist()


def play(session: Session, row: int, name: str) -> Pending:
    raw = session.read_input(input_of(row, name))
    assert session.task is not None
    truths = session.task.truths
    if truths.has_classes:
        truth = truths.names[int(CLASSES[row])]
    else:
        truth = ("yes" if Y[row] > 0 else "no") if name == "labels" else float(Y[row])
    y, task = session.read_truth(truth)
    if row % 3:
        return session.play(raw, y, task)
    # One whose truth is late: what the client was told, and the lags of that forecast, are not those of now.
    lags = np.ones(task.spec.lags) if task.spec.lags else None
    fixed = Fixed(Issued(0.25, 1 if truths.has_classes else None), lags)
    return session.play(raw, y, task, fixed=fixed)


def live_on(session: Session, rows: range, name: str) -> list[bytes]:
    """Play these rounds; their entries of the journal."""
    journal = []
    for row in rows:
        pending = play(session, row, name)
        journal.append(encode_round(pending.entry))
        session.learn(pending)
    return journal


def lived(name: str, rounds: int) -> tuple[Session, list[bytes]]:
    session = made(name)
    return session, live_on(session, range(rounds), name)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_replay_is_the_life_itself(name: str) -> None:
    """In every phase."""
    live, again = made(name), made(name)
    for phase, rounds in PHASES.items():
        for blob in live_on(live, range(live.t, rounds), name):
            again.replay(blob)
        assert pack(again, HERE) == pack(live, HERE), phase
    assert live.t == 60
    assert again.divergence == 0.0


@pytest.mark.each
@pytest.mark.parametrize("rounds", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_snapshot_is_everything(name: str, rounds: int) -> None:
    """In every phase: it packs to the same bytes, and what follows is the same for ever."""
    live, _ = lived(name, rounds)
    blob = pack(live, HERE)
    again = unpack(live.definition, blob, HERE)
    assert pack(again, HERE) == blob
    assert (again.t, again.is_warming_up, again.card.tally()) == (live.t, live.is_warming_up, live.card.tally())
    for row in range(rounds, rounds + 30):
        pendings = [play(session, row, name) for session in (live, again)]
        assert encode_round(pendings[0].entry) == encode_round(pendings[1].entry)
        for session, pending in zip((live, again), pendings, strict=True):
            session.learn(pending)
    assert pack(again, HERE) == pack(live, HERE)


@pytest.mark.each
@pytest.mark.parametrize("rounds", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_copy_is_a_session_of_its_own(name: str, rounds: int) -> None:
    """It goes on as the other does, and what either learns leaves the other as it is."""
    live, _ = lived(name, rounds)
    before = pack(live, HERE)
    copy = live.copy()
    assert pack(copy, HERE) == before
    for row in range(rounds, rounds + 25):
        copy.learn(play(copy, row, name))
    assert pack(live, HERE) == before
    after = pack(copy, HERE)
    for row in range(rounds, rounds + 25):
        live.learn(play(live, row, name))
    assert pack(live, HERE) == pack(copy, HERE) == after


@pytest.mark.parametrize("name", SETTINGS)
def test_playing_changes_nothing(name: str) -> None:
    live = made(name)
    for phase, rounds in PHASES.items():
        live_on(live, range(live.t, rounds), name)
        before = pack(live, HERE)
        for row in range(100, 105):
            live.forecast(play(live, row, name).entry.x)
        assert pack(live, HERE) == before, phase


@pytest.mark.parametrize(
    "name",
    [
        "plain", "labels", "ranges", "median", "reservoir", "reservoir and median", "lags", "lags and median", "classes",
        "classes and median", "half-life and median", *RECORDS,
    ],
)  # fmt: skip
def test_a_block_replays(name: str) -> None:
    live, journal = lived(name, 7)
    assert live.task is not None
    y = CLASSES if live.task.truths.has_classes else Y
    raws = [live.read_input(input_of(row, name)) for row in range(7, 90)]
    ran = live.run(raws, y[7:90], [live.task] * 83)
    assert [count for count, _ in ran.entries] == [len(part.values) for part in ran.forecasts]
    assert sum(count for count, _ in ran.entries) == 83
    again = made(name)
    for blob in journal + [blob for _, blob in ran.entries]:
        again.replay(blob)
    assert again.t == live.t == 90
    assert again.card.tally() == live.card.tally()
    raw = live.read_input(input_of(95, name))
    assert again.forecast(raw) == live.forecast(raw)


@pytest.mark.parametrize("rule", ["last", "uniform"])
@pytest.mark.parametrize("name", ["reservoir", "reservoir and median"])
def test_a_frozen_one_packs_too(name: str, rule: FreezeRule) -> None:
    live, _ = lived(name, 60)
    frozen = freeze_session(live, "frozen", rule)
    before = pack(live, HERE)
    again = unpack(frozen.definition, pack(frozen, HERE), HERE)
    assert pack(again, HERE) == pack(frozen, HERE)
    assert (again.t, again.frozen, again.card.tally()) == (frozen.t, frozen.frozen, frozen.card.tally())
    assert again.forecast(X[0]) == frozen.forecast(X[0])
    with pytest.raises(FrozenError):
        again.play(X[0], *again.read_truth(1.0))
    with pytest.raises(StateError, match="already"):
        freeze_session(again, "twice", "last")
    assert pack(live, HERE) == before


def test_what_is_frozen_stays_while_the_other_learns() -> None:
    live, _ = lived("plain", 60)
    frozen = freeze_session(live, "frozen", "last").copy()
    before = [frozen.forecast(x) for x in X[100:110]]
    for row in range(60, 120):
        live.learn(play(live, row, "plain"))
    assert [frozen.forecast(x) for x in X[100:110]] == before


def test_a_snapshot_of_anything_else_is_refused() -> None:
    live, _ = lived("median", 60)
    blob = pack(live, HERE)
    for wrong in (b"", blob[:-1], blob[:100], blob + b"\x00", pack(lived("plain", 3)[0], HERE)[1:]):
        with pytest.raises(StateCorrupt):
            unpack(live.definition, wrong, HERE)


def test_a_snapshot_of_another_position_is_refused() -> None:
    """Of another round, another history, or another session: the bytes are sound, and still not those of this place."""
    live, _ = lived("plain", 5)
    with pytest.raises(StateCorrupt, match="position"):
        unpack(live.definition, pack(live, "aa-5-bb"), "aa-5-cc")


def test_a_round_that_does_not_replay_is_refused() -> None:
    _, journal = lived("plain", 10)
    again = made("plain")
    for blob in journal[:5]:
        again.replay(blob)
    before = pack(again, HERE)
    with pytest.raises(StateCorrupt, match="does not replay"):
        again.replay(journal[7])
    assert pack(again, HERE) == before


def test_what_has_no_loss_is_refused() -> None:
    session = made("inferred")
    raw, task = session.read_input({"a": 1.0}), session.task
    assert task is not None
    for y in (1e200, -1e308):
        with pytest.raises(DivergedError):
            session.play(raw, y, task)
        with pytest.raises(DivergedError):
            made("inferred").run([raw, raw], np.array([0.0, y]), [task, task])


def test_the_size_is_that_of_the_learner_and_of_the_warmup() -> None:
    for name in SETTINGS:
        assert made(name).nbytes == 0
    after, _ = lived("median", 60)
    assert after.learner is not None
    assert after.preparation is not None
    assert after.nbytes == after.learner.nbytes + after.preparation.nbytes
    within, _ = lived("median", 12)
    assert within.learner is not None
    assert within.nbytes >= within.learner.nbytes + 12 * 10 * 8


def test_a_stage_of_a_warmup_is_a_long_round() -> None:
    """It may take seconds, so it must be known before it is played."""
    session = Session(define(MEDIAN, warmup_rounds=20))
    assert [rounds for rounds in (1, 7, 8, 9) if session.has_long_round(rounds)] == [8, 9]
    for row in range(20):
        assert session.has_long_round(1) == (row in (7, 15, 19))
        pending = play(session, row, "plain")
        assert (pending.successor is not None) == (row in (7, 15, 19))
        session.learn(pending)
    assert not session.has_long_round(1)


def test_a_stage_that_finds_nothing_new_makes_no_learner() -> None:
    session = made("records as they are")
    for row in range(20):
        x = session.read_input({"a": 1.0 + row % 2})
        pending = session.play(x, *session.read_truth(1.0))
        assert pending.successor is None
        session.learn(pending)
    assert not session.is_warming_up


def test_a_warmup_of_large_records_ends_early() -> None:
    """What is kept of them has a bound in bytes."""
    session = Session(define(MEAN, is_strict=False, scale="learned"))
    rounds = 0
    while session.is_warming_up:
        x = session.read_input({"a": "x" * 100_000, "b": float(rounds)})
        session.learn(session.play(x, *session.read_truth(1.0)))
        rounds += 1
    assert MOST_BYTES // 100_000 <= rounds <= MOST_BYTES // 100_000 + 1
    assert session.nbytes < 100_000


def test_after_a_stage_the_learner_has_learned_all_rounds() -> None:
    """Scale and median are found from all of them, and the new learner is run over them."""
    session = Session(define(BUDGETED, **WARMUP))
    for row in range(60):
        session.learn(session.play(session.read_input(X[row].tolist()), *session.read_truth(float(Y[row]))))
        n = {7: 8, 15: 16, 19: 20}.get(row)
        if n is None:
            continue
        scaling = Scaling.found(X[:n], np.ones(10, dtype=bool), np.zeros(10, dtype=bool), None)
        seen = scaling(X[:n])
        hand = okl_core.create(okl_core.resolve(BUDGETED, seen, Y[:n]), 10)
        hand.run(seen, Y[:n])
        assert session.forecast(X[70]).value == pytest.approx(hand.predict(scaling(X[70])).value, rel=1e-9)
        assert session.spec == hand.spec


def test_a_replay_takes_what_a_stage_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another processor a search may end elsewhere: nothing is searched again."""
    live, journal = lived("median", 60)
    monkeypatch.setattr(maker, "resolve", None)
    again = made("median")
    for blob in journal:
        again.replay(blob)
    assert pack(again, HERE) == pack(live, HERE)


def test_a_half_life_that_is_learned_takes_no_weights_in_its_warm_up_either() -> None:
    at_once = {"kind": "aioli", "config": {"half_life": "learned"}}
    for session in (made("half-life and median"), Session(define(at_once, labels=(0, 1)))):
        assert session.task is not None
        with pytest.raises(InvalidInput, match='pool takes no weights, and a half-life that is "learned" makes'):
            check_weights(session.task)


@pytest.mark.parametrize(("kind", "own"), [("pros-n-kons", {"loss": "squared-hinge"}), ("fourier-aioli", {})])
def test_a_half_life_that_is_learned_is_judged_as_the_pool_that_plays(kind: str, own: dict[str, Any]) -> None:
    """In the warm-up too, where the pool cannot be made yet: by its loss, with its truths, of its size."""
    waiting, known = (
        Session(define({"kind": kind, "config": own | {"kernel": kernel, "half_life": "learned"}}, **WARMUP))
        for kernel in (SIGMA, GAUSSIAN)
    )
    assert waiting.task is not None
    assert known.task is not None
    assert waiting.task.waits
    assert not known.task.waits
    judge, other = waiting.task.judge, known.task.judge
    assert (judge.loss, judge.truths, judge.probability(0.3)) == (other.loss, other.truths, other.probability(0.3))
    assert waiting.initial_bytes(10) == known.initial_bytes(10)
    for row in range(30):
        waiting.learn(waiting.play(waiting.read_input(X[row].tolist()), *waiting.read_truth(float(Y[row]))))
    assert waiting.learner is not None
    assert waiting.learner.spec.kind == "pool"
    info = waiting.learner.update(np.zeros(10), 1.0)
    assert waiting.task.judge.loss.value(info.forecast.value, 1.0) == pytest.approx(info.loss, rel=1e-12)
