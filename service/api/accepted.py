"""What a request's headers Accept and Accept-Encoding want."""

from __future__ import annotations


def quality(accepted: str, wanted: str) -> float:
    """How much the header wants this one; 0 where it does not name it."""
    for part in accepted.lower().split(","):
        name, *parameters = (one.strip() for one in part.split(";"))
        if name == wanted:
            told = next((one.partition("=")[2] for one in parameters if one.startswith("q=")), "1")
            try:
                return float(told)
            except ValueError:
                return 0.0
    return 0.0
