"""Every answer has its id, and every request must name a host and come from a page that may ask."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from service.api.problems import PROBLEM_JSON
from service.app import create_app
from service.settings import Settings
from tests.service.api import serving
from tests.service.checked_app import (
    PLAIN,
    ask,
    problem_of,
    small_app,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "given", ["abc-123", "A.b_c-9", "x" * 64, "", "x" * 65, "a b", "a=b", 'a"b', "é", "a\x1b[2J", "a,b"]
)
@pytest.mark.parametrize("path", ["/thing", "/nowhere", "/store", "/fails?how=500", "/fails?how=401"])
async def test_every_answer_has_the_id_of_its_request(given: str, path: str) -> None:
    response = await ask(PLAIN, "GET", path, headers={"x-request-id": given.encode("latin-1")})
    told = response.headers.get_list("x-request-id")
    assert len(told) == 1
    if re.fullmatch("[A-Za-z0-9._-]{1,64}", given):
        assert told == [given]
    else:
        assert re.fullmatch("[0-9a-f]{16}", told[0])
    if response.headers["content-type"] == PROBLEM_JSON:
        assert response.json()["instance"] == told[0]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


GOOD_HOSTS = """localhost localhost:8000 127.0.0.1 127.0.0.1:8000 [::1]:8000 192.168.1.7:80 [fe80::1] okl okl:8000 LOCALHOST
    api.localhost okl.default.svc okl.default.svc.cluster.local box.local box.lan okl.internal localhost. 8.8.8.8"""
BAD_HOSTS = """evil.example evil.example:8000 127.0.0.1.evil.example localhost.evil.example notlocal.com evil.example.
    user@localhost localhost:port localhost/ 127.0.0.1:8000:1 [::1 a..b.com 0x7f.1"""


@pytest.mark.parametrize("host", GOOD_HOSTS.split())
async def test_a_host_that_no_page_of_elsewhere_can_have(host: str) -> None:
    assert (await ask(PLAIN, "GET", "/thing", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", [*BAD_HOSTS.split(), "", " "])
@pytest.mark.parametrize(("method", "path"), [("GET", "/thing"), ("POST", "/predict"), ("GET", "/nowhere")])
async def test_a_foreign_host_is_refused(host: str, method: str, path: str) -> None:
    """A page of evil.example, whose name was made to resolve to this machine."""
    problem_of(await ask(PLAIN, method, path, headers={"host": host}), 421, "host-not-allowed")


async def test_hosts_can_be_listed() -> None:
    app = small_app(settings=Settings(allowed_hosts=("api.example.com", "*.example.org"), host="okl.example.net"))
    for host in ("api.example.com", "API.example.com:443", "a.b.example.org", "okl.example.net"):
        assert (await ask(app, "GET", "/thing", headers={"host": host})).status_code == 200, host
    for host in ("example.com", "example.org", "evil-example.org"):
        problem_of(await ask(app, "GET", "/thing", headers={"host": host}), 421, "host-not-allowed")
    open_to_all = small_app(settings=Settings(allowed_hosts=("*",)))
    assert (await ask(open_to_all, "GET", "/thing", headers={"host": "evil.example"})).status_code == 200


async def test_a_request_names_one_host() -> None:
    headers = [("host", "localhost"), ("host", "evil.example")]
    for order in (headers, headers[::-1]):
        problem_of(await ask(PLAIN, "GET", "/thing", headers=order), 421, "host-not-allowed")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("https://localhost:8000", "localhost:8000", True),
        ("http://okl", "okl", True),
        ("http://okl:80", "okl", True),
        ("https://okl", "okl:443", True),
        ("http://localhost:3000", "localhost:8000", False),
        ("http://evil.example", "localhost:8000", False),
        ("http://127.0.0.1:8000", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("file://", "localhost:8000", False),
        ("http://localhost:8000.evil.example", "localhost:8000", False),
    ],
)
async def test_only_our_own_pages_may_ask(method: str, origin: str, host: str, is_own: bool) -> None:
    response = await ask(PLAIN, method, "/thing", headers={"origin": origin, "host": host})
    if is_own:
        assert response.status_code != 403
    else:
        problem_of(response, 403, "origin-not-allowed")


async def test_origins_can_be_listed() -> None:
    app = small_app(settings=Settings(allowed_origins=("https://pages.example",)))
    headers = {"origin": "https://pages.example", "sec-fetch-site": "cross-site"}
    assert (await ask(app, "DELETE", "/thing", headers=headers)).status_code == 204
    problem_of(await ask(app, "GET", "/thing", headers={"origin": "http://pages.example"}), 403, "origin-not-allowed")
    twice = [("origin", "http://evil.example"), ("origin", "https://pages.example")]
    problem_of(await ask(app, "GET", "/thing", headers=twice), 403, "origin-not-allowed")


async def test_a_listed_page_may_send_json_and_read_the_answer() -> None:
    """A browser asks first (a preflight), and shows the page only what the answer allows."""
    app = create_app(Settings(store="sqlite://", allowed_origins=("https://pages.example",)))
    headers = {"origin": "https://pages.example"}
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,idempotency-key"}
    preflight = await ask(app, "OPTIONS", "/predict", headers=headers | asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://pages.example"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    for path, status in (("/healthz", 200), ("/nowhere", 404)):
        answer = await ask(app, "GET", path, headers=headers)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == "https://pages.example"
        assert "ETag" in answer.headers["access-control-expose-headers"]
    elsewhere = await ask(app, "OPTIONS", "/predict", headers=asked | {"origin": "https://evil.example"})
    problem_of(elsewhere, 403, "origin-not-allowed")
    assert (
        "access-control-allow-origin"
        not in (await ask(create_app(Settings(store="sqlite://")), "GET", "/healthz")).headers
    )


async def test_a_listed_page_may_read_what_the_checks_answer() -> None:
    headers = {"origin": "https://pages.example", "content-type": "application/json"}
    has_begun = asyncio.Event()

    async def unfinished() -> AsyncIterator[bytes]:
        yield b"{"
        has_begun.set()
        await asyncio.sleep(3600)

    limits = {"max_body_bytes": 1 << 16, "body_timeout_s": 0.2, "max_requests": 1}
    async with serving("sqlite://", allowed_origins=("https://pages.example",), **limits) as api:
        late = asyncio.create_task(api.http.post("/predict", content=unfinished(), headers=headers))
        await has_begun.wait()
        answers = [
            (await api.http.get("/learners", headers=headers), 503),
            (await late, 408),
            (await api.http.post("/predict", content=bytes(1 << 17), headers=headers), 413),
            (await api.http.get("/learners", headers=headers | {"host": "evil.example"}), 421),
        ]
    for answer, status in answers:
        problem_of(answer, status, answer.json()["type"].removeprefix("/problems/"))
        assert answer.headers.get_list("access-control-allow-origin") == ["https://pages.example"]
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_browser_that_says_where_the_page_is_from_is_believed(site: str) -> None:
    headers = {"sec-fetch-site": site}
    problem_of(await ask(PLAIN, "DELETE", "/thing", headers=headers), 403, "origin-not-allowed")
    assert (await ask(PLAIN, "GET", "/thing", headers=headers)).status_code == 200
    assert (await ask(PLAIN, "DELETE", "/thing", headers={"sec-fetch-site": "same-origin"})).status_code == 204
