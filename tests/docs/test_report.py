"""The report is whole: its links lead to places in it, its images are there, and it prints."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.docs.report import report, write


@pytest.fixture(scope="module")
def html() -> str:
    return report()


def test_every_link_leads_to_one_place(html: str) -> None:
    places = Counter(re.findall(r'id="([^"]+)"', html))
    wanted = set(re.findall(r'href="#([^"]+)"', html))
    assert len(wanted) > 10
    assert {anchor: places[anchor] for anchor in wanted} == dict.fromkeys(wanted, 1)


def test_every_image_is_there(html: str) -> None:
    images = re.findall(r'src="([^"]+)"', html)
    assert images
    assert [image for image in images if not (DOCS / image).exists()] == []


def test_no_markdown_is_left(html: str) -> None:
    assert not re.search(r"\]\(|^\|.*\|$", html, re.MULTILINE)


def test_the_rows_of_the_frontier_are_those_of_its_page() -> None:
    rows = re.findall(r"^\| .* \| [+-]\d+ \|$", (DOCS / "report.md").read_text(), re.MULTILINE)
    assert len(rows) == 11
    assert set(rows) <= set((DOCS / "frontier.md").read_text().splitlines())


@pytest.mark.browser
@pytest.mark.slow
def test_it_prints(tmp_path: Path) -> None:
    page, pdf = write(tmp_path)
    assert "<h1" in page.read_text()
    assert pdf.read_bytes().startswith(b"%PDF")
    assert pdf.read_bytes().count(b"/Type /Page\n") + pdf.read_bytes().count(b"/Type /Page ") > 10
