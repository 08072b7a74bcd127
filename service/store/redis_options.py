"""The options in the query of a Redis url: which there are, and the values that they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from urllib.parse import SplitResult, parse_qsl

from okl.errors import ConfigurationError

MOST_DATABASE = 2**31 - 1
"""The server reads the number of a database as a C int."""
MOST_CONNECTIONS = 65_535
"""A machine has no more ports to connect from."""
MOST_SECONDS = 86_400

TRUE = ("1", "true", "yes", "t", "y")
FALSE = ("0", "false", "no", "f", "n")

Check = Callable[[str], str | None]
"""Says what a value must be; None if it is."""


def _whole(least: int, most: int, value: str) -> str | None:
    # More digits than `most` has are not a number that it could be, and converting them takes long.
    is_sound = value.isascii() and value.isdigit() and len(value) <= len(str(most)) and least <= int(value) <= most
    return None if is_sound else f"must be a whole number from {least} to {most}"


def _seconds(most: float, value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return None if 0.0 < number <= most else f"must be above 0 and at most {most}"


def _switch(value: str) -> str | None:
    return None if value.lower() in TRUE + FALSE else "must be true or false"


def _one_of(values: tuple[str, ...], value: str) -> str | None:
    return None if value in values else f"must be {', '.join(values[:-1])} or {values[-1]}"


def _name(value: str) -> str | None:
    return None if value.isascii() and value.isprintable() and " " not in value else "must be ASCII without spaces"


def _text(_: str) -> str | None:
    return None


TIMEOUT: Check = partial(_seconds, MOST_SECONDS)

OWN: dict[str, Check] = {
    "deadline_s": partial(_seconds, 60),
    "wait_replicas": partial(_whole, 0, 1_000),
    "wait_ms": partial(_whole, 1, 30_000),
    "sentinel_username": _text,
    "sentinel_password": _text,
}
"""The options of this store."""

DRIVERS: dict[str, Check] = {
    "username": _text,
    "password": _text,
    "client_name": _name,
    "max_connections": partial(_whole, 1, MOST_CONNECTIONS),
    "socket_timeout": TIMEOUT,
    "socket_connect_timeout": TIMEOUT,
    "socket_keepalive": _switch,
    "health_check_interval": partial(_whole, 0, MOST_SECONDS),
}
"""Options of the driver for every kind of server. Others, such as `protocol` and `decode_responses`, would change what the
store reads."""

DATABASE: dict[str, Check] = {"db": partial(_whole, 0, MOST_DATABASE), "retry_on_timeout": _switch}
SINGLE = DRIVERS | DATABASE | {"timeout": TIMEOUT}

TLS: dict[str, Check] = {
    "ssl_ca_certs": _text,
    "ssl_ca_data": _text,
    "ssl_cert_reqs": partial(_one_of, ("none", "optional", "required")),
    "ssl_certfile": _text,
    "ssl_check_hostname": _switch,
    "ssl_ciphers": _text,
    "ssl_exclude_verify_flags": _text,
    "ssl_include_verify_flags": _text,
    "ssl_keyfile": _text,
    "ssl_min_version": partial(_one_of, ("771", "772")),
}

NOT_OF_CLUSTERS: dict[str, Check] = {"ssl_ca_path": _text, "ssl_password": _text}

OF_SCHEME: dict[str, dict[str, Check]] = {
    "redis": SINGLE,
    "rediss": SINGLE | TLS | NOT_OF_CLUSTERS,
    "redis+sentinel": DRIVERS | DATABASE | {"ssl": _switch} | TLS | NOT_OF_CLUSTERS,
    "redis+cluster": DRIVERS | {"ssl": _switch} | TLS,
}


def options_of(parts: SplitResult) -> dict[str, str]:
    """The checked options of a url, whose scheme is one of `OF_SCHEME`. Raises ConfigurationError, which names the option,
    but quotes no value: it may be a password."""
    known = OF_SCHEME[parts.scheme] | OWN
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            # After an unescaped ? in a password, the query has the rest of the password and the host.
            shown = f" {name!r}" if name.isidentifier() and name.isascii() and "@" not in parts.query else ""
            raise ConfigurationError(f"unknown option{shown}; known: {', '.join(sorted(known))}")
        if name in options:
            raise ConfigurationError(f"{name} is given twice")
        if (wrong := known[name](value)) is not None:
            raise ConfigurationError(f"{name} {wrong}")
        options[name] = value
    of_tls = next((name for name in options if name.startswith("ssl_")), None)
    if of_tls is not None and "ssl" in OF_SCHEME[parts.scheme] and not is_on(options.get("ssl", "no")):
        raise ConfigurationError(f"{of_tls} needs ssl=true")
    return options


def is_database(path: str) -> bool:
    """Whether the path of a url is the number of a database."""
    return DATABASE["db"](path) is None


def is_on(value: str) -> bool:
    """Whether a checked switch is on."""
    return value.lower() in TRUE
