"""What Schemathesis has to know of the service; it imports this module in its own process."""

from __future__ import annotations

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def arrow(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """No stream of Arrow: tests/service/test_arrow.py makes those."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Ask a session that exists."""
    if isinstance(case.body, dict) and "session" in case.body:
        case.body["session"] = "fuzz-0"
