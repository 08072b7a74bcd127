"""Quality values in the headers Accept and Accept-Encoding."""

from __future__ import annotations


def quality(accepted: str, wanted: str) -> float:
    """The quality value of `wanted` in the header; 0 if the header does not name it."""
    for part in accepted.lower().split(","):
        name, *parameters = (one.strip() for one in part.split(";"))
        if name == wanted:
            weight = next((one.partition("=")[2] for one in parameters if one.startswith("q=")), "1")
            try:
                return float(weight)
            except ValueError:
                return 0.0
    return 0.0
