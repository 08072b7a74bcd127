"""The OpenAPI document, with the problem types that every error refers to."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .answers import Problem

SCHEMAS: Final = "#/components/schemas/"
SPEC: Final = "LearnerSpec"
SPEC_OR_KIND: Final = "LearnerSpecOrKind"
_RENAMED: Final = {
    f"{SCHEMAS}{SPEC}-Input": f"{SCHEMAS}{SPEC_OR_KIND}",
    f"{SCHEMAS}{SPEC}-Output": f"{SCHEMAS}{SPEC}",
}


def install(app: FastAPI) -> None:
    """Make the app serve the document with our problem types, and without FastAPI's validation errors."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = document["components"]["schemas"]
    schemas |= problem.pop("$defs")
    schemas["Problem"] = problem
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
    }
    document["security"] = [{"key": []}, {}]
    # FastAPI documents validation errors in its own format; ours are problem documents, which each route names.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for item in document["paths"].values():
        for operation in item.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
    _add_examples(document)
    return _for_generators(document)


def _add_examples(document: dict[str, Any]) -> None:
    """Add the requests and answers of docs/okl.http. Examples of problems are next to the problems."""
    text = files(__package__ or "").joinpath("examples.json").read_text(encoding="utf-8")
    examples: dict[str, Any] = json.loads(text)
    for item in document["paths"].values():
        for operation in item.values():
            played = examples.get(operation["operationId"], {"requests": {}, "answers": {}})
            for kind, example in played["requests"].items():
                operation["requestBody"]["content"][kind]["examples"] = {"played": example}
            for status, answers in played["answers"].items():
                for kind, example in answers.items():
                    operation["responses"][status]["content"][kind]["examples"] = {"played": example}


def _for_generators(document: dict[str, Any]) -> dict[str, Any]:
    """Rewrite what client generators cannot handle: two schemas with one title, and defaults that are objects."""
    schemas = document["components"]["schemas"]
    request, response = schemas.pop(f"{SPEC}-Input"), schemas.pop(f"{SPEC}-Output")
    schemas[SPEC] = response
    schemas[SPEC_OR_KIND] = request | {"anyOf": [{"$ref": f"{SCHEMAS}{SPEC}"}, *request["anyOf"][1:]]}
    return _plain(document)


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    part = {name: one if name == "examples" else _plain(one) for name, one in part.items()}
    if "$ref" in part:
        part["$ref"] = _RENAMED.get(part["$ref"], part["$ref"])
    if isinstance(default := part.get("default"), dict) and part.keys() & {"oneOf", "anyOf", "$ref"}:
        del part["default"]
        text = f"Default: `{json.dumps(default)}`."
        part["description"] = f"{part['description']} {text}" if "description" in part else text
    return part
