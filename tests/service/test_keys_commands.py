"""Keys on the command line, and the key that the client sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import Unauthenticated
from service.cli import app
from tests.warm import warm


def okl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "service.start", *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OKL_")}
    process = warm(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=inherited | environment)
    output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(program, process.wait(), output, errors)


def test_keys_are_made_listed_and_revoked_on_the_store_itself(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    environment = {"OKL_STORE": f"sqlite:///{tmp_path / 'okl.sqlite3'}", "OKL_AUDIT_FILE": str(audit)}
    options = ["--scope", "read", "--prefix", "team-", "--expires", "90d", "--rate", "5,10"]
    made = okl("keys", "create", "the team", *options, **environment)
    assert made.returncode == 0, made.stderr
    text = made.stdout.strip()
    id, secret = text.split("_", 2)[1:]
    assert len(made.stderr.splitlines()) == 1
    listed = okl("keys", "list", **environment)
    assert all(one in listed.stdout for one in (id, "the team", "read", "team-", "5/s, burst 10"))
    gone = okl("keys", "revoke", text, **environment)
    assert gone.returncode == 0, gone.stderr
    again = okl("keys", "revoke", id, **environment)
    assert again.returncode == 1
    for found in (made.stderr, listed.stdout, listed.stderr, gone.stdout, gone.stderr, audit.read_text()):
        assert secret not in found
    acts = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(one["route"], one.get("made"), one.get("revoked")) for one in acts] == [
        ("keys create", id, None),
        ("keys revoke", None, id),
    ]


@pytest.mark.parametrize(
    "options",
    [
        ["--expires", "soon"],
        ["--expires", "0d"],
        ["--rate", "0"],
        ["--rate", "many"],
        ["--rate", "5,0"],
        ["--prefix", "a/b"],
        ["--scope", "root"],
    ],
)
def test_a_key_that_cannot_be_is_not_made(tmp_path: Path, options: list[str]) -> None:
    environment = {"OKL_STORE": f"sqlite:///{tmp_path / 'okl.sqlite3'}"}
    found = CliRunner().invoke(app, ["keys", "create", "k", *options], env=environment)
    assert found.exit_code == 2
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


def test_an_open_address_is_not_served_unless_somebody_has_decided_who_may_enter(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    found = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0", "--port", "0"], env={"OKL_STORE": store})
    assert found.exit_code == 2
    assert "OKL_ALLOW_ANONYMOUS" in found.stderr
    assert "okl keys create" in found.stderr


class Closed(BaseHTTPRequestHandler):
    """Lets nobody in, and keeps what it was shown."""

    shown: list[str | None]

    def do_GET(self) -> None:
        self.shown.append(self.headers["Authorization"])
        body = json.dumps({"type": "/problems/unauthenticated", "detail": "x"}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def closed() -> Iterator[tuple[str, list[str | None]]]:
    Closed.shown = []
    with HTTPServer(("127.0.0.1", 0), Closed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", Closed.shown
        server.shutdown()
        thread.join()


def test_the_client_sends_the_key_that_it_is_given_or_that_of_the_environment(
    closed: tuple[str, list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, shown = closed

    def ask(key: str | None) -> str | None:
        with Client(url, key=key) as client:
            assert key is None or key not in repr(client)
            with pytest.raises(Unauthenticated):
                client.learners()
        return shown[-1]

    monkeypatch.delenv("OKL_KEY", raising=False)
    assert ask("okl_a_b") == "Bearer okl_a_b"
    assert ask(None) is None
    monkeypatch.setenv("OKL_KEY", "okl_c_d")
    assert ask(None) == "Bearer okl_c_d"
