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
from service.session.played import NOTHING_FIXED, Fixed
from service.session.record import encode_record
from service.session.requests import Report, Updated
from service.session.scorecard import Issued
from service.session.session import Session
from service.session.snapshot import pack
from service.session.turn import Position
from service.store.base import Tip
from tests.golden.cases import CASES, Case

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


def define(settings: dict[str, Any]) -> Definition:
    return definition_of(SessionCreate.model_validate_json(json.dumps(settings)))


def settings_of(case: Case) -> dict[str, Any]:
    """Those that a client sends."""
    return {"name": NAME, "strict": True, "scale": {"kind": "none"}} | case.settings


def position_at(tip: Tip) -> str:
    return str(Position(IDENTITY, tip))


def input_of(case: Case, row: int) -> Any:
    x = X[row].tolist()
    if case.inputs == "inferred names":
        return {f"input-{i}": value for i, value in enumerate(x)}
    if case.inputs == "first":
        return x[:1]
    if case.inputs == "records":
        record = {"size": {"length": x[0], "wide": x[1] > 0.06}, "at": f"2026-{1 + row % 12:02}-{1 + row % 28:02}"}
        record |= {"angle": ("flat", "middle", "steep", "rare")[min(3, int(3.5 * x[8]))], "distance": [x[9], None]}
        return record | ({} if row % 4 else {"size": None}) | ({"late": x[2]} if row > 50 else {})
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
    session, journal = Session(define(settings_of(case))), []
    tip, life = FIRST, None
    lags = []
    while session.t < case.rounds:
        row = session.t
        if row in case.block:
            raws = [session.read_input(input_of(case, i)) for i in case.block]
            y, task = zip(*(session.read_truth(truth_of(case, i)) for i in case.block), strict=True)
            entries = session.run(raws, np.array(y), task).entries
        else:
            raw = session.read_input(input_of(case, row))
            y, task = session.read_truth(truth_of(case, row))
            lags.append(session.lags)
            late = Issued(LATE_VALUE, LATE_CLASS if task.truths.has_classes else None)
            fixed = NOTHING_FIXED if row % 3 else Fixed(late, lags[-1 - LATE_BY :][0])
            pending = session.play(raw, y, task, fixed=fixed)
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
        forecast = session.forecast(session.read_input(x))
        probe = {"x": x, "value": forecast.value, "probability": forecast.probability}
        probes.append(probe if forecast.probabilities is None else probe | {"probabilities": forecast.probabilities})
    document = {
        "settings": settings_of(case),
        "entries_before_snapshot": life.before,
        "position_of_snapshot": position_at(life.snapshot_tip),
        "t_of_snapshot": case.snapshot_after,
        "t": session.t,
        "metrics": dataclasses.asdict(session.card.tally()),
        "probes": probes,
    }
    raw = session.read_input(probes[0]["x"])
    waiting = WaitingEntry(session.t, session.forecast(raw), raw, session.lags)
    answer = remember(IDENTITY, ID, Updated(NAME, ID, session.t, 0.5), [raw], Report(1.0, ID))
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
