"""A client that a generator makes of our OpenAPI document: nothing is left out, and rounds are played with it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.package.uv import uv
from tests.service.api import openapi
from tests.service.listening import listening

# Its own environment: it asks for another version of typer than the service has.
GENERATOR = "openapi-python-client==0.29.1"

CONFIG = """
content_type_overrides:
  application/x-ndjson: application/octet-stream
  application/vnd.apache.arrow.stream: application/octet-stream
post_hooks: []
"""
"""What docs/install.md says: the generator knows no lines of JSON and no Arrow, so they are bytes."""

OPTIONS = ["--meta", "none", "--path", "openapi.json", "--config", "config.yml", "--output-path", "okl_generated"]

document = openapi()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The generated package `okl_generated`, importable."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "config.yml").write_text(CONFIG)
    told = uv("tool", "run", "--quiet", "--from", GENERATOR, "openapi-python-client", "generate", *OPTIONS, cwd=folder)
    assert told.split() == ["Generating", "okl_generated"], "the generator warns"
    sys.path.insert(0, str(folder))
    yield folder / "okl_generated"
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "okl_generated"]:
        del sys.modules[name]


def test_no_operation_is_left_out(package: Path) -> None:
    wanted = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}
    assert {path.stem for path in package.glob("api/*/*.py")} - {"__init__"} == wanted


def test_a_round(package: Path) -> None:
    models = importlib.import_module("okl_generated.models")
    with listening("sqlite://") as url, ExitStack() as opened:
        client = opened.enter_context(importlib.import_module("okl_generated").Client(base_url=url))

        def ask(call: str, *path: str, body: Any = None) -> Any:
            told = {} if body is None else {"body": body}
            return importlib.import_module(f"okl_generated.api.{call}").sync(*path, client=client, **told)

        made = ask("sessions.create", body=models.SessionCreate.from_dict({"name": "clicks", "labels": ["no", "yes"]}))
        assert isinstance(made, models.SessionDetail)
        asked = models.PredictBody.from_dict({"x": {"page": "home", "seconds": 4.2}, "id": "visit-1"})
        prediction = ask("rounds.predict_in_session", "clicks", body=asked)
        assert isinstance(prediction, models.Prediction)
        assert (prediction.label, prediction.probability, prediction.t) == ("no", 0.5, 0)
        learned = ask(
            "rounds.update_in_session", "clicks", body=models.UpdateBody.from_dict({"id": "visit-1", "y": "no"})
        )
        assert (type(learned).__name__, learned.t, learned.mistake) == ("Update", 1, False)
        unknown = ask("sessions.inspect", "nowhere")
        assert isinstance(unknown, models.Problem)
        assert (unknown.status, unknown.type_) == (404, "/problems/session-not-found")
        named = ask("sessions.create", body=models.SessionCreate.from_dict({"name": "two words"}))
        assert isinstance(named, models.Problem)
        assert named.type_ == "/problems/invalid-name"
