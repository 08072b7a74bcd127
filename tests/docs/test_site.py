"""The site is built without a warning, asks nothing of another host, and is spelt right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import okl
import okl_core
from bench import curves
from okl_core import diagnostics
from tests.docs.generated import own_learners
from tests.docs.pages import DOCS, PAGES, README, ROOT, name_of
from tests.docs.site import ELSEWHERE, link_on_site

MOST_BYTES = 30_000
BUILD_S = 300.0

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
LINKED = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}

WORDS = "ons,mannor"
"""A learner and an author, which codespell takes for mistakes."""


class Resources(HTMLParser):
    """What a page has a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag in LOADED:
            self.found |= {
                told.get(LOADED[tag], ""),
                *(part.split()[0] for part in told.get("srcset", "").split(",") if part),
            }
        if tag == "link" and LINKED & set(told.get("rel", "").split()):
            self.found.add(told.get("href", ""))
        self.found |= set(re.findall(r"url\(['\"]?([^'\")]+)", told.get("style", "")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    # A proxy that is not there: what asks for the network does not get it.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout + ran.stderr == ""
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [ELSEWHERE.get(name_of(page), name_of(page).removeprefix("docs/")) for page in PAGES if page != README]
    for page in pages:
        path = Path(page).with_suffix("")
        folder = path.parent if path.name == "index" else path
        assert (site / folder / "index.html").exists(), page


def test_no_page_asks_anything_of_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        resources = Resources()
        resources.feed(page.read_text())
        assert {found for found in resources.found if re.match(r"(https?:)?//", found)} == set(), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^'\")]+", sheet.read_text()), sheet


def test_python_names_are_on_the_site(site: Path) -> None:
    text = (site / "python-api" / "index.html").read_text()
    for name in okl_core.__all__:
        assert f'id="okl_core.{name}"' in text, name
    for name in diagnostics.__all__:
        assert f'id="okl_core.diagnostics.{name}"' in text, name
    for name in set(okl.__all__) - set(okl_core.__all__):
        assert f'id="{getattr(okl, name).__module__}.{name}"' in text, name
    for name in ("Client.predict", "AsyncClient.attach"):
        assert f'id="okl.client.{name}"' in text, name


@pytest.mark.parametrize(
    ("source", "here", "link", "expected"),
    [
        ("docs/index.md", "index.md", "../CONTRIBUTING.md", "contributing.md"),
        (
            "docs/learners/kons.md",
            "learners/kons.md",
            "../../bench/README.md#benchstore",
            "../benchmarks.md#benchstore",
        ),
        ("CONTRIBUTING.md", "contributing.md", "docs/design.md#glossary", "design.md#glossary"),
        ("bench/README.md", "benchmarks.md", "../docs/measured.md", "measured.md"),
        ("docs/keys.md", "keys.md", "#tls", "#tls"),
        ("docs/keys.md", "keys.md", "https://example.com/a.md", "https://example.com/a.md"),
        ("docs/keys.md", "keys.md", "../LICENSE", "../LICENSE"),
    ],
)
def test_links_over_the_border_of_the_pages(source: str, here: str, link: str, expected: str) -> None:
    assert link_on_site(source, here, link) == expected


def test_pages_are_spelt_right() -> None:
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", WORDS, *map(str, PAGES)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("kind", [entry["kind"] for entry in own_learners()])
def test_every_learner_has_a_picture(kind: str) -> None:
    figure = curves.FOLDER / f"{kind}.svg"
    assert figure.stat().st_size < MOST_BYTES
    title = ElementTree.parse(figure).getroot().findtext("{http://www.w3.org/2000/svg}title") or ""
    assert title.startswith(f"Learning curve of {kind}: ")
    assert f"](../figures/learners/{kind}.svg)" in (DOCS / "learners" / f"{kind}.md").read_text()


@pytest.mark.parametrize("kind", ["majority", "frequencies"])
def test_a_picture_is_what_the_bench_draws(kind: str) -> None:
    """Of those whose forecasts are counts: others may differ in the last bit on another processor."""
    assert (curves.FOLDER / f"{kind}.svg").read_text() == curves.picture(kind)


def test_errors_of_a_curve_are_means_of_a_window() -> None:
    added = np.random.default_rng(0).random(700)
    for are_numbers in (False, True):
        for t, value in zip(*curves.curve(added, are_numbers=are_numbers), strict=True):
            mean = added[max(int(t) - curves.WINDOW, 0) : int(t)].mean()
            assert value == pytest.approx(np.sqrt(mean) if are_numbers else mean)
