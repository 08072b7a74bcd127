"""A worker's copy of the templates, as they were in the store a moment ago, and the creation of sessions from them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, final

from okl.errors import (
    InvalidInput,
    LimitReached,
    Overloaded,
    PayloadTooLarge,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    TemplateNotFound,
)

from ..pointers import invalid
from ..sessions import Sessions
from ..store.base import Gone, Store
from ..store.template_store import TEMPLATE_BYTES, TemplateRecords, TemplateStore
from .template import Template, decode_template, encode_template

log = logging.getLogger("okl.templates")

SEEN_S: Final = 2.0
"""Every worker knows of a new or deleted template within this time."""

MADE_WITHIN_S: Final = 5.0
"""The longest wait of a session for others that are created before it."""


@final
class Templates:
    """The templates, refreshed at most every SEEN_S seconds, and only when a session is missing. Raises ServiceError only.

    Parameters
    ----------
    store : the store of the sessions
    kept : the templates of the same store; None if it keeps none
    """

    def __init__(self, store: Store, kept: TemplateStore | None, sessions: Sessions) -> None:
        self._store = store
        self._kept = kept
        self._sessions = sessions
        self._version = ""
        self._known: Sequence[Template] = ()
        self._due = float("-inf")
        self._reading, self._making = asyncio.Lock(), asyncio.Lock()

    # -- what there is --------------------------------------------------------------------------------------------------

    async def all(self) -> Sequence[Template]:
        """The current templates, ordered by name. Raises StoreError."""
        await self._read()
        return sorted(self._known, key=lambda template: template.name)

    async def find(self, name: str) -> Template:
        """The template of this name. Raises TemplateNotFound, StoreError."""
        for template in await self.all():
            if template.name == name:
                return template
        raise TemplateNotFound(name)

    async def put(self, template: Template) -> None:
        """Keep a template, in place of one of the same name.

        Raises InvalidInput, InvalidConfig, UnknownLearner, PayloadTooLarge, LimitReached, StoreError.
        """
        for other in await self.all():
            if other.prefix == template.prefix and other.name != template.name:
                raise invalid("/prefix", f"must differ from that of template {other.name!r}")
        try:
            self._sessions.check(template.definition)
        except InvalidInput as error:
            raise error.under("/session", "") from error
        record = encode_template(template)
        if len(record) > TEMPLATE_BYTES:
            raise PayloadTooLarge(f"A template takes at most {TEMPLATE_BYTES} bytes.", limit=TEMPLATE_BYTES)
        await self._keeper().put(template.name, record, secrets.token_hex(8))
        log.info("template put", extra={"template": template.name, "prefix": template.prefix})
        await self._read()

    async def drop(self, name: str) -> None:
        """Delete a template; its sessions stay, and no longer expire. Raises TemplateNotFound, StoreError."""
        if not await self._keeper().drop(name, secrets.token_hex(8)):
            raise TemplateNotFound(name)
        log.info("template deleted", extra={"template": name})
        await self._read()

    def _keeper(self) -> TemplateStore:
        if self._kept is None:
            raise StoreUnavailable("This store keeps no templates.")
        return self._kept

    async def _read(self, *, is_forced: bool = True) -> None:
        """Read the templates if it is time, or `is_forced`; one read at a time, so that the latest one is kept."""
        async with self._reading:
            asked = time.monotonic()
            if self._kept is None or not (is_forced or asked >= self._due):
                return
            found = await self._kept.read(self._version)
            if found is not None:
                self._known, self._version = _decoded(found), found.version
            self._due = asked + SEEN_S

    # -- sessions on first use ------------------------------------------------------------------------------------------

    async def check(self, session: str) -> None:
        """Raises SessionNotFound if there is neither such a session nor a template that would create it; StoreError."""
        if await self._fitting(session) is None and isinstance(await self._store.head(session), Gone):
            raise SessionNotFound(session)

    async def make(self, session: str) -> bool:
        """Create a session unless it exists; False if no template fits its name.

        A worker creates one at a time, so W workers together create at most W - 1 more than a template allows. Raises
        LimitReached, Overloaded, StoreError.
        """
        template = await self._fitting(session)
        if template is None:
            return False
        try:
            async with asyncio.timeout(MADE_WITHIN_S):
                await self._making.acquire()
        except TimeoutError as error:
            raise Overloaded("Many sessions are being created at the moment; try again.", session=session) from error
        try:
            await self._make(template, session)
        finally:
            self._making.release()
        return True

    async def _make(self, template: Template, session: str) -> None:
        if await self._store.count(template.prefix) < template.most:
            with suppress(SessionExists):  # another worker was first
                await self._sessions.make(replace(template.definition, name=session, template=template.name))
        elif isinstance(await self._store.head(session), Gone):
            detail = f"Template {template.name!r} allows {template.most} sessions, and there are as many."
            raise LimitReached(detail, session=session, template=template.name)

    async def _fitting(self, session: str) -> Template | None:
        if time.monotonic() >= self._due:
            await self._read(is_forced=False)
        return next((template for template in self._known if template.fits(session)), None)


def _decoded(found: TemplateRecords) -> Sequence[Template]:
    """The readable templates, the longest prefix first."""
    decoded: list[Template] = []
    for name, record in found.records.items():
        try:
            decoded.append(decode_template(name, record))
        except ValueError as error:
            log.warning("a template cannot be read", extra={"template": name, "error": str(error)})
    return sorted(decoded, key=lambda template: (-len(template.prefix), template.name))
