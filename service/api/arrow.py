"""Rounds as an Arrow IPC stream: columns in, columns out. Needs pyarrow, which is an extra.

The bytes are untrusted, so anything that could expand a small body into a large one is refused first: compressed buffers,
columns of types that store no bytes, strings that a dictionary repeats.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from okl.errors import MalformedBody, PayloadTooLarge, UnsupportedMediaType
from okl.frames import of_one_type
from okl_core.records.record import to_list, weights_of
from okl_core.types import F64

from ..pointers import invalid
from ..session.definition import Input, Scalar
from ..session.requests import Columns, Labels, RoundsPlayed
from .problems import from_validation
from .round_schemas import Weight
from .slices import BodyLimits

if TYPE_CHECKING:
    import pyarrow as pa

ARROW: Final = "application/vnd.apache.arrow.stream"
TRUTHS, INPUTS, WEIGHTS = "y", "x", "weight"
TRUTH_LENGTH: Final = 256
REPEATED: Final = 4
"""Text that is repeated in the rows may have this many times the bytes of the largest body."""

QUICK_BYTES: Final = 1 << 20
QUICK_METADATA: Final = 4 << 10
"""A body of at most so many bytes, whose two messages have so many of metadata, is read on the event loop if
`is_quick_to_read`."""

QUICK_ROUNDS: Final = 1 << 14
"""The most rounds whose answer is written on the event loop; if their columns are plain, it takes two milliseconds."""

_WEIGHTS: Final[TypeAdapter[list[float]]] = TypeAdapter(Annotated[list[Weight], Field(fail_fast=True)])

_OF_A_ROUND: Final = {"probabilities": "probability"} | {
    name: name.removesuffix("s") for name in Columns._fields if name != "probabilities"
}
"""Names of the answer's columns."""

# Field numbers of the flatbuffers tables in the Arrow format's Message.fbs.
_VERSION, _HEADER_TYPE, _HEADER, _BODY_SIZE, _METADATA, _DICTIONARY_DATA, _COMPRESSION = 0, 1, 2, 3, 4, 1, 3
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_V5 = 4
_MARKER = 0xFFFFFFFF


def read(data: bytes, limits: BodyLimits) -> tuple[Sequence[Input] | F64, Sequence[Scalar] | F64, F64 | None]:
    """Inputs, truths and weights, None if all are 1. `y` is the column of truths; inputs are one column per field, or a
    column `x` of lists of numbers, beside which there may be a column `weight`.

    Raises UnsupportedMediaType, MalformedBody, InvalidInput, PayloadTooLarge.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise UnsupportedMediaType(
            'Arrow is an extra of the service: `pip install "okl[arrow]"` where it runs.'
        ) from None
    try:
        _check_uncompressed(pa, data)
        with pa.ipc.open_stream(data) as reader:
            _check_schema(pa, reader.schema)
            batches: list[Any] = []
            rows = 0
            for batch in reader:
                rows += batch.num_rows
                if rows > limits.batch or rows * batch.num_columns > limits.values:
                    raise PayloadTooLarge(f"There are more than {limits.batch} rounds.", limit=limits.batch)
                batch.validate(full=True)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema).combine_chunks()
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise MalformedBody(f"The body is not an Arrow stream: {str(error)[:200]}") from None
    if not table.num_rows:
        raise invalid("", "must have one row per round")
    columns: dict[str, Any] = {name: table.column(name).combine_chunks() for name in table.column_names}
    _check_repeated(pa, columns, REPEATED * limits.body_bytes)
    truths = _truths(pa, columns.pop(TRUTHS))
    if INPUTS in columns and _is_list(pa, columns[INPUTS].type):
        return _rows(pa, columns[INPUTS], limits), truths, _weights(columns.get(WEIGHTS))
    fields = {name: to_list(_values(pa, name, column)) for name, column in columns.items()}
    return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)], truths, None


def is_quick_to_read(data: bytes) -> bool:
    """Whether `read` takes less than the way to a thread and back: one short batch of numbers, all inputs of one length."""
    pa: Any = sys.modules.get("pyarrow")
    # The first import takes hundreds of milliseconds; `compute`, which `read` needs, is there once it is complete.
    if not hasattr(pa, "compute") or len(data) > QUICK_BYTES or not _is_schema_and_batch(data):
        return False
    try:
        with pa.ipc.open_stream(data) as reader:
            if len(reader.schema) > len((INPUTS, TRUTHS, WEIGHTS)):
                return False
            kinds = {field.name: field.type for field in reader.schema}
    except (pa.ArrowException, OSError, ValueError):
        return False
    inputs = kinds.pop(INPUTS, None)
    if inputs is None or not pa.types.is_fixed_size_list(inputs):
        return False
    # Of narrower values more fit into the bytes than are converted quickly.
    return all(_is_number(pa, kind) and kind.bit_width >= 32 for kind in (inputs.value_type, *kinds.values()))


def _is_schema_and_batch(data: bytes) -> bool:
    """Whether the lengths are those of a schema and a batch with little metadata, and of 8 bytes at most behind them."""
    at = 0
    try:
        for _ in range(2):
            marker, size = struct.unpack_from("<II", data, at)
            # Without the marker, which early versions of the format lack, the length is elsewhere.
            if marker != _MARKER or size > QUICK_METADATA:
                return False
            metadata = memoryview(data)[at + 8 : at + 8 + size]
            body = _field(metadata, struct.unpack_from("<I", metadata)[0], _BODY_SIZE)
            at += 8 + size + (0 if body is None else max(0, struct.unpack_from("<q", metadata, body)[0]))
    except (struct.error, OverflowError):
        return False
    return 0 <= len(data) - at <= 8


def write(result: RoundsPlayed) -> bytes:
    """The forecasts, one row per round; the totals are the schema's metadata."""
    import pyarrow as pa

    totals = {
        "session": result.session,
        "t": result.t,
        "rounds": result.rounds,
        "loss": result.loss,
        "mistakes": result.mistakes,
    }
    totals |= {"duplicate": result.is_duplicate}
    table = pa.table({_OF_A_ROUND[name]: _column(pa, values) for name, values in result.columns.by_name().items()})
    table = table.replace_schema_metadata({name: str(value) for name, value in totals.items() if value is not None})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def is_quick(result: RoundsPlayed) -> bool:
    """Whether `write` is quick: the rounds are few, and no column consists of Python objects."""
    columns = result.columns.by_name().values()
    is_plain = all(isinstance(one, Labels) or (isinstance(one, np.ndarray) and one.ndim == 1) for one in columns)
    return is_plain and result.rounds <= QUICK_ROUNDS


def _column(pa: Any, values: Sequence[Any] | F64 | Labels) -> pa.Array:
    if isinstance(values, Labels):
        return pa.array(of_one_type(values.names)).take(pa.array(values.indices))
    return pa.array(values if isinstance(values, np.ndarray) else of_one_type(values))


def _check_schema(pa: Any, schema: pa.Schema) -> None:
    if len(set(schema.names)) < len(schema.names):
        raise invalid("", "has two columns of the same name")
    if TRUTHS not in schema.names:
        raise invalid(f"/{TRUTHS}", "is missing: a column of truths")
    if len(schema.names) < 2:
        raise invalid("", f"has no input: a column `{INPUTS}` of lists of numbers, or a column for each field")
    for field in schema:
        kind = field.type
        is_rows = field.name == INPUTS and {*schema.names} <= {TRUTHS, INPUTS, WEIGHTS} and _is_list(pa, kind)
        if not (is_rows or _is_plain(pa, kind)):
            detail = f"is a column of {kind}; columns must be numbers, booleans or strings"
            raise invalid(
                f"/{field.name[:64]}",
                f"{detail}, or lists of numbers in `{INPUTS}` if no column is beside it but `{TRUTHS}` and `{WEIGHTS}`",
            )


def _is_list(pa: Any, kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size > 0 and _is_number(pa, kind.value_type)
    return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_number(pa, kind.value_type)


def _is_number(pa: Any, kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _is_text(pa: Any, kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_plain(pa: Any, kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(pa, kind.value_type)
    return _is_number(pa, kind) or pa.types.is_boolean(kind) or _is_text(pa, kind)


def _check_repeated(pa: Any, columns: Mapping[str, pa.Array], most: int) -> None:
    """Raises PayloadTooLarge for text that is stored once in the stream but takes more than `most` bytes in the rows: each
    row repeats the names of all fields, and dictionaries repeat their strings."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    size = 0
    for name, column in columns.items():
        size += len(name.encode()) * len(column)
        if pa.types.is_dictionary(column.type):
            size += compute.sum(compute.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    if size > most:
        detail = f"The names of the fields and the strings of dictionaries, repeated in the rows, exceed {most} bytes."
        raise PayloadTooLarge(detail, limit=most)


def _truths(pa: Any, column: pa.Array) -> Sequence[Scalar] | F64:
    import pyarrow.compute

    compute: Any = pyarrow.compute
    texts = column.dictionary if pa.types.is_dictionary(column.type) else column
    if _is_text(pa, texts.type) and (compute.max(compute.utf8_length(texts)).as_py() or 0) > TRUTH_LENGTH:
        raise invalid(f"/{TRUTHS}", f"has a string of more than {TRUTH_LENGTH} characters")
    truths = _values(pa, TRUTHS, column)
    if isinstance(truths, list) and None in truths:
        raise invalid(f"/{TRUTHS}/{truths.index(None)}", "is null")
    return truths


def _weights(column: pa.Array | None) -> F64 | None:
    try:
        return None if column is None else weights_of(_WEIGHTS.validate_python(column.to_pylist()))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        raise from_validation([one | {"loc": (WEIGHTS, *one["loc"])} for one in wrong]) from None


def _values(pa: Any, name: str, column: pa.Array) -> list[Any] | F64:
    """A column's values as in JSON: numbers are floats, an array if none is missing. Rows share the string objects of a
    dictionary."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    if pa.types.is_dictionary(column.type):
        words = column.dictionary.to_pylist()
        return [None if index is None else words[index] for index in column.indices.to_pylist()]
    if pa.types.is_floating(column.type) and not compute.all(compute.is_finite(column), min_count=0).as_py():
        raise invalid(f"/{name[:64]}", "has a number that is not finite; a missing value must be null")
    if _is_number(pa, column.type) and not column.null_count:
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    return column.to_pylist()


def _rows(pa: Any, column: pa.Array, limits: BodyLimits) -> Sequence[Input] | F64:
    if column.null_count:
        raise invalid(f"/{INPUTS}", "has a row that is null")
    values = column.flatten()
    if len(values) > limits.values:
        raise PayloadTooLarge(f"There are more than {limits.values} values.", limit=limits.values)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    is_finite = np.isfinite(numbers)
    if not is_finite.all() and not (is_finite | ~values.is_valid().to_numpy(zero_copy_only=False)).all():
        raise invalid(f"/{INPUTS}", "has a number that is not finite; a missing value must be null")
    if pa.types.is_fixed_size_list(column.type):
        return numbers.reshape(len(column), -1)
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False))
    if (np.diff(ends, prepend=0) == 0).any():
        raise invalid(f"/{INPUTS}", "has a row without numbers")
    return np.split(numbers, ends[:-1])


def _check_uncompressed(pa: Any, data: bytes) -> None:
    """Raises InvalidInput for compressed buffers, since a few bytes may expand to gigabytes."""
    for message in pa.ipc.MessageReader.open_stream(data):
        metadata = memoryview(message.metadata)
        root = struct.unpack_from("<I", metadata)[0]
        kind = _field(metadata, root, _HEADER_TYPE)
        header = _field(metadata, root, _HEADER)
        if kind is None or header is None or metadata[kind] not in (_DICTIONARY_BATCH, _RECORD_BATCH):
            continue
        version = _field(metadata, root, _VERSION)
        is_early = version is None or struct.unpack_from("<h", metadata, version)[0] != _V5
        if is_early and _field(metadata, root, _METADATA) is not None:
            # Arrow 0.17 stored the compression in this metadata, which pyarrow still honours.
            raise invalid("", "may have compressed buffers; send version 5 of the format without compression")
        table = _pointed_to(metadata, header)
        if metadata[kind] == _DICTIONARY_BATCH:
            inner = _field(metadata, table, _DICTIONARY_DATA)
            if inner is None:
                continue
            table = _pointed_to(metadata, inner)
        if _field(metadata, table, _COMPRESSION) is not None:
            raise invalid("", "has compressed buffers; send it without compression")


def _field(data: memoryview, table: int, number: int) -> int | None:
    """The position of a field in a flatbuffers table, None if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    offset = 4 + 2 * number
    found = struct.unpack_from("<H", data, vtable + offset)[0] if offset + 2 <= size else 0
    return table + found if found else None


def _pointed_to(data: memoryview, offset: int) -> int:
    return offset + struct.unpack_from("<I", data, offset)[0]
