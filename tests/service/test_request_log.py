"""One line a request, which no client can forge; and the trace that a request belongs to."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.keys.key import KeyScope, mint
from service.trace import trace_of
from tests.service.api import Api, serving
from tests.service.kept_lines import kept_lines

pytestmark = pytest.mark.anyio
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("sqlite://", log_requests=True) as found:
        yield found


@pytest.fixture
def lines(api: Api) -> Iterator[list[str]]:
    with kept_lines("okl.http", "INFO") as kept:
        yield kept


def facts(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(line.split(" request ", 1)[1]))


async def test_a_request_is_one_line(api: Api, lines: list[str]) -> None:
    response = await api.http.get("/sessions?cursor=secret", headers={"x-request-id": "mine", "traceparent": VALID})
    [line] = lines
    found = facts(line)
    assert float(found.pop("ms")) >= 0.0
    assert found == {
        "method": "GET",
        "path": "/sessions",
        "status": "200",
        "bytes": str(len(response.content)),
        "instance": "mine",
        "trace_id": TRACE,
    }
    assert response.headers["traceparent"] == VALID


@pytest.mark.parametrize("path", ["/a%0Ab status=200", "/a%22b", "/%0d%0aINFO", "/\x80\xff"])
async def test_a_path_stays_in_its_field(api: Api, lines: list[str], path: str) -> None:
    await api.http.get(path)
    [line] = lines
    assert line.isprintable()
    assert line.isascii()
    assert facts(line)["status"] == "404"


async def test_no_secret_is_logged_however_it_is_written(api: Api, lines: list[str]) -> None:
    key, text = mint("k", KeyScope.READ, now=0.0)
    secret = text.split("_", 2)[2]
    for path in (
        f"/sessions/{text}",
        f"/sessions/okl%5F{key.id}_{secret}",
        f"/%6fkl_{key.id}%5f%{ord(secret[0]):x}{secret[1:]}",
    ):
        await api.http.get(path)
        assert secret[1:] not in lines[-1]
        assert f"okl_{key.id}_..." in facts(lines[-1])["path"]


async def test_refused_requests_are_logged(api: Api, lines: list[str]) -> None:
    await api.http.get("/sessions", headers={"host": "evil.example"})
    assert facts(lines[-1])["status"] == "421"


async def test_nothing_is_logged_unless_asked_for(memory: Api, lines: list[str]) -> None:
    await memory.http.get("/sessions")
    assert lines == []


@pytest.mark.parametrize(
    "given",
    [
        "",
        "00",
        VALID.upper(),
        VALID + "-more",
        VALID.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01\t",
    ],
)
async def test_an_invalid_trace_is_ignored(api: Api, lines: list[str], given: str) -> None:
    assert trace_of(given.encode()) is None
    if "\t" not in given:
        response = await api.http.get("/healthz", headers={"traceparent": given})
        assert response.status_code == 200
        assert "traceparent" not in response.headers
        assert "trace_id" not in facts(lines[-1])


async def test_two_traces_are_none(api: Api, lines: list[str]) -> None:
    response = await api.http.get("/healthz", headers=[("traceparent", VALID), ("traceparent", VALID)])
    assert "traceparent" not in response.headers


async def test_a_later_version_may_say_more() -> None:
    assert trace_of(f"01-{TRACE}-{PARENT}-00-more".encode()) == (TRACE, "00")


@given(st.binary(max_size=80))
def test_any_header_is_a_trace_or_none(header: bytes) -> None:
    found = trace_of(header)
    assert found is None or (len(found.trace_id) == 32 and found.trace_id.encode() in header)
