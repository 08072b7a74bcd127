"""The protocol of a socket: what it keeps of a message that is still arriving."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from service.api.socket_protocol import MOST_PARTS, SocketProtocol


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotImplementedError


@pytest.mark.anyio
async def test_a_message_may_have_any_number_of_parts() -> None:
    """Each took memory, the empty ones too, of which there may be any number."""
    protocol = SocketProtocol(Config(app, log_config=None), ServerState(), {})
    protocol.handle_text(Frame(Opcode.TEXT, b"a", fin=False))
    for i in range(10 * MOST_PARTS):
        protocol.handle_cont(Frame(Opcode.CONT, b"b" if i % MOST_PARTS == 0 else b"", fin=False))
        assert len(protocol.frames) <= MOST_PARTS
    assert b"".join(protocol.frames) == b"a" + b"b" * 10
