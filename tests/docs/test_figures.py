"""Every measured figure of the report is in a file that a bench wrote, and which the figure's section names."""

from __future__ import annotations

import re

import pytest

from tests.docs.figures import MEASURED, figures, kept_files, named_files, rounded, sections, together, unknown_figures
from tests.docs.pages import text_of
from tests.docs.report import PARTS

PROVED = {"bounds.md", "references.md"}
"""Parts of the report that tell nothing that was measured."""


@pytest.mark.parametrize("page", MEASURED)
def test_every_figure_is_in_a_file_that_its_section_names(page: str) -> None:
    assert unknown_figures(page, text_of(page)) == {}


def test_every_part_of_the_report_is_looked_at() -> None:
    assert set(PARTS) - PROVED <= MEASURED.keys()
    for page, headings in MEASURED.items():
        found = {heading: figures(body) for heading, body, _ in sections(text_of(page))}
        assert all(found[heading] for heading in headings or ())
        assert any(found.values())


def test_every_file_is_named() -> None:
    assert kept_files() - named_files() == set()


def test_a_figure_that_no_bench_printed_is_found() -> None:
    text = text_of("report.md").replace("24.73 ± 0.72", "24.74 ± 0.72").replace("up to 94% off", "up to 94.9% off")
    text = re.sub(r"[\d,]+\s+rounds a second", "1,234,567 rounds a second", text)
    assert unknown_figures("report.md", text) == {
        "How it was checked": {"24.74", "0.72"},
        "Packing and learned metrics": {"94.9"},
        "What it costs": {"1234567"},
    }
    elsewhere = text_of("theorems.md").replace("`bench/results/theorems.txt`", "`bench/results/early.txt`")
    assert "0.1382" in unknown_figures("theorems.md", elsewhere)["Attempts to break them"]


def test_what_is_a_figure() -> None:
    text = (
        "In 2,000 rounds of 12 inputs 5 % or 7% err, -0.25 ± 0.10; `0.3`, [li2023](a.md#1.5), AAAI 2024, 10⁻³, 1.5.\n"
    )
    assert figures(text + "```\n0.7\n```") == {"2000", "5%", "7%", "0.25", "0.10", "1.5"}


def test_a_figure_may_be_rounded_and_nothing_else() -> None:
    found = set(rounded("| 1,234.56 | 0.25% | 3.2e+05 | 17x | 94% |"))
    assert found == {"1234.56", "1234.6", "1235", "1235%", "0.25", "0.3", "0.2", "0", "0%", "17", "94", "94%"}


def test_the_numbers_of_a_cell_stand_together() -> None:
    text = "| a | 16.1 ± 0.31 | **3.5** | 1.5 (2.5) | 7.5 to 8.5 |\n\nFrom 0.25 to 0.5.\n"
    assert list(together(text)) == [{"16.1", "0.31"}, {"3.5"}, {"1.5", "2.5"}, {"7.5", "8.5"}, {"0.25"}, {"0.5"}]


def test_a_section_knows_the_files_of_what_it_stands_in() -> None:
    found = list(sections("# Page\nx\n## A\na\n### B\nb\n## C\nc\n"))
    assert [heading for heading, _, _ in found] == ["Page", "A", "B", "C"]
    assert [above.split() for _, _, above in found] == [[], ["x"], ["x", "a"], ["x"]]
