"""The dashboard where keys are required: signing in, what a page hides, and pages of elsewhere."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from okl.errors import StoreUnavailable
from service.keys.key import KeyScope, Rate, cookie_of
from service.pages.signing import local
from tests.service.api import Api, check_problem, serving
from tests.service.keyed import Made, look_again, make, revoke

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html,application/xhtml+xml"}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://okl"}


class Board:
    def __init__(self, api: Api, url: str, admin: Made) -> None:
        self.api, self.url, self.admin = api, url, admin

    async def sign_in(self, text: str, next: str = "/", **headers: str) -> httpx.Response:
        body = urlencode({"key": text, "next": next})
        return await self.api.http.post("/signin", content=body, headers=FORM | headers)

    async def cookie(self, made: Made) -> dict[str, str]:
        """Signed in with this key, as a browser sends it."""
        found = SimpleCookie((await self.sign_in(made.text)).headers["set-cookie"])
        self.api.http.cookies.clear()
        return {"Cookie": f"okl_key={found['okl_key'].value}"}


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    admin = await make(url)
    async with serving(url) as api:
        for name in ("team-a", "other"):
            await api.http.post("/sessions", json={"name": name}, headers=admin.headers)
        yield Board(api, url, admin)


async def test_a_reader_without_a_key_is_sent_to_sign_in_and_comes_back(board: Board) -> None:
    sent = await board.api.http.get("/sessions/team-a/page?x=1", headers=HTML)
    assert sent.status_code == 303
    target = sent.headers["location"]
    assert target == "/signin?next=%2Fsessions%2Fteam-a%2Fpage%3Fx%3D1"
    form = await board.api.http.get(target, headers=HTML)
    assert form.status_code == 200
    assert 'name="next" value="/sessions/team-a/page?x=1"' in form.text
    assert "<script" not in form.text
    assert "default-src 'none'" in form.headers["content-security-policy"]
    signed_in = await board.sign_in(board.admin.text, "/sessions/team-a/page?x=1")
    assert signed_in.status_code == 303
    assert signed_in.headers["location"] == "/sessions/team-a/page?x=1"


async def test_the_cookie_is_not_the_key_and_no_script_reads_it(board: Board) -> None:
    told = (await board.sign_in(board.admin.text)).headers["set-cookie"]
    assert board.admin.secret not in told
    assert board.admin.key.digest.hex() not in told
    given = {part.strip().lower() for part in told.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= given
    assert "secure" not in given
    board.api.http.base_url = "https://okl"
    body = urlencode({"key": board.admin.text})
    over_tls = await board.api.http.post("/signin", content=body, headers=FORM | {"Origin": "https://okl"})
    assert "secure" in over_tls.headers["set-cookie"].lower()


async def test_a_wrong_key_signs_nobody_in_and_is_not_repeated(board: Board) -> None:
    for wrong in ("", "okl_zzzzzzzz_" + board.admin.secret, board.admin.text[:-1], "€ü", "<script>alert(1)</script>"):
        found = await board.sign_in(wrong)
        assert found.status_code == 401
        assert "set-cookie" not in found.headers
        assert "This key is not valid" in found.text
        assert wrong == "" or wrong not in found.text


async def test_where_no_key_is_required_there_is_nothing_to_sign_in_to(memory: Api) -> None:
    found = await memory.http.get("/signin")
    assert found.status_code == 303
    assert found.headers["location"] == "/"
    page = (await memory.http.get("/", headers=HTML)).text
    assert "Sign out" not in page
    assert "New session" in page


async def test_pages_are_read_with_the_cookie_until_the_key_is_revoked(board: Board) -> None:
    cookie = await board.cookie(board.admin)
    page = await board.api.http.get("/", headers=HTML | cookie)
    assert page.status_code == 200
    assert "team-a" in page.text
    assert "Sign out" in page.text
    assert (await board.api.http.get("/docs", headers=HTML | cookie)).status_code == 200
    await revoke(board.url, board.admin)
    await look_again(board.api)
    assert (await board.api.http.get("/", headers=HTML | cookie)).status_code == 303
    check_problem(await board.api.http.get("/index.json", headers=cookie), "unauthenticated")


async def test_a_cookie_of_others_that_is_malformed_does_not_hide_ours(board: Board) -> None:
    cookie = await board.cookie(board.admin)
    others = 'prefs={"theme":"dark"}; a b=c; ='
    for both in (f"{others}; {cookie['Cookie']}", f"{cookie['Cookie']}; {others}"):
        assert (await board.api.http.get("/", headers=HTML | {"Cookie": both})).status_code == 200


async def test_signing_out_takes_the_cookie_away(board: Board) -> None:
    found = await board.api.http.post("/signout", headers={"Origin": "http://okl"})
    assert found.status_code == 303
    assert 'okl_key=""' in found.headers["set-cookie"]
    assert "max-age=0" in found.headers["set-cookie"].lower()


async def test_writes_with_the_cookie_come_from_our_own_pages_alone(board: Board) -> None:
    cookie = await board.cookie(board.admin)
    http = board.api.http
    new = {"name": "of-a-page"}
    for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://okl:81"}):
        check_problem(await http.post("/sessions", json=new, headers=cookie | origin), "origin-not-allowed")
        check_problem(await http.delete("/sessions/team-a", headers=cookie | origin), "origin-not-allowed")
    elsewhere = {"Sec-Fetch-Site": "same-site"}
    check_problem(await http.post("/sessions", json=new, headers=cookie | elsewhere), "origin-not-allowed")
    assert (await http.post("/sessions", json=new, headers=cookie | {"Origin": "http://okl"})).status_code == 201
    # A form of another page cannot sign a reader in as somebody else.
    check_problem(await board.sign_in(board.admin.text, Origin="http://evil.example"), "origin-not-allowed")


async def test_not_even_a_listed_origin_writes_with_the_cookie(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    admin = await make(url)
    async with serving(url, allowed_origins="*") as api:
        cookie = {"Cookie": f"okl_key={cookie_of(admin.key, time.time())[0]}"}
        origin = {"Origin": "https://listed.example"}
        found = await api.http.post("/sessions", json={"name": "s"}, headers=cookie | origin)
        check_problem(found, "origin-not-allowed")
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        before = await api.http.options("/sessions", headers=origin | asked)
        assert before.status_code == 200
        assert "Authorization" in before.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in before.headers
        made = await api.http.post("/sessions", json={"name": "s"}, headers=admin.headers | origin)
        assert made.status_code == 201
        refused = await api.http.get("/sessions", headers=origin)
        check_problem(refused, "unauthenticated")
        assert refused.headers["access-control-allow-origin"] == "*"


async def test_pages_hide_what_the_key_may_not_do(board: Board) -> None:
    keys = {scope: await make(board.url, scope, prefix="team-") for scope in KeyScope}
    await look_again(board.api)
    shown: dict[KeyScope, tuple[bool, ...]] = {}
    for scope, made in keys.items():
        cookie = await board.cookie(made)
        index = (await board.api.http.get("/", headers=HTML | cookie)).text
        session = (await board.api.http.get("/sessions/team-a/page", headers=HTML | cookie)).text
        assert "other" not in index
        shown[scope] = (
            "create-form" in index,
            "try-form" in session,
            "freeze-form" in session,
            "delete-form" in session,
        )
    assert shown == {
        KeyScope.READ: (False, False, False, False),
        KeyScope.WRITE: (False, True, False, False),
        KeyScope.ADMIN: (True, True, True, True),
    }


async def test_a_page_of_a_foreign_session_is_a_page_that_says_so(board: Board) -> None:
    team = await make(board.url, prefix="team-")
    await look_again(board.api)
    cookie = await board.cookie(team)
    for name in ("other", "nobody"):
        found = await board.api.http.get(f"/sessions/{name}/page", headers=HTML | cookie)
        assert found.status_code == 403
        assert found.headers["content-type"].startswith("text/html")
        assert "This key is for other sessions." in found.text


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("/", "/"),
        ("/sessions/a/page?x=1", "/sessions/a/page?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
        ("", "/"),
    ],
)
def test_who_signs_in_stays_here(given: str, taken: str) -> None:
    assert local(given) == taken


async def test_a_form_that_is_none_is_refused(board: Board) -> None:
    http = board.api.http
    check_problem(await http.post("/signin", json={"key": "x"}), "unsupported-media-type")
    check_problem(await http.post("/signin", content="key=" + "x" * 5000, headers=FORM), "payload-too-large")
    check_problem(await http.post("/signin", content=b"key=\xff\xff", headers=FORM), "invalid-request")


async def test_what_is_refused_before_a_route_is_a_page_too(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the rate of a key, and while the store is away of which keys are asked."""
    slow = await make(board.url, KeyScope.READ, rate=Rate(0.01, 1.0))
    await look_again(board.api)
    cookie = await board.cookie(slow)
    assert (await board.api.http.get("/", headers=HTML | cookie)).status_code == 200
    refused = await board.api.http.get("/", headers=HTML | cookie)
    assert refused.status_code == 429
    assert "<h1>Too many requests</h1>" in refused.text
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    assert int(refused.headers["retry-after"]) >= 1
    told = await board.api.http.get("/", headers=cookie)
    assert told.json()["type"] == "/problems/too-many-requests"

    async def refresh() -> None:
        raise StoreUnavailable("The store does not answer.")

    keyring = board.api.app.state.keyring
    monkeypatch.setattr(type(keyring), "is_stale", True)
    monkeypatch.setattr(keyring, "refresh", refresh)
    away = await board.api.http.get("/sessions/other/page", headers=HTML | board.admin.headers)
    assert (away.status_code, away.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "The store does not answer." in away.text
    check_problem(await board.api.http.get("/sessions/other", headers=HTML | board.admin.headers), "store-unavailable")


async def test_the_form_for_a_session_begins_with_what_the_key_is_for(board: Board) -> None:
    made = await make(board.url, prefix="team-a.")
    await look_again(board.api)
    cookie = await board.cookie(made)
    told = await board.api.http.get("/", headers=HTML | cookie)
    assert 'value="team-a.demo"' in told.text
