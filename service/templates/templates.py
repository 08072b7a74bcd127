"""What a worker knows of the templates, as they were in the store a moment ago; and sessions made from them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
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

from ..session.inputs import invalid
from ..sessions import Sessions
from ..store.base import Gone, Store
from ..store.template_store import TEMPLATE_BYTES, TemplateRecords, TemplateStore
from .template import Template, decode_template, encode_template

log = logging.getLogger("okl.templates")

SEEN_S: Final = 2.0
"""A template that was put or deleted is so for every worker after this time at most."""

MADE_WITHIN_S: Final = 5.0
"""A session waits so long for others that are made before it."""


@final
class Templates:
    """Read again at most every SEEN_S seconds, and only when a session is missed. Raises ServiceError only.

    Parameters
    ----------
    store : of the sessions
    kept : the templates of the same store; None if it keeps none
    clock : monotonic, in seconds
    """

    def __init__(
        self,
        store: Store,
        kept: TemplateStore | None,
        sessions: Sessions,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._kept = kept
        self._sessions = sessions
        self._clock = clock
        self._version = ""
        self._known: Sequence[Template] = ()
        self._due = float("-inf")
        self._reading, self._making = asyncio.Lock(), asyncio.Lock()

    # -- what there is --------------------------------------------------------------------------------------------------

    async def all(self) -> Sequence[Template]:
        """In the order of their names, as they are now. Raises StoreError."""
        await self._read()
        return sorted(self._known, key=lambda template: template.name)

    async def find(self, name: str) -> Template:
        """Raises TemplateNotFound, StoreError."""
        for template in await self.all():
            if template.name == name:
                return template
        raise TemplateNotFound(name)

    async def put(self, template: Template) -> None:
        """Keep it, in place of the one of its name.

        Raises InvalidInput, InvalidConfig, UnknownLearner, PayloadTooLarge, LimitReached, StoreError.
        """
        for other in await self.all():
            if other.prefix == template.prefix and other.name != template.name:
                raise invalid("/prefix", f"must be another than that of template {other.name!r}")
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
        """Its sessions stay, for good. Raises TemplateNotFound, StoreError."""
        if not await self._keeper().drop(name, secrets.token_hex(8)):
            raise TemplateNotFound(name)
        log.info("template deleted", extra={"template": name})
        await self._read()

    def _keeper(self) -> TemplateStore:
        if self._kept is None:
            raise StoreUnavailable("This store keeps no templates.")
        return self._kept

    async def _read(self, *, is_forced: bool = True) -> None:
        """One after the other, so that what was asked for later is what is known. Unless it is forced, only if it is time."""
        async with self._reading:
            asked = self._clock()
            if self._kept is None or not (is_forced or asked >= self._due):
                return
            found = await self._kept.read(self._version)
            if found is not None:
                self._known, self._version = _decoded(found), found.version
            self._due = asked + SEEN_S

    # -- sessions on first use ------------------------------------------------------------------------------------------

    async def check(self, session: str) -> None:
        """Raises SessionNotFound where there is no such session, and no template that would make it; StoreError."""
        if await self._fitting(session) is None and isinstance(await self._store.head(session), Gone):
            raise SessionNotFound(session)

    async def make(self, session: str) -> bool:
        """Have there be this session; False if no template fits its name.

        A worker makes one at a time, so W workers that do so at once make at most W - 1 more than a template allows. Raises
        LimitReached, Overloaded, StoreError.
        """
        template = await self._fitting(session)
        if template is None:
            return False
        try:
            async with asyncio.timeout(MADE_WITHIN_S):
                await self._making.acquire()
        except TimeoutError as error:
            raise Overloaded("Many sessions are made at the moment; try again.", session=session) from error
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
            told = f"Template {template.name!r} allows {template.most} sessions, and there are as many."
            raise LimitReached(told, session=session, template=template.name)

    async def _fitting(self, session: str) -> Template | None:
        if self._clock() >= self._due:
            await self._read(is_forced=False)
        return next((template for template in self._known if template.fits(session)), None)


def _decoded(found: TemplateRecords) -> Sequence[Template]:
    """The longest prefix first; one that cannot be read makes nothing."""
    decoded: list[Template] = []
    for name, record in found.records.items():
        try:
            decoded.append(decode_template(name, record))
        except ValueError as error:
            log.warning("a template cannot be read", extra={"template": name, "error": str(error)})
    return sorted(decoded, key=lambda template: (-len(template.prefix), template.name))
