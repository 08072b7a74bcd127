"""The documentation names what there is and nothing else; its links lead somewhere; its examples run as printed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from okl_core import get_learner, learner_kinds, types
from okl_core.contract import lags
from okl_core.kernels import kernels
from service import cli
from service.api import answers, guards, schemas
from service.api.problems import PROBLEMS
from service.api.schemas import SessionCreate
from service.app import create_app
from service.client import DEFAULT_URL, OklClient
from service.replica import cache
from service.session import scorecard
from service.settings import CONFIG_FILE_VARIABLE, Settings
from service.store import base

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md", *sorted(DOCS.glob("*.md"))]
NO_SETTINGS = {CONFIG_FILE_VARIABLE, "OKL_URL"}
START_S = 60.0


def text_of(page: str) -> str:
    return (DOCS / page).read_text()


def section(page: str, heading: str) -> str:
    """What stands under `heading`, up to the next one that is not below it."""
    level = len(heading) - len(heading.lstrip("#"))
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{level}}} |\Z)", text_of(page), re.MULTILINE | re.DOTALL)
    assert found, f"docs/{page} has no heading {heading!r}"
    return found[1]


def table_rows(text: str) -> list[list[str]]:
    rows = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line before it, text) of each fenced block."""
    text = page.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)), block[1]) for block in found]


def pages_with(language: str, word: str = "") -> list[Path]:
    return [page for page in PAGES if page.name != "extending.md" and any(word in b for _, b in blocks(page, language))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- everything is named ----------------------------------------------------------------------------------------------


def routes() -> set[str]:
    """The API's routes as "METHOD /path"; the one to the interactive documentation is not in the OpenAPI document."""
    paths = create_app(Settings(store="sqlite://")).openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} | {"GET /"}


def test_every_setting_is_documented_with_its_default() -> None:
    rows = {row[0]: row for row in table_rows(section("operations.md", "## Settings"))}
    expected = {f"`OKL_{name.upper()}`": field.default for name, field in Settings.model_fields.items()}
    assert set(rows) - {"setting"} == set(expected)
    for name, default in expected.items():
        shown = str(int(default)) if isinstance(default, float) and default.is_integer() else str(default)
        assert rows[name][1] == ("none" if default == () else f"`{shown}`"), f"docs/operations.md: default of {name}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_setting_that_is_not_there(page: Path) -> None:
    settings = {f"OKL_{name.upper()}" for name in Settings.model_fields} | NO_SETTINGS
    assert set(re.findall(r"\bOKL_[A-Z_]+\b", page.read_text())) <= settings


def test_the_routes_of_the_documentation_are_those_of_the_application() -> None:
    documented = {row[0].strip("`") for row in table_rows(section("http-api.md", "## Routes"))} - {"route"}
    assert documented == routes()


WIRE = [
    value
    for module in (schemas, answers)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, BaseModel)
]


@pytest.mark.parametrize("model", WIRE, ids=lambda model: model.__name__)
def test_every_member_on_the_wire_is_named(model: type[BaseModel]) -> None:
    text = text_of("http-api.md") + text_of("sessions.md")
    for name, field in model.model_fields.items():
        wire = field.alias or name
        assert re.search(rf"[`\"]{wire}[`\"]", text) or f"`{wire}:" in text, f"{model.__name__}: {wire}"


def test_members_of_a_new_session_are_in_the_table() -> None:
    rows = {row[0].strip("`") for row in table_rows(section("http-api.md", "## Create a session"))} - {"member"}
    assert rows == {field.alias or name for name, field in SessionCreate.model_fields.items()}


def test_every_problem_is_documented() -> None:
    text = text_of("problems.md")
    headings = set(re.findall(r"^### (.+)$", text, flags=re.MULTILINE))
    assert headings == set(PROBLEMS)
    rows = {row[0]: row for row in table_rows(text)}
    for slug, kind in PROBLEMS.items():
        _, status, classes, *_ = rows[f"[{slug}](#{slug})"]
        assert status == str(kind.status), slug
        assert f"`{kind.__name__}`" in classes, slug


def test_every_command_is_documented() -> None:
    commands = {command.name or getattr(command.callback, "__name__", "") for command in cli.app.registered_commands}
    rows = [row[0] for row in table_rows(section("operations.md", "## Commands"))]
    assert {row.strip("`").split()[1] for row in rows if row.startswith("`okl")} == commands


def test_commands_and_targets_of_the_pages_exist() -> None:
    commands = {command.name or getattr(command.callback, "__name__", "") for command in cli.app.registered_commands}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in [README, *DOCS.glob("*.md")]:
        text = page.read_text()
        assert set(re.findall(r"(?:`|bin/)okl ([a-z]+)", text)) <= commands, page
        assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets, page


def our_kinds() -> list[str]:
    """The library's own learners: other tests may have registered more."""
    return [kind for kind in learner_kinds() if type(get_learner(kind)).__module__.startswith("okl_core.learners.")]


@pytest.mark.parametrize("kind", our_kinds())
def test_every_learner_is_documented(kind: str) -> None:
    learner = get_learner(kind)
    told = section("choosing-a-learner.md", f"## {kind}")
    for name in learner.config_type.model_fields:
        assert f"`{name}`" in told, f"docs/choosing-a-learner.md, {kind}: parameter {name}"
    for key in learner.references:
        assert f"### {key}\n" in text_of("references.md")
        assert f"references.md#{key}" in told
    assert f"| `{kind}` |" in README.read_text()


def test_no_learner_is_documented_that_is_not_there() -> None:
    pages = section("choosing-a-learner.md", "# Choosing a learner")
    parts = set(re.findall(r"^## ([a-z0-9-]+)$", pages, flags=re.MULTILINE))
    assert parts == set(our_kinds())


def test_every_kernel_is_documented() -> None:
    told = section("choosing-a-learner.md", "## Kernels")
    for kernel in (kernels.Gaussian, kernels.Laplacian, kernels.Matern, kernels.Polynomial, kernels.Linear):
        assert f'"kind": "{kernel().kind}"' in told
        for name in kernel.model_fields:
            assert f'"{name}"' in told


@pytest.mark.parametrize("scheme", base.STORE_MODULES)
def test_every_store_is_documented(scheme: str) -> None:
    assert f"`{scheme}://" in section("operations.md", "## Stores")


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("http-api.md", f"for {base.Limits().remembered_s / 3600:.0f} hours"),
        ("http-api.md", f"more than {base.Limits().remembered:,} newer ones"),
        ("http-api.md", f"or {base.Limits().remembered_bytes >> 20} MiB of answers"),
        ("sessions.md", f"until {base.Limits().remembered:,} newer ones"),
        ("sessions.md", f"tail of {base.Limits().tail} entries ({base.Limits().tail_bytes >> 10} KiB)"),
        (
            "operations.md",
            f"keeps {base.Limits().tail} entries behind a snapshot, {base.Limits().tail_bytes >> 10} KiB",
        ),
        ("problems.md", f"more than {guards.MAX_URI_BYTES >> 10} KiB"),
        ("problems.md", f"more than {guards.MAX_HEADER_BYTES >> 10} KiB, or are more than {guards.MAX_HEADERS}"),
        ("sessions.md", f"the last {scorecard.WINDOW}"),
        ("operations.md", f"every {cache.SIZE_EVERY} rounds"),
        ("choosing-a-learner.md", f"up to {lags.MAX_LAGS},"),
        ("sessions.md", f"`labels` are two to {types.MAX_CLASSES} values"),
        ("sessions.md", f"With lags a truth may be {lags.LARGEST_TRUTH:.0e} at most".replace("+", "")),
    ],
)
def test_constants_are_those_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join(text_of(page).split())


# -- links ------------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{name_of(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)}: {link}"


def test_every_page_can_be_reached() -> None:
    for page in DOCS.glob("*.md"):
        assert f"docs/{page.name}" in README.read_text()
        assert page.name == "index.md" or f"({page.name})" in text_of("index.md")


# -- examples ---------------------------------------------------------------------------------------------------------


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
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        with OklClient(url) as client:
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
    with OklClient(served) as client:
        for found in client.sessions():
            client.delete(found["name"])
    return served


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_runs(page: Path, url: str) -> None:
    names: dict[str, Any] = {}
    for before, block in blocks(page, "python"):
        # Empty lines in front make a traceback name the line of the page.
        exec(compile("\n" * before + block.replace(DEFAULT_URL, url), name_of(page), "exec"), names)


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
            assert expected is None or fits(body, expected), f"{name_of(page)} prints {expected}\nanswered was {body}"


def printed_answers(block: str) -> list[str | None]:
    """What the page prints below each curl: a comment with `...` for what is left out."""
    printed: list[str | None] = []
    for line in block.splitlines():
        if line.startswith("curl "):
            printed.append(None)
        elif line.startswith(("# {", "# [")):
            printed[-1] = line.removeprefix("# ")
    return printed


def fits(body: str, expected: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in expected.split("...")), body, re.DOTALL) is not None
