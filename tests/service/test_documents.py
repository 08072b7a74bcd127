"""What the service says of itself: health, problem types, the OpenAPI document, the page that shows it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel

from okl.errors import PROBLEMS, ServiceError
from service.api import schemas
from service.api.dependencies import rounds_of
from service.api.problems import PROBLEM_JSON
from service.pages import routes as dashboard
from tests.service import bad_requests
from tests.service.api import Api, check_problem, serving

pytestmark = pytest.mark.anyio

UNDOCUMENTED = {"/signin", "/signout", "/docs", "/redoc", "/openapi.json"} | {
    route.path
    for router in (dashboard.pages, dashboard.twins)
    for route in router.routes
    if isinstance(route, APIRoute)
}
"""The OpenAPI document is about the API: docs/dashboard.md has the pages."""


async def test_alive_and_ready(api: Api) -> None:
    assert (await api.call("GET", "/healthz"))["status"] == "alive"
    assert (await api.call("GET", "/readyz"))["status"] == "ready"


async def test_every_problem_type_has_a_page(memory: Api) -> None:
    for slug, kind in PROBLEMS.items():
        page = await memory.call("GET", f"/problems/{slug}")
        assert (page["type"], page["title"], page["status"]) == (f"/problems/{slug}", kind.title, kind.status)
        assert page["detail"], slug
        assert page["detail"].endswith("."), slug
        assert "\n" not in page["detail"].strip(), slug


async def test_an_unknown_problem_type(memory: Api) -> None:
    await memory.refused("not-found", "GET", "/problems/none")


def test_problem_types_are_well_formed() -> None:
    for slug, kind in PROBLEMS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)
        assert 400 <= kind.status < 600
        assert issubclass(kind, ServiceError)


async def openapi(api: Api) -> dict[str, Any]:
    response = await api.http.get("/openapi.json")
    assert response.status_code == 200
    return response.json()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(method, path): told for path, item in document["paths"].items() for method, told in item.items()}


async def test_every_route_documents_its_errors(memory: Api) -> None:
    """Each operation names problem types, with the media type and the model of a problem; no answer of FastAPI's own."""
    document = await openapi(memory)
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for (method, path), told in operations(document).items():
        problems = {status: answer for status, answer in told["responses"].items() if int(status) >= 400}
        if path not in ("/healthz", "/learners"):
            assert problems, (method, path)
        for status, answer in problems.items():
            schema = answer["content"][PROBLEM_JSON]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}, (method, path, status)
            slugs = re.findall(r"/problems/([a-z-]+)", answer["description"])
            assert slugs
            assert {PROBLEMS[slug].status for slug in slugs} == {int(status)}
        assert told["summary"]
        assert told["tags"]


async def test_no_error_is_undocumented(api: Api) -> None:
    """Every refusal of the table of bad requests is one that the document announces for its route and status."""
    await bad_requests.sessions(api)
    announced = operations(await openapi(api))
    for name, bad in bad_requests.TABLE.items():
        path = re.sub(r"^/sessions/[^/?]+", "/sessions/{session}", bad.path.partition("?")[0])
        told = announced.get((bad.method.lower(), path))
        if told is None:
            assert bad.slug in ("not-found", "method-not-allowed"), name
            continue
        assert str(PROBLEMS[bad.slug].status) in told["responses"], (name, bad.slug)


async def test_every_route_is_documented(memory: Api) -> None:
    documented = (await openapi(memory))["paths"].keys()
    paths = (route.path for route in iter_route_contexts(memory.app.routes) if route.path is not None)
    found = {path.replace(":path}", "}") for path in paths}
    assert found >= {"/predict", "/update", "/sessions", "/sessions/{session}/rounds"}
    assert {path for path in found - UNDOCUMENTED if "static" not in path and "docs" not in path} <= set(documented)


async def test_operations_have_the_names_of_their_functions(memory: Api) -> None:
    """So a generated client has a method `predict`, not `predict_predict_post`."""
    document = await openapi(memory)
    names = [told["operationId"] for told in operations(document).values()]
    assert len(set(names)) == len(names)
    assert {"predict", "update", "create", "healthz"} <= set(names)
    for name in names:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)


async def test_the_key_of_a_round_is_documented(memory: Api) -> None:
    document = await openapi(memory)
    for path in ("/predict", "/update", "/sessions/{session}/rounds"):
        parameters = {one["name"]: one for one in document["paths"][path]["post"]["parameters"]}
        assert parameters["Idempotency-Key"]["in"] == "header"
        assert not parameters["Idempotency-Key"]["required"]


def models() -> list[type[BaseModel]]:
    found = [value for value in vars(schemas).values() if isinstance(value, type) and issubclass(value, BaseModel)]
    return [model for model in found if model.model_config.get("json_schema_extra")]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_examples_are_what_they_show(model: type[BaseModel]) -> None:
    extra = model.model_config.get("json_schema_extra")
    assert isinstance(extra, dict)
    examples = extra["examples"]
    assert isinstance(examples, list)
    for example in examples:
        model.model_validate(example, strict=False)


async def test_every_request_has_an_example(memory: Api) -> None:
    document = await openapi(memory)
    for (method, path), told in operations(document).items():
        if "application/json" in told.get("requestBody", {}).get("content", {}):
            reference = told["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            assert document["components"]["schemas"][reference.rpartition("/")[2]]["examples"], (method, path)


async def test_every_reference_leads_somewhere(memory: Api) -> None:
    document = await memory.http.get("/openapi.json")
    schemas_there = document.json()["components"]["schemas"]
    references = set(re.findall(r'"\$ref":\s*"([^"]+)"', document.text))
    assert references
    for reference in references:
        assert reference.rpartition("/")[2] in schemas_there, reference


async def test_the_docs_page_needs_no_other_host(memory: Api) -> None:
    page = await memory.http.get("/docs")
    assert page.status_code == 200
    links = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)["']""", page.text)
    assert links
    for link in links:
        assert not re.match(r"(https?:)?//", link), link
        assert (await memory.http.get(link)).status_code == 200, link


@pytest.mark.parametrize("path", ["/nowhere", "/sessions/a/b/c", "/problems"])
async def test_nothing_there(memory: Api, path: str) -> None:
    await memory.refused("not-found", "GET", path)


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/predict"), ("GET", "/update"), ("PUT", "/sessions/s")])
async def test_another_method(memory: Api, method: str, path: str) -> None:
    await memory.refused("method-not-allowed", method, path)


async def test_a_fault_of_the_service_tells_nothing_but_its_instance() -> None:
    """The answer has a request id to look for; what went wrong is in the log only."""

    def broken() -> None:
        raise RuntimeError("a secret")

    async with serving("sqlite://") as api:
        await api.create()
        api.app.dependency_overrides[rounds_of] = broken
        response = await api.http.post("/sessions/s/predict", json={"x": [1.0]})
        check_problem(response, "internal-error")
        assert "secret" not in response.text
