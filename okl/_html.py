"""What a notebook shows of an object."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def table(caption: str, rows: Mapping[str, object]) -> str:
    """Names and values as an HTML table; values that are None are left out."""
    cells = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<table><caption>{escape(caption)}</caption><tbody>{cells}</tbody></table>"
