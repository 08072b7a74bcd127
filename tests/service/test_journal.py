"""The bytes of journal entries: lossless, refused when damaged, and not many."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bench.journal import measure
from okl_core.types import F64, Forecast
from service.errors import StateCorrupt
from service.journal import (
    BlockEntry,
    RoundEntry,
    WaitingEntry,
    decode_entry,
    decode_waiting,
    encode_block,
    encode_round,
    encode_waiting,
)

number = st.floats(width=64)
data = st.binary(max_size=300)
vectors = hnp.arrays(np.float64, st.integers(0, 20), elements=number)


def same(one: object, other: object) -> bool:
    """Equal to the last bit, NaN and -0.0 included."""
    return repr(one) == repr(other)


rounds = st.builds(
    RoundEntry, at=number, x=vectors, y=number, issued=number, value=number, choices=data, note=data,
    label=st.none() | st.integers(0, 2**32 - 1),
)  # fmt: skip


@given(rounds)
def test_rounds_come_back(entry: RoundEntry) -> None:
    found = decode_entry(encode_round(entry))
    assert isinstance(found, RoundEntry)
    assert found.x.tobytes() == entry.x.tobytes()
    for name in ("at", "y", "issued", "value", "choices", "note", "label"):
        assert same(getattr(found, name), getattr(entry, name))


@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_lags_come_back(data: st.DataObject, d: int, k: int) -> None:
    x, lags = (data.draw(hnp.arrays(np.float64, n, elements=number)) for n in (d, k))
    entry = RoundEntry(0.0, x, 1.0, 0.5, 0.5, b"\x01", b"note", lags)
    waiting = WaitingEntry(3, Forecast(0.5), x, b"note", lags)
    for found in (decode_entry(encode_round(entry), k), decode_waiting(encode_waiting(waiting), k)):
        assert isinstance(found, RoundEntry | WaitingEntry)
        assert found.lags is not None
        assert (found.x.tobytes(), found.lags.tobytes()) == (x.tobytes(), lags.tobytes())
        assert found.note == b"note"
    for decode, blob in ((decode_entry, encode_round(entry)), (decode_waiting, encode_waiting(waiting))):
        with pytest.raises(StateCorrupt, match="lags"):
            decode(blob, d + k)


@st.composite
def blocks(draw: st.DrawFn) -> BlockEntry:
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    X, y, values = (draw(hnp.arrays(np.float64, shape, elements=number)) for shape in ((n, d), (n,), (n,)))
    return BlockEntry(draw(number), X, y, values, draw(data), draw(data))


@given(blocks())
def test_blocks_come_back(entry: BlockEntry) -> None:
    found = decode_entry(encode_block(entry))
    assert isinstance(found, BlockEntry)
    for name in ("X", "y", "values"):
        one, other = getattr(found, name), getattr(entry, name)
        assert (one.shape, one.tobytes()) == (other.shape, other.tobytes())
    for name in ("at", "choices", "note"):
        assert same(getattr(found, name), getattr(entry, name))


forecasts = st.builds(Forecast, number, st.none() | st.floats(0.0, 1.0), st.none())


@given(st.builds(WaitingEntry, t=st.integers(0, 2**63), forecast=forecasts, x=vectors, note=data))
def test_waiting_predictions_come_back(entry: WaitingEntry) -> None:
    found = decode_waiting(encode_waiting(entry))
    assert found.x.tobytes() == entry.x.tobytes()
    assert (found.t, found.note) == (entry.t, entry.note)
    assert same(found.forecast, entry.forecast)


@given(
    hnp.arrays(np.float64, st.integers(1, 5), elements=number), st.lists(st.floats(0.0, 1.0), min_size=2, max_size=9)
)
def test_probabilities_of_classes_come_back(x: F64, probabilities: list[float]) -> None:
    forecast = Forecast(max(probabilities), None, tuple(probabilities))
    blob = encode_waiting(WaitingEntry(3, forecast, x, b"note"))
    found = decode_waiting(blob, classes=len(probabilities))
    assert found.x.tobytes() == x.tobytes()
    assert same(found.forecast, forecast)
    with pytest.raises(StateCorrupt, match="probabilities"):
        decode_waiting(blob, classes=len(x) + len(probabilities))


ROUND = encode_round(RoundEntry(1.5, np.arange(3.0), 1.0, 0.25, 0.5, b"\x01", b'{"dim": 3}'))
BLOCK = encode_block(BlockEntry(1.5, np.ones((2, 3)), np.ones(2), np.zeros(2), b"\x01", b""))
WAITING = encode_waiting(WaitingEntry(7, Forecast(0.5, 0.6), np.arange(3.0), b"note"))
CLASS = encode_round(RoundEntry(1.5, np.arange(3.0), 2.0, 0.25, 0.5, b"\x01", b"", None, 1))
CLASSES = encode_waiting(WaitingEntry(7, Forecast(0.5, None, (0.2, 0.5, 0.3)), np.arange(3.0), b"note"))
FORMS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "round": (ROUND, decode_entry),
    "class": (CLASS, decode_entry),
    "waiting with classes": (CLASSES, partial(decode_waiting, classes=3)),
    "block": (BLOCK, decode_entry),
    "waiting": (WAITING, decode_waiting),
}


@pytest.mark.parametrize(("blob", "decode"), FORMS.values(), ids=FORMS)
def test_every_damaged_byte_is_noticed(blob: bytes, decode: Callable[[bytes], object]) -> None:
    for place in range(len(blob)):
        for changed in (
            blob[:place] + bytes([blob[place] ^ 0x40]) + blob[place + 1 :],
            blob[:place],
            blob[place + 1 :],
        ):
            with pytest.raises(StateCorrupt):
                decode(changed)
    with pytest.raises(StateCorrupt):
        decode(blob + b"\x00")


@pytest.mark.parametrize(("blob", "decode"), FORMS.values(), ids=FORMS)
@given(body=st.binary(max_size=80), kept=st.integers(0, 60))
def test_no_bytes_do_anything_else(blob: bytes, decode: Callable[[bytes], object], body: bytes, kept: int) -> None:
    """Whatever has a right checksum is an entry or refused; no other exception, no endless memory."""
    made = blob[:kept] + body
    try:
        decode(made + struct.pack("<I", zlib.crc32(made)))
    except StateCorrupt:
        return


def test_another_version_is_refused() -> None:
    for blob, decode in FORMS.values():
        body = b"\x02" + blob[1:-4]
        with pytest.raises(StateCorrupt, match="version"):
            decode(body + struct.pack("<I", zlib.crc32(body)))


@pytest.mark.anyio
async def test_bytes_a_round() -> None:
    """Journal and snapshots together, MAGIC through pomdr with default settings; `bench.journal` is the whole of it."""
    written = await measure("sqlite://", 3_000)
    assert written.rounds == 3_000
    assert written.snapshot_count > 3
    assert written.a_round <= 500.0
