"""The examples of the documentation run as they are printed, and print what the pages say."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from okl.client import DEFAULT_URL, Client
from okl.errors import SessionNotFound
from okl_core import learner_kinds, parse_spec
from tests.command import environment
from tests.docs.pages import DOCS, PAGES, blocks, name_of, pages_with, prose
from tests.warm import warm

START_S = 60.0

SPECS = {
    f"{name_of(page)}: {spec}": spec
    for page in PAGES
    for spec in re.findall(r"`(\{\"kind\": [^`]*\})`", prose(page))
    if "..." not in spec and json.loads(spec)["kind"] in learner_kinds()
}
"""What the pages give to paste as a session's learner."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The url of a service process on a store of its own."""
    folder = tmp_path_factory.mktemp("docs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OKL_")}
    environment["OKL_STORE"] = f"sqlite:///{folder / 'docs.sqlite3'}"
    command = [sys.executable, "-m", "service.start", "serve", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        server = warm(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        with Client(url) as client:
            while not client.is_ready():
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait(START_S)


@pytest.fixture
def url(served: str) -> str:
    """The same, without any session."""
    with Client(served) as client:
        for found in client.sessions():
            with suppress(SessionNotFound):  # challengers go with their champion
                client.delete(found["name"])
    return served


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


# -- Python -----------------------------------------------------------------------------------------------------------


def run(page: Path, names: dict[str, Any], url: str = DEFAULT_URL) -> None:
    """Run the page's blocks in order; a `print` with comments below it must print just these lines, `...` for any text."""
    printed: dict[int, list[str]] = {}
    ends: dict[int, int] = {}

    def kept(*values: object) -> None:
        printed.setdefault(sys._getframe(1).f_lineno, []).append(" ".join(map(str, values)))

    names["print"] = kept
    for before, block in blocks(page, "python"):
        # Empty lines in front make a traceback name the line of the page.
        source = "\n" * before + block.replace(DEFAULT_URL, url)
        ends |= {
            node.lineno: node.end_lineno or 0 for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)
        }
        exec(compile(source, name_of(page), "exec"), names)
    lines = page.read_text().splitlines()
    for number, told in printed.items():
        below = itertools.takewhile(lambda line: line.lstrip().startswith("# "), lines[ends[number] :])
        expected = "\n".join(line.lstrip().removeprefix("# ") for line in below)
        printed_here = "\n".join(told)
        assert not expected or fits(printed_here, expected), f"{name_of(page)}, line {number} prints:\n{printed_here}"


EXTENDING = DOCS / "extending.md"
FIRST_TASKS = DOCS / "first-tasks.md"
"""Its blocks need each other and the commands between them: test_newcomer.py."""

WITH_SERVICE = [page for page in pages_with("python", "Client") if page not in (EXTENDING, FIRST_TASKS)]
WITHOUT = [page for page in pages_with("python") if page not in (*WITH_SERVICE, EXTENDING, FIRST_TASKS)]


@pytest.mark.parametrize("page", WITHOUT, ids=name_of)
def test_python_runs(page: Path) -> None:
    run(page, {})


@pytest.mark.parametrize("page", WITH_SERVICE, ids=name_of)
def test_python_runs_with_a_service(page: Path, url: str) -> None:
    run(page, {}, url)


@pytest.mark.usefixtures("own_registry")
def test_a_learner_can_be_written_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    # A module of its own, since annotations of dataclasses are looked up in the module that they were written in.
    module = ModuleType(EXTENDING.stem)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    run(EXTENDING, vars(module))


def test_a_learner_of_ones_own_is_served_by_every_worker(tmp_path: Path) -> None:
    [(_, launcher)] = blocks(EXTENDING, "py")
    learner = next(block for _, block in blocks(EXTENDING, "python") if "@register\nclass LazyPerceptron" in block)
    (tmp_path / "lazy_perceptron.py").write_text(learner)
    (tmp_path / "mine.py").write_text(launcher)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "mine.py", "serve", "--workers", "2", "--port", str(port)]
    ours = environment(PYTHONPATH=os.getcwd(), OKL_STORE=f"sqlite:///{tmp_path}/mine.sqlite3")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=ours, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        for i in range(20):
            # A connection of its own, and so a worker of the kernel's choice.
            with Client(f"http://127.0.0.1:{port}") as client:
                while not client.is_ready():
                    assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                    time.sleep(0.05)
                if i == 0:
                    client.create("lazy", "lazy-perceptron")
                assert client.update("lazy", 1, x=[1.0, -1.0])["t"] == i + 1
    finally:
        server.terminate()
        server.wait(START_S)


# -- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_learner_to_paste_is_one(spec: str) -> None:
    parse_spec(json.loads(spec))


@pytest.mark.parametrize("page", pages_with("json"), ids=name_of)
def test_json_is_what_the_service_takes(page: Path, url: str) -> None:
    for _, block in blocks(page, "json"):
        body = json.loads(block)
        if "learner" in body:
            with Client(url) as client:
                client.create(**body)


# -- curl -------------------------------------------------------------------------------------------------------------

PRELUDE = r"""
set -euo pipefail
curl() { command curl --silent --show-error -w '\n%{http_code}' "$@" && printf '\036'; }
"""


@pytest.mark.parametrize("page", pages_with("bash", "curl"), ids=name_of)
def test_curl_answers_as_printed(page: Path, url: str) -> None:
    for program in ("bash", "curl"):
        if not shutil.which(program):
            pytest.fail(f"There is no {program} on PATH: run `make tools`, or install it.", pytrace=False)
    for _, block in blocks(page, "bash"):
        script = PRELUDE + block.replace(DEFAULT_URL, url)
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        answers = [answer.rpartition("\n") for answer in ran.stdout.split("\x1e")[:-1]]
        printed = printed_answers(block)
        assert len(answers) == len(printed)
        for (body, _, status), expected in zip(answers, printed, strict=True):
            assert status.startswith("2"), body
            assert expected is None or fits(body.rstrip("\n"), expected), (
                f"{name_of(page)} prints {expected}\nanswered was {body}"
            )


def printed_answers(block: str) -> list[str | None]:
    """What the page prints below each curl: a comment with `...` for what is left out."""
    printed: list[str | None] = []
    for line in block.splitlines():
        if line.lstrip().startswith("curl "):
            printed.append(None)
        elif line.startswith(("# {", "# [")):
            printed[-1] = line.removeprefix("# ")
    return printed


def fits(body: str, expected: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in expected.split("...")), body, re.DOTALL) is not None
