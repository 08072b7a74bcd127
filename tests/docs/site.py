"""What the site has beside docs/: pages from elsewhere in the repository. MkDocs calls these functions, see mkdocs.yml.

A link that leaves docs/ for one of these pages leads on GitHub to the file, and on the site to the page made of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "benchmarks.md",
    "bench/results.md": "results.md",
}
"""The page of the site that is made of each file."""

LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files: Files, config: Any) -> Files:
    for path, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text with the links that cross the border of docs/ made links of the site."""
    here = page.file.src_uri
    source = next((path for path, made in ELSEWHERE.items() if made == here), f"docs/{here}")

    def moved(found: re.Match[str]) -> str:
        return f"{found[1]}{link_on_site(source, here, found[2])}{found[3]}"

    return LINK.sub(moved, markdown)


def link_on_site(source: str, here: str, link: str) -> str:
    """A link in the file `source`, of which the page `here` is made, as it is on the site."""
    path, sign, anchor = link.partition("#")
    if not path or ":" in path:
        return link
    target = os.path.normpath(PurePosixPath(source).parent / path)
    if target in ELSEWHERE:
        target = ELSEWHERE[target]
    elif target.startswith("docs/"):
        target = target.removeprefix("docs/")
    else:
        return link  # which MkDocs refuses
    return os.path.relpath(target, PurePosixPath(here).parent) + sign + anchor
