"""The dashboard, as the server writes it: every page and its twin, what it escapes, its headers, its size, its time."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import httpx
import pytest

from okl.errors import StoreUnavailable
from service.pages.assets import assets, version
from service.pages.rendering import HEADERS
from tests.service.api import Api, check_problem
from tests.service.dashboard import HOSTILE, NOW, MadeUp, app_of, store_is_away
from tests.service.definitions import MEAN

pytestmark = pytest.mark.anyio

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGES = ("/", "/sessions/flights/page", "/sessions/demand/page", "/sessions/mixture/page", "/sessions/fresh/page")
COMPARED = "/compare?session=flights&session=mixture&session=fresh"
REFUSED = (
    ("/sessions/nobody/page", "session-not-found", 404),
    ("/sessions/broken/page", "session-failed", 409),
    ("/sessions/-/page", "invalid-name", 422),
    ("/?sort=nothing", "invalid-request", 422),
    ("/compare", "invalid-request", 422),
    ("/compare?" + "&".join(f"session=s{i}" for i in range(9)), "invalid-request", 422),
    ("/compare?session=flights&session=nobody", "session-not-found", 404),
)

UPLOT = {
    "uplot.js": "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of dist/uPlot.iife.min.js and dist/uPlot.min.css of uPlot 1.6.31, as its author released it."""


@pytest.fixture
def views() -> MadeUp:
    return MadeUp()


@pytest.fixture
async def http(views: MadeUp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app_of(views))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000", headers=BROWSER) as http:
        yield http


class Elements(HTMLParser):
    """All elements of a page, and the text of its data block."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._is_data = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._is_data = tag == "script" and dict(attrs).get("id") == "data"

    def handle_endtag(self, tag: str) -> None:
        self._is_data = False

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data += data


def check_page(response: httpx.Response) -> Elements:
    """What holds for every page, one that tells of an error too."""
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["cache-control"] == "no-store"
    found = Elements(response.text)
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in found.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        if tag == "script":
            assert "src" in attributes or attributes.get("type") == "application/json"
        assert tag != "style"
        for name in ("src", "href", "action"):
            assert not re.match(r"\w+:|//", attributes.get(name) or ""), attributes
    return found


@pytest.mark.parametrize("path", [*PAGES, COMPARED])
async def test_a_page_and_all_that_it_loads(http: httpx.AsyncClient, path: str) -> None:
    response = await http.get(path)
    assert response.status_code == 200
    found = check_page(response)
    loaded = {attributes["src"] for tag, attributes in found.found if tag == "script" and "src" in attributes}
    loaded |= {attributes["href"] for tag, attributes in found.found if tag == "link"}
    assert loaded
    for one in loaded:
        assert one
        assert one.startswith(f"/static/{version()}/")
        assert (await http.get(one)).status_code == 200


@pytest.mark.parametrize("path", [*PAGES, COMPARED])
async def test_a_page_has_a_twin(http: httpx.AsyncClient, views: MadeUp, path: str) -> None:
    found = check_page(await http.get(path))
    (twin,) = [a["href"] for tag, a in found.found if tag == "a" and re.match(r"[^?]*\.json", a.get("href") or "")]
    response = await http.get(twin or "")
    assert response.headers["content-type"] == "application/json"
    assert response.json()
    if path == "/sessions/flights/page":
        assert response.json() == views.documents["flights"]
    if path == "/":
        assert response.json()["sessions"] == views.entries


@pytest.mark.parametrize(("path", "slug", "status"), REFUSED)
async def test_a_refusal_is_a_page_for_who_reads_pages(
    http: httpx.AsyncClient, path: str, slug: str, status: int
) -> None:
    response = await http.get(path)
    assert response.status_code == status
    check_page(response)
    assert f"/problems/{slug}" in response.text
    assert (await http.get(f"/problems/{slug}")).status_code == 200
    for accept in ("*/*", "application/json", "application/json, text/html;q=0.5"):
        check_problem(await http.get(path, headers={"accept": accept}), slug)


async def test_a_store_that_is_away(http: httpx.AsyncClient, views: MadeUp) -> None:
    views.failure = store_is_away()
    for path in (*PAGES, COMPARED):
        response = await http.get(path)
        assert response.status_code == 503
        assert response.headers.get("retry-after") == (
            str(StoreUnavailable.retry_after_s) if StoreUnavailable.retry_after_s else None
        )
        check_page(response)
        twin = "/index.json" if path == "/" else path.replace("/page", "/page.json").replace("compare", "compare.json")
        check_problem(await http.get(twin), "store-unavailable")


async def test_a_failed_session_can_be_deleted_from_its_page(http: httpx.AsyncClient) -> None:
    found = check_page(await http.get("/sessions/broken/page"))
    (form,) = [attributes for tag, attributes in found.found if tag == "form"]
    assert form["data-path"] == "/sessions/broken"


async def test_what_others_wrote_is_text(http: httpx.AsyncClient, views: MadeUp) -> None:
    """Labels, fields, inputs, ids, texts, names that a store may hold: none of it becomes an element or an expression."""
    one = views.entries[1]
    hostile = copy.deepcopy(views.documents["flights"])
    session, history = hostile["session"], hostile["history"]
    session |= {"name": HOSTILE, "kind": HOSTILE, "labels": [HOSTILE, True, 1.5], "cautions": [HOSTILE]}
    session["verdict"] = one["verdict"] | {"text": HOSTILE, "state": HOSTILE}
    session["alarms"] = [{"t": 5, "at": NOW, "kind": HOSTILE, "text": HOSTILE}]
    session["frozen"] = {"session": HOSTILE, "t": 3, "rule": "last"}
    session["fields"] = [
        {"name": HOSTILE, "type": "category", "columns": [0], "categories": [HOSTILE], "has_others": True}
    ]
    history |= {"rival": HOSTILE, "alarms": session["alarms"]}
    history["weights"] = {"t": [1, 2], "names": [HOSTILE], "values": [[0.5, 1.0]]}
    hostile["rounds"]["rounds"][0] |= {"x": {HOSTILE: HOSTILE}, "y": HOSTILE, "label": HOSTILE}
    hostile["waiting"]["predictions"][0] |= {"id": HOSTILE, "x": [HOSTILE]}
    views.documents["flights"] = hostile
    alarm = {"t": 1, "at": NOW, "kind": HOSTILE, "text": HOSTILE}
    views.entries[1] = one | {"name": HOSTILE, "kind": HOSTILE, "verdict": session["verdict"], "alarm": alarm}
    quiet = {path: check_page(await http.get(path)) for path in ("/", "/sessions/flights/page")}
    for found in quiet.values():
        assert "img" not in {tag for tag, _ in found.found}
    page = (await http.get("/sessions/flights/page")).text
    assert "alert(1)" in page
    assert json.loads(quiet["/sessions/flights/page"].data)["marks"] == [{"t": 5, "kind": HOSTILE}]
    check_page(await http.get("/", params={"q": HOSTILE[:60]}))


async def test_a_document_of_which_little_is_known(http: httpx.AsyncClient, views: MadeUp) -> None:
    few = {"name": "old", "kind": None, "t": 3, "waiting": 0, "created_at": 1.0, "updated_at": None}
    views.entries.append(few)
    views.documents["old"] = {
        "session": views.documents["fresh"]["session"] | {"name": "old", "verdict": None},
        "history": None,
        "rounds": None,
        "waiting": None,
    }
    del views.documents["old"]["session"]["alarms"]
    for path in ("/", "/sessions/old/page", "/compare?session=old&session=flights"):
        views.documents["old"].setdefault("now", None)
        assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("q=STREAM-000", [f"stream-000{i}" for i in range(10)]),
        ("q=pool", ["mixture"]),
        ("q=nobody", []),
    ],
)
async def test_a_filter(views: MadeUp, query: str, names: list[str]) -> None:
    transport = httpx.ASGITransport(app_of(MadeUp(30)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        told = (await http.get(f"/index.json?{query}")).json()
        assert [one["name"] for one in told["sessions"]] == names
        page = await http.get(f"/?{query}")
        assert ("Nothing matches" in page.text) == (not names)


@pytest.mark.parametrize("sort", ["error", "t", "rate", "waiting", "bytes", "updated_at", "name", "verdict", "alarm"])
async def test_an_order(sort: str) -> None:
    """Those of whom it is not known come last, whichever way."""
    transport = httpx.ASGITransport(app_of(MadeUp(40)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        for direction in ("up", "down"):
            told = (await http.get("/index.json", params={"sort": sort, "direction": direction})).json()["sessions"]
            assert len(told) == 45
            rank = {"worse": 0, "undecided": 1, "better": 2}
            keys = [
                (one["verdict"] and rank[one["verdict"]["state"]])
                if sort == "verdict"
                else (one["alarm"] and one["alarm"]["at"] if sort == "alarm" else one[sort])
                for one in told
            ]
            known = [key for key in keys if key is not None]
            assert known == sorted(known, reverse=direction == "down")
            assert keys[: len(known)] == known


async def test_pages_of_many_sessions_lead_to_all_of_them() -> None:
    transport = httpx.ASGITransport(app_of(MadeUp(230)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=BROWSER) as http:
        path, seen = "/", []
        while path:
            found = check_page(await http.get(path))
            seen += [a["id"] for tag, a in found.found if tag == "a" and (a.get("id") or "").startswith("go-")]
            path = next((a["href"] or "" for tag, a in found.found if tag == "a" and a.get("rel") == "next"), "")
    assert len(seen) == len(set(seen)) == 235


async def test_a_thousand_sessions_take_less_than_300_ms() -> None:
    transport = httpx.ASGITransport(app_of(MadeUp(1000)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=BROWSER) as http:
        await http.get("/?limit=1000")
        took = []
        for _ in range(3):
            start = time.process_time()
            response = await http.get("/?limit=1000")
            took.append(time.process_time() - start)
    assert response.text.count('<tr role="row">') == 1001
    assert min(took) < 0.3


async def test_what_a_page_weighs(http: httpx.AsyncClient) -> None:
    """All that a first visit loads, as it is sent: docs/dashboard.md tells these numbers."""
    for path, most in (("/", 20_000), ("/sessions/mixture/page", 90_000)):
        found = check_page(await http.get(path))
        weight = 0
        names = [a.get("src") or a.get("href") or "" for tag, a in found.found if tag in ("script", "link")]
        for one in {path, *filter(None, names)}:
            async with http.stream("GET", one) as response:
                assert response.headers["content-encoding"] == "gzip"
                weight += len(b"".join([part async for part in response.aiter_raw()]))
        assert weight < most, path


@pytest.mark.parametrize("name", sorted(assets()))
async def test_a_file_is_kept_for_ever(http: httpx.AsyncClient, name: str) -> None:
    path = f"/static/{version()}/{name}"
    plain = await http.get(path, headers={"accept-encoding": "identity"})
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "content-encoding" not in plain.headers
    zipped = await http.get(path)
    assert zipped.headers["content-encoding"] == "gzip"
    assert zipped.content == plain.content == gzip.decompress(assets()[name].gzipped)
    again = await http.get(path, headers={"if-none-match": plain.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_a_file_of_another_version_is_not_kept(http: httpx.AsyncClient) -> None:
    response = await http.get("/static/0123456789ab/style.css")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    for name in ("nothing.js", "..%2Froutes.py", "%2e%2e"):
        assert (await http.get(f"/static/{version()}/{name}")).status_code == 404


@pytest.mark.parametrize("name", UPLOT)
def test_the_charts_are_drawn_by_what_their_author_released(name: str) -> None:
    assert hashlib.sha256(assets()[name].body).hexdigest() == UPLOT[name]


def test_the_licence_of_the_charts_is_served() -> None:
    told = assets()["licence.txt"].body.decode()
    assert "Leon Sorokin" in told
    assert "Permission is hereby granted, free of charge" in told
    assert re.search(r"v1\.6\.31", assets()["uplot.js"].body[:100].decode())


async def test_sessions_of_the_service(memory: Api) -> None:
    """Pages of real sessions: one that has no round, and one that has some."""
    await memory.create(MEAN, "a")
    await memory.create(MEAN, "b")
    await memory.rounds([[0.1]] * 5, [0.2, 0.4, 0.1, 0.3, 0.2], "b")
    for path in ("/", "/sessions/a/page", "/sessions/b/page", "/compare?session=a&session=b"):
        response = await memory.http.get(path, headers=BROWSER)
        assert response.status_code == 200
        check_page(response)
    response = await memory.http.get("/sessions/c/page", headers=BROWSER)
    assert response.status_code == 404


async def test_the_page_of_a_frozen_session_promises_no_rounds(memory: Api) -> None:
    await memory.create(MEAN, "a")
    await memory.rounds([[0.1]] * 5, [0.2, 0.4, 0.1, 0.3, 0.2], "a")
    assert (await memory.http.post("/sessions/a/freeze", json={"name": "still"})).status_code == 201
    told = await memory.http.get("/sessions/still/page", headers=BROWSER)
    check_page(told)
    assert "it predicts, but learns nothing" in told.text
    assert "A frozen session has no rounds of its own." in told.text
    assert "with the first rounds" not in told.text
    assert "No rounds yet" not in told.text
    for offered in ('id="freeze-form"', 'name="wait"'):
        assert offered not in told.text
        assert offered in (await memory.http.get("/sessions/a/page", headers=BROWSER)).text


async def test_rounds_that_the_journal_no_longer_holds_are_not_called_none(
    http: httpx.AsyncClient, views: MadeUp
) -> None:
    """Behind a snapshot it keeps 256 KiB, so none of a large request with many rounds."""
    views.documents["flights"]["rounds"]["rounds"] = []
    told = (await http.get("/sessions/flights/page")).text
    assert "The journal no longer holds the last rounds." in told
    assert "No rounds yet" not in told
    assert "No rounds yet." in (await http.get("/sessions/fresh/page")).text


async def test_the_page_of_a_challenger_offers_no_prediction(memory: Api) -> None:
    await memory.create(MEAN)
    await memory.call("POST", "/sessions/s/challengers", {"name": "c", "learner": MEAN}, status=201)
    for name, offers in (("s", True), ("s~c", False)):
        page = (await memory.http.get(f"/sessions/{name}/page", headers=BROWSER)).text
        assert ('id="try-form"' in page) is offers


async def test_each_page_of_the_list_counts_all_sessions(memory: Api) -> None:
    for name in "abcde":
        await memory.create(MEAN, name)
    for query, told in (
        ("", "5 sessions"),
        ("?limit=2", "5 sessions, 2 shown here"),
        ("?limit=2&cursor=d", "5 sessions, 1 shown here"),
        ("?q=b", "1 session"),
        ("?sort=t", "5 sessions"),
        ("?sort=t&limit=2", "5 sessions, 2 shown here"),
    ):
        page = (await memory.http.get(f"/{query}", headers=BROWSER)).text
        assert [one.strip() for one in re.findall(r"data-live>([^<]*)</p>", page)] == [told]
    for query in ("limit=2", "limit=2&direction=down"):
        document = (await memory.http.get(f"/index.json?{query}")).json()
        assert (len(document["sessions"]), document["total"]) == (2, 5)
