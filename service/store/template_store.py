"""The contract of the template store: records by name. A session store may keep templates, too.

Like a session store, it handles bytes; it does not know what a template says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from okl.errors import LimitReached

MOST_TEMPLATES = 256
TEMPLATE_BYTES: Final = 4 << 10
"""The largest record. Each worker holds all records, at most 1 MiB."""


@dataclass(frozen=True, slots=True)
class TemplateRecords:
    """All records by name. `version` differs after each change; empty if there never was a template."""

    version: str
    records: Mapping[str, bytes]


class TemplateStore(Protocol):
    """Errors: StoreUnavailable, StoreTimeout, StoreCorrupt."""

    async def put(self, name: str, record: bytes, version: str) -> None:
        """Keep a template, in place of one of the same name.

        Raises LimitReached beyond MOST_TEMPLATES, ValueError for more than TEMPLATE_BYTES.
        """
        ...

    async def drop(self, name: str, version: str) -> bool:
        """Forget a template; False if there is none."""
        ...

    async def read(self, version: str) -> TemplateRecords | None:
        """All templates; None if `version` is current."""
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
