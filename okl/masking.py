"""A URL without its secrets."""

from __future__ import annotations

import re


def shown_url(url: str) -> str:
    """The URL without user, password and options, fit to be shown; "..." where these cannot be told apart."""
    scheme, _, rest = url.partition("://")
    shown = re.fullmatch(r"(?:[^@/?#]*@)?([^@?#]*)(?:\?[^@#]*)?", rest)
    return f"{scheme}://{shown[1] if shown else '...'}"
