"""A template: the prefix of its sessions' names, their definition, their limit, and when idle ones are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from okl.errors import StateCorrupt

from ..session.definition import Definition
from ..session.names import is_challenger
from ..session.record import decode_any_record, encode_record

VERSION = 1


@dataclass(frozen=True, slots=True)
class Template:
    """A template. `definition` has the prefix as its name; `most` limits the sessions whose names begin with the prefix; a
    session without a round or prediction for `idle_s` seconds is deleted, None for never."""

    name: str
    prefix: str
    definition: Definition
    most: int
    idle_s: float | None = None

    def fits(self, session: str) -> bool:
        """Whether the template applies to the session of this name."""
        return session.startswith(self.prefix) and len(session) > len(self.prefix) and not is_challenger(session)


def encode_template(template: Template) -> bytes:
    fields = {"version": VERSION, "prefix": template.prefix, "most": template.most, "idle_s": template.idle_s}
    return to_json(fields) + b"\n" + encode_record(template.definition, b"")


def decode_template(name: str, blob: bytes) -> Template:
    """Decode a template's record. Raises ValueError for a malformed one, or one of a newer version."""
    head, _, record = blob.partition(b"\n")
    try:
        fields: dict[str, Any] = from_json(head)
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']}, this build reads version {VERSION}")
        definition, _ = decode_any_record(record, f"template {name!r}")
        idle_s = None if fields["idle_s"] is None else float(fields["idle_s"])
        return Template(name, str(fields["prefix"]), definition, int(fields["most"]), idle_s)
    except (KeyError, TypeError, ValueError, StateCorrupt) as error:
        raise ValueError(f"not the record of a template: {error}") from error
