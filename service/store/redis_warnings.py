"""Warnings about the configuration of a Redis server that may lose sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from .redis_connections import Connections

OLDEST_VERSION = (7, 0)

SETTINGS = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync")

WRITE_AS_DEFAULT = ("ACL", "DRYRUN", "default", "HSET", "okl:{session}:head", "field", "value")
"""Asks whether the user as whom most versions read the append-only file may write what is in it."""


async def find_warnings(connections: Connections) -> Sequence[str]:
    infos = [_facts(reply) for reply in await connections.call_each(("INFO",))]
    try:
        # One pattern per call: Redis before version 7 accepts only one.
        replies = [await connections.call_each(("CONFIG", "GET", setting)) for setting in SETTINGS]
    except ResponseError:
        replies = []
    configs = [_settings(server) for server in zip(*replies, strict=True)] or [_from_info(info) for info in infos]
    found = [warning for info, config in zip(infos, configs, strict=True) for warning in _warnings(info, config)]
    if any(config.get("appendonly") == "yes" for config in configs) and not await _is_file_read(connections):
        found.append(
            "The Redis user `default` may not write sessions: most versions read the append-only file as this user, and "
            "lose what it may not write. Give it the rights of this service's user; it may be off."
        )
    return list(dict.fromkeys(found))


async def _is_file_read(connections: Connections) -> bool:
    """False if `default` lacks the rights; true too where this service's user may not ask."""
    try:
        return all(_text(reply) == "OK" for reply in await connections.call_each(WRITE_AS_DEFAULT))
    except ResponseError:
        return True


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _facts(reply: Any) -> Mapping[str, str]:
    """Parse INFO, which the driver's cluster client does itself and its plain client does not."""
    if isinstance(reply, Mapping):
        return {_text(name): _text(value) for name, value in reply.items()}
    lines = (line.partition(":") for line in _text(reply).splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines}


def _settings(replies: Sequence[Any]) -> Mapping[str, str]:
    flat = [_text(value) for reply in replies for value in _flat(reply)]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _flat(reply: Any) -> Iterator[Any]:
    if isinstance(reply, Mapping):
        for pair in reply.items():
            yield from pair
    else:
        yield from reply


def _from_info(info: Mapping[str, str]) -> Mapping[str, str]:
    """The settings that INFO shows, for a server that forbids CONFIG."""
    names = {"maxmemory": "maxmemory", "maxmemory_policy": "maxmemory-policy"}
    found = {setting: info[name] for name, setting in names.items() if name in info}
    if "aof_enabled" in info:
        found["appendonly"] = "yes" if info["aof_enabled"] == "1" else "no"
    return found


def _warnings(info: Mapping[str, str], config: Mapping[str, str]) -> Iterator[str]:
    version = info.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_VERSION:
        yield f"Redis {version} is older than 7.0, the oldest version tested with this service: use a newer one."
    if info.get("role") == "slave":
        yield "This Redis is a replica: it takes no writes, or loses them. Give the url of its master."
    policy = config.get("maxmemory-policy")
    if policy not in (None, "noeviction"):
        when = "when its memory is full" if config.get("maxmemory", "0") != "0" else "as soon as maxmemory is set"
        yield f"Redis evicts sessions {when}: maxmemory-policy is {policy}; set it to noeviction."
    if config.get("appendonly") == "no":
        yield "Redis keeps no append-only file: a restart loses all since its last dump, if any. Set appendonly to yes."
    elif config.get("appendfsync") == "no":
        yield "The system decides when Redis flushes its file: a crash loses up to 30 seconds. Set appendfsync to everysec."
    unknown = [setting for setting in SETTINGS[1:] if setting not in config]
    if unknown:
        yield f"Redis does not tell this service its {', '.join(unknown)}: check that no session is evicted or left unsaved."
