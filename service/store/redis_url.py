"""Redis store urls: the servers, the driver's options, and a few options of this store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from redis.asyncio import BlockingConnectionPool, RedisCluster, Sentinel, SentinelConnectionPool
from redis.asyncio.connection import ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError

from okl.errors import ConfigurationError

from .redis_cluster import Cluster
from .redis_connections import (
    ATTEMPTS_IN_DEADLINE,
    BACKOFF,
    DEADLINE_S,
    RETRIES,
    Connections,
    Lanes,
    server_of,
)
from .redis_errors import FAILURES
from .redis_options import is_database, is_on, options_of

MAX_CONNECTIONS = 32
SENTINEL_PORT = 26379
SENTINEL_TIMEOUT_S = 0.5
"""Short, so that a Sentinel that does not answer leaves time to ask the next one."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options of this store, not of the driver.

    With `wait_replicas` a write is acknowledged when that many replicas have it, or fails as a timeout after `wait_ms`.
    """

    deadline_s: float = DEADLINE_S
    wait_replicas: int = 0
    wait_ms: int = 1_000
    sentinel_username: str | None = None
    sentinel_password: str | None = None


@final
class Sentinels:
    """The Sentinels at these addresses. They say in a sentence that they name no master; the driver's own error quotes its
    connections. While none of them answers, the master is the one that they named last."""

    def __init__(self, addresses: str, driver: Sentinel) -> None:
        self._addresses = addresses
        self._driver = driver
        self._last: tuple[str, int] | None = None

    async def discover_master(self, service: str) -> tuple[str, int]:
        try:
            self._last = await self._driver.discover_master(service)
        except MasterNotFoundError:
            if self._last is None or await self._is_any_there():
                raise MasterNotFoundError(
                    f"no Sentinel of {self._addresses} answers, or none takes the password and knows a master {service!r}"
                ) from None
        return self._last

    async def _is_any_there(self) -> bool:
        for sentinel in self._driver.sentinels:
            with suppress(*FAILURES):
                await sentinel.ping()
                return True
        return False


_TYPES = {"deadline_s": float, "wait_replicas": int, "wait_ms": int, "sentinel_username": str, "sentinel_password": str}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def connections_from_url(url: str) -> Connections:
    """Raises ConfigurationError, which never quotes the url: it may hold a password."""
    scheme = url.partition(":")[0]
    try:
        # The driver's errors quote parts of the url, so they are not shown.
        parts = urlsplit(url)
        if parts.fragment:
            raise ValueError("a # in a password would cut off the host")
        options = options_of(parts)
        settings = _Settings(**{name: _TYPES[name](value) for name, value in options.items() if name in _TYPES})
        _check(settings, parts)
        _check_files(options)
        parts = parts._replace(query=urlencode([pair for pair in options.items() if pair[0] not in _TYPES]))
        if parts.scheme == "redis+cluster":
            return _cluster(parts, settings)
        return _sentinel(parts, settings) if parts.scheme == "redis+sentinel" else _single(parts, settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"store url {scheme}://...: {error.detail}") from None
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ConfigurationError(
            f"store url {scheme}://...: malformed. Write special characters in names and passwords as %XX"
        ) from None


def _check(settings: _Settings, parts: SplitResult) -> None:
    if settings.wait_replicas and settings.wait_ms > settings.deadline_s * 500:
        raise ConfigurationError("wait_ms must be at most half the deadline")
    if settings.wait_replicas and parts.scheme == "redis+cluster":
        raise ConfigurationError("wait_replicas does not work with a cluster; leave it out")
    database = parts.path.strip("/")
    if database and parts.scheme in ("redis", "rediss") and not is_database(database):
        raise ConfigurationError("the path must be the number of a database, such as /0")
    if database not in ("", "0") and parts.scheme == "redis+cluster":
        raise ConfigurationError("a cluster has database 0 only; leave the path out")


def _check_files(options: Mapping[str, str]) -> None:
    """The driver does not say which file it cannot open."""
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            raise ConfigurationError(f"{name} names {options[name]}, which is not a file")


def _defaults(settings: _Settings) -> dict[str, Any]:
    # Protocol 2 has no push messages. The lanes time their calls, as the driver's timeouts cost as much as a call, and they
    # retry, so the driver need not.
    return {
        "protocol": 2,
        "driver_info": None,
        "socket_timeout": None,
        "socket_connect_timeout": settings.deadline_s / ATTEMPTS_IN_DEADLINE,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
    }


def _lanes(pool: ConnectionPool, settings: _Settings, server: str = "", **more: Any) -> Lanes:
    connection = pool.make_connection()  # raises TypeError for an unknown option
    wait = {"wait_replicas": settings.wait_replicas, "wait_ms": settings.wait_ms} if settings.wait_replicas else {}
    return Lanes(pool, server=server or server_of(connection), deadline_s=settings.deadline_s, **wait, **more)


def _single(parts: SplitResult, settings: _Settings) -> Lanes:
    defaults = {"max_connections": MAX_CONNECTIONS, "timeout": settings.deadline_s, **_defaults(settings)}
    return _lanes(BlockingConnectionPool.from_url(parts.geturl(), **defaults), settings)


def _cluster(parts: SplitResult, settings: _Settings) -> Cluster:
    defaults = {"max_connections": MAX_CONNECTIONS, **_defaults(settings), "retry": Retry(BACKOFF, RETRIES)}
    defaults["socket_timeout"] = defaults["socket_connect_timeout"]
    # After every fifth call for a slot that has moved, the driver would close all connections, with the calls in flight.
    defaults["reinitialize_steps"] = 0
    options: dict[str, Any] = {**defaults, **parse_url(parts._replace(scheme="redis").geturl())}
    options["ssl"] = is_on(options.get("ssl", "no"))
    client = RedisCluster(**options)
    server = ",".join(client.nodes_manager.startup_nodes)
    return Cluster(client, server=server, at_once=options["max_connections"], deadline_s=settings.deadline_s)


def _sentinel(parts: SplitResult, settings: _Settings) -> Lanes:
    """The credentials in front of the addresses are the master's; those of the Sentinels are in the query."""
    credentials, _, addresses = parts.netloc.rpartition("@")
    service = unquote(parts.path.strip("/"))
    if not service:
        raise ConfigurationError("the name of the service is missing: redis+sentinel://host:port,host:port/service")
    hosts = [urlsplit(f"//{address}") for address in addresses.split(",")]
    options: dict[str, Any] = {"max_connections": MAX_CONNECTIONS, **_defaults(settings)}
    options |= parse_url(f"redis://{credentials}@?{parts.query}")
    is_tls = is_on(options.pop("ssl", "no"))
    sentinel_options: dict[str, Any] = {name: value for name, value in options.items() if name.startswith("ssl_")}
    sentinel_options |= {"ssl": is_tls, "protocol": 2, "driver_info": None, "retry": Retry(NoBackoff(), 0)}
    sentinel_options |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinel_options |= {"username": settings.sentinel_username, "password": settings.sentinel_password}
    addresses_of = [(host.hostname or "localhost", host.port or SENTINEL_PORT) for host in hosts]
    sentinel = Sentinel(addresses_of, sentinel_kwargs=sentinel_options)
    pool = SentinelConnectionPool(service, Sentinels(addresses, sentinel), ssl=is_tls, **options)
    server = f"{addresses}/{service}"
    return _lanes(pool, settings, server, sentinels=sentinel.sentinels, find_master=pool.get_master_address)
