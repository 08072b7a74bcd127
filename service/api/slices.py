"""Read a large JSON object in slices, so that no other request waits for more than a few milliseconds.

pydantic parses and validates a body in one go and holds the interpreter throughout: 0.2 s for 8 MiB of numbers, more than a
second for 8 MiB of empty lists. Here long arrays are cut between their elements, each slice is validated separately, and
the event loop gets its turn in between. The other members are validated together at the end.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Generic, Protocol, TypeVar, final, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from okl.errors import PayloadTooLarge, ServiceError
from okl_core.contract.wrong_fields import MISSING

from ..pointers import WrongMember, invalid
from .problems import MAX_COUNTED, from_validation, not_json, validation_problem

SLICE_BYTES: Final = 32 << 10
MAX_MEMBERS: Final = 100

_BLANK = re.compile(rb"[ \t\r\n]*")
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_NEXT = re.compile(rb"[ \t\r\n]*([,}])")
_SHORT = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\[{",}\] \t\r\n]++', re.DOTALL)
_QUOTE, _COMMA = 0x22, 0x2C
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[0x5B, 0x7B]] = 1  # [ {
_STEPS[[0x5D, 0x7D]] = -1  # ] }


COUNTED_BYTES: Final = 16 << 10
"""In a message that is larger than this, the values are counted before it is parsed."""

MAX_OPENED: Final = 20_000
"""The most arrays and objects in a message; an empty one costs as much as 20 numbers."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds on a body. A `row` is one input: the whole body for most routes, one element for a body that is sliced."""

    body_bytes: int = 8 << 20
    row_bytes: int = 1 << 20
    row_values: int = 50_000
    values: int = 1_000_000
    batch: int = 10_000

    def check_values(self, data: bytes) -> None:
        """Check the number of values in one message, which determines how long parsing takes. Raises PayloadTooLarge."""
        if len(data) > COUNTED_BYTES and (data.count(b",") > self.row_values or opened_in(data) > MAX_OPENED):
            raise PayloadTooLarge(f"There are more than {self.row_values} values.", limit=self.row_values)


def opened_in(data: bytes) -> int:
    """An upper bound on the number of arrays and objects."""
    return data.count(b"[") + data.count(b"{")


@runtime_checkable
class Sliced(Protocol):
    """A model whose long arrays are read in slices; they have no alias."""

    in_slices: ClassVar[tuple[str, ...]]

    def check(self) -> Any:
        """The model's `model_validator(mode="after")`, which checks its members together. Raises ValueError."""


M = TypeVar("M", bound=BaseModel)

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Each event loop reads one body in slices at a time: two would take turns, and hold the memory of both."""


@final
class SlicedReader(Generic[M]):
    """Reads the large bodies of one model."""

    def __init__(self, model: type[M], in_slices: tuple[str, ...], *, slice_bytes: int = SLICE_BYTES) -> None:
        self._model = model
        self._slice_bytes = slice_bytes
        fields = model.model_fields
        self._whole = {name: _adapter(fields[name].annotation, fields[name]) for name in in_slices}
        self._slices = {name: _adapter(fields[name].annotation, Field(fail_fast=True)) for name in in_slices}
        self._most = {name: _most_of(fields[name]) for name in in_slices}
        others: dict[str, Any] = {n: (f.annotation, f) for n, f in fields.items() if n not in in_slices}
        self._rest = create_model(f"{model.__name__}Rest", __config__=model.model_config, **others)

    async def read(self, data: bytes, limits: BodyLimits) -> M:
        """Raises ServiceError for a body that does not validate."""
        if data.count(b",") > limits.values:
            raise PayloadTooLarge(
                f"The body has more than {limits.values} values; send less at once.", limit=limits.values
            )
        turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with turn:
            arrays, rest = await self._members(data, limits)
        missing = [name for name in self._slices if name not in arrays and self._model.model_fields[name].is_required()]
        if missing:
            raise invalid(f"/{missing[0]}", MISSING)
        try:
            other = self._rest.model_validate_json(b"{" + b",".join(rest) + b"}")
        except ValidationError as error:
            raise validation_problem(error, self._model) from None
        given = {name: getattr(other, name) for name in other.model_fields_set} | arrays
        body = self._model.model_construct(set(given), **given)
        assert isinstance(body, Sliced)
        try:
            body.check()
        except ValueError as error:
            raise invalid(f"/{error.member}" if isinstance(error, WrongMember) else "", str(error)) from None
        return body

    async def _members(self, data: bytes, limits: BodyLimits) -> tuple[dict[str, list[Any] | None], list[bytes]]:
        """The validated arrays, and the text of the other members."""
        arrays: dict[str, list[Any] | None] = {}
        rest: list[bytes] = []
        start = _after_blank(data, 0)
        if data[start : start + 1] != b"{":
            raise _no_object(data[start : start + 1])
        at = start + 1
        following = _NEXT.match(data, at)
        if following is not None and following[1] == b"}":
            at = following.end()
        while following is None or following[1] == b",":
            if len(rest) > MAX_MEMBERS:
                raise invalid("", f"must have at most {MAX_MEMBERS} members")
            start = _after_blank(data, at)
            name, at = _name_at(data, start)
            if name in arrays:
                raise invalid(f"/{name}", "appears twice")
            if name in self._slices and data[at : at + 1] == b"[":
                arrays[name], at = await self._array(data, at, name, limits)
            else:
                value, at = at, await self._skip(data, at, limits)
                if name in self._slices:
                    self._check_whole(name, data[value:at])
                    arrays[name] = None  # the only valid value that is not an array
                else:
                    rest.append(data[start:at])
            following = _NEXT.match(data, at)
            if following is None:
                raise _malformed(at, "expected a comma or the end of the object")
            at = following.end()
            await asyncio.sleep(0)
        if _after_blank(data, at) < len(data):
            raise _malformed(at, "unexpected text after the object")
        return arrays, rest

    async def _array(self, data: bytes, at: int, name: str, limits: BodyLimits) -> tuple[list[Any], int]:
        """The validated elements of the array that begins at `at`, and where it ends."""
        scan = _Scan(data, at + 1, self._slice_bytes)
        found: list[Any] = []
        start = at + 1
        while True:
            cut = scan.next()
            if cut is None:
                if scan.at - start > limits.row_bytes:
                    raise _long_row(f"/{name}/{len(found)}", limits)
            else:
                piece = data[start:cut]
                start = cut + 1
                if _after_blank(piece, 0) < len(piece):
                    found += self._validated(piece, name, len(found), start, limits)
                elif found or not scan.is_over:
                    raise _malformed(cut, "expected a value")
                most = self._most[name]
                if most is not None and len(found) > most:
                    raise invalid(f"/{name}", f"must have at most {most} items")
                if len(found) > limits.batch:
                    raise PayloadTooLarge(f"There are more than {limits.batch} rounds.", limit=limits.batch)
                if scan.is_over:
                    if data[cut : cut + 1] != b"]":
                        raise _malformed(cut, "expected the end of an array")
                    break
            await asyncio.sleep(0)
        if not found:
            self._check_whole(name, b"[]")
        return found, start

    def _check_whole(self, name: str, value: bytes) -> None:
        """Raises ServiceError, with pydantic's message, if the value is not valid for the member."""
        try:
            self._whole[name].validate_json(value)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[:1]
            raise from_validation([one | {"loc": (name,)} for one in wrong]) from None

    def _validated(self, piece: bytes, name: str, before: int, at: int, limits: BodyLimits) -> list[Any]:
        if len(piece) > 2 * self._slice_bytes and piece.count(b",") > limits.row_values:
            raise _long_row(f"/{name}/{before}", limits)
        try:
            return self._slices[name].validate_json(b"[" + piece + b"]")
        except ValidationError as error:
            if error.error_count() > MAX_COUNTED:
                raise validation_problem(error, self._model) from None
            wrong = error.errors(include_url=False, include_input=False)
        if wrong[0]["type"] == "json_invalid":
            raise _malformed(at, str(wrong[0].get("ctx", {}).get("error", "")).partition(" at line")[0])
        raise from_validation([one | {"loc": (name, before + int(one["loc"][0]), *one["loc"][1:])} for one in wrong])

    async def _skip(self, data: bytes, at: int, limits: BodyLimits) -> int:
        """Where a value that is not read in slices ends."""
        short = _SHORT.match(data, at, at + SLICE_BYTES)
        if short is not None and short.end() < at + SLICE_BYTES:
            return short.end()
        if data[at : at + 1] not in (b"[", b"{"):
            raise _malformed(at, f"expected a value of at most {SLICE_BYTES} bytes")
        scan = _Scan(data, at + 1, self._slice_bytes)
        while not scan.is_over:
            if scan.at - at > limits.row_bytes:
                raise PayloadTooLarge(f"A member is larger than {limits.row_bytes} bytes.", limit=limits.row_bytes)
            scan.next()
            await asyncio.sleep(0)
        return scan.end + 1


def elements_of(data: bytes, most: int) -> list[bytes] | None:
    """The texts of an array's elements, which need not be JSON, but at most `most` + 1 of them; None if the brackets or
    quotes before do not match."""
    data = data.strip(b" \t\r\n")
    if not data.startswith(b"["):
        return None
    scan = _Scan(data, 1, SLICE_BYTES)
    cuts = [0]
    while not scan.is_over and len(cuts) < most + 2:
        if scan.at >= len(data):
            return None
        cuts += scan.commas()[: most + 1].tolist()
    if scan.is_over:
        if scan.end != len(data) - 1 or not data.endswith(b"]"):
            return None
        cuts.append(scan.end)
    found = [data[start + 1 : end] for start, end in pairwise(cuts[: most + 2])]
    return found if len(found) > 1 or found[0].strip(b" \t\r\n") else []


def _without_escapes(text: bytes) -> bytes:
    """The text with each escaped quote and backslash replaced, so that every quote left opens or closes a string."""
    # A regular expression takes ten times as long for nothing but escapes.
    return text.replace(rb"\\", b"__").replace(rb"\"", b"__")


def _nesting(codes: NDArray[np.uint8], *, is_inside: bool) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether each character of a text without escapes is inside a string, and how deep it is in arrays and objects."""
    inside = np.logical_xor.accumulate(codes == _QUOTE) ^ is_inside
    return inside, np.cumsum(np.where(inside, 0, _STEPS[codes]), dtype=np.int64)


@final
class _Scan:
    """Finds the places where an array can be cut, a slice at a time."""

    def __init__(self, data: bytes, at: int, size: int) -> None:
        self._data = data
        self._size = size
        self._depth = 0
        self._is_inside = False
        self.at = at
        self.end = -1

    @property
    def is_over(self) -> bool:
        return self.end >= 0

    def next(self) -> int | None:
        """The last comma between two elements in the next slice, or the bracket that ends the array. Raises MalformedBody."""
        commas = self.commas()
        if self.is_over:
            return self.end
        return int(commas[-1]) if len(commas) else None

    def commas(self) -> NDArray[np.int64]:
        """The commas between two elements in the next slice, up to the end of the array. Raises MalformedBody."""
        text = self._data[self.at : self.at + self._size]
        if not text:
            raise _malformed(self.at, "unexpected end of the body")
        if b"\\" in text:
            if (len(text) - len(text.rstrip(b"\\"))) % 2:
                text = self._data[self.at : self.at + len(text) + 1]
            text = _without_escapes(text)
        codes = np.frombuffer(text, dtype=np.uint8)
        is_inside, depths = _nesting(codes, is_inside=self._is_inside)
        depths += self._depth
        start, self.at = self.at, self.at + len(text)
        self._depth, self._is_inside = int(depths[-1]), bool(is_inside[-1])
        closed = np.flatnonzero(depths < 0)
        if len(closed):
            self.end = start + int(closed[0])
        commas = start + np.flatnonzero((codes == _COMMA) & (depths == 0) & ~is_inside)
        return commas[commas < self.end] if self.is_over else commas


def _adapter(annotation: Any, constraint: FieldInfo) -> TypeAdapter[list[Any]]:
    kind: Any = Annotated[annotation, constraint]
    return TypeAdapter(kind)


def _most_of(field: FieldInfo) -> int | None:
    """The greatest number of elements of an array, None if unbounded."""
    return next((one.max_length for one in field.metadata if hasattr(one, "max_length")), None)


def _after_blank(data: bytes, at: int) -> int:
    found = _BLANK.match(data, at)
    return at if found is None else found.end()


def _name_at(data: bytes, at: int) -> tuple[str, int]:
    """The name of the member that begins at `at`, and where its value begins. Raises MalformedBody."""
    text = _TEXT.match(data, at, at + SLICE_BYTES)
    colon = None if text is None else _COLON.match(data, text.end())
    if text is None or colon is None:
        raise _malformed(at, "expected the name of a member")
    try:
        return from_json(text[0]), colon.end()
    except ValueError:
        raise _malformed(at, "the name of a member is wrong") from None


def _long_row(pointer: str, limits: BodyLimits) -> ServiceError:
    return invalid(pointer, f"must have at most {limits.row_values} values and {limits.row_bytes} bytes")


def _no_object(first: bytes) -> ServiceError:
    if first and first in b'[{"-0123456789tfn':
        return invalid("", "must be an object")
    return _malformed(0, "expected a value")


def _malformed(at: int, what: str) -> ServiceError:
    return not_json(f"{what or 'a value is wrong'}, near byte {at}")
