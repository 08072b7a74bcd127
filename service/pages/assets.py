"""The files that the pages load: our own style and scripts, and uPlot from the installed package `youplot`.

uPlot draws the charts; `docs/dashboard.md` has the measurements behind that choice. The package is never imported: only its
file is read, which a test compares byte for byte with the release of uPlot's author.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Final, final

from okl.errors import RouteNotFound

CHART_PACKAGE: Final = "youplot"
CHARTS: Final = {"uplot.js": "youplot/vendor/uplot.iife.min.js", "uplot.css": "youplot/vendor/uplot.min.css"}
"""Our names for the chart library's files, and their paths in its package."""

MISSING: Final = 'The dashboard is an extra of the service: `pip install "okl[dashboard]"` where it runs.'

CHART_NOTICE: Final = """\
The charts are drawn by uPlot 1.6.31, Copyright (c) 2022 Leon Sorokin, under the MIT License.
https://github.com/leeoniya/uPlot

It is installed with the package youplot, whose licence, the same MIT License, follows.

"""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@final
@dataclass(frozen=True, slots=True)
class Asset:
    """One file, ready to be sent."""

    body: bytes
    gzipped: bytes
    etag: str
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """All files by name, read and compressed once per process."""
    return {name: _asset(name, body) for name, body in sorted(_bodies().items())}


@cache
def version() -> str:
    """A hash of all files. It is part of their URLs, so that browsers may cache them forever."""
    return hashlib.sha256("".join(one.etag for one in assets().values()).encode()).hexdigest()[:12]


def _bodies() -> dict[str, bytes]:
    own = {one.name: one.read_bytes() for one in files(__package__ or "").joinpath("static").iterdir()}
    try:
        package = distribution(CHART_PACKAGE)
    except PackageNotFoundError:
        raise RouteNotFound(MISSING) from None
    charts = {name: Path(str(package.locate_file(path))).read_bytes() for name, path in CHARTS.items()}
    licence = next(one for one in package.files or () if one.match("licenses/LICENSE"))
    return own | charts | {"licence.txt": CHART_NOTICE.encode() + Path(str(licence.locate())).read_bytes()}


def _asset(name: str, body: bytes) -> Asset:
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return Asset(body, gzip.compress(body, 9, mtime=0), etag, _TYPES[Path(name).suffix])
