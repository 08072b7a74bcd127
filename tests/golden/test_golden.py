"""What an earlier program stored is read by this one, and gives what that one gave."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from okl.errors import StateCorrupt
from okl_core.contract.state import from_bytes
from okl_core.records.record import to_bytes
from okl_core.types import Forecast
from service.session.codec import BlockEntry, RoundEntry, decode_entry, decode_waiting, encode_block, encode_round
from service.session.idempotency import repeated_result
from service.session.record import decode_record
from service.session.requests import Report, Updated
from service.session.session import Session
from service.session.snapshot import unpack
from service.store.base import Applied
from tests.golden.cases import CASES
from tests.golden.make import FOLDER, HERE, ID, IDENTITY, LENGTH, NAME, define, live, position_at, write

TOLERANCE = 1e-9
GOLDEN = sorted(HERE.glob("v*/*.json"))
MAX_BYTES = 60_000


def of(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: f"{path.parent.name}-{path.stem}")


every_format = of(GOLDEN)
newest_format = of([path for path in GOLDEN if path.parent == FOLDER])


def journal_of(path: Path) -> list[bytes]:
    data, entries = path.with_suffix(".journal").read_bytes(), []
    while data:
        (length,) = LENGTH.unpack_from(data)
        end = LENGTH.size + length
        entries.append(data[LENGTH.size : end])
        data = data[end:]
    return entries


def new_session(path: Path) -> Session:
    """The session as the store's record of it says."""
    definition, identity = decode_record(NAME, path.with_suffix(".record").read_bytes())
    assert identity == IDENTITY
    return Session(definition)


def restored(path: Path, document: dict[str, Any]) -> Session:
    definition, _ = decode_record(NAME, path.with_suffix(".record").read_bytes())
    return unpack(definition, path.with_suffix(".snapshot").read_bytes(), document["position_of_snapshot"])


def assert_is(forecast: Forecast, probe: dict[str, Any]) -> None:
    assert forecast.value == pytest.approx(probe["value"], rel=TOLERANCE, abs=TOLERANCE)
    assert (forecast.probability is None) == (probe["probability"] is None)
    if forecast.probability is not None:
        assert forecast.probability == pytest.approx(probe["probability"], rel=TOLERANCE, abs=TOLERANCE)
    many = probe.get("probabilities")
    assert (forecast.probabilities is None) == (many is None)
    if forecast.probabilities is not None:
        assert forecast.probabilities == pytest.approx(tuple(many), rel=TOLERANCE, abs=TOLERANCE)


def assert_is_the_recorded_one(session: Session, document: dict[str, Any]) -> None:
    assert session.t == document["t"]
    tally, metrics = dataclasses.asdict(session.card.tally()), document["metrics"]
    assert {name for name, value in tally.items() if value is None} == {
        n for n, value in metrics.items() if value is None
    }
    for name, value in metrics.items():
        assert value is None or tally[name] == pytest.approx(value, rel=TOLERANCE)
    for probe in document["probes"]:
        assert_is(session.forecast(session.read_input(probe["x"])), probe)


@every_format
def test_the_record_is_the_definition(path: Path) -> None:
    settings = json.loads(path.read_text())["settings"]
    assert new_session(path).definition == define(settings)


@every_format
def test_the_journal_replays(path: Path) -> None:
    document = json.loads(path.read_text())
    session = new_session(path)
    for blob in journal_of(path):
        session.replay(blob)
    assert_is_the_recorded_one(session, document)


@every_format
def test_the_snapshot_goes_on(path: Path) -> None:
    document = json.loads(path.read_text())
    session = restored(path, document)
    assert session.t == document["t_of_snapshot"]
    for blob in journal_of(path)[document["entries_before_snapshot"] :]:
        session.replay(blob)
    assert_is_the_recorded_one(session, document)


@every_format
def test_a_prediction_still_waits(path: Path) -> None:
    document = json.loads(path.read_text())
    session = restored(path, document)
    found = decode_waiting(IDENTITY, ID, path.with_suffix(".waiting").read_bytes())
    assert found.t == document["t"]
    assert to_bytes(found.x) == to_bytes(session.read_input(document["probes"][0]["x"]))
    assert (found.lags is None) == (session.lags is None)
    assert_is(found.forecast, document["probes"][0])


@every_format
def test_an_answer_is_still_remembered(path: Path) -> None:
    document = json.loads(path.read_text())
    x = restored(path, document).read_input(document["probes"][0]["x"])
    applied = Applied(ID, path.with_suffix(".answer").read_bytes())
    told = repeated_result(NAME, IDENTITY, applied, [x], Report(1.0, ID), {})
    assert told == Updated(NAME, ID, document["t"], 0.5, is_duplicate=True)
    with pytest.raises(StateCorrupt):
        repeated_result(NAME, b"another identity", applied, [x], Report(1.0, ID), {})


@newest_format
def test_an_entry_read_is_written_as_it_was(path: Path) -> None:
    for blob in journal_of(path):
        entry = decode_entry(blob)
        assert (encode_round(entry) if isinstance(entry, RoundEntry) else encode_block(entry)) == blob


@every_format
def test_the_files_are_small(path: Path) -> None:
    for kind in (".json", ".record", ".journal", ".snapshot", ".waiting", ".answer"):
        assert 0 < path.with_suffix(kind).stat().st_size < MAX_BYTES


@newest_format
def test_the_case_reaches_what_it_is_for(path: Path) -> None:
    life = live(CASES[path.stem])
    session = life.session
    is_warming_up = unpack(session.definition, life.snapshot, position_at(life.snapshot_tip)).is_warming_up
    entries = [decode_entry(blob) for blob in life.journal]
    told = session.describe()
    assert not session.is_warming_up
    assert is_warming_up == (path.stem in ("warming-up", "hashed"))
    assert any(isinstance(entry, BlockEntry) for entry in entries) == (len(CASES[path.stem].block) > 0)
    assert all(entry.choices for entry in entries if isinstance(entry, BlockEntry))
    if path.stem == "pomdr":
        assert told["phase"] == 2
        assert told["removals"] >= 1
    if path.stem == "sketched-kons":
        assert 0 < told["active"] < told["dictionary"] < told["t"]
        assert told["sampled"] > 0
    if path.stem == "nogd":
        assert told["phase"] == 2
    if path.stem == "ahpatron":
        assert told["halvings"] >= 1
    if path.stem == "aogd-ald":
        assert told["phase"] == 2
        assert told["dropped"] >= 1
    if path.stem == "bogd":
        assert told["removed"] >= 1
    if path.stem == "reservoir":
        assert told["kept_round"] in CASES[path.stem].block
    if path.stem == "records":
        assert session.preparation is not None
        assert session.preparation.extension.columns() == {("late", None): 0}
        assert {one.kind for one in session.preparation.fields.fields} == {"number", "boolean", "category", "time"}
    if path.stem == "lags":
        shown = [entry.lags for entry in entries if isinstance(entry, RoundEntry)]
        assert all(lags is not None and np.isin(lags, [-1.0, 0.0, 1.0]).all() for lags in shown)
        assert told["phase"] == 2


@newest_format
def test_this_program_writes_the_newest_format(path: Path, tmp_path: Path) -> None:
    """A format that changes needs a version, and a folder, of its own."""
    write(tmp_path, path.stem, CASES[path.stem])
    again = tmp_path / path.name
    assert json.loads(again.read_text())["settings"] == json.loads(path.read_text())["settings"]
    assert [form_of_entry(blob) for blob in journal_of(again)] == [form_of_entry(blob) for blob in journal_of(path)]
    assert form_of_snapshot(again) == form_of_snapshot(path)


def form_of_entry(blob: bytes) -> tuple[bytes, int]:
    """Version and kind, and the length."""
    return blob[:2], len(blob)


def form_of_snapshot(path: Path) -> tuple[dict[str, tuple[str, int]], set[str]]:
    arrays, meta = from_bytes(path.with_suffix(".snapshot").read_bytes())
    return {name: (array.dtype.str, array.ndim) for name, array in arrays.items()}, set(meta)
