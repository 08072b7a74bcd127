"""Rounds as Arrow: the same as JSON's, and nothing that a hostile stream could make large."""

from __future__ import annotations

import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute  # as the first body does
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl.client import Client
from okl.errors import InvalidInput, MalformedBody, PayloadTooLarge
from service.api import arrow
from service.api.slices import BodyLimits
from service.demo_data import magic
from tests.service.definitions import POMDR

X, Y = magic()
X, N = X[:300].round(4), 300
TRUTHS = ["yes" if y > 0 else "no" for y in Y[:N]]
HEADERS = {"Content-Type": arrow.ARROW}
LIMITS = BodyLimits()


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=100)
    return sink.getvalue().to_pybytes()


def of_rows(kind: Any = None, n: int = N) -> pa.Table:
    flat = pa.array(X[:n].ravel())
    rows = pa.FixedSizeListArray.from_arrays(flat, X.shape[1]) if kind is None else pa.array(X[:n].tolist(), kind)
    return pa.table({"x": rows, "y": TRUTHS[:n]})


@pytest.mark.parametrize(
    "kind", [None, pa.list_(pa.float64()), pa.large_list(pa.float64())], ids=["fixed", "list", "large"]
)
def test_rows_are_those_of_json(client: Client, url: str, kind: Any) -> None:
    for name in ("s", "twin"):
        client.create(name, POMDR, labels=["no", "yes"])
    answer = httpx.post(f"{url}/sessions/s/rounds", content=stream(of_rows(kind)), headers=HEADERS)
    assert answer.json() | {"session": ""} == client.rounds("twin", X.tolist(), TRUTHS) | {"session": ""}
    again = {"Accept": arrow.ARROW, "Idempotency-Key": "k"}
    told = [
        httpx.post(f"{url}/sessions/s/rounds", content=stream(of_rows(kind)), headers=HEADERS | again) for _ in "12"
    ]
    tables = [pa.ipc.open_stream(one.content).read_all() for one in told]
    assert tables[0].column_names == ["score", "label"]
    assert tables[0].num_rows == N
    assert [one.schema.metadata[b"duplicate"] for one in tables] == [b"False", b"True"]


@pytest.mark.parametrize(
    ("accepted", "is_arrow"),
    [
        (arrow.ARROW, True),
        (f"{arrow.ARROW}, application/json;q=0.5, */*;q=0.1", True),
        (f"{arrow.ARROW};q=0.2, application/json", False),
        (f"{arrow.ARROW};q=0", False),
        ("*/*", False),
    ],
)
def test_the_answer_is_what_the_client_prefers(client: Client, url: str, accepted: str, is_arrow: bool) -> None:
    client.create("s", POMDR, labels=["no", "yes"])
    headers = HEADERS | {"Accept": accepted}
    answer = httpx.post(f"{url}/sessions/s/rounds", content=stream(of_rows()), headers=headers)
    assert answer.headers["content-type"].startswith(arrow.ARROW if is_arrow else "application/json")
    assert (answer.content[:1] == b"{") != is_arrow


@pytest.mark.parametrize("labels", [["none", 1, 2], [True, "a", "b"]], ids=str)
def test_labels_of_several_types_are_text(client: Client, url: str, labels: list[Any]) -> None:
    for name in ("s", "twin"):
        client.create(name, labels=labels, interval=0.9)
    table = pa.table({"x": X[:60].tolist(), "y": labels[1:] * 30})
    answer = httpx.post(f"{url}/sessions/s/rounds", content=stream(table), headers=HEADERS | {"Accept": arrow.ARROW})
    found, twin = pa.ipc.open_stream(answer.content).read_all(), client.rounds("twin", X[:60].tolist(), labels[1:] * 30)
    assert labels[0] in twin["labels"]
    assert found["label"].to_pylist() == [str(label) for label in twin["labels"]]
    assert found["set"].to_pylist() == [[str(label) for label in one] for one in twin["sets"]]


def test_columns_are_fields(client: Client, url: str) -> None:
    columns = {
        "n": [1, 2, None],
        "f": [0.5, None, 1.5],
        "b": [True, False, None],
        "s": ["a", None, "b"],
        "y": [1.0, 2.0, 3.0],
    }
    table = pa.table(columns | {"d": pa.array(["u", "v", "u"]).dictionary_encode()})
    x, y, _ = arrow.read(stream(table), LIMITS)
    assert list(y) == [1.0, 2.0, 3.0]
    assert x[1] == {"n": 2, "f": None, "b": False, "s": None, "d": "v"}
    client.create("records")
    answer = httpx.post(f"{url}/sessions/records/rounds", content=stream(table), headers=HEADERS)
    assert answer.json()["t"] == 3


def test_a_column_of_weights_is_one_beside_rows_only() -> None:
    weights = {"y": [1.0, 2.0], "weight": [2, 1]}
    _, _, weight = arrow.read(stream(pa.table({"x": [[1.0], [2.0]]} | weights)), LIMITS)
    np.testing.assert_array_equal(weight, [2.0, 1.0])
    for ones in ([1, 1], [1.0, 1.0]):
        assert arrow.read(stream(pa.table({"x": [[1.0], [2.0]], "y": [1.0, 2.0], "weight": ones})), LIMITS)[2] is None
    x, _, weight = arrow.read(stream(pa.table({"x": [1.0, 2.0]} | weights)), LIMITS)
    assert (x, weight) == ([{"x": 1.0, "weight": 2.0}, {"x": 2.0, "weight": 1.0}], None)


def test_a_null_is_missing_and_a_nan_is_refused() -> None:
    rows = pa.array([[1.0, None], [2.0, 3.0]], pa.list_(pa.float64()))
    x, *_ = arrow.read(stream(pa.table({"x": rows, "y": [1.0, 2.0]})), LIMITS)
    np.testing.assert_array_equal(x, [[1.0, np.nan], [2.0, 3.0]])
    for wrong in (np.nan, np.inf):
        rows = pa.array([[1.0, wrong]], pa.list_(pa.float64(), 2))
        with pytest.raises(InvalidInput, match="/x: has a number that is not finite"):
            arrow.read(stream(pa.table({"x": rows, "y": [1.0]})), LIMITS)
        with pytest.raises(InvalidInput, match="/f: has a number that is not finite"):
            arrow.read(stream(pa.table({"f": [wrong], "y": [1.0]})), LIMITS)


def test_others_are_answered_while_columns_are_read(client: Client, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_reading, may_go_on, read = threading.Event(), threading.Event(), arrow.read

    def slow(*arguments: Any) -> Any:
        is_reading.set()
        assert may_go_on.wait(30.0)
        return read(*arguments)

    monkeypatch.setattr(arrow, "read", slow)
    client.create("s", POMDR, labels=["no", "yes"])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{url}/sessions/s/rounds", content=stream(of_rows()), headers=HEADERS)
        assert is_reading.wait(30.0)
        try:
            assert client.inspect("s")["t"] == 0
        finally:
            may_go_on.set()
        assert answer.result().json()["t"] == N


def numbers(n: int, **more: Any) -> pa.Table:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(X[:n].ravel()), X.shape[1])
    return pa.table({"x": rows, "y": Y[:n], **more})


@pytest.mark.parametrize(
    ("table", "is_quick"),
    [
        (numbers(100), True),
        (numbers(100, weight=[1] * 100), True),
        (numbers(101), False),  # in two batches
        (numbers(100, weight=["a"] * 100), False),
        (of_rows(n=100), False),  # texts for truths
        (pa.table({"x": [[1.0]], "y": [1.0]}), False),  # lists of any length
        (pa.table({"f": [1.0], "y": [1.0]}), False),
        (numbers(100).replace_schema_metadata({"a": "b" * 5000}), False),
        (numbers(100, weight=pa.array([1] * 100, pa.int32())), True),
        (numbers(100, weight=pa.array([1] * 100, pa.int16())), False),  # of which twice as many fit into the bytes
        (pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array([1] * 6, pa.int8()), 3), "y": [1.0, 2.0]}), False),
        (numbers(100, weight=[1] * 100, more=[1] * 100), False),
    ],
)
def test_few_numbers_are_read_without_a_thread(table: pa.Table, is_quick: bool) -> None:
    assert arrow.is_quick_to_read(stream(table)) is is_quick
    assert not arrow.is_quick_to_read(stream(table) + b"\x00" * arrow.QUICK_BYTES)


def of_batches(*notes: dict[str, str] | None) -> bytes:
    sink = pa.BufferOutputStream()
    [batch] = numbers(100).to_batches()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for note in notes:
            writer.write_batch(batch, custom_metadata=note)
    return sink.getvalue().to_pybytes()


def test_what_is_slow_is_not_read_without_a_thread() -> None:
    one, end = of_batches(None), 8
    assert arrow.is_quick_to_read(one)
    assert arrow.is_quick_to_read(one[:-end])
    assert arrow.is_quick_to_read(of_batches({"a": "b"}))
    slow = {
        "long metadata of the batch": of_batches({"a": "b" * arrow.QUICK_METADATA}),
        "another batch": of_batches(None, None),
        "no end after the batch": one + one[-end:],
        "less than the batch": one[: -end - 1],
        "no marker, so that other bytes are the length": stream(numbers(100), use_legacy_format=True),
    }
    assert [name for name, body in slow.items() if arrow.is_quick_to_read(body)] == []


def test_the_body_that_imports_the_library_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrow.is_quick_to_read(of_batches(None))
    with monkeypatch.context() as patch:
        patch.delattr(pa, "compute")
        assert not arrow.is_quick_to_read(of_batches(None))
        patch.delitem(sys.modules, "pyarrow")
        assert not arrow.is_quick_to_read(of_batches(None))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"x": [[1.0]]}, "/y: is missing"),
        ({"y": [1.0]}, "has no input"),
        ({"x": [[1.0]], "y": [None]}, "/y"),
        ({"x": pa.array([[1.0], None], pa.list_(pa.float64())), "y": [1.0, 2.0]}, "/x: has a row that is null"),
        ({"x": pa.array([[1.0], []], pa.list_(pa.float64())), "y": [1.0, 2.0]}, "/x: has a row without numbers"),
        ({"x": [[1.0]], "z": [1.0], "y": [1.0]}, "/x: is a column of list"),
        ({"x": [{"a": 1}], "y": [1.0]}, "/x: is a column of struct"),
        ({"x": pa.nulls(3), "y": [1.0, 2.0, 3.0]}, "/x: is a column of null"),
        ({"x": [[1.0]], "y": ["a" * 2000]}, "/y: has a string of more than 256"),
        ({"x": pa.array([], pa.list_(pa.float64())), "y": pa.array([], pa.float64())}, "must have one row per round"),
        ({"x": [[1.0]] * 2, "y": [1.0] * 2, "weight": [1.0, 0.0]}, "/weight/1: must be at least"),
        ({"x": [[1.0]] * 2, "y": [1.0] * 2, "weight": [1, -3]}, "/weight/1: must be at least"),
        ({"x": [[1.0]] * 2, "y": [1.0] * 2, "weight": [1.0, 1e7]}, "/weight/1: must be at most 1000000"),
        ({"x": [[1.0]] * 2, "y": [1.0] * 2, "weight": [1.0, np.nan]}, "/weight/1: must be a finite number"),
        ({"x": [[1.0]] * 2, "y": [1.0] * 2, "weight": [1.0, None]}, "/weight/1: must be a number"),
        ({"x": [[1.0]] * 2, "y": [1.0] * 2, "weight": ["a", "b"]}, "/weight/0: must be a number"),
        ({"x": [[1.0]], "y": [1.0], "weight": [True]}, "/weight/0: must be a number"),
        ({"x": [[1.0]], "y": [1.0], "weight": [[1.0]]}, "/weight: is a column of list"),
    ],
)
def test_what_is_wrong_is_told(table: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        arrow.read(stream(pa.table(table)), LIMITS)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_grows_when_it_is_read_is_refused(codec: str) -> None:
    with pytest.raises(InvalidInput, match="compressed"):
        arrow.read(stream(of_rows(), compression=codec), LIMITS)
    text = pa.array(["u" * 100, "v"]).dictionary_encode()
    with pytest.raises(InvalidInput, match="compressed"):
        arrow.read(stream(pa.table({"d": text, "y": [1.0, 2.0]}), compression=codec), LIMITS)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 9_000), pa.array(["u" * 1_000_000]))
    with pytest.raises(PayloadTooLarge, match="strings of dictionaries"):
        arrow.read(stream(pa.table({"d": repeated, "y": [1.0] * 9_000})), LIMITS)
    with pytest.raises(PayloadTooLarge):
        arrow.read(stream(pa.table({"n": list(range(20_000)), "y": [1.0] * 20_000})), LIMITS)


def test_what_rows_repeat_is_bounded_in_all_columns_together() -> None:
    """140 KB of dictionaries would be 800 MB, and the names in 270 KB of columns as much."""
    n = 9_000
    word = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array(["u" * 3_000]))
    arrow.read(stream(pa.table({"d": word, "y": [1.0] * n})), LIMITS)
    with pytest.raises(PayloadTooLarge, match="strings of dictionaries"):
        arrow.read(stream(pa.table({f"d{i}": word for i in range(9)} | {"y": [1.0] * n})), LIMITS)
    few = pa.array([0] * n, pa.int8())
    with pytest.raises(PayloadTooLarge, match="names of the fields"):
        arrow.read(stream(pa.table({f"{i}" + "n" * 1_000: few for i in range(9)} | {"y": [1.0] * n})), LIMITS)


def test_truths_are_those_of_json() -> None:
    """A label has 256 characters at most, and a number is one of double precision."""
    x = [[1.0], [2.0]]
    with pytest.raises(InvalidInput, match="/y: has a string of more than 256"):
        arrow.read(stream(pa.table({"x": x, "y": ["a", "b" * 257]})), LIMITS)
    _, y, _ = arrow.read(stream(pa.table({"x": x, "y": ["a", "é" * 256]})), LIMITS)
    assert y == ["a", "é" * 256]
    _, y, _ = arrow.read(stream(pa.table({"x": x, "y": pa.array([2**53 + 1, 2**64 - 1], pa.uint64())})), LIMITS)
    assert isinstance(y, np.ndarray)
    assert y.tolist() == [2.0**53, 2.0**64]


def said_where_early_versions_said_it(codec: str) -> bytes:
    """Compressed buffers whose batch does not say so: Arrow 0.17 wrote it into the metadata of the message."""
    table = pa.table({"a": pa.array([0] * 100_000, pa.int8()), "y": pa.array([0] * 100_000, pa.int8())})
    sink = pa.BufferOutputStream()
    early = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, compression=codec)
    with pa.ipc.new_stream(sink, table.schema, options=early) as writer:
        [batch] = table.to_batches()
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": codec})
    body = bytearray(sink.getvalue().to_pybytes())
    # The batch's field of compression is its fourth; the table of fields is the one with five numbers, of which that is set.
    _, message = pa.ipc.MessageReader.open_stream(bytes(body))
    start = bytes(body).index(message.metadata.to_pybytes())
    metadata = memoryview(body)[start : start + len(message.metadata)]
    (root,) = struct.unpack_from("<I", metadata)

    def place(table: int, number: int) -> int:
        return table - struct.unpack_from("<i", metadata, table)[0] + 4 + 2 * number

    header = root + struct.unpack_from("<H", metadata, place(root, 2))[0]
    batch_table = header + struct.unpack_from("<I", metadata, header)[0]
    struct.pack_into("<H", metadata, place(batch_table, 3), 0)
    return bytes(body)


@pytest.mark.parametrize(
    ("version", "note"), [(pa.ipc.MetadataVersion.V4, None), (pa.ipc.MetadataVersion.V5, {"writer": "a note"})]
)
def test_an_early_version_and_a_note_of_the_writer_are_no_compression(version: Any, note: Any) -> None:
    table, sink = of_rows(n=3), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(metadata_version=version)) as writer:
        writer.write_batch(table.to_batches()[0], custom_metadata=note)
    assert arrow.read(sink.getvalue().to_pybytes(), LIMITS)[1] == TRUTHS[:3]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_buffers_that_are_compressed_unseen_are_refused(codec: str) -> None:
    body = said_where_early_versions_said_it(codec)
    assert pa.ipc.open_stream(body).read_all().num_rows == 100_000
    with pytest.raises(InvalidInput, match="compressed"):
        arrow.read(body, BodyLimits(batch=1_000_000))


@pytest.mark.parametrize("body", [b"", b"ARROW1", b"\xff\xff\xff\xff\x10\x00\x00\x00", b'{"x": 1}'])
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        arrow.read(body, LIMITS)


@given(st.data())
def test_damaged_bytes_never_fail_otherwise(data: st.DataObject) -> None:
    body = bytearray(stream(of_rows(n=5)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    damaged = bytes(body[:cut] if cut % 2 else body)
    arrow.is_quick_to_read(damaged)
    with suppress(InvalidInput, MalformedBody, PayloadTooLarge):
        x, y, _ = arrow.read(damaged, LIMITS)
        assert len(x) == len(y)
