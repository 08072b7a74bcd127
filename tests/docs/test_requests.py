"""docs/okl.http plays from top to bottom, and the examples of the OpenAPI document are its requests and answers."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from tests.docs.requests import EXAMPLES, examples, play
from tests.service.api import openapi

BINARY = ("application/octet-stream", "application/vnd.apache.arrow.stream")

document = openapi()
OPERATIONS = {operation["operationId"]: operation for item in document["paths"].values() for operation in item.values()}


def shape(value: Any) -> Any:
    """The names of members, all the way down: numbers and times differ from play to play."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return shape(value[0]) if isinstance(value, list) and value else None


@pytest.mark.anyio
async def test_the_file_plays_and_the_examples_are_its_answers() -> None:
    _, answers = await play()
    assert [f"{asked.title}: {answer.text}" for asked, answer in answers if not answer.is_success] == []
    assert shape(examples(document, answers)) == shape(json.loads(EXAMPLES.read_text())), "run `make docs`"


def described(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """The texts and the JSON that the document describes: of the request, and of each answer."""
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    return [content for body in bodies for kind, content in body.get("content", {}).items() if kind not in BINARY]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_body_has_an_example_that_is_what_its_schema_says(operation: dict[str, Any]) -> None:
    for content in described(operation):
        assert content.get("examples"), content
        # An event stream describes its items alone.
        schema = content.get("schema", {"type": "string"}) | {"components": document["components"]}
        for example in content["examples"].values():
            jsonschema_rs.Draft202012Validator(schema).validate(example["value"])
