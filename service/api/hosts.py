"""The host names that the service answers to, and the web pages that may send requests."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, final

PRIVATE: Final = ("localhost", "local", "internal", "lan", "home.arpa", "test", "svc", "cluster.local")
"""Suffixes of names that nobody can own in the public DNS, so no foreign web page has such a name."""

_PRIVATE_ENDS: Final = tuple(f".{end}" for end in PRIVATE)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


@final
class Hosts:
    """The host names that the service answers to.

    A page of evil.example may have its name resolve to this machine, and would then have the same origin as the service (DNS
    rebinding). Addresses, and names that nobody can own in the public DNS, are safe from that. Other names must be listed.
    """

    def __init__(self, bound: str, allowed: tuple[str, ...]) -> None:
        self._is_open = "*" in allowed
        self._names = frozenset(name.lower() for name in (bound, *allowed))
        self._ends = tuple(name[1:].lower() for name in allowed if name.startswith("*."))

    def refusal(self, host: bytes) -> str | None:
        """What is wrong with a Host header, or None."""
        if self._is_open:
            return None
        found = _HOST.fullmatch(host.decode("latin-1"))
        if found is None:
            return f"The header Host is missing or invalid: {shown(host)}."
        name = found["name"].rstrip(".").lower()
        if name in self._names or name.endswith(self._ends) or _is_private(name) or _is_address(name):
            return None
        return f"This service does not answer to the name {shown(name.encode())}; OKL_ALLOWED_HOSTS lists the allowed ones."


def _is_private(name: str) -> bool:
    return "." not in name or name.endswith(_PRIVATE_ENDS)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_own_page(origin: bytes, host: bytes, allowed: frozenset[str]) -> bool:
    """Whether the origin is the service's own, or a listed one. The scheme may differ, since a proxy may terminate TLS."""
    if "*" in allowed or origin.decode("latin-1") in allowed:
        return True
    scheme, _, authority = origin.lower().partition(b"://")
    port = _PORTS.get(scheme)
    return port is not None and authority.removesuffix(port) == host.lower().removesuffix(port)


_PORTS: Final = {b"http": b":80", b"https": b":443"}


def shown(value: bytes) -> str:
    """A header's value, cut and escaped so that an error may quote it."""
    return repr(value[:100].decode("latin-1"))
