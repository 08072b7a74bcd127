"""Requests made up from the OpenAPI document: every answer is one that the document names, and none is a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from okl.client import Client
from okl.errors import SessionNotFound
from tests.budget import TIMES
from tests.service.api import openapi

pytestmark = pytest.mark.fuzz

EXAMPLES = 2 * TIMES
SESSIONS = ({"kind": "mean"}, {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}}})
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    unsupported_method,
]

schema = schemathesis.openapi.from_dict(openapi())


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def arrow(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """No stream of Arrow: tests/service/test_arrow.py makes those."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def fuzzed(url: str) -> Iterator[tuple[str, requests.Session]]:
    """A connection to a service that has sessions to ask; others use it, too, and find nothing that was made here."""
    with httpx.Client(base_url=url) as http:
        for number, learner in enumerate(SESSIONS):
            http.post("/sessions", json={"name": f"fuzz-{number}", "learner": learner}).raise_for_status()
    with requests.Session() as connection:
        connection.trust_env = False  # reading the environment for a proxy takes as long as some of the requests
        yield url, connection
    with Client(url) as client:
        for template in client.templates():
            client.delete_template(template["name"])
        for session in client.sessions():
            with suppress(SessionNotFound):  # challengers go with their champion
                client.delete(session["name"])


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
)
def test_every_answer_is_a_documented_one(case: schemathesis.Case, fuzzed: tuple[str, requests.Session]) -> None:
    if isinstance(case.body, dict) and "session" in case.body:
        case.body["session"] = "fuzz-0"
    url, connection = fuzzed
    case.call_and_validate(base_url=url, session=connection, checks=CHECKS)
