"""Query parameters: those of each route, and all others are refused before anything happens."""

from __future__ import annotations

from typing import Any

import pytest

from service.app import create_app
from service.settings import Settings
from tests.service.api import Api, check_problem

pytestmark = pytest.mark.anyio

KINDS = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")


def operations() -> list[tuple[str, str, list[str]]]:
    """Method, path and query parameters of each operation that may refuse a request as invalid."""
    document: dict[str, Any] = create_app(Settings(store="sqlite://")).openapi()
    return [
        (method, path, [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "422" in operation["responses"]
    ]


async def test_an_unknown_query_parameter_is_refused(memory: Api) -> None:
    asked = 0
    for method, path, known in operations():
        url = path.replace("{", "").replace("}", "")
        for kind in KINDS if path.endswith("/rounds") and method == "post" else KINDS[:1]:
            for query in ("limt=1", "&".join([*(f"{name}=1" for name in known), "limt=1"])):
                headers = {"content-type": kind}
                answer = await memory.http.request(method, f"{url}?{query}", headers=headers, content=b"{}")
                [error] = check_problem(answer, "invalid-request")["errors"]
                assert error["pointer"] == "/limt", path
                assert all(name in error["detail"] for name in known)
                asked += 1
    assert asked > 60


async def test_probes_and_scrapers_may_add_what_they_like(memory: Api) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await memory.http.get(f"{path}?since=1")).status_code == 200


async def test_what_belongs_into_the_body_changes_nothing(memory: Api) -> None:
    await memory.create()
    answer = await memory.http.post("/sessions/s/predict?wait=false", json={"x": [1.0]})
    assert check_problem(answer, "invalid-request")["detail"].endswith("put it into the body")
    assert (await memory.http.get("/sessions/s/predictions")).json()["predictions"] == []


async def test_what_only_lines_have_is_not_said_to_belong_into_json(memory: Api) -> None:
    await memory.create()
    answer = await memory.http.post("/sessions/s/rounds?answers=totals", content=b'{"x": [1], "y": 2}')
    assert "also takes lines (application/x-ndjson)" in check_problem(answer, "invalid-request")["detail"]
