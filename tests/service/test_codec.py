"""The bytes of journal entries, waiting predictions and remembered answers: lossless, and nobody else's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from okl.errors import StateCorrupt
from okl_core.monitoring.plain import PlainForecast
from okl_core.records.record import Raw, Record, Value
from okl_core.types import F64, Forecast
from service.session.codec import (
    BlockEntry,
    NamedClasses,
    RoundEntry,
    WaitingEntry,
    decode_answer,
    decode_entry,
    decode_waiting,
    encode_answer,
    encode_block,
    encode_round,
    encode_waiting,
    with_note,
)
from service.session.coverage import Promise
from service.session.moment import Moment
from service.session.pairing import Note
from service.session.scorecard import Issued
from service.session.session import Session
from service.store.base import Tip
from tests.service.definitions import define

number = st.floats(width=64)
finite = st.floats(allow_nan=False)
data = st.binary(max_size=300)
vectors = hnp.arrays(np.float64, st.integers(0, 20), elements=number)
words = st.integers(0, 2**32 - 1)

IDENTITY, OTHER = b"identity of this", b"identity of that"
ID = "visit-1"


def same(one: object, other: object) -> bool:
    """Equal to the last bit, NaN and -0.0 included."""
    return repr(one) == repr(other)


def records() -> st.SearchStrategy[Record]:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    return st.dictionaries(st.text(max_size=20), st.none() | st.booleans() | finite | st.text(max_size=20), max_size=6)


def same_input(one: Raw, other: Raw) -> bool:
    """Of one type in each place, and with the same bytes."""
    if isinstance(one, dict) or isinstance(other, dict):
        return isinstance(one, dict) and isinstance(other, dict) and same(in_order(one), in_order(other))
    return one.tobytes() == other.tobytes()


def in_order(record: Record) -> list[tuple[str, Value]]:
    return sorted(record.items())


inputs = vectors | records()

single = st.floats(width=32)
moments = st.builds(Moment, finite, single, single, single, words, words)
plain = st.builds(PlainForecast, finite, st.none() | finite)
trivial = st.none() | st.tuples(plain, plain)
rounds = st.builds(
    RoundEntry, x=inputs, y=number, issued=number.map(Issued) | st.builds(Issued, number, words, finite),
    value=number, choices=data, discovery=data, lags=st.none(), arithmetic=words, weight=number,
    promise=st.none() | st.builds(Promise, finite, finite, words), trivial=trivial, moment=moments,
)  # fmt: skip


@given(rounds)
def test_rounds_come_back(entry: RoundEntry) -> None:
    found = decode_entry(encode_round(entry))
    assert isinstance(found, RoundEntry)
    assert same_input(found.x, entry.x)
    told = (
        "y",
        "issued",
        "value",
        "choices",
        "discovery",
        "arithmetic",
        "lags",
        "weight",
        "promise",
        "trivial",
        "moment",
    )
    for name in told:
        assert same(getattr(found, name), getattr(entry, name))


@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_lags_come_back(data: st.DataObject, d: int, k: int) -> None:
    x, lags = (data.draw(hnp.arrays(np.float64, n, elements=number)) for n in (d, k))
    entry = RoundEntry(x, 1.0, Issued(0.5), 0.5, b"\x01", b"note", lags)
    waiting = WaitingEntry(3, Forecast(0.5), x, lags)
    blob = encode_waiting(IDENTITY, ID, waiting)
    for found in (decode_entry(encode_round(entry)), decode_waiting(IDENTITY, ID, blob)):
        assert isinstance(found, RoundEntry | WaitingEntry)
        assert found.lags is not None
        assert same_input(found.x, x)
        assert found.lags.tobytes() == lags.tobytes()


@st.composite
def blocks(draw: st.DrawFn) -> BlockEntry:
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    y, values = (draw(hnp.arrays(np.float64, n, elements=number)) for _ in range(2))
    weight = draw(st.none() | hnp.arrays(np.float64, n, elements=finite))
    classes = None
    if draw(st.booleans()):
        labels, given = draw(hnp.arrays(np.uint32, n)), draw(hnp.arrays(np.float64, n, elements=finite))
        classes = NamedClasses(labels, given)
    rows = st.lists(hnp.arrays(np.float64, d, elements=number), min_size=n, max_size=n)
    raws = draw(rows | st.lists(inputs, min_size=n, max_size=n))
    return BlockEntry(raws, y, values, draw(data), draw(words), None, draw(moments), classes, weight)


@given(blocks())
def test_blocks_come_back(entry: BlockEntry) -> None:
    found = decode_entry(encode_block(entry))
    assert isinstance(found, BlockEntry)
    assert all(same_input(one, other) for one, other in zip(found.raws, entry.raws, strict=True))
    assert (found.y.tobytes(), found.values.tobytes()) == (entry.y.tobytes(), entry.values.tobytes())
    for name in ("choices", "arithmetic", "moment", "classes", "weight"):
        assert same(getattr(found, name), getattr(entry, name))


forecasts = st.builds(Forecast, number, st.none() | st.floats(0.0, 1.0), st.none())


@given(
    st.builds(
        WaitingEntry, t=st.integers(0, 2**63), forecast=forecasts, x=inputs, lags=st.none(), at=finite, trivial=trivial
    )
)
def test_waiting_predictions_come_back(entry: WaitingEntry) -> None:
    found = decode_waiting(IDENTITY, ID, encode_waiting(IDENTITY, ID, entry))
    assert same_input(found.x, entry.x)
    assert (found.t, found.at) == (entry.t, entry.at)
    assert same((found.forecast, found.trivial), (entry.forecast, entry.trivial))


@given(hnp.arrays(np.float64, st.integers(1, 5), elements=number), st.lists(st.floats(0.0, 1.0), max_size=9))
def test_probabilities_of_classes_come_back(x: F64, probabilities: list[float]) -> None:
    forecast = Forecast(max(probabilities, default=0.0), None, tuple(probabilities))
    found = decode_waiting(IDENTITY, ID, encode_waiting(IDENTITY, ID, WaitingEntry(3, forecast, x)))
    assert same_input(found.x, x)
    assert same(found.forecast, forecast)


@given(data)
def test_answers_come_back(document: bytes) -> None:
    assert decode_answer(IDENTITY, ID, encode_answer(IDENTITY, ID, document)) == document


ENTRIES = {
    "round": encode_round(RoundEntry(np.arange(3.0), 1.0, Issued(0.25), 0.5, b"\x01", b'{"label": 3}', arithmetic=7)),
    "record": encode_round(RoundEntry({"a": 1.0, "b": "é"}, 1.0, Issued(0.25), 0.5, b"\x01", lags=np.ones(2))),
    "class": encode_round(RoundEntry(np.arange(3.0), 2.0, Issued(0.25, 1), 0.5, b"\x01")),
    "block": encode_block(BlockEntry(np.ones((2, 3)), np.ones(2), np.zeros(2), b"\x01")),
    "block of classes": encode_block(
        BlockEntry(
            np.ones((2, 3)), np.ones(2), np.zeros(2), classes=NamedClasses(np.arange(2, dtype=np.uint32), np.ones(2))
        )
    ),
    "weighted block": encode_block(BlockEntry(np.ones((2, 3)), np.ones(2), np.zeros(2), weight=np.array([2.0, 0.5]))),
    "block of records": encode_block(BlockEntry([{"a": 1.0}, np.ones(2)], np.ones(2), np.zeros(2), b"\x01")),
}
SEALED: dict[str, tuple[bytes, Callable[[bytes, str, bytes], object]]] = {
    "waiting": (
        encode_waiting(IDENTITY, ID, WaitingEntry(7, Forecast(0.5, 0.6), np.arange(3.0))),
        decode_waiting,
    ),
    "waiting with classes": (
        encode_waiting(
            IDENTITY, ID, WaitingEntry(7, Forecast(0.5, None, (0.2, 0.5, 0.3)), {"a": None, "b": "é"}, np.ones(1))
        ),
        decode_waiting,
    ),
    "answer": (encode_answer(IDENTITY, ID, b'{"t":3,"loss":0.5,"x":"ab","y":1.0}'), decode_answer),
}
sealed = pytest.mark.parametrize(("blob", "decode"), SEALED.values(), ids=SEALED)


def changes(blob: bytes) -> list[bytes]:
    """Every bit turned, every byte left out, every end cut off, and one byte more."""
    flipped = [
        blob[:place] + bytes([blob[place] ^ (1 << bit)]) + blob[place + 1 :]
        for place in range(len(blob))
        for bit in range(8)
    ]
    left_out = [blob[:place] + blob[place + 1 :] for place in range(len(blob))]
    return [*flipped, *left_out, *(blob[:place] for place in range(len(blob))), blob + b"\x00"]


@sealed
def test_every_damaged_bit_is_noticed(blob: bytes, decode: Callable[[bytes, str, bytes], object]) -> None:
    for changed in changes(blob):
        with pytest.raises(StateCorrupt):
            decode(IDENTITY, ID, changed)


@sealed
def test_bytes_of_another_session_or_id_are_refused(blob: bytes, decode: Callable[[bytes, str, bytes], object]) -> None:
    for identity, id in ((OTHER, ID), (IDENTITY, "visit-2"), (IDENTITY, ""), (OTHER, "visit-2")):
        with pytest.raises(StateCorrupt):
            decode(identity, id, blob)


@sealed
@given(body=st.binary(max_size=80), kept=st.integers(0, 60))
def test_no_sealed_bytes_do_anything_else(
    blob: bytes, decode: Callable[[bytes, str, bytes], object], body: bytes, kept: int
) -> None:
    """Whatever has a right seal is read or refused; no other exception, no endless memory."""
    made = blob[:kept] + body
    crc = zlib.crc32(made, zlib.crc32(ID.encode(), zlib.crc32(IDENTITY)))
    try:
        decode(IDENTITY, ID, made + struct.pack("<I", crc))
    except StateCorrupt:
        return


@pytest.mark.parametrize("blob", ENTRIES.values(), ids=ENTRIES)
@given(body=st.binary(max_size=80), kept=st.integers(0, 60))
def test_no_bytes_of_an_entry_do_anything_else(blob: bytes, body: bytes, kept: int) -> None:
    """Its digest says that it is what was written; what was written is read or refused."""
    try:
        decode_entry(blob[:kept] + body)
    except StateCorrupt:
        return


@pytest.mark.parametrize("blob", ENTRIES.values(), ids=ENTRIES)
def test_another_version_of_an_entry_is_refused(blob: bytes) -> None:
    with pytest.raises(StateCorrupt, match="version 2"):
        decode_entry(b"\x02" + blob[1:])
    with pytest.raises(StateCorrupt, match="kind 9"):
        decode_entry(blob[:1] + b"\x09" + blob[2:])


def test_another_version_of_a_waiting_prediction_is_refused() -> None:
    blob, _ = SEALED["waiting"]
    # Sealed as this program seals an answer, whose body it does not look into.
    with pytest.raises(StateCorrupt, match="version 2"):
        decode_waiting(IDENTITY, ID, encode_answer(IDENTITY, ID, b"\x02" + blob[1:-4]))


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_an_entry_of_a_challenger_whose_note_is_cut_does_not_replay(cut: int) -> None:
    note = Note(7, Tip(3, IDENTITY), 0, [0.5]).encode()
    challenger = Session(define(name="s~c"))
    with pytest.raises(StateCorrupt, match="the note of the champion cannot be read"):
        challenger.replay(with_note(note[:cut], ENTRIES["round"]))
    with pytest.raises(StateCorrupt, match="no note"):
        challenger.replay(ENTRIES["round"])
    assert challenger.t == 0
