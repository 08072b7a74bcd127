"""The patterns of names and ids in requests, and what each requires, in words."""

from __future__ import annotations

from typing import Final

from ..session.names import MARK, SESSION_NAME, WORD

NAME: Final = f"^{WORD}$"
KNOWN_NAME: Final = f"^{SESSION_NAME}$"
PREFIX: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
ID: Final = r"^(\.{0,2}[\x21-\x2d\x2f-\x7e]|\.{3})[\x21-\x7e]*$"
"""Excludes `.` and `..`: clients remove these from a path, and would delete the session instead of a prediction."""

_OF_A_NAME: Final = "letters, digits, `.`, `_` and `-`, and start with a letter or a digit"
REQUIRED: Final = {
    NAME: f"must have 1 to 64 {_OF_A_NAME}",
    KNOWN_NAME: f"must have 1 to 64 {_OF_A_NAME}; a challenger's is its champion's name, `{MARK}`, and its own name",
    PREFIX: f"must have 1 to 63 {_OF_A_NAME}",
    ID: "must have printable ASCII characters without spaces, and not be `.` or `..`",
}
