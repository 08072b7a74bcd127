"""The names of sessions. A challenger's says which session it follows: `<champion>~<name>`."""

from __future__ import annotations

MARK = "~"
WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The name that a client gives a session, a challenger or a checkpoint."""
SESSION_NAME = f"{WORD}({MARK}{WORD})?"
"""The name of any session; a challenger's is its champion's name, the mark, and its own."""


def is_challenger(name: str) -> bool:
    """Whether this is the name of a session that follows another."""
    return MARK in name


def challenger_name(champion: str, name: str) -> str:
    return f"{champion}{MARK}{name}"


def split_name(challenger: str) -> tuple[str, str]:
    """The champion's name, and the challenger's own."""
    champion, _, name = challenger.partition(MARK)
    return champion, name
