"""Templates in Redis, over the store's connections: one hash of all templates."""

from __future__ import annotations

from typing import Any, Final, final

from . import redis_whole
from .redis_connections import Connections
from .redis_scripts import Script, Value
from .template_store import MOST_TEMPLATES, TemplateRecords, check_template, too_many

TEMPLATES_KEY: Final = "okl:templates"
"""Distinct from every session's keys, which have braces."""

_SCRIPT: Final = Script("templates")
_OF: Final = "The list of templates"


@final
class RedisTemplates:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def put(self, name: str, record: bytes, version: str) -> None:
        check_template(record)
        if not await self._run("put", version, name, record, MOST_TEMPLATES, is_write=True):
            raise too_many()

    async def drop(self, name: str, version: str) -> bool:
        return bool(await self._run("drop", version, name, is_write=True))

    async def read(self, version: str) -> TemplateRecords | None:
        answer = await self._run("all", version)
        return None if answer is None else TemplateRecords(*redis_whole.to_records(answer, _OF))

    async def _run(self, *arguments: Value, is_write: bool = False) -> Any:
        return await redis_whole.run(self._connections, _SCRIPT, TEMPLATES_KEY, *arguments, of=_OF, is_write=is_write)
