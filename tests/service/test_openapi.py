"""Requests made up from the OpenAPI document: every answer is one that the document names, and none is a 5xx."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from okl.client import Client
from tests.budget import TIMES
from tests.command import environment
from tests.docs.pages import ROOT
from tests.service.api import openapi

pytestmark = pytest.mark.fuzz

EXAMPLES = 2 * TIMES
SESSIONS = ({"kind": "mean"}, {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}}})
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
)
MOST_S = 600.0


def test_every_answer_is_a_documented_one(client: Client, url: str, tmp_path: Path) -> None:
    for number, learner in enumerate(SESSIONS):
        client.create(f"fuzz-{number}", learner)
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(openapi()))
    # In a process of its own: as a plugin of pytest it would make up all requests in every process that collects tests.
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "schemathesis"), "run", str(document), "--url", url),
            *("--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--generation-deterministic"),
            *("--checks", ",".join(CHECKS), "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
        ],
        cwd=tmp_path,
        env=environment(
            SCHEMATHESIS_HOOKS="tests.service.schemathesis_hooks", PYTHONPATH=str(ROOT), NO_PROXY="127.0.0.1"
        ),
        capture_output=True,
        text=True,
        timeout=MOST_S,
        check=False,
    )
    operations = sum(
        len(path.keys() & {"get", "put", "post", "patch", "delete"}) for path in openapi()["paths"].values()
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"Tested: {operations}" in ran.stdout
