"""Write the golden files: `python -m tests.golden.make`.

A folder is one set of stored formats, and what is in it is never written again: this program only adds cases that are
not there. When a format gets a new version, raise `FOLDER`; the old files stay, as long as that version is readable.

    <case>.json      the definition as a client sent it, the state of things at the end, forecasts of probes at the end
    <case>.record    what the store keeps of the definition
    <case>.journal   all entries in order, each as u32 length (little-endian) and its bytes
    <case>.snapshot  the session after the first `entries_before_snapshot` entries
    <case>.waiting   the first probe as it waits for its truth at the end, under the id `ID`
    <case>.answer    what is remembered under `ID` of the last round
"""

from __future__ import annotations

import dataclasses
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.api.schemas import SessionCreate
from service.api.wire import definition_of
from service.demo_data import magic
from service.session.codec import WaitingEntry, encode_round, encode_waiting
from service.session.definition import Definition
from service.session.idempotency import remember
from service.session.record import encode_record
from service.session.requests import Updated
from service.session.scorecard import Issued
from service.session.session import Session
from service.session.snapshot import pack
from service.session.turn import Position
from service.store.base import Tip

HERE = Path(__file__).parent
FOLDER = HERE / "v1"
NAME, IDENTITY, ID = "golden", b"golden identity.", "visit-1"
FIRST = Tip(0, IDENTITY)
LENGTH = struct.Struct("<I")
LATE_VALUE = 0.25
"""What the client was told in every third round: another value than that of the forecast at play."""
LATE_CLASS = 1
LATE_BY = 2
"""Rounds learned between the forecast and the truth of those rounds; it is their lags that show."""
PROBES = range(1_000, 1_005)

X, Y = magic()
GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
MEDIAN = {"kind": "gaussian", "sigma": "median"}
SCHEMA = [
    {"name": "length"},
    {"name": "wide", "type": "boolean"},
    {"name": "angle", "type": "category", "categories": ["flat", "middle", "steep"]},
    {"name": "distance"},
]


@dataclass(frozen=True, slots=True)
class Case:
    """`inputs` says how a row of MAGIC is sent; `block` are the rounds [start, stop) that one request brings."""

    settings: dict[str, Any]
    rounds: int
    snapshot_after: int
    inputs: str = "list"
    block: range = range(0)


CASES = {
    "pomdr": Case(
        {"learner": {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 30, "pomd_budget": 10}}}, 200, 120
    ),
    "nystrom-ridge": Case(
        {
            "learner": {"kind": "nystrom-ridge", "config": {"kernel": GAUSSIAN, "clip": 1.0, "budget": 40}},
            "y_range": [-1.0, 1.0],
        },
        140,
        80,
    ),
    "nystrom-aar": Case(
        {
            "learner": {
                "kind": "nystrom-aar",
                "config": {"kernel": GAUSSIAN, "clip": 1.0, "half_life": 32, "dictionary": {"kind": "ald"}},
            },
            "y_range": [-1.0, 1.0],
        },
        140,
        80,
    ),
    "pool": Case(
        {
            "learner": {
                "kind": "pool",
                "config": {
                    "experts": [
                        {
                            "kind": "pros-n-kons",
                            "config": {"budget": 12, "loss": "squared-hinge"},
                            "sigmas": [0.5, 1.0],
                        },
                        {
                            "kind": "pros-n-kons",
                            "config": {"budget": 12, "loss": "logistic"},
                            "sigmas": [0.5],
                            "lags": 1,
                        },
                        {"kind": "ons", "config": {"loss": "squared-hinge"}},
                        {"kind": "bao2ks", "config": {"budget": 12}},
                    ]
                },
            }
        },
        90,
        60,
    ),
    "pros-n-kons": Case(
        {
            "learner": {
                "kind": "pros-n-kons",
                "config": {"kernel": GAUSSIAN, "loss": "logistic", "clip": 4.0, "half_life": 40, "budget": 50},
            }
        },
        150,
        90,
    ),
    "sketched-kons": Case(
        {
            "learner": {
                "kind": "sketched-kons",
                "config": {"kernel": GAUSSIAN, "loss": "logistic", "step": "adaptive", "window": 40},
            },
        },
        130,
        70,
        block=range(80, 110),
    ),
    "kernel-ridge": Case(
        {
            "learner": {"kind": "kernel-ridge", "config": {"kernel": GAUSSIAN, "regularization": 0.5, "clip": 1.0}},
            "labels": ["no", "yes"],
        },
        70,
        40,
    ),
    "kernel-aar": Case(
        {
            "learner": {"kind": "kernel-aar", "config": {"kernel": MEDIAN, "window": 32}},
            "y_range": [-2.0, 2.0],
            "scale": {"kind": "warmup"},
            "warmup_rounds": 30,
        },
        90,
        60,
    ),
    "kernel-aioli": Case(
        {"learner": {"kind": "kernel-aioli", "config": {"kernel": GAUSSIAN, "window": 40}}, "labels": ["no", "yes"]},
        110,
        60,
    ),
    "nystrom-aioli": Case(
        {
            "learner": {
                "kind": "nystrom-aioli",
                "config": {"kernel": MEDIAN, "input_norm": "warmup", "budget": 40, "half_life": 64},
            },
            "scale": {"kind": "warmup"},
            "warmup_rounds": 30,
        },
        140,
        80,
    ),
    "fourier-aioli": Case(
        {"learner": {"kind": "fourier-aioli", "seed": 3, "config": {"kernel": GAUSSIAN, "frequencies": 20}}},
        120,
        70,
    ),
    "kernel-ogd": Case(
        {
            "learner": {
                "kind": "kernel-ogd",
                "config": {
                    "kernel": GAUSSIAN,
                    "loss": "logistic",
                    "regularization": 0.01,
                    "norm_bound": 2.0,
                    "budget": 30,
                },
            }
        },
        150,
        90,
    ),
    "fogd": Case(
        {"learner": {"kind": "fogd", "seed": 3, "config": {"kernel": {"kind": "matern"}, "frequencies": 40}}},
        120,
        70,
        block=range(80, 110),
    ),
    "nogd": Case({"learner": {"kind": "nogd", "config": {"kernel": GAUSSIAN, "budget": 30}}}, 150, 90),
    "skegd": Case(
        {"learner": {"kind": "skegd", "seed": 5, "config": {"kernel": GAUSSIAN, "budget": 30, "cycle": 20}}},
        150,
        90,
        block=range(100, 130),
    ),
    "bao2ks": Case(
        {
            "learner": {
                "kind": "bao2ks",
                "seed": 4,
                "config": {"kernel": GAUSSIAN, "budget": 25, "reservoir": 6, "norm_bound": 8.0},
            }
        },
        150,
        90,
        block=range(100, 130),
    ),
    "packing": Case(
        {
            "learner": {"kind": "packing", "config": {"metric": [*[0.001] * 8, 1.0, 0.3]}},
            "y_range": [-1.0, 1.0],
            "scale": {"kind": "warmup"},
            "warmup_rounds": 20,
        },
        150,
        90,
        block=range(100, 130),
    ),
    "metric-packing": Case(
        {
            "learner": {"kind": "metric-packing", "config": {"evaluation_points": 20}},
            "y_range": [-1.0, 1.0],
        },
        150,
        68,
        block=range(110, 140),
    ),
    "bogd": Case(
        {
            "learner": {
                "kind": "bogd",
                "config": {"kernel": GAUSSIAN, "loss": "logistic", "budget": 20, "regularization": 0.01},
            }
        },
        120,
        60,
    ),
    "aioli": Case(
        {
            "learner": {"kind": "aioli", "config": {"input_norm": "warmup", "half_life": 32}},
            "labels": ["no", "yes"],
            "warmup_rounds": 20,
        },
        100,
        50,
    ),
    "ons": Case(
        {"learner": {"kind": "ons", "config": {"loss": "squared-hinge", "clip": 2.0, "step": "adaptive"}}}, 90, 40
    ),
    "ftrl-logistic": Case({"learner": {"kind": "ftrl-logistic", "config": {"regularization": 0.01}}}, 60, 30),
    "ogd-logistic": Case(
        {"learner": {"kind": "ogd-logistic", "config": {"comparator_norm": 3.0}}, "labels": ["no", "yes"]}, 90, 40
    ),
    "foster-1d": Case(
        {"learner": {"kind": "foster-1d", "config": {"comparator_norm": 20.0, "nodes": 201}}}, 90, 40, inputs="first"
    ),
    "kons": Case(
        {"learner": {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared-hinge", "step": "adaptive"}}},
        120,
        60,
        inputs="inferred names",
    ),
    "one-vs-rest": Case(
        {
            "learner": {
                "kind": "one-vs-rest",
                "config": {
                    "member": {"kind": "pros-n-kons", "config": {"kernel": GAUSSIAN, "loss": "logistic", "budget": 12}}
                },
            },
            "labels": ["hadron", "gamma", "gamma from aside"],
        },
        100,
        60,
        block=range(70, 90),
    ),
    "probabilities": Case(
        {"learner": {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "logistic", "clip": 2.0}}}, 60, 30
    ),
    "named": Case(
        {
            "learner": {"kind": "pomdr", "config": {"kernel": MEDIAN, "budget": 40}},
            "schema": SCHEMA,
            "labels": ["no", "yes"],
            "scale": {"kind": "warmup"},
            "warmup_rounds": 40,
        },
        150,
        75,
        inputs="schema",
    ),
    "warming-up": Case(
        {
            "learner": {"kind": "kons", "config": {"kernel": MEDIAN}},
            "y_range": [-2.0, 5.0],
            "scale": {"kind": "warmup"},
            "warmup_rounds": 40,
        },
        80,
        20,
    ),
    "block": Case(
        {"learner": {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 40, "pomd_budget": 15}}, "dim": 10},
        240,
        190,
        block=range(10, 170),
    ),
    "lags": Case(
        {
            "learner": {"kind": "pomdr", "lags": 3, "config": {"kernel": MEDIAN, "budget": 30, "pomd_budget": 10}},
            "labels": ["no", "yes"],
            "scale": {"kind": "warmup"},
            "warmup_rounds": 25,
        },
        130,
        50,
        block=range(60, 100),
    ),
    "reservoir": Case(
        {
            "learner": {
                "kind": "pomdr",
                "seed": 4,
                "config": {"kernel": GAUSSIAN, "budget": 20, "pomd_budget": 8},
            },
            "reservoir": True,
        },
        100,
        30,
        block=range(40, 90),
    ),
}


def define(settings: dict[str, Any]) -> Definition:
    return definition_of(SessionCreate.model_validate_json(json.dumps({"name": NAME} | settings)))


def position_at(tip: Tip) -> str:
    return str(Position(IDENTITY, tip))


def input_of(case: Case, row: int) -> Any:
    x = X[row].tolist()
    if case.inputs == "inferred names":
        return {f"input-{i}": value for i, value in enumerate(x)}
    if case.inputs == "first":
        return x[:1]
    if case.inputs == "schema":
        angle = ("flat", "middle", "steep")[min(2, int(3.0 * x[8]))]
        return {"length": x[0], "wide": x[1] > 0.06, "angle": angle, "distance": x[9]}
    return x


def truth_of(case: Case, row: int) -> Any:
    labels = case.settings.get("labels")
    if labels is None:
        return float(Y[row])
    return labels[int(Y[row] > 0.0) * (len(labels) - 1 if X[row, 8] > 0.3 else 1)]


@dataclass(frozen=True, slots=True)
class Life:
    """A session at its end, its journal, and the snapshot, with the number of entries before it and its tip."""

    session: Session
    journal: list[bytes]
    before: int
    snapshot_tip: Tip
    snapshot: bytes


def live(case: Case) -> Life:
    session, journal = Session(define(case.settings)), []
    tip, life = FIRST, None
    lags = []
    while session.t < case.rounds:
        row = session.t
        if row in case.block:
            rows = slice(case.block.start, case.block.stop)
            y = np.array([session.truths.to_learner(truth_of(case, i)) for i in case.block])
            entries = session.run(X[rows], y).entries
        else:
            vector, note = session.read_input(input_of(case, row))
            y = session.truths.to_learner(truth_of(case, row))
            lags.append(session.lags)
            late = Issued(LATE_VALUE, LATE_CLASS if session.truths.classes else None)
            issued, made_with = (None, None) if row % 3 else (late, lags[-1 - LATE_BY :][0])
            pending = session.play(vector, y, issued=issued, note=note, lags=made_with)
            entries = [(1, encode_round(pending.entry))]
            session.learn(pending)
        for count, blob in entries:
            tip = tip.then(count, f"u{len(journal)}", blob)
            journal.append(blob)
        if session.t == case.snapshot_after:
            life = Life(session, journal, len(journal), tip, pack(session, position_at(tip)))
    assert life is not None
    return life


def write(folder: Path, name: str, case: Case) -> None:
    life = live(case)
    session = life.session
    probes = []
    for row in PROBES:
        x = input_of(case, row)
        forecast = session.forecast(session.read_input(x)[0])
        probe = {"x": x, "value": forecast.value, "probability": forecast.probability}
        probes.append(probe if forecast.probabilities is None else probe | {"probabilities": forecast.probabilities})
    document = {
        "settings": {"name": NAME} | case.settings,
        "entries_before_snapshot": life.before,
        "position_of_snapshot": position_at(life.snapshot_tip),
        "t_of_snapshot": case.snapshot_after,
        "t": session.t,
        "metrics": dataclasses.asdict(session.card.tally()),
        "probes": probes,
    }
    vector, note = session.read_input(probes[0]["x"])
    waiting = WaitingEntry(session.t, session.forecast(vector), vector, note, session.lags)
    answer = remember(IDENTITY, ID, Updated(NAME, ID, session.t, 0.5), vector, 1.0)
    (folder / f"{name}.record").write_bytes(encode_record(session.definition, IDENTITY))
    (folder / f"{name}.journal").write_bytes(b"".join(LENGTH.pack(len(blob)) + blob for blob in life.journal))
    (folder / f"{name}.snapshot").write_bytes(life.snapshot)
    (folder / f"{name}.waiting").write_bytes(encode_waiting(IDENTITY, ID, waiting))
    (folder / f"{name}.answer").write_bytes(answer)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        if not (FOLDER / f"{name}.json").exists():
            write(FOLDER, name, case)
            print(f"wrote {FOLDER.name}/{name}")


if __name__ == "__main__":
    main()
