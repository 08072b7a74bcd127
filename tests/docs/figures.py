"""The measured figures of a page, and those that the files of benches have: bench/results, written by bench.record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import cache

from bench.record import RESULTS
from tests.docs.pages import PAGES, ROOT

MEASURED: Mapping[str, tuple[str, ...] | None] = {
    "../README.md": ("What is measured",),
    "report.md": None,
    "errata.md": None,
    "theorems.md": ("Attempts to break them",),
    "late-truths.md": ("Which way",),
    "frontier.md": None,
    "measured.md": None,
    "drift.md": ("A half-life that is learned",),
    "intervals.md": ("Measured",),
    "lags.md": None,
    "learners/aioli.md": ("Config",),
    "learners/nystrom-aioli.md": ("When to use it", "Cost"),
}
"""Pages, and the headings of their sections that tell what was measured: None for all. What else they say is proved."""

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
FIGURE = re.compile(rf"(?<![\w.^,])(?<!e[+-])({NUMBER})(?!\.\d|(?!x\b)[\w^])( ?%)?")
"""No part of a name, and no power of ten, but 1.5x."""
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
LINK = re.compile(r"\]\([^)]*\)")
VENUE = re.compile(r"\b[A-Z]{2,} \d{4}\b")
"""Of a paper: AAAI 2024."""
CELL = re.compile(r"[|* ]*[\d.,+-]+[\d.,%±/()*+ -]*(?:to [\d.,% -]+)?[| ]*")
FILE = re.compile(r"`(bench/results/[\w/]+\.\w+)`")


def prose(text: str) -> str:
    """The text without code, which is what one types, or a name, and without the places of links."""
    for left_out in (CODE, LINK, VENUE):
        text = left_out.sub(" ", text)
    return text


def figures(text: str) -> set[str]:
    """Decimal fractions, percentages, which keep their sign if they are whole, and numbers from 1,000 on, without commas."""
    found = ((number.replace(",", ""), percent) for number, percent in FIGURE.findall(prose(text)))
    marked = {number if "." in number or not percent else f"{number}%" for number, percent in found}
    return {figure for figure in marked if not figure.isdigit() or len(figure) > 3}


def together(text: str) -> Iterator[set[str]]:
    """Figures that a bench must have printed in one line: those of a cell with nothing but numbers, and each other one."""
    for cell in re.split(r" \| |\n", prose(text)):
        found = figures(cell)
        yield from [found] if CELL.fullmatch(cell) else ({figure} for figure in sorted(found))


@cache
def measured(file: str) -> Sequence[frozenset[str]]:
    """The numbers of each line that a bench printed, as they are and rounded to fewer decimals."""
    lines = (ROOT / file).read_text().splitlines()
    return [frozenset(rounded(line)) for line in lines if not line.startswith("# ")]


def rounded(line: str) -> Iterator[str]:
    """Numbers, and as percentages those that have decimals or the sign: not the counts."""
    for number, percent in FIGURE.findall(line):
        whole = Decimal(number.replace(",", ""))
        for places in range(1 - int(whole.as_tuple().exponent)):
            for rounding in (ROUND_HALF_EVEN, ROUND_HALF_UP):
                figure = str(whole.quantize(Decimal(1).scaleb(-places), rounding))
                yield figure
                if figure.isdigit() and (percent or "." in number):
                    yield f"{figure}%"


def sections(text: str, level: int = 2, above: str = "") -> Iterator[tuple[str, str, str]]:
    """Heading, own text, and the text of what it stands in, of each section of a page and of those within it."""
    first, *rest = re.split(rf"^#{{{level}}} ", text, flags=re.MULTILINE)
    heading, _, body = first.partition("\n")
    if level > 2 or body.strip():
        yield heading.lstrip("# "), body, above
    for part in rest:
        yield from sections(part, level + 1, above + body)


def unknown_figures(page: str, text: str) -> dict[str, set[str]]:
    """By heading: figures that no file has which the section, or what it stands in, names."""
    headings = MEASURED[page]
    found: dict[str, set[str]] = {}
    for heading, body, above in sections(text):
        if headings is None or heading in headings:
            lines = [line for file in FILE.findall(above + body) for line in measured(file)]
            missing = (group for group in together(body) if not any(group <= line for line in lines))
            found[heading] = set[str]().union(*missing)
    return {heading: missing for heading, missing in found.items() if missing}


def named_files() -> set[str]:
    """Those of bench/results that a page names, other than the one that has them all."""
    pages = [page for page in PAGES if page != RESULTS.with_suffix(".md")]
    return {file for page in pages for file in re.findall(r"\bresults/([\w/]+\.\w+)", page.read_text())}


def kept_files() -> set[str]:
    return {file.relative_to(RESULTS).as_posix() for file in RESULTS.rglob("*") if file.is_file()}
