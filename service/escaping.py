"""Text of others without characters that a terminal or a log would obey."""

from __future__ import annotations

import re
from typing import Final

UNSAFE: Final = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
"""Control characters, line ends, marks that change the direction of writing, surrogates: for a class of a pattern."""

_IN_LINES = re.compile(f"(?!\n)[{UNSAFE}]")


def escaped(text: str) -> str:
    """The text with its unsafe characters, except line feeds, escaped as in JSON: the names of columns and files, and labels,
    may hold sequences that colour, move or rename a terminal."""
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
