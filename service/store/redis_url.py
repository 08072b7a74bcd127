"""What a store url of Redis says: the servers, the driver's own options, and a few of this store's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from redis.asyncio import BlockingConnectionPool, RedisCluster, Sentinel, SentinelConnectionPool
from redis.asyncio.connection import ConnectionPool, parse_url
from redis.asyncio.retry import Retry
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
)

MAX_CONNECTIONS = 32
SENTINEL_PORT = 26379
SENTINEL_TIMEOUT_S = 0.5
"""A Sentinel that does not answer must leave time to ask the next one."""


@dataclass(frozen=True, slots=True)
class _Own:
    """The options that are this store's, and not the driver's.

    With `wait_replicas` a write is answered when so many replicas have it, or fails as a timeout after `wait_ms`.
    """

    deadline_s: float = DEADLINE_S
    wait_replicas: int = 0
    wait_ms: int = 1_000
    sentinel_username: str | None = None
    sentinel_password: str | None = None


_TYPES = {"deadline_s": float, "wait_replicas": int, "wait_ms": int, "sentinel_username": str, "sentinel_password": str}


def connections_from_url(url: str) -> Connections:
    """Raises ConfigurationError, which never quotes the url: it may hold a password."""
    scheme = url.partition(":")[0]
    try:
        # The driver's errors quote parts of the url: they are not shown.
        parts = urlsplit(url)
        own, query = _options(parts)
        _check(own, parts.scheme)
        parts = parts._replace(query=query)
        if parts.scheme == "redis+cluster":
            return _cluster(parts, own)
        return _sentinel(parts, own) if parts.scheme == "redis+sentinel" else _single(parts, own)
    except ConfigurationError as error:
        raise ConfigurationError(f"store url {scheme}://...: {error.detail}") from None
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ConfigurationError(
            f"store url {scheme}://...: it cannot be understood. Write special characters in names and passwords as %XX; "
            f"the query takes the options of the driver's connections, and {', '.join(_TYPES)}"
        ) from None


def _options(parts: SplitResult) -> tuple[_Own, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: _TYPES[name](value) for name, value in pairs if name in _TYPES}
    return _Own(**own), urlencode([pair for pair in pairs if pair[0] not in _TYPES])


def _check(own: _Own, scheme: str) -> None:
    if not 0.0 < own.deadline_s <= 60.0:
        raise ConfigurationError("deadline_s is above 0 and at most 60")
    if own.wait_replicas < 0 or (own.wait_replicas and not 0 < own.wait_ms <= own.deadline_s * 500):
        raise ConfigurationError("wait_replicas is not negative; wait_ms is above 0 and at most half the deadline")
    if own.wait_replicas and scheme == "redis+cluster":
        raise ConfigurationError("wait_replicas cannot be had from a cluster; set min-replicas-to-write on its nodes")


def _defaults(own: _Own) -> dict[str, Any]:
    # Protocol 2 has no messages that nobody asked for. The lanes time their calls: the driver's way costs as much as a call.
    # The lanes try again: the driver need not.
    return {
        "protocol": 2,
        "driver_info": None,
        "socket_timeout": None,
        "socket_connect_timeout": own.deadline_s / ATTEMPTS_IN_DEADLINE,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
    }


def _lanes(pool: ConnectionPool, own: _Own, **more: Any) -> Lanes:
    pool.make_connection()  # TypeError for an option that it does not know
    wait = {"wait_replicas": own.wait_replicas, "wait_ms": own.wait_ms} if own.wait_replicas else {}
    return Lanes(pool, deadline_s=own.deadline_s, **wait, **more)


def _single(parts: SplitResult, own: _Own) -> Lanes:
    defaults = {"max_connections": MAX_CONNECTIONS, "timeout": own.deadline_s, **_defaults(own)}
    return _lanes(BlockingConnectionPool.from_url(parts.geturl(), **defaults), own)


def _cluster(parts: SplitResult, own: _Own) -> Cluster:
    defaults = {"max_connections": MAX_CONNECTIONS, **_defaults(own), "retry": Retry(BACKOFF, RETRIES)}
    defaults["socket_timeout"] = defaults["socket_connect_timeout"]
    options: dict[str, Any] = {**defaults, **parse_url(parts._replace(scheme="redis").geturl())}
    return Cluster(RedisCluster(**options), at_once=options["max_connections"], deadline_s=own.deadline_s)


def _sentinel(parts: SplitResult, own: _Own) -> Lanes:
    """The credentials in front of the addresses are the master's; those of the Sentinels are in the query."""
    credentials, _, addresses = parts.netloc.rpartition("@")
    service = unquote(parts.path.strip("/"))
    if not service:
        raise ConfigurationError("the name of the service is missing: redis+sentinel://host:port,host:port/service")
    hosts = [urlsplit(f"//{address}") for address in addresses.split(",")]
    options: dict[str, Any] = {"max_connections": MAX_CONNECTIONS, **_defaults(own)}
    options |= parse_url(f"redis://{credentials}@?{parts.query}")
    is_tls = str(options.pop("ssl", "no")).lower() in ("1", "yes", "true")
    theirs: dict[str, Any] = {name: value for name, value in options.items() if name.startswith("ssl_")}
    theirs |= {"ssl": is_tls, "protocol": 2, "driver_info": None, "retry": Retry(NoBackoff(), 0)}
    theirs |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    theirs |= {"username": own.sentinel_username, "password": own.sentinel_password}
    addresses_of = [(host.hostname or "localhost", host.port or SENTINEL_PORT) for host in hosts]
    sentinel = Sentinel(addresses_of, sentinel_kwargs=theirs)
    pool = SentinelConnectionPool(service, sentinel, ssl=is_tls, **options)
    return _lanes(pool, own, sentinels=sentinel.sentinels, find_master=pool.get_master_address)
