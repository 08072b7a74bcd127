"""The API's own document (OpenAPI), with the problems that every error refers to."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .answers import Problem


def install(app: FastAPI) -> None:
    """Make the app give its document with our problems, and without FastAPI's own validation errors."""

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
    # FastAPI announces validation errors in a form of its own; ours are problems, and each route names them.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for item in document["paths"].values():
        for operation in item.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
    return document
