"""Trace context (W3C, level 1): the trace of a request, for logs and for requests sent on its behalf."""

from __future__ import annotations

import re
from contextvars import ContextVar
from random import getrandbits
from typing import Final, NamedTuple

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """A trace; `trace_id` has 32 hexadecimal digits, `flags` two."""

    trace_id: str
    flags: str

    def child(self) -> str:
        """The `traceparent` header of a request sent within this trace."""
        return f"00-{self.trace_id}-{getrandbits(64) or 1:016x}-{self.flags}"


current: Final[ContextVar[Trace | None]] = ContextVar("okl_trace", default=None)
"""The trace of the request under way; None if the request named none."""


def trace_of(header: bytes) -> Trace | None:
    """The trace that a `traceparent` header names; None if the header is malformed.

    Examples
    --------
    >>> trace_of(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    Trace(trace_id='4bf92f3577b34da6a3ce929d0e0e4736', flags='01')
    >>> trace_of(b"00-00000000000000000000000000000000-00f067aa0ba902b7-01")
    """
    found = _TRACEPARENT.fullmatch(header)
    if found is None:
        return None
    version, trace_id, parent, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more) or not int(trace_id, 16) or not int(parent, 16):
        return None
    return Trace(trace_id.decode(), flags.decode())
