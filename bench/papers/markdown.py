"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first column is text, and the others numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
