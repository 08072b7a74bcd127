"""Sparklines: a short series of numbers as an inline picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


WIDTH, HEIGHT, MARGIN = 96, 24, 2.0
"""In pixels."""


def sparkline(values: Sequence[float | None] | None) -> Markup:
    """An inline SVG, the lowest number at the bottom; gaps where a number is null, empty for fewer than two numbers.

    It is hidden from screen readers, which read the latest number next to it.
    """
    from markupsafe import Markup

    values = values or ()
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup("")
    low, span = min(known), (max(known) - min(known)) or 1.0
    points = [
        None
        if value is None
        else (
            MARGIN + i * (WIDTH - 2 * MARGIN) / (len(values) - 1),
            HEIGHT - MARGIN - (value - low) / span * (HEIGHT - 2 * MARGIN),
        )
        for i, value in enumerate(values)
    ]
    lines = [list(run) for is_known, run in groupby(points, key=lambda point: point is not None) if is_known]
    path = "".join("M" + "L".join(f"{point[0]:.1f} {point[1]:.1f}" for point in line if point) for line in lines)
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return Markup(f'<svg class="sparkline" {size} aria-hidden="true"><path d="{path}"/></svg>')
