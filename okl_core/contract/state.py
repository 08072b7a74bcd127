"""Conversion of a learner's state to named arrays and back, and of named arrays to bytes that hold data, never code.

The bytes are an uncompressed `.npz` (readable by `numpy.load`, no pickle). Arrays of float64 are one member, `__numbers__`,
one after the other: a member takes 300 bytes of headers, and longer to write than most arrays. Other arrays are members of
their own. `__meta__` is a JSON document with the format's version, the names and shapes of the arrays in `__numbers__`, and
the caller's metadata. The archive's comment, which is its last bytes, is a digest of everything before it, so that damage
is detected before anything is parsed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence, Sized
from types import NoneType
from typing import IO, Any, Final, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.arguments import checked_dim
from okl_core.errors import StateFormatError
from okl_core.types import F64, LearnerState, StatePart, Stored

FORMAT_VERSION = 1
META, NUMBERS = "__meta__", "__numbers__"
DIGEST_BYTES = 16
MOST_ARRAYS = 1 << 16
"""A few bytes name an empty array, which takes a hundred in memory."""

MOST_COUNT = 2**53

LARGEST_DIM = 2**31 - 1
"""The most inputs that a state may have: BLAS counts them in 32 bits."""

DIM, LAGS = "dim", "lags"
"""Arrays that `OnlineLearner.state` adds to those of the learner: the number of inputs, and the lags if there are any."""

S = TypeVar("S", bound=StatePart)
A = TypeVar("A")


def pack(state: StatePart) -> dict[str, Stored]:
    """The state as {name: array}, where the fields of a part are named "part.field". Arrays are float64, or float32.

    Objects that are not a `StatePart` must have a `pack` method. A field that is None has no array. If the field may be
    None, any other value must pack to several arrays: the loss of a single one would look like None.
    """
    arrays: dict[str, Stored] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if value is None:
            continue
        packed = pack(value) if isinstance(value, StatePart) else value.pack() if hasattr(value, "pack") else value
        if isinstance(packed, dict):
            arrays |= prefixed(field.name, packed)
        else:
            is_single = isinstance(packed, np.ndarray) and packed.dtype == np.float32
            arrays[field.name] = np.array(packed, dtype=np.float32 if is_single else np.float64, order="C")
    return arrays


def count_in(stored: float) -> int:
    """A stored count, a whole number from 0 to 2^53. Raises StateFormatError for any other."""
    if not (0.0 <= stored <= MOST_COUNT and float(stored).is_integer()):
        raise StateFormatError(f"{stored} is no count")
    return int(stored)


def prefixed(name: str, arrays: Mapping[str, A]) -> dict[str, A]:
    """The arrays of a part as its owner names them, prefixed with the part's name."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def part_of(arrays: Mapping[str, A], name: str) -> dict[str, A]:
    """The arrays of the part with this name, without the prefix: the inverse of `prefixed`."""
    return {key[len(name) + 1 :]: array for key, array in arrays.items() if key.startswith(f"{name}.")}


def unpack(
    state_type: type[S],
    arrays: Mapping[str, Stored],
    parts: Mapping[str, type[StatePart]] | None = None,
    within: str = "",
) -> S:
    """The state from the arrays of `pack`. Raises StateFormatError for any other arrays.

    `parts` gives the types of fields whose annotation is a type variable; `within` is a prefix of names in messages.
    """
    values: dict[str, Any] = {}
    unknown = set(arrays)
    kinds: dict[str, Any] = _hints(state_type) | dict(parts or {})
    for name, kind in kinds.items():
        part = part_of(arrays, name)
        if NoneType in get_args(kind):
            [kind] = set(get_args(kind)) - {NoneType}
            if not part:
                values[name] = None
                continue
        if name not in arrays and not part:
            raise StateFormatError(f"the state has no array {within + name!r}; {state_type.__name__} needs it")
        unknown -= prefixed(name, part).keys() or {name}
        try:
            values[name] = _unpacked(kind, part or arrays[name], within + name)
        except (StateFormatError, MemoryError):
            raise
        # Arrays that another made reach the parts, which may raise anything.
        except Exception as error:
            raise StateFormatError(
                f"the array {within + name!r} is not what {state_type.__name__} needs: {error}"
            ) from error
    if unknown:
        raise StateFormatError(
            f"arrays that {state_type.__name__} does not know: {', '.join(within + name for name in sorted(unknown))}"
        )
    return state_type(**values)


def _unpacked(kind: Any, packed: Stored | dict[str, Stored], name: str) -> Any:
    """The value of a field of this type, which packed to one array, or to several by name."""
    if isinstance(packed, dict) and isinstance(kind, type) and issubclass(kind, StatePart):
        return unpack(kind, packed, within=f"{name}.")
    if hasattr(kind, "unpack"):
        return kind.unpack(packed)
    if kind in (int, float, bool):
        return kind(np.asarray(packed).item())
    return np.array(packed, dtype=np.float64, order="C")


def stored_dim(stored: Stored | None, expected: int | None) -> int:
    """The number of inputs that is stored. Raises StateFormatError for any other number, or another than expected."""
    size = stored.item() if stored is not None and stored.shape == () and stored.dtype == np.float64 else math.nan
    if not (1.0 <= size <= LARGEST_DIM and size.is_integer()):
        raise StateFormatError(f"the state needs its dimension, a whole number from 1 to {LARGEST_DIM}, in {DIM!r}")
    if expected is not None and checked_dim(expected) != size:
        raise StateFormatError(f"the state is of dimension {size:.0f}, not {expected}")
    return int(size)


def require_like(arrays: Mapping[str, Stored], new: LearnerState) -> None:
    """Raise StateFormatError for arrays that no state can have that was once the new one.

    They are real numbers, and finite where those of the new state are; they have its precision, and its sizes along every
    axis that may not grow.
    """
    first = pack(new)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise StateFormatError(f"the array {name!r} is of {array.dtype}, not of real numbers")
        own = first.get(name)
        if not np.isfinite(array).all() and (own is None or np.isfinite(own).all()):
            raise StateFormatError(f"the array {name!r} has numbers that are not finite")
        if own is not None and (array.dtype == np.float32) != (own.dtype == np.float32):
            precision = "single" if array.dtype == np.float32 else "double"
            raise StateFormatError(f"the array {name!r} is in {precision} precision, the spec asks for the other")
    _require_sizes(arrays, new)


def _require_sizes(arrays: Mapping[str, Stored], new: StatePart, within: str = "") -> None:
    for field in dataclasses.fields(new):
        name, first = within + field.name, getattr(new, field.name)
        if isinstance(first, StatePart):
            _require_sizes(arrays, first, f"{name}.")
        elif name in arrays and not isinstance(first, int | float):
            # A part that packs to one array has rows, which may be any number; so may what is empty at first.
            sizes = first.shape if isinstance(first, np.ndarray) else (0, *first.pack().shape[1:])
            shape = arrays[name].shape
            if len(shape) != len(sizes) or any(a not in (0, b) for a, b in zip(sizes, shape, strict=True)):
                raise StateFormatError(f"the array {name!r} has shape {shape}, a new one {sizes}")


def require_rounds(state: LearnerState, new: LearnerState) -> None:
    """Raise StateFormatError if the state's rounds are no count, or if it differs from a new one without a round."""
    if not 0 <= state.t <= MOST_COUNT:
        raise StateFormatError(f"the state has learned {state.t} rounds")
    if state.t == 0:
        arrays = pack(state)
        # A metric is factored anew, which rounds differently on other processors.
        for name, array in pack(new).items():
            if not (arrays[name].shape == array.shape and np.allclose(arrays[name], array, 1e-6, 1e-6, equal_nan=True)):
                raise StateFormatError(f"the array {name!r} has learned something, and the state no round")


def require_lengths(**parts: Sized) -> None:
    """Raise StateFormatError unless these parts of a state have the same length."""
    lengths = {name: len(part) for name, part in parts.items()}
    if len(set(lengths.values())) > 1:
        raise StateFormatError("lengths that differ: " + ", ".join(f"{n} of {name}" for name, n in lengths.items()))


def require_positive(**numbers: float) -> None:
    """Raise StateFormatError unless these numbers of a state are above 0."""
    for name, number in numbers.items():
        if not number > 0.0:
            raise StateFormatError(f"{name!r} is {number}; it must be above 0")


def require_indices(name: str, indices: F64, most: int, least: int = 0) -> None:
    """Raise StateFormatError unless these are whole numbers from `least` to `most`."""
    if not ((indices == np.floor(indices)) & (least <= indices) & (indices <= most)).all():
        raise StateFormatError(f"{name!r} has numbers other than those from {least} to {most}")


@functools.cache
def _hints(state_type: type[StatePart]) -> dict[str, Any]:
    """The types of its fields. Cached, since each annotation is a string that must be compiled."""
    hints = get_type_hints(state_type)
    return {field.name: hints[field.name] for field in dataclasses.fields(state_type)}


def to_bytes(arrays: Mapping[str, Stored], meta: Mapping[str, Any]) -> bytes:
    """Named arrays and JSON-able metadata as bytes. `meta` may not use the names "format" and "shapes"."""
    numbers = {name: array for name, array in arrays.items() if array.dtype == np.float64}
    shapes = {name: list(array.shape) for name, array in numbers.items()}
    document = json.dumps({**meta, "format": FORMAT_VERSION, "shapes": shapes}).encode()
    members: dict[str, NDArray[Any]] = {name: array for name, array in arrays.items() if name not in numbers}
    members[META] = np.frombuffer(document, dtype=np.uint8)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        with _member(archive, NUMBERS) as member:
            np.lib.format.write_array_header_1_0(member, _header(sum(array.size for array in numbers.values())))
            for array in numbers.values():
                member.write(np.ascontiguousarray(array).data)
        for name, array in members.items():
            with _member(archive, name) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
        archive.comment = bytes(DIGEST_BYTES)
    body = buffer.getvalue()[:-DIGEST_BYTES]
    return body + _digest(body)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)


def _header(size: int) -> dict[str, Any]:
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float64))
    return {"descr": descr, "fortran_order": False, "shape": (size,)}


def from_bytes(blob: bytes) -> tuple[dict[str, Stored], dict[str, Any]]:
    """Arrays and metadata. Raises StateFormatError if the bytes are damaged or in a format this version cannot read."""
    body, digest = blob[:-DIGEST_BYTES], blob[-DIGEST_BYTES:]
    if digest != _digest(body):
        raise StateFormatError("not a state, or the bytes were damaged: the digest does not match")
    try:
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            # Refuse archives that expand beyond their own size: they could exhaust memory.
            members = archive.infolist()
            if any(one.compress_type != zipfile.ZIP_STORED for one in members):
                raise StateFormatError("a part of it is compressed")
            if sum(one.file_size for one in members) > len(blob):
                raise StateFormatError("its parts are larger than the whole")
            arrays = {one.filename.removesuffix(".npy"): _array(archive.read(one)) for one in members}
        meta = json.loads(arrays.pop(META).tobytes())
        version = meta["format"]
        if version == FORMAT_VERSION:
            arrays |= _parted(arrays.pop(NUMBERS), meta.pop("shapes"))
    # A digest is not a signature: forged bytes reach the parsers, which may raise anything.
    except Exception as error:
        raise StateFormatError(f"not a state: {error}") from error
    if version != FORMAT_VERSION:
        raise StateFormatError(f"state format {version!r}; this version reads {FORMAT_VERSION}")
    return arrays, meta


def _parted(numbers: Stored, shapes: Mapping[str, Sequence[int]]) -> dict[str, Stored]:
    """The arrays of these shapes that lie one after the other. Raises ValueError, TypeError, AttributeError."""
    if len(shapes) > MOST_ARRAYS:
        raise ValueError(f"{len(shapes)} arrays; at most {MOST_ARRAYS} are read")
    arrays: dict[str, Stored] = {}
    start = 0
    for name, shape in shapes.items():
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"{shape} is no shape")
        end = start + math.prod(shape)
        # A copy, since an array that is kept would otherwise keep all of them.
        arrays[name] = numbers[start:end].reshape(shape).copy()
        start = end
    if numbers.ndim != 1 or start != len(numbers):
        raise ValueError(f"{numbers.shape} numbers for arrays of {start}")
    return arrays


_HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _array(member: bytes) -> NDArray[Any]:
    """Parse one member. `read_array` would allocate the size in the header before checking that the data is there."""
    file = io.BytesIO(member)
    shape, is_by_columns, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    numbers = np.frombuffer(member, dtype, offset=file.tell())
    return numbers.reshape(shape, order="F" if is_by_columns else "C").copy()


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
