"""Map the driver's exceptions to the store's errors, and decide which are retryable."""

from __future__ import annotations

import logging

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from okl.errors import StoreCorrupt, StoreError, StoreRefused, StoreTimeout, StoreUnavailable

FAILURES = (RedisError, RedisClusterException, OSError)
_REFUSED = (AuthenticationError, AuthorizationError)
MOVED_ON = (ReadOnlyError, MasterDownError, BusyLoadingError)
"""The server no longer takes writes, or not yet."""

_DAMAGE = ("WRONGTYPE", "user_script:", "The ID specified in X")
"""Prefixes of errors caused by what a script finds under a session's keys."""

_FORBIDDEN = ("The user executing the script can't", "ACL failure in script")
"""The first is from Redis 7.0, the second from Redis 8 and Valkey."""

_CANNOT_SAVE, _WITHOUT_REPLICAS = "MISCONF", "NOREPLICAS"

_log = logging.getLogger("okl.store")


class NotReplicatedError(RedisTimeoutError):
    """Too few replicas acknowledged a write in time."""


def store_error(error: Exception) -> StoreError:
    """The driver's error as one of the store's, without the server's address, which only the log shows."""
    match error:
        case NotReplicatedError():
            return StoreTimeout("Too few replicas of Redis have acknowledged the write in time.")
        case RedisTimeoutError() | TimeoutError():
            return StoreTimeout("Redis did not answer in time.")
        case AuthenticationError() | AuthorizationError():
            return StoreRefused("Redis refuses the user or the password of this service.")
        case NoPermissionError():
            return StoreUnavailable("Redis forbids this service a command that it needs.")
        case BusyLoadingError():
            return StoreUnavailable("Redis is loading its data.")
        case ReadOnlyError():
            return StoreUnavailable(
                "This Redis is a replica and takes no writes: try again, or give the url of its master."
            )
        case MasterDownError():
            return StoreUnavailable("Redis has no master that takes writes.")
        case OutOfMemoryError():
            return StoreUnavailable("Redis is out of memory.")
        case ClusterDownError() | TryAgainError() | ClusterError() | RedisClusterException():
            return StoreUnavailable("The Redis cluster does not serve this session now.")
        case ConnectionError() | OSError():
            return StoreUnavailable("Redis cannot be reached.")
        case _ if str(error).startswith(_FORBIDDEN):
            return StoreUnavailable("Redis forbids this service a command that it needs.")
        case _ if str(error).startswith(_CANNOT_SAVE):
            return StoreUnavailable("Redis cannot write to its disk, and takes no writes.")
        case _ if str(error).startswith(_WITHOUT_REPLICAS):
            return StoreUnavailable("Redis has fewer replicas than its min-replicas-to-write, and takes no writes.")
        case _:
            return StoreUnavailable("Redis cannot serve.")


def refused(error: ResponseError, server: str, what: str, **extra: str) -> StoreError:
    """The error for a refused command about `what`: damaged data, or a server that cannot or may not serve."""
    if str(error).startswith(_DAMAGE):
        return damaged(what, **extra)
    log_failure(error, server)
    return store_error(error)


def damaged(what: str, **extra: str) -> StoreCorrupt:
    return StoreCorrupt(f"{what} cannot be read: Redis holds something else there, or a part of it.", **extra)


def is_refusal(error: Exception) -> bool:
    """Whether the server is healthy and refused just this command."""
    if not isinstance(error, ResponseError):
        return False
    if isinstance(error, (*MOVED_ON, OutOfMemoryError, ClusterDownError, TryAgainError)):
        return False
    return not str(error).startswith((_CANNOT_SAVE, _WITHOUT_REPLICAS, "BUSY ", "UNBLOCKED", "UNKILLABLE"))


def log_failure(error: BaseException, server: str) -> None:
    _log.warning("redis failed", extra={"error": str(error) or type(error).__name__, "server": server})


def is_passing(error: Exception) -> bool:
    if isinstance(error, (*_REFUSED, NotReplicatedError)):
        return False
    return isinstance(error, (ConnectionError, RedisTimeoutError, OSError, *MOVED_ON))
