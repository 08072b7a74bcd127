"""A template: of which sessions it is, what they are made of, how many there may be, and when an idle one goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from okl.errors import StateCorrupt

from ..session.definition import Definition
from ..session.following import is_challenger
from ..session.record import decode_any_record, encode_record

VERSION = 1


@dataclass(frozen=True, slots=True)
class Template:
    """`definition` has the prefix for a name. `most`: there are at most so many sessions whose names begin so; `idle_s`: one
    without a round or prediction for so long is deleted, None for never."""

    name: str
    prefix: str
    definition: Definition
    most: int
    idle_s: float | None = None

    def fits(self, session: str) -> bool:
        """Is it for the session of this name?"""
        return session.startswith(self.prefix) and len(session) > len(self.prefix) and not is_challenger(session)


def encode_template(template: Template) -> bytes:
    told = {"version": VERSION, "prefix": template.prefix, "most": template.most, "idle_s": template.idle_s}
    return to_json(told) + b"\n" + encode_record(template.definition, b"")


def decode_template(name: str, blob: bytes) -> Template:
    """Raises ValueError for what no program of ours has written, or a newer one has."""
    head, _, record = blob.partition(b"\n")
    try:
        told: dict[str, Any] = from_json(head)
        if told["version"] != VERSION:
            raise ValueError(f"version {told['version']}, this build reads version {VERSION}")
        definition, _ = decode_any_record(record, f"template {name!r}")
        idle_s = None if told["idle_s"] is None else float(told["idle_s"])
        return Template(name, str(told["prefix"]), definition, int(told["most"]), idle_s)
    except (KeyError, TypeError, ValueError, StateCorrupt) as error:
        raise ValueError(f"not the record of a template: {error}") from error
