"""The pages of the documentation, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "bench").glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


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
    return [page for page in PAGES if any(word in block for _, block in blocks(page, language))]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
