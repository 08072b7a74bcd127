"""Rounds as lines of NDJSON over real sockets: a block of rounds each, whatever the pieces in which they come."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.types import Message

from okl.client import Client
from okl.errors import PayloadTooLarge, ServiceError
from service.api import blocks
from service.api.blocks import Block, Row, blocks_of
from service.api.lines import lines_of
from service.api.messages import read_lines
from service.api.slices import BodyLimits
from tests.service.api import NDJSON, lines, told
from tests.service.definitions import LABELS, POMDR, ROWS, TRUTHS


def rows(n: int) -> list[dict[str, Any]]:
    return [{"x": row, "y": y} for row, y in zip(ROWS[:n], TRUTHS[:n], strict=True)]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_rounds_as_lines_are_rounds(url: str, client: Client, session: str, block: int) -> None:
    client.create("twin", POMDR, labels=LABELS)
    answer = httpx.post(f"{url}/sessions/s/rounds?block={block}", content=lines(rows(90)), headers=NDJSON)
    found = told(answer)
    assert [one["applied"] for one in found] == [*range(block, 90, block), 90]
    scores = np.concatenate([one["scores"] for one in found])
    assert scores == pytest.approx(client.rounds("twin", ROWS[:90], TRUTHS[:90])["scores"], rel=1e-9)
    short = httpx.post(f"{url}/sessions/s/rounds?answers=totals", content=lines(rows(9)), headers=NDJSON)
    assert told(short)[0].keys() == {"session", "t", "rounds", "loss", "mistakes", "duplicate", "applied"}


def test_sent_again_under_its_key(url: str, client: Client, session: str) -> None:
    """The first half, as if the connection had broken there; then all."""
    headers = NDJSON | {"Idempotency-Key": "k"}
    body = lines(rows(100))
    half = body[: len(lines(rows(60)))]
    first = told(httpx.post(f"{url}/sessions/s/rounds?block=20", content=half, headers=headers))
    again = told(httpx.post(f"{url}/sessions/s/rounds?block=20", content=body, headers=headers))
    assert [one["duplicate"] for one in again] == [True] * 3 + [False] * 2
    assert [one["scores"] for one in again[:3]] == [one["scores"] for one in first]
    assert client.inspect("s")["t"] == 100


def test_a_key_of_lines_is_no_key_of_another_body(url: str, client: Client, session: str) -> None:
    body = {"x": ROWS[:5], "y": TRUTHS[:5]}
    ways = [{"content": lines(rows(5)), "headers": NDJSON}, {"json": body, "headers": {}}]
    for first, second in (ways, ways[::-1]):
        t = client.inspect("s")["t"]
        key = {"Idempotency-Key": f"k{t}"}
        answers = [
            httpx.post(f"{url}/sessions/s/rounds", **one | {"headers": one["headers"] | key})
            for one in (first, second, first)
        ]
        assert [answer.status_code for answer in answers] == [200, 409, 200]
        assert answers[1].json()["id"] == key["Idempotency-Key"]
        assert client.inspect("s")["t"] == t + 5


@pytest.mark.parametrize("block", [2, 7])
def test_sent_again_in_other_blocks(url: str, client: Client, session: str, block: int) -> None:
    """Whether a block was sent before is known of the whole block only."""
    headers = NDJSON | {"Idempotency-Key": "k"}
    httpx.post(f"{url}/sessions/s/rounds?block=3", content=lines(rows(10)), headers=headers)
    again = told(httpx.post(f"{url}/sessions/s/rounds?block={block}", content=lines(rows(10)), headers=headers))
    problem = again[-1].get("refused", again[-1])
    assert problem["type"] == "/problems/id-conflict"
    assert (problem["id"], problem["applied"]) == ("k", 10)
    assert "with the same `block`" in problem["detail"]
    assert client.inspect("s")["t"] == 10


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"x": ROWS[0]}, "/y"),
        ({"x": [1e999], "y": "yes"}, "/x/0"),
        ({"x": ROWS[0], "y": 3}, "/y"),
        # It takes none.
        *(({"x": ROWS[0], "y": "yes", "weight": weight}, "/weight") for weight in (2, 0, -1, 2e6, "2", None, True)),
    ],
)
def test_a_wrong_line_is_named(url: str, client: Client, session: str, wrong: dict[str, Any], pointer: str) -> None:
    good = rows(60)
    body = lines([*good[:50], wrong, *good[50:]])
    *played, last = told(httpx.post(f"{url}/sessions/s/rounds?block=20", content=body, headers=NDJSON))
    assert [one["applied"] for one in played] == [20, 40]
    assert last["applied"] == 40
    assert last["refused"]["line"] == 51
    assert last["refused"]["errors"][0]["pointer"] == pointer
    assert "Line 51" in last["refused"]["detail"]
    assert client.inspect("s")["t"] == 40
    answer = httpx.post(f"{url}/sessions/s/rounds", content=lines([wrong]), headers=NDJSON)
    assert answer.status_code == 422
    assert answer.json()["line"] == 1


@pytest.mark.parametrize("row", [0, 1, 20])
def test_a_row_that_the_learner_refuses_is_named(url: str, client: Client, row: int) -> None:
    """The first row of a new session is a round by itself, and those after it are a block."""
    client.create("s", {"kind": "aioli"}, labels=LABELS, strict=True, scale={"kind": "none"})
    found = [{"x": [1.0, float(i)], "y": LABELS[i % 2]} for i in range(30)]
    found[row]["x"] = [1.0, 1e200]
    answer = httpx.post(f"{url}/sessions/s/rounds", content=lines(found), headers=NDJSON).json()
    assert answer["line"] == row + 1
    assert answer["detail"].startswith(f"Line {row + 1}: /x: x[1] is 1e+200; ")
    body = {"x": [one["x"] for one in found], "y": [one["y"] for one in found]}
    answer = httpx.post(f"{url}/sessions/s/rounds", json=body).json()
    assert answer["errors"][0]["pointer"] == f"/x/{row}"


@pytest.mark.each
@pytest.mark.parametrize("row", [0, 1, 20])
@pytest.mark.parametrize("kind", ["aioli", "ftrl-logistic", "one-vs-rest", "pool", "mean"])
def test_a_row_whose_arithmetic_fails_is_named(url: str, client: Client, kind: str, row: int) -> None:
    """Beside the round of the session, which has learned some before."""
    labels = None if kind == "mean" else LABELS
    client.create("s", {"kind": kind}, labels=labels, strict=True, scale={"kind": "none"})
    names = LABELS if labels else (0.0, 1.0)
    found: list[dict[str, Any]] = [{"x": [1.0, float(i)], "y": names[i % 2]} for i in range(30)]
    client.rounds("s", [one["x"] for one in found[:5]], [one["y"] for one in found[:5]])
    found[row] = {"x": [1.0, 1e60], "y": names[0]} if labels else {"x": [1.0, 2.0], "y": 1e200}
    body = {"x": [one["x"] for one in found], "y": [one["y"] for one in found]}
    answer = httpx.post(f"{url}/sessions/s/rounds", json=body).json()
    assert answer["type"] == "/problems/numerical-failure"
    assert answer["errors"][0]["pointer"] == f"/x/{row}"
    assert answer["detail"].startswith(f"/x/{row}: the rounds were refused, nothing changed: ")
    assert kind == "mean" or f"round {6 + row}" in answer["detail"]
    answer = httpx.post(f"{url}/sessions/s/rounds", content=lines(found), headers=NDJSON).json()
    assert (answer["line"], answer["session"], answer["errors"][0]["pointer"]) == (row + 1, "s", "/x")
    assert answer["detail"].startswith(f"Line {row + 1}: /x: ")
    assert client.inspect("s")["t"] == 5


HALVES = b'{"x":[0\n1],"y":"no"}\n'
"""Two lines that are no JSON, and with a comma between them a round."""


@pytest.mark.parametrize("body", [b"", b"\n\n", b"{}{}\n", b'{"x":[1],\n"y":1}\n', b"[1]\n", b"\xff\n", HALVES])
def test_bodies_that_are_no_lines(url: str, session: str, body: bytes) -> None:
    answer = httpx.post(f"{url}/sessions/s/rounds", content=body, headers=NDJSON)
    assert answer.status_code in (400, 422)


JOINED = (b'{"x":[1,2],"y":"yes"},{"x":[2', b'3],"y":"no"}')
"""Two lines that are no JSON objects, and with a comma between them two objects."""


@pytest.mark.parametrize("space", [b"", b" \t\r"])
def test_lines_that_are_objects_only_when_joined(url: str, client: Client, space: bytes) -> None:
    client.create("s")
    good = b'{"x":[0,1],"y":"no"}'
    found = [line.replace(b"},{", b"}" + space + b"," + space + b"{") for line in JOINED]
    body = b"\n".join([good, *found, good])
    answer = httpx.post(f"{url}/sessions/s/rounds", content=body, headers=NDJSON)
    assert answer.status_code == 400
    assert answer.json()["line"] == 2
    by_line = told(httpx.post(f"{url}/sessions/s/stream", content=body, headers=NDJSON))
    assert ["refused" in one for one in by_line] == [False, True, True, False]
    assert client.inspect("s")["t"] == 2


@pytest.mark.parametrize("x", [{"a": [{"b": 1}, {"b": 2}]}, {"a": "},{"}, {"a": {"b": {"c": 1}}, "d": 2}])
def test_what_may_look_like_two_objects_in_a_line_is_one(url: str, client: Client, x: Any) -> None:
    client.create("s")
    body = lines([{"x": x, "y": i % 2} for i in range(3)])
    answer = httpx.post(f"{url}/sessions/s/rounds", content=body.replace(b" ", b""), headers=NDJSON)
    wrong = httpx.post(f"{url}/sessions/s/rounds", json={"x": [x] * 3, "y": [0, 1, 0]})
    assert answer.status_code == wrong.status_code


@given(
    st.lists(
        st.fixed_dictionaries(
            {"x": st.lists(st.integers(0, 9), min_size=1, max_size=3) | st.just({"a": "},{", "b": 1}), "y": st.just(1)}
        ),
        min_size=2,
        max_size=5,
    ),
    st.data(),
)
def test_lines_are_right_if_each_is(objects: list[Any], data: st.DataObject) -> None:
    """Right objects, broken into as many lines at any of the commas."""
    text = json.dumps(objects)[1:-1]
    commas = [i for i, one in enumerate(text) if one == ","]
    cuts = sorted(data.draw(st.lists(st.sampled_from(commas), min_size=len(objects) - 1, unique=True)))
    broken = [text[a:b] for a, b in zip([0, *(c + 1 for c in cuts)], [*cuts, len(text)], strict=True)]

    def is_right(line: str) -> bool:
        try:
            return isinstance(json.loads(line), dict)
        except ValueError:
            return False

    found = read_lines([line.encode() for line in broken], BodyLimits())
    assert [not isinstance(one, ServiceError) for one in found] == [is_right(line) for line in broken]


def test_a_line_has_a_bound_and_the_body_none(url: str, client: Client, session: str) -> None:
    line = b" " * 5_000 + lines(rows(1))
    many = httpx.post(
        f"{url}/sessions/s/rounds?answers=totals", content=line * (10_000_000 // len(line)), headers=NDJSON, timeout=120
    )
    assert told(many)[-1]["applied"] == 10_000_000 // len(line)
    long = httpx.post(f"{url}/sessions/s/rounds", content=b"[" + b"0," * (1 << 20), headers=NDJSON)
    assert long.status_code == 413


def test_a_client_that_leaves_before_a_wrong_line_is_refused_is_no_error(
    url: str, client: Client, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = lines(rows(90)) * 3 + b"wrong\n"
    address = urlsplit(url)
    head = f"POST /sessions/s/rounds?block=1 HTTP/1.1\r\nhost: {address.netloc}\r\ntransfer-encoding: chunked\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        # What is closed so is reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(
            f"{head}content-type: application/x-ndjson\r\n\r\n{len(body):x}\r\n".encode() + body + b"\r\n"
        )
        assert connection.recv(1)
    deadline = time.monotonic() + 30.0
    while client.inspect("s")["t"] < 270 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    assert client.inspect("s")["t"] == 270
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_lines_elsewhere_are_refused(url: str, session: str) -> None:
    answer = httpx.post(f"{url}/sessions/s/predict", content=b"{}\n", headers=NDJSON)
    assert answer.status_code == 415


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=8), st.data())
def test_lines_whatever_the_pieces(found: list[bytes], data: st.DataObject) -> None:
    body = b"\n".join(found) + data.draw(st.sampled_from([b"", b"\n"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    given = iter([{"type": "http.request", "body": p, "more_body": i < len(pieces) - 1} for i, p in enumerate(pieces)])

    async def receive() -> Message:
        return next(given)

    async def collect() -> list[bytes]:
        return [line async for lines in lines_of(receive, BodyLimits(row_bytes=1000)) for line in lines]

    assert asyncio.run(collect()) == [line for line in found if line and not line.isspace()]


_VALUES = st.sampled_from(
    ["1", "-0", "0.1", "1e400", "9007199254740993", "5e-324", "NaN", "null", "true", '"1"', "01", "[1]"]
)
_FIELDS = st.sampled_from(["x", "x", "y", "y", "z", "\\u0078"])
_LINES = st.lists(st.tuples(_FIELDS, st.one_of(st.lists(_VALUES, max_size=3), _VALUES)), min_size=1, max_size=3).map(
    lambda members: "{" + ",".join(f'"{name}":{_json(value)}' for name, value in members) + "}"
)


def _json(value: str | list[str]) -> str:
    return value if isinstance(value, str) else f"[{','.join(value)}]"


@given(
    st.one_of(
        st.lists(_LINES, min_size=1, max_size=4),
        st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=3), min_size=1).map(
            lambda found: [json.dumps({"x": row, "y": row[0]}) for row in found]
        ),
    )
)
def test_what_a_block_takes_is_what_the_model_takes(found: list[str]) -> None:
    async def read() -> list[Block]:
        async def receive() -> Message:
            return {"type": "http.request", "body": "\n".join(found).encode()}

        return [block async for block in blocks_of(receive, BodyLimits(), 1000)]

    try:
        expected = [Row.model_validate_json(line) for line in found]
    except ValidationError:
        with pytest.raises(ServiceError, match=r"^Line "):
            asyncio.run(read())
        return
    (block,) = asyncio.run(read())
    x = [row.tolist() if isinstance(row, np.ndarray) else row for row in block.x]
    assert repr(x) == repr([row.x for row in expected])
    y = block.y.tolist() if isinstance(block.y, np.ndarray) else block.y
    assert repr(y) == repr([row.y for row in expected])


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 200), st.integers(1, 7))
def test_blocks_depend_on_the_lines_alone(spaces: list[int], piece: int, most: int) -> None:
    """However the body arrives, a block ends with the line that fills it."""
    found = [b'{"x":[1],"y":%d}' % i + b" " * count for i, count in enumerate(spaces)]
    body = b"\n".join(found)
    expected, size = list[list[float]](), 0
    for i, line in enumerate(found):
        if not expected or len(expected[-1]) == most or size >= 100:
            expected.append([])
            size = 0
        expected[-1].append(i)
        size += len(line)

    async def collect() -> list[list[float]]:
        pieces = [body[i : i + piece] for i in range(0, len(body), piece)] or [b""]
        messages = iter(enumerate(pieces, 1))

        async def receive() -> Message:
            number, data = next(messages)
            return {"type": "http.request", "body": data, "more_body": number < len(pieces)}

        return [list(block.y) async for block in blocks_of(receive, BodyLimits(), most)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", 100)
        assert asyncio.run(collect()) == expected


@pytest.mark.parametrize("ends", [True, False])
def test_lines_before_one_that_is_too_long_are_given(ends: bool) -> None:
    """However they come: what is applied before the refusal follows from the lines alone."""
    good, long = b'{"x":[1],"y":1}', b'{"x":[1],"y":"' + b"a" * 1000 + b'"}'
    body = b"\n".join([good, b"", good, good, long, good]) if ends else b"\n".join([good] * 3 + [long])

    async def collect(size: int) -> list[int]:
        pieces = iter([body[i : i + size] for i in range(0, len(body), size)])

        async def receive() -> Message:
            return {"type": "http.request", "body": next(pieces), "more_body": True}

        found: list[int] = []
        try:
            async for block in blocks_of(receive, BodyLimits(row_bytes=900), 2):
                found.append(len(block.y))
        except PayloadTooLarge as error:
            return [*found, error.extra["line"]]
        raise AssertionError

    for size in (1, 20, 900, len(body)):
        assert asyncio.run(collect(size)) == [2, 4]


@pytest.mark.parametrize("blanks", [b"\n", b" \n", b"\r\n", b"\n  "])
def test_blank_lines_without_end(blanks: bytes) -> None:
    """No rate counts them: 64 KiB between two lines are let pass, and cost little."""
    pieces = iter([b"[0]\n", blanks * (40_000 // len(blanks)), b"\n[1]\n", *[blanks * (40_000 // len(blanks))] * 2])

    async def receive() -> Message:
        return {"type": "http.request", "body": next(pieces), "more_body": True}

    found: list[bytes] = []

    async def collect() -> None:
        async for some in lines_of(receive, BodyLimits(row_bytes=1000)):
            found.extend(line.strip() for line in some)

    with pytest.raises(PayloadTooLarge, match="blank lines"):
        asyncio.run(collect())
    assert found == [b"[0]", b"[1]"]


def test_a_line_that_never_ends() -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"0" * 100, "more_body": True}

    async def collect() -> None:
        async for _ in lines_of(receive, BodyLimits(row_bytes=1000)):
            raise AssertionError

    with pytest.raises(PayloadTooLarge):
        asyncio.run(collect())
