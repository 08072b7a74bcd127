"""What the store keeps of a session's definition: read by this build and its neighbours, and never another session's."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from okl.errors import StateCorrupt
from okl_core import learner_kinds
from okl_core.records.survey import Declared
from service.session.definition import Definition, Ranges
from service.session.record import decode_record, encode_record
from service.session.summary import decode_summary, encode_summary, first_summary
from tests.service.definitions import MEDIAN, ONE_VS_REST, POMDR, define

IDENTITY = bytes(range(16))
DEFINITIONS: dict[str, Definition] = {
    "the least": Definition("s"),
    "exact": define(),
    "labels": define(POMDR, labels=("no", "yes")),
    "labels of many types": define(ONE_VS_REST, labels=(1, True, 0, False, "1", 0.5, 1.0e300)),
    "a range": define(y_range=(-2.0, 5.0)),
    "named": define(
        schema=(
            ("é/~", Declared("number")),
            ("b", Declared("boolean")),
            ("c", Declared("category", ("x", "y"))),
            ("d.e", Declared("category")),
        )
    ),
    "hashed": Definition("s", hashed=64),
    "scaled": define(dim=2, scale=Ranges((0.0, -1.0), (1.0, 3.0))),
    "warmed up": define(MEDIAN | {"seed": 3, "lags": 2}, scale="learned", warmup_rounds=20),
    "kept": define(POMDR, snapshot_every=7, expires_s=60.0, reservoir=True),
}


def record_of(document: dict[str, Any]) -> bytes:
    """A record as another build might have written it."""
    body = json.dumps(document).encode()
    return body + zlib.crc32(body).to_bytes(4, "little")


def document_of(record: bytes) -> dict[str, Any]:
    return json.loads(record[:-4])


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_definition_comes_back(definition: Definition) -> None:
    found, identity = decode_record("s", encode_record(definition, IDENTITY))
    assert (found, identity) == (definition, IDENTITY)
    # 1, 1.0 and true are equal to Python.
    assert repr(found) == repr(definition)


def test_a_list_tells_the_kind() -> None:
    assert decode_summary(encode_summary(first_summary(define(POMDR)))).kind == "pomdr"
    assert decode_summary(encode_summary(first_summary(Definition("s")))).kind == "auto"
    # What another build wrote is no error.
    assert decode_summary(b"pomdr").kind == decode_summary(b"[1]").kind == "unknown"
    assert decode_summary(b'{"kind": "pool", "t": 7, "new": 1}').t == 7


@pytest.mark.parametrize("kind", learner_kinds())
def test_every_learner_has_a_record(kind: str) -> None:
    definition = define({"kind": kind})
    assert decode_record("s", encode_record(definition, IDENTITY)) == (definition, IDENTITY)


def test_what_is_not_said_is_not_written() -> None:
    """A default of this build, written down, would be one for ever; what was left out may be read by an older build."""
    least = {"version": 1, "identity": IDENTITY.hex(), "name": "s"}
    assert document_of(encode_record(Definition("s"), IDENTITY)) == least
    exact = {"learner": {"kind": "mean"}, "is_strict": True, "scale": "none"}
    assert document_of(encode_record(define(), IDENTITY)) == least | exact


def test_a_field_of_a_newer_build_is_left_alone() -> None:
    record = encode_record(DEFINITIONS["named"], IDENTITY)
    document = document_of(record) | {"colour": {"of": ["a", "newer"], "build": None}}
    document["fields"][0]["unit"] = "cm"
    assert decode_record("s", record_of(document)) == (DEFINITIONS["named"], IDENTITY)


def test_a_newer_version_is_told() -> None:
    document = document_of(encode_record(define(), IDENTITY)) | {"version": 2}
    with pytest.raises(StateCorrupt, match="newer version") as caught:
        decode_record("s", record_of(document))
    assert caught.value.extra["session"] == "s"


def test_a_newer_version_is_told_whatever_else_it_says() -> None:
    """An older build does not understand the rest, so it must not say that the record is damaged."""
    document = document_of(encode_record(define(), IDENTITY)) | {"version": 2, "scale": "quantiles"}
    with pytest.raises(StateCorrupt, match="newer version"):
        decode_record("s", record_of(document))


def test_every_damaged_bit_is_noticed() -> None:
    record = encode_record(DEFINITIONS["named"], IDENTITY)
    for place in range(len(record)):
        for bit in range(8):
            damaged = record[:place] + bytes([record[place] ^ (1 << bit)]) + record[place + 1 :]
            with pytest.raises(StateCorrupt):
                decode_record("s", damaged)
        with pytest.raises(StateCorrupt):
            decode_record("s", record[:place])


def test_the_record_of_another_session_is_refused() -> None:
    record = encode_record(define(name="other"), IDENTITY)
    with pytest.raises(StateCorrupt, match="'other'"):
        decode_record("s", record)


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"version": 1, "name": "s", "identity": "00", "learner": {}},
        {"version": 1, "name": "s", "learner": {"kind": "mean"}},
        {"version": 1, "name": "s", "identity": "no hexadecimal", "learner": {"kind": "mean"}},
        {"version": "one", "name": "s", "identity": "00", "learner": {"kind": "mean"}},
        {"version": 1, "name": "s", "identity": "00", "learner": {"kind": "mean"}, "scale": "quantiles"},
        {"version": 1, "name": "s", "identity": "00", "learner": {"kind": "mean"}, "labels": [[1], 2]},
        {"version": 1, "name": "s", "identity": "00", "fields": {"a": "number"}},
        {"version": 0, "name": "s", "identity": "00", "learner": {"kind": "mean"}},
        {"version": -1, "name": "s", "identity": "00", "learner": {"kind": "mean"}},
    ],
)
def test_a_record_that_says_nothing_sound_is_refused(document: Any) -> None:
    """Its checksum is right: whoever wrote it wrote something else."""
    with pytest.raises(StateCorrupt) as caught:
        decode_record("s", record_of(document))
    assert caught.value.extra["session"] == "s"
