"""The contract of the templates' store: records by name. A store of sessions may keep templates, too.

It knows nothing of what a template says: bytes only, as `base` has it of sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from okl.errors import LimitReached

MOST_TEMPLATES = 256
TEMPLATE_BYTES: Final = 4 << 10
"""A record's most bytes: each worker holds all of them, 1 MiB at most."""


@dataclass(frozen=True, slots=True)
class TemplateRecords:
    """All records by name. `version` is another after each change; empty where there never was a template."""

    version: str
    records: Mapping[str, bytes]


class TemplateStore(Protocol):
    """Errors: StoreUnavailable, StoreTimeout, StoreCorrupt."""

    async def put(self, name: str, record: bytes, version: str) -> None:
        """Keep a template, in place of the one of its name.

        Raises LimitReached beyond MOST_TEMPLATES, ValueError for more than TEMPLATE_BYTES.
        """
        ...

    async def drop(self, name: str, version: str) -> bool:
        """Forget a template; False if there is none."""
        ...

    async def read(self, version: str) -> TemplateRecords | None:
        """All templates; None if they are still those of this version."""
        ...


@runtime_checkable
class KeepsTemplates(Protocol):
    """A store that keeps templates beside the sessions."""

    templates: TemplateStore


def check_template(record: bytes) -> None:
    """Raises ValueError."""
    if len(record) > TEMPLATE_BYTES:
        raise ValueError(f"a template's record has at most {TEMPLATE_BYTES} bytes, not {len(record)}")


def too_many() -> LimitReached:
    return LimitReached(f"There are {MOST_TEMPLATES} templates; delete one first.")
