"""The documentation names what there is and nothing else; its links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from starlette.routing import WebSocketRoute

from okl.errors import PROBLEMS
from okl.values import Json
from okl_core import types
from okl_core.contract import lags
from okl_core.kernels import kernels
from okl_core.losses import LOSSES
from service import cli
from service.api import answers, request_checks, round_schemas, schemas, streams, watching_answers
from service.api.schemas import SessionCreate
from service.replica import cache
from service.session import scorecard
from service.settings import CONFIG_FILE_VARIABLE, SECRETS_VARIABLE, Settings
from service.store import base
from service.store.opening import STORE_MODULES
from tests.docs.generated import END, own_learners
from tests.docs.pages import DOCS, PAGES, README, ROOT, name_of, section, table_rows, text_of
from tests.service.api import openapi

SETTING = re.compile(r"\bOKL_[A-Z_]+\b")
NO_SETTINGS = {
    CONFIG_FILE_VARIABLE,
    SECRETS_VARIABLE,
    "OKL_URL",
    "OKL_KEY",
    "OKL_REDIS",
    *SETTING.findall((ROOT / "docker" / "tls.yml").read_text()),
}


# -- everything is named ----------------------------------------------------------------------------------------------


def routes() -> set[str]:
    """The API's routes as "METHOD /path"; sockets and the dashboard are not in the OpenAPI document."""
    paths = openapi()["paths"]
    sockets = {f"WS {route.path}" for route in streams.streams.routes if isinstance(route, WebSocketRoute)}
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} | sockets | {"GET /"}


def test_every_setting_is_documented_with_its_default() -> None:
    rows = {row[0]: row for row in table_rows(section("operations.md", "## Settings"))}
    expected = {f"`OKL_{name.upper()}`": field.default for name, field in Settings.model_fields.items()}
    assert set(rows) - {"setting"} == set(expected)
    for name, default in expected.items():
        shown = str(int(default)) if isinstance(default, float) and default.is_integer() else str(default)
        shown = shown.lower() if isinstance(default, bool) else shown
        is_none = default == () or not shown
        assert rows[name][1] == ("none" if is_none else f"`{shown}`"), f"docs/operations.md: default of {name}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_setting_that_is_not_there(page: Path) -> None:
    settings = {f"OKL_{name.upper()}" for name in Settings.model_fields} | NO_SETTINGS
    assert set(SETTING.findall(page.read_text())) <= settings


def test_the_routes_of_the_documentation_are_those_of_the_application() -> None:
    documented = {row[0].strip("`") for row in table_rows(section("http-api.md", "## Routes"))} - {"route"}
    assert documented == routes()


WIRE = [
    value
    for module in (schemas, round_schemas, answers, watching_answers)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, BaseModel)
]


@pytest.mark.parametrize("model", WIRE, ids=lambda model: model.__name__)
def test_every_member_on_the_wire_is_named(model: type[BaseModel]) -> None:
    text = "".join(map(text_of, ("http-api.md", "sessions.md", "watching.md", "challengers.md", "templates.md")))
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


def test_every_message_of_the_log_is_documented() -> None:
    logs = " ".join(section("operations.md", "## Logs").split())
    for message in sorted(logged_messages()):
        assert f"`{message}`" in logs, message


def logged_messages() -> set[str]:
    """What the service logs in so many words, but for debugging."""
    calls = [node for path in (ROOT / "service").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call, ast.Call)
        and re.fullmatch(r"log\.(info|warning|error|exception)", ast.unparse(call.func))
        and isinstance(call.args[0], ast.Constant)
    }


def test_every_cited_reference_is_listed_and_every_listed_one_cited() -> None:
    listed = set(re.findall(r"^### (.+)$", text_of("references.md"), flags=re.MULTILINE))
    code = "".join(
        path.read_text() for folder in ("okl_core", "service", "bench") for path in (ROOT / folder).rglob("*.py")
    )
    pages = "".join(page.read_text() for page in PAGES if page.name != "references.md")
    assert set(re.findall(r"\[([a-z]+\d{4}[a-z]?)\]", code + pages)) <= listed
    assert listed <= set(re.findall(r"[a-z]+\d{4}[a-z]?", code + pages))


def known_commands() -> set[str]:
    own = {command.name or getattr(command.callback, "__name__", "") for command in cli.app.registered_commands}
    return own | {group.name or "" for group in cli.app.registered_groups}


def test_every_command_is_documented() -> None:
    commands = known_commands()
    rows = [row[0] for row in table_rows(section("operations.md", "## Commands"))]
    assert {row.strip("`").split()[1] for row in rows if row.startswith("`okl")} == commands


def test_commands_and_targets_of_the_pages_exist() -> None:
    commands = known_commands()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in PAGES:
        # Of the benchmarks `okl redis` is the name of a contestant.
        text = page.read_text().replace("`okl redis", "").replace("`okl sqlite", "")
        assert set(re.findall(r"(?:`|bin/)okl ([a-z]+)", text)) <= commands, page
        assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets, page


def is_there(name: str) -> bool:
    """Is there such a module, or such an attribute of one?"""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        if importlib.util.find_spec(parts[0]) is None:
            return False
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[i:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_of_the_code_exist(page: Path) -> None:
    text = page.read_text()
    names = set(re.findall(r"\b(?:okl_core|service)(?:\.[A-Za-z_][A-Za-z0-9_]*)+", text))
    names -= {name for name in names if name.endswith((".py", ".md"))}
    assert {name for name in names if not is_there(name)} == set()
    commands = set(re.findall(r"python -m ((?:bench|tests|service)[a-z_.0-9]*[a-z])", text))
    assert {name for name in commands if importlib.util.find_spec(name) is None} == set()
    paths = re.findall(r"`((?:okl_core|service|tests|bench|docs|docker)/[\w/.-]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


SECTIONS = ["When to use it", "Config", "Cost", "Guarantee", "Example", "References"]


@pytest.mark.parametrize("entry", own_learners(), ids=lambda entry: entry["kind"])
def test_every_learner_has_a_page(entry: Json) -> None:
    page = DOCS / "learners" / f"{entry['kind']}.md"
    text = page.read_text()
    assert text.startswith(f"# {entry['kind']}\n")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    told = section(f"learners/{page.name}", "## References")
    for key in entry["references"]:
        assert f"### {key}\n" in text_of("references.md")
        assert f"references.md#{key}" in told


@pytest.mark.parametrize("entry", own_learners(), ids=lambda entry: entry["kind"])
def test_a_page_says_which_parameters_to_set(entry: Json) -> None:
    """In words, below the table that is made from the code; or it says whose page does."""
    told = section(f"learners/{entry['kind']}.md", "## Config").partition(END)[2]
    for name in entry["config_schema"]["properties"]:
        assert f"`{name}`" in told or "All parameters are as for" in told, name


def test_no_learner_is_documented_that_is_not_there() -> None:
    pages = {page.stem for page in (DOCS / "learners").glob("*.md")} - {"index"}
    assert pages == {entry["kind"] for entry in own_learners()}
    assert f"has all {len(pages)}, one page each" in README.read_text()


def test_every_kernel_and_every_loss_is_documented() -> None:
    for kernel in (kernels.Gaussian, kernels.Laplacian, kernels.Matern, kernels.Polynomial, kernels.Linear):
        assert f'"kind": "{kernel().kind}"' in text_of("kernels.md")
    rows = {row[0].strip("`"): row for row in table_rows(text_of("losses.md"))}
    assert set(LOSSES) <= set(rows)


@pytest.mark.parametrize("scheme", STORE_MODULES)
def test_every_store_is_documented(scheme: str) -> None:
    assert f"`{scheme}://" in section("operations.md", "## Stores")


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("http-api.md", f"for {base.Limits().remembered_s / 3600:.0f} hours"),
        ("http-api.md", f"more than {base.Limits().remembered:,} newer ids"),
        ("http-api.md", f"or {base.Limits().remembered_bytes >> 20} MiB of answers"),
        ("sessions.md", f"until {base.Limits().remembered:,} newer ids"),
        ("sessions.md", f"tail of {base.Limits().tail} entries ({base.Limits().tail_bytes >> 10} KiB)"),
        (
            "operations.md",
            f"keeps {base.Limits().tail} entries behind a snapshot, {base.Limits().tail_bytes >> 10} KiB",
        ),
        ("problems.md", f"more than {request_checks.MAX_URI_BYTES >> 10} KiB"),
        (
            "problems.md",
            f"more than {request_checks.MAX_HEADER_BYTES >> 10} KiB, or are more than {request_checks.MAX_HEADERS}",
        ),
        ("sessions.md", f"`window_*` metrics: {scorecard.WINDOW}"),
        ("operations.md", f"every {cache.SIZE_EVERY} rounds"),
        ("lags.md", f"up to {lags.MAX_LAGS},"),
        ("sessions.md", f"`labels` are two to {types.MAX_CLASSES} values"),
        ("sessions.md", f"With lags, a truth is at most {lags.LARGEST_TRUTH:.0e}".replace("+", "")),
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


def linked(page: Path) -> set[Path]:
    """The pages that a page links to."""
    paths = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    return {(page.parent / path).resolve() for path in paths if path.endswith(".md")}


def test_every_page_can_be_reached() -> None:
    """From the map; and the map from where a reader begins."""
    assert DOCS / "index.md" in linked(README)
    reached: set[Path] = set()
    waiting = {DOCS / "index.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting |= {found for found in linked(page) if found.is_relative_to(ROOT)} - reached
    assert set(PAGES) - reached == {README, ROOT / "bench" / "README.md"} - reached


def test_the_map_has_every_page_but_those_of_single_learners() -> None:
    mapped = linked(DOCS / "index.md") | {DOCS / "index.md"}
    assert set(DOCS.glob("*.md")) | {DOCS / "learners" / "index.md"} <= mapped
    assert {*(DOCS / "learners").glob("*.md")} - linked(DOCS / "learners" / "index.md") == {
        DOCS / "learners" / "index.md"
    }


def test_choosing_is_one_screen() -> None:
    assert len(text_of("choosing-a-learner.md").split()) < 500
