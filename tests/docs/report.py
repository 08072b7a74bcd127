"""The report as one document, HTML and PDF, of the pages that it names: `make report`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath

import markdown

from tests.chromium import chromium_browser
from tests.docs.pages import DOCS, ROOT

PARTS = (
    "report.md",
    "errata.md",
    "theorems.md",
    "bounds.md",
    "late-truths.md",
    "frontier.md",
    "measured.md",
    "references.md",
)
SITE = ROOT / "site" / "report"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
STYLE = """
@page { size: A4; margin: 20mm 18mm; }
body { font: 10.5pt/1.45 Georgia, "DejaVu Serif", serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
h1 { font-size: 1.7em; break-before: page; } section:first-of-type h1 { break-before: auto; }
h2 { font-size: 1.25em; margin-top: 1.6em; } h1, h2, h3 { break-after: avoid; line-height: 1.2; }
pre, code { font-family: "DejaVu Sans Mono", monospace; font-size: 0.85em; }
pre { background: #f5f5f5; padding: 0.6em 0.8em; white-space: pre-wrap; orphans: 8; widows: 8; }
table { border-collapse: collapse; font-size: 0.82em; margin: 1em 0; }
th, td { border-bottom: 1px solid #ccc; padding: 0.2em 0.6em; text-align: left; vertical-align: top; }
tr { break-inside: avoid; } img { max-width: 100%; } a { color: #223a8f; text-decoration: none; }
"""


def linked(page: str, text: str) -> str:
    """The text of a page: links to a part are links within the report, of links to other pages the text stays."""

    def of_report(found: re.Match[str]) -> str:
        is_image, label, link = bool(found[1]), found[2], found[3]
        path, _, anchor = link.partition("#")
        if ":" in path:
            return found[0]
        if is_image:
            return f"![{label}]({path})"
        part = path or page
        return f"[{label}](#{anchor or stem(part)})" if part in PARTS else label

    return LINK.sub(of_report, text)


def stem(page: str) -> str:
    return f"part-{PurePosixPath(page).stem}"


def report() -> str:
    """The document as HTML; images are those of docs/."""
    sections = []
    for page in PARTS:
        renderer = markdown.Markdown(
            extensions=["tables", "toc", "pymdownx.superfences"], extension_configs={"toc": {"slugify": slug}}
        )
        body = renderer.convert(linked(page, (DOCS / page).read_text()))
        sections.append(f'<section id="{stem(page)}">\n{body}\n</section>')
    head = f"<meta charset='utf-8'><title>Online kernel learning: report</title><style>{STYLE}</style>"
    return f"<!doctype html>\n<html lang='en'><head>{head}</head><body>\n" + "\n".join(sections) + "\n</body></html>\n"


def slug(text: str, separator: str) -> str:
    """What GitHub and the site make of a heading."""
    return re.sub(r"\s", separator, re.sub(r"[^\w\s-]", "", text.strip().lower()))


def write(folder: Path) -> tuple[Path, Path]:
    """The document and its figures in a folder, as HTML and as PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(DOCS / "figures", folder / "figures", dirs_exist_ok=True)
    page, pdf = folder / "index.html", folder / "report.pdf"
    page.write_text(report())
    with chromium_browser() as browser:
        shown = browser.new_page()
        shown.goto(page.as_uri())
        footer = '<div style="font-size: 8px; width: 100%; text-align: center"><span class="pageNumber"></span></div>'
        shown.pdf(
            path=pdf,
            prefer_css_page_size=True,
            display_header_footer=True,
            header_template="<i></i>",
            footer_template=footer,
        )
    return page, pdf


if __name__ == "__main__":
    for made in write(SITE):
        print(made.relative_to(ROOT))
