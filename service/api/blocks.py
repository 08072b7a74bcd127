"""Rounds as lines, one per line, played in blocks: each block is one commit, and its answer is one line.

The boundaries of the blocks depend on the lines alone. So a body that is sent again with the same idempotency key has the
same blocks with the same ids, and blocks that were applied before get their first answers again. If the body has grown, its
last block may be longer than before: the part that was applied is answered again, and the rest is the next block.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from okl.errors import PayloadTooLarge, ServiceError
from okl_core.contract.facade import LARGEST_WEIGHT, SMALLEST_WEIGHT
from okl_core.records.record import packed, to_list, weights_of
from okl_core.types import F64

from ..keys import caller
from ..rounds import Rounds
from ..session.precondition import IfTip
from ..session.requests import Batch, BodyBlock, RoundsPlayed
from .lines import as_array, lines_of
from .problems import cut, document_for, unexpected_document, validation_problem
from .round_schemas import Weight
from .slices import COUNTED_BYTES, BodyLimits
from .values import Input, Scalar, Wire

BLOCK_ROWS: Final = 1000
BLOCK_BYTES: Final = 1 << 20
"""A block ends when it has BLOCK_ROWS lines or BLOCK_BYTES bytes."""

READ_AT_ONCE: Final = 100
"""Messages that are parsed before others get their turn."""

READ_BYTES: Final = 32 << 10
"""Bytes of a block's lines that are parsed before others get their turn; a single line may be longer."""

T = TypeVar("T")

_POINTER: Final = re.compile(r"/([xy])/(\d+)(.*)", re.DOTALL)


class Row(Wire):
    """One round: its input, its truth and its weight."""

    x: Input
    y: Scalar
    weight: Weight = 1.0


class _Numbers(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A `Row` of numbers, the usual case: msgspec parses it four times as fast as pydantic, the fallback for other rows."""

    x: Annotated[list[float], msgspec.Meta(min_length=1)]
    y: float
    weight: Annotated[float, msgspec.Meta(ge=SMALLEST_WEIGHT, le=LARGEST_WEIGHT)] = 1.0


_NUMBERS: Final = msgspec.json.Decoder(_Numbers)
_ROWS: Final[TypeAdapter[list[Row]]] = TypeAdapter(list[Row])
_ROW: Final[TypeAdapter[Row]] = TypeAdapter(Row)


class Block(NamedTuple):
    """Consecutive rows; `before` counts the rows before them. If all rows have equally many numbers, and a number as truth,
    `x` is a matrix and `y` an array. `weight` is None if all weights are 1."""

    x: Sequence[Input] | F64
    y: list[Scalar] | F64
    before: int
    weight: F64 | None = None

    def after(self, rows: int) -> Block | None:
        """The rows after these first ones; None if there are none."""
        weight = None if self.weight is None else weights_of(self.weight[rows:])
        return Block(self.x[rows:], self.y[rows:], self.before + rows, weight) if rows < len(self.y) else None


async def blocks_of(receive: Receive, limits: BodyLimits, rows: int) -> AsyncGenerator[Block]:
    """Yield the body's rows. Raises InvalidInput, MalformedBody, PayloadTooLarge, after the blocks before were yielded."""
    taken: list[bytes] = []
    size = before = 0
    try:
        async with aclosing(lines_of(receive, limits)) as parts:
            async for lines in parts:
                start = 0
                while start < len(lines):
                    some = lines[start : start + rows - len(taken)]
                    sizes = list(accumulate(map(len, some), initial=size))
                    # The line that makes the block large enough is its last.
                    count = min(bisect_left(sizes, BLOCK_BYTES, lo=1), len(some))
                    taken += some[:count]
                    start, size = start + count, sizes[count]
                    if len(taken) == rows or size >= BLOCK_BYTES:
                        yield await _read(taken, before, limits)
                        before += len(taken)
                        taken, size = [], 0
    except PayloadTooLarge as error:
        raise error if "line" in error.extra else _in_line(error, before + len(taken)) from None
    if taken:
        yield await _read(taken, before, limits)


async def _read(lines: Sequence[bytes], before: int, limits: BodyLimits) -> Block:
    parts: list[_Part] = []
    longest = max(map(len, lines))
    if longest > COUNTED_BYTES:
        _check_values(lines, before, limits)
    at_once = max(1, READ_BYTES // longest)
    for start in range(0, len(lines), at_once):
        parts.append(_part(lines[start : start + at_once], before + start))
        await asyncio.sleep(0)
    weight = weights_of(np.concatenate([part.weight for part in parts]))
    matrices = [part.x for part in parts if isinstance(part.x, np.ndarray)]
    numbers = [part.y for part in parts if isinstance(part.y, np.ndarray)]
    if len(matrices) == len(numbers) == len(parts) and len({part.shape[1] for part in matrices}) == 1:
        return Block(np.concatenate(matrices), np.concatenate(numbers), before, weight)
    x = [row for part in parts for row in to_list(part.x)]
    return Block(x, [truth for part in parts for truth in to_list(part.y)], before, weight)


def _check_values(lines: Sequence[bytes], before: int, limits: BodyLimits) -> None:
    for i, line in enumerate(lines):
        try:
            limits.check_values(line)
        except PayloadTooLarge as error:
            raise _in_line(error, before + i) from None


class _Part(NamedTuple):
    """The inputs, truths and weights of some lines."""

    x: Sequence[Input] | F64
    y: Sequence[Scalar] | F64
    weight: F64


def _part(lines: Sequence[bytes], before: int) -> _Part:
    """Parse some lines. Raises the ServiceError of the first one that is wrong."""
    try:
        rows = [_NUMBERS.decode(line) for line in lines]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    else:
        x = [row.x for row in rows]
        matrix = packed(x)
        y, weight = np.array([row.y for row in rows]), np.array([row.weight for row in rows])
        return _Part(x if matrix is None else matrix, y, weight)
    found = _any_rows(lines, before)
    return _Part([row.x for row in found], [row.y for row in found], np.array([row.weight for row in found]))


def _any_rows(lines: Sequence[bytes], before: int) -> list[Row]:
    array = as_array(lines)
    try:
        found = [] if array is None else _ROWS.validate_json(array)
        if len(found) == len(lines):
            return found
    except ValidationError:
        pass
    # Parse the lines one by one to find the invalid one.
    found = []
    for i, line in enumerate(lines):
        try:
            found.append(_ROW.validate_json(line))
        except ValidationError as error:
            raise _in_line(validation_problem(error, Row), before + i) from None
    return found


async def answers_of(
    rounds: Rounds,
    session: str,
    blocks: AsyncGenerator[Block],
    key: str | None,
    if_tip: IfTip,
    encode: Callable[[RoundsPlayed], dict[str, Any]],
    scope: Scope,
) -> AsyncGenerator[bytes]:
    """Yield one line per block: the answer of `POST /sessions/{s}/rounds`, and `applied`, the rows learned so far.

    `encode` encodes the answer. Block i has the id `key`-i. Raises the ServiceError of the first block; the error of a later
    block is the last line. The next block is played while a line is encoded and sent.
    """
    applied = 0
    try:
        async with aclosing(one_ahead(_played(rounds, session, blocks, key, if_tip))) as found:
            async for played in found:
                applied += played.rounds
                yield to_json(encode(played) | {"applied": applied}, inf_nan_mode="null") + b"\n"
    except ServiceError as error:
        if not applied:
            raise
        yield to_json({"refused": document_for(error, scope), "applied": applied}) + b"\n"
    except ClientDisconnect:
        if not applied:
            raise
        # The client has disconnected: there is nobody to answer.
    except Exception as error:
        if not applied:
            raise
        yield to_json({"refused": unexpected_document(error, scope), "applied": applied}) + b"\n"


async def _played(
    rounds: Rounds, session: str, blocks: AsyncGenerator[Block], key: str | None, if_tip: IfTip
) -> AsyncGenerator[RoundsPlayed]:
    """Play the blocks one after the other, and yield their results. The next block is read while one is learned."""
    applied = count = 0
    rest: Block | None = None
    try:
        async with aclosing(one_ahead(blocks)) as found:
            async for block in found:
                rest = block
                while rest is not None:
                    # The body may be slow or endless: its key may have been revoked meanwhile, and each block counts as a
                    # request against the key's rate.
                    await caller.paced(asyncio.get_running_loop().time() + caller.PACED_S)
                    of_body = None if key is None else BodyBlock(key, count, rest.before)
                    id = None if of_body is None else of_body.block_id
                    batch = Batch(rest.x, rest.y, id, if_tip if count == 0 else None, of_body, rest.weight)
                    async with caller.spending(len(batch.y)) as bill:
                        played = await rounds.rounds(session, batch)
                        if played.is_duplicate:
                            bill.waive(len(batch.y))
                    rest = rest.after(played.rounds)
                    applied, count = applied + played.rounds, count + 1
                    yield played
    except ServiceError as error:
        raise _in_lines(error, applied, rest) from error


async def one_ahead(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield the items, of which the next is made while one is used. An error comes after the items before it."""
    upcoming = asyncio.ensure_future(anext(items, None))
    try:
        while (item := await upcoming) is not None:
            upcoming = asyncio.ensure_future(anext(items, None))
            yield item
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)
        await items.aclose()


def _in_line(error: ServiceError, index: int) -> ServiceError:
    """The error of a single line, with the line's number, counted from 1."""
    detail = cut(error.detail, 500)
    return type(error)(f"Line {index + 1}: {detail}", **error.extra | {"line": index + 1})


def _in_lines(error: ServiceError, before: int, block: Block | None) -> ServiceError:
    """The error of a block, with its pointer translated from the block to the line."""
    errors = list(error.extra.get("errors", ()))
    pointer: str = errors[0]["pointer"] if errors else ""
    found = _POINTER.fullmatch(pointer)
    if "line" in error.extra:
        return error
    if found is not None:
        part, index, rest = found.groups()
        pointer, row = f"/{part}{rest}", int(index)
    elif pointer == "/weight" and block is not None and block.weight is not None:
        # The learner takes no weights.
        row = int(np.argmax(block.weight != 1.0))
    else:
        return error
    first = {"pointer": pointer, "detail": errors[0]["detail"]}
    line = before + row + 1
    extra = error.extra | {"errors": [first], "line": line}
    return type(error)(f"Line {line}: {first['pointer']}: {first['detail']}", **extra)
