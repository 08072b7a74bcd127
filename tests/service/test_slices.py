"""A body read in slices is the body read at once; and no slice takes long."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from okl.errors import InvalidInput, MalformedBody, PayloadTooLarge, ServiceError
from service.api import messages
from service.api.round_schemas import RoundsBody
from service.api.slices import SLICE_BYTES, BodyLimits, SlicedReader, elements_of

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Value = Number | str | bool | list[Number] | dict[str, Number | str]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    in_slices: ClassVar[tuple[str, ...]] = ("x", "y", "w")
    x: list[Value] = Field(min_length=1, fail_fast=True)
    y: list[Value] = Field(max_length=10, fail_fast=True)
    w: list[Value] | None = Field(default=None, fail_fast=True)
    id: str | None = None
    note: dict[str, Any] | None = None

    @model_validator(mode="after")
    def check(self) -> Body:
        if len(self.x) < len(self.y):
            raise ValueError("`y` is longer")
        return self


LIMITS = BodyLimits()
TEXTS = st.text(st.sampled_from('ab[]{},:"\\\n\u2028é\U0001f600 '), max_size=12)
NUMBERS = st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = (
    NUMBERS
    | TEXTS
    | st.booleans()
    | st.lists(NUMBERS, max_size=5)
    | st.dictionaries(TEXTS, NUMBERS | TEXTS, max_size=3)
)
BODIES = st.fixed_dictionaries(
    {"x": st.lists(VALUES, max_size=12), "y": st.lists(VALUES, max_size=12)},
    optional={
        "w": st.none() | st.lists(VALUES, max_size=3),
        "id": TEXTS,
        "note": st.dictionaries(TEXTS, VALUES, max_size=3),
        "z": VALUES,
    },
)


@given(st.lists(VALUES, min_size=1, max_size=12), st.sampled_from(["", " ", "\n"]))
def test_an_array_is_cut_between_its_elements(values: list[Any], blank: str) -> None:
    texts = [json.dumps(value) for value in values]
    data = (blank + f"[{f'{blank},'.join(texts)}]" + blank).encode()
    assert [text.strip().decode() for text in elements_of(data, 12) or []] == texts
    whole = data.strip()
    broken = (whole[:-1], whole + b"]", b"{" + whole[1:], whole[:-1] + b"}", whole[:-1] + b'"]')
    assert [elements_of(one, 12) for one in broken] == [None] * 5


@pytest.mark.parametrize("blank", [b"", b" ", b" \n" * 50_000], ids=["none", "one", "many"])
def test_an_array_of_blanks_has_no_element(blank: bytes) -> None:
    assert elements_of(b"[" + blank + b"]", 1) == []


@pytest.mark.parametrize("most", [1, 2, 5, 40_000])
def test_no_more_elements_are_cut_than_show_that_there_are_too_many(most: int) -> None:
    assert elements_of(b"[" + b",".join([b"1"] * most) + b"]", most) == [b"1"] * most
    assert elements_of(b"[" + b",".join([b"1"] * (most + 1)) + b"]", most) == [b"1"] * (most + 1)
    endless = b"[" + b"1," * 100_000
    assert elements_of(endless, most) == [b"1"] * (most + 1)


@given(st.text('\\"[],a', max_size=30), st.integers(1, 9))
def test_only_escaped_quotes_are_none(text: str, before: int) -> None:
    """Also where an escape is on both sides of a cut between slices."""
    element = json.dumps(text).encode()
    padded = b"[" + b" " * (SLICE_BYTES - before) + element + b"," + element + b"]"
    assert [one.strip() for one in elements_of(padded, 2) or []] == [element] * 2


@pytest.mark.parametrize("wrong", [None, 0, 30], ids=["none", "first", "last"])
def test_a_large_frame_is_parsed_once(wrong: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def noting(text: bytes, limits: BodyLimits) -> messages.Read:
        parsed.append(text)
        return read_one(text, limits)

    asked = [{"q": 1} if i == wrong else {"x": [1] * 1000, "wait": False} for i in range(31)]
    read_one = messages.read_one
    monkeypatch.setattr(messages, "read_one", noting)
    monkeypatch.setattr(messages, "_MANY", None)
    found = messages.read_array(json.dumps(asked).encode(), 31, BodyLimits())
    assert [isinstance(one, ServiceError) for one in found] == [i == wrong for i in range(31)]
    assert [json.loads(text) for text in parsed] == asked
    with pytest.raises(PayloadTooLarge):
        messages.read_array(json.dumps(asked).encode(), 30, BodyLimits())
    assert messages.read_array(b"[" + b" " * 100_000 + b"]", 1, BodyLimits()) == []


def at_once(data: bytes) -> Body | None:
    try:
        return Body.model_validate_json(data)
    except ValidationError:
        return None


def in_slices(data: bytes, slice_bytes: int) -> Body | None:
    reader = SlicedReader(Body, Body.in_slices, slice_bytes=slice_bytes)
    try:
        return asyncio.run(reader.read(data, LIMITS))
    except (InvalidInput, MalformedBody):
        return None


@given(BODIES, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans(), st.randoms(use_true_random=False))
@example({"x": [1], "y": []}, 1, None, True, None)
@example({"x": [], "y": []}, 3, None, True, None)
@example({"x": [1] * 11, "y": [1] * 11}, 3, None, True, None)
@example({"x": [1], "y": [], "w": None}, 3, None, True, None)
@example({"x": ["\\", '"', "]"], "y": ["\\\\"]}, 2, None, True, None)
def test_slices_are_the_whole(body: dict[str, Any], size: int, indent: int | None, ascii: bool, random: Any) -> None:
    members = list(body.items())
    if random is not None:
        random.shuffle(members)
    data = json.dumps(dict(members), indent=indent, ensure_ascii=ascii).encode()
    assert in_slices(data, size) == at_once(data)


@given(BODIES, st.integers(1, 40), st.data())
def test_what_is_no_json_is_refused_both_ways(body: dict[str, Any], size: int, data: st.DataObject) -> None:
    """One character left out, put in or changed."""
    text = json.dumps(body)
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", *'[]{},:"\\1 x']))
    broken = (text[:at] + put + text[at + data.draw(st.integers(0, 1)) :]).encode()
    try:
        names = [name for name, _ in json.loads(broken, object_pairs_hook=lambda pairs: pairs)]
    except (ValueError, TypeError):
        names = []
    if len(set(names)) < len(names):
        return  # pydantic takes the last of two members of one name
    assert in_slices(broken, size) == at_once(broken)


@pytest.mark.parametrize("name", ['x"', "\\u0078", "i\\u0064", "z", "z" * 65, 'z\\"', "z\n", "\\q", "\\ud800", "é"])
def test_the_name_of_a_member_is_read_as_in_a_small_body(name: str) -> None:
    others = '"y": []' if name == "\\u0078" else '"x": [1], "y": []'
    value = "[1]" if name == "\\u0078" else '"a"'
    data = f'{{{others}, "{name}": {value}}}'.encode()
    try:
        expected: Any = Body.model_validate_json(data)
    except ValidationError as error:
        expected = MalformedBody if error.errors()[0]["type"] == "json_invalid" else InvalidInput
    try:
        found: Any = asyncio.run(SlicedReader(Body, Body.in_slices).read(data, LIMITS))
    except ServiceError as error:
        found = type(error)
    assert found == expected


def test_a_row_may_be_longer_than_a_slice_wherever_it_is() -> None:
    rows = [[1.0] * 100] * 60
    data = json.dumps({"x": rows, "y": []}).encode()
    limits = BodyLimits(row_bytes=len(data) // 4, row_values=150)
    body = asyncio.run(SlicedReader(Body, Body.in_slices, slice_bytes=100).read(data, limits))
    assert body.x == rows


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"x": [1], "x": [2], "y": []}', InvalidInput),
        (b'{"x": [' + b"1," * 200 + b'1], "y": []}', PayloadTooLarge),
        (b'{"x": [[' + b"1," * 60 + b'1]], "y": []}', InvalidInput),
        (b'{"x": [' + b" " * 5000 + b'1], "y": []}', InvalidInput),
        (b'{"x": [1], "y": [], "note": {"a": "' + b"b" * 5000 + b'"}}', PayloadTooLarge),
        (b"{" + b",".join(b'"k%d": 1' % i for i in range(150)) + b"}", InvalidInput),
        (b'{"x": [1}, "y": []}', MalformedBody),
        (b'{"y": [], "x": [[1]}}', MalformedBody),
    ],
)
def test_there_are_limits(data: bytes, error: type[ServiceError]) -> None:
    limits = BodyLimits(row_bytes=1000, row_values=50, values=300, batch=100)
    reader = SlicedReader(Body, Body.in_slices, slice_bytes=20)
    with pytest.raises(error):
        asyncio.run(reader.read(data, limits))


def test_the_loop_has_its_turn_in_between() -> None:
    """A million numbers: no turn of the loop is as long as a tenth of the whole."""
    data = json.dumps({"x": [[1] * 100] * 9_900, "y": [1.0] * 9_900}, separators=(",", ":")).encode()
    reader = SlicedReader(RoundsBody, ("x", "y"))
    turns: list[float] = []

    async def read() -> int:
        async def watch() -> None:
            while True:
                started = time.thread_time()
                await asyncio.sleep(0)
                turns.append(time.thread_time() - started)

        watching = asyncio.create_task(watch())
        body = await reader.read(data, LIMITS)
        watching.cancel()
        return len(body.x)

    started = time.thread_time()
    assert asyncio.run(read()) == 9_900
    whole_s = time.thread_time() - started
    assert len(turns) > 50
    assert sorted(turns)[int(0.98 * len(turns))] < whole_s / 10
