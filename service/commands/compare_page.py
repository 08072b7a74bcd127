"""The figures of a comparison, and a self-contained page with them. Needs matplotlib."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from okl.comparing import HEADINGS
from okl.errors import ConfigurationError

from .compare import Compared, cells_of, played
from .contestants import Contestant

INK: Final = "#010203"
"""A placeholder, replaced by the colour of the page's text."""

COLOURS: Final = ("#3b7dd8", "#d9822b", "#3a9d5d", "#c23d8a", "#8a6bd1", "#c9a400", "#2aa5a5", "#cf4a3c")
"""Visible on white and on near black."""

DASHES: Final = ("-", "--", "-.", ":")

_DRAWN: Final[Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "okl",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16191d; --line: #444c56; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
svg { width: 100%; height: auto; color: var(--ink); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:first-child { overflow-wrap: anywhere; min-width: 8rem; }
td:last-child { min-width: 16rem; }
.best { font-weight: bold; }
"""


def save(compared: Compared, folder: Path) -> list[Path]:
    """Write compare.png, compare.svg and compare.html, each atomically. Raises ConfigurationError if it cannot write."""
    made = _made_of(compared)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            part = folder / f"{name}.part"
            part.write_bytes(content)
            os.replace(part, folder / name)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}.") from error
    return [folder / name for name in made]


def _made_of(compared: Compared) -> dict[str, bytes]:
    """The contents of the files by name."""
    with mpl.rc_context(_DRAWN):
        figure = _figure(compared)
        svg = _saved(figure, "svg", transparent=False)
        figure.set_layout_engine("none")  # keep the layout: computing it for each file would take half the time
        inline = _saved(figure, "svg", transparent=True).decode()
        png = _saved(figure, "png", transparent=False)
    drawing = inline[inline.index("<svg") :].replace(INK, "currentColor")
    return {"compare.png": png, "compare.svg": svg, "compare.html": _page(compared, drawing).encode()}


def _saved(figure: Figure, form: str, *, transparent: bool) -> bytes:
    file = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else None
    figure.savefig(file, format=form, dpi=150, transparent=transparent, metadata=metadata)
    return file.getvalue()


def _figure(compared: Compared) -> Figure:
    """Error above and loss below; over all rounds on the left, over the last ones on the right."""
    figure = Figure(figsize=(11.0, 7.0), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    panels = {
        "total_error": (grid[0][0], f"{compared.error_name}, all rounds so far"),
        "window_error": (grid[0][1], f"{compared.error_name}, the last 500 rounds"),
        "total_loss": (grid[1][0], "mean loss, all rounds so far"),
        "window_loss": (grid[1][1], "mean loss, the last 500 rounds"),
    }
    for column, (axes, title) in panels.items():
        _draw(axes, compared.contestants, column)
        axes.set_title(title, loc="left", fontsize=9.0)
    for axes in grid[1]:
        axes.set_xlabel("rounds")
    handles, labels = grid[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(
            handles[::-1], labels[::-1], loc="outside lower center", ncols=min(4, len(handles)), frameon=False
        )
    return figure


def _draw(axes: Axes, contestants: Sequence[Contestant], column: str) -> None:
    highest = 0.0
    # The best is drawn last, above the others.
    for i, one in reversed([*enumerate(contestants)]):
        view = one.view
        if view is None:
            continue
        points = zip(view.points["t"], view.points[column], strict=True)
        found = [(t, value) for t, value in points if t is not None and value is not None]
        # The first rounds may be far worse than all later ones, so they do not set the scale.
        highest = max([highest, *(value for _, value in found[len(found) // 4 :])])
        dash, width = DASHES[(i // len(COLOURS)) % len(DASHES)], 2.2 if i == 0 else 1.3
        label = one.name if len(one.name) <= 40 else f"{one.name[:39]}…"
        axes.plot(
            *zip(*found, strict=True),
            dash,
            color=COLOURS[i % len(COLOURS)],
            linewidth=width,
            label=label,
            zorder=99 - i,
        )
    if highest > 0.0:
        axes.set_ylim(0.0, 1.15 * highest)
    axes.grid(alpha=0.25)


def _page(compared: Compared, drawing: str) -> str:
    head = "".join(f"<th>{escape(compared.error_name if name == 'error' else name)}</th>" for name in HEADINGS)
    rows = []
    for i, one in enumerate(compared.contestants):
        is_best = i == 0 and one.refusal is None
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in cells_of(one))
        mark = ' class="best"' if is_best else ""
        rows.append(f"<tr{mark}>{cells}</tr>")
    title = compared.recording.title
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p>{escape(played(compared))} Losses of different kinds are not comparable.</p>
<figure role="img" aria-label="Curves of error and loss; the table below has their last values." class="wide">
{drawing}</figure>
<div class="wide" tabindex="0" role="group" aria-label="The learners"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div>
</main>
</body>
</html>
"""
