"""The report is whole: its links lead to places in it, its images are there, and it prints."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
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


SECTION = re.compile(r"^##+ ", re.MULTILINE)
FIGURE = re.compile(
    r"(?<![\w.^])\d{1,3}(?:,\d{3})+(?!\d)|(?<![\w.^,])\d+\.\d+|(?<![\w.^,])\d{4,}|(?<![\w.^,])\d+(?= ?%)"
)


def figures(text: str) -> set[str]:
    """Decimal fractions, percentages, and numbers from 1,000 on, without commas."""
    return {found.replace(",", "") for found in FIGURE.findall(text)}


def sources(section: str) -> str:
    """The text of all pages and files that a section names."""
    pages = [DOCS / page for page in re.findall(r"\]\(([\w/-]+\.md)", section)]
    return "\n".join(
        path.read_text() for path in (*pages, *(ROOT / name for name in re.findall(r"`(bench/[\w.]+)`", section)))
    )


def unknown_figures(text: str) -> dict[str, set[str]]:
    """By the first line of each section: figures that no page or file has which the section names."""
    sections = SECTION.split(text)
    missing = {section.split("\n")[0]: figures(section) - figures(sources(section)) for section in sections}
    return {heading: found for heading, found in missing.items() if found}


def test_every_figure_is_in_a_source_that_its_section_names() -> None:
    text = (DOCS / "report.md").read_text()
    assert len(figures(text)) > 100
    assert unknown_figures(text) == {}


def test_the_rows_of_the_frontier_are_those_of_its_page() -> None:
    rows = re.findall(r"^\| .* \| [+-]\d+ \|$", (DOCS / "report.md").read_text(), re.MULTILINE)
    assert len(rows) == 11
    assert set(rows) <= set((DOCS / "frontier.md").read_text().splitlines())


def test_a_figure_without_a_source_is_found() -> None:
    text = (DOCS / "report.md").read_text().replace("24.73 ± 0.72", "24.74 ± 0.72").replace("99,366", "99,367")
    assert unknown_figures(text) == {"How it was checked": {"24.74"}, "What it costs": {"99367"}}


@pytest.mark.browser
@pytest.mark.slow
def test_it_prints(tmp_path: Path) -> None:
    page, pdf = write(tmp_path)
    assert "<h1" in page.read_text()
    assert pdf.read_bytes().startswith(b"%PDF")
    assert pdf.read_bytes().count(b"/Type /Page\n") + pdf.read_bytes().count(b"/Type /Page ") > 10
