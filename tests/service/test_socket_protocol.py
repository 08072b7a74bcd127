"""The protocol of a socket: what it keeps of a message that is still arriving, and its end over TLS."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from service.api.socket_protocol import MOST_PARTS, SocketProtocol


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("no request reaches the application")


@pytest.mark.anyio
async def test_a_message_may_have_any_number_of_parts() -> None:
    """Each took memory, the empty ones too, of which there may be any number."""
    protocol = SocketProtocol(Config(app, log_config=None), ServerState(), {})
    protocol.handle_text(Frame(Opcode.TEXT, b"a", fin=False))
    for i in range(10 * MOST_PARTS):
        protocol.handle_cont(Frame(Opcode.CONT, b"b" if i % MOST_PARTS == 0 else b"", fin=False))
        assert len(protocol.frames) <= MOST_PARTS
    assert b"".join(protocol.frames) == b"a" + b"b" * 10


HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class OverTls(asyncio.Transport):
    """A connection over TLS: it cannot end one direction alone."""

    def __init__(self) -> None:
        super().__init__()
        self.has_written = asyncio.Event()
        self.is_closed = False
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.has_written.set()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.anyio
@pytest.mark.parametrize("frames", [b"\x81\x81\x00\x00\x00\x00\xff", b"\x83\x80\x00\x00\x00\x00"])
async def test_a_socket_over_tls_that_is_refused_has_disconnected_for_the_application(frames: bytes) -> None:
    """Otherwise what the application still sends is an error of its own, with a traceback in the log."""
    failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        try:
            await send({"type": "websocket.close"})
        except Exception as error:
            failed.set_result(error)

    transport = OverTls()
    protocol = SocketProtocol(Config(answering, log_config=None), ServerState(), {})
    protocol.connection_made(transport)
    protocol.data_received(HANDSHAKE)
    await transport.has_written.wait()
    protocol.data_received(frames)
    assert isinstance(await failed, ClientDisconnected)
    assert transport.is_closed


@pytest.mark.anyio
async def test_a_handshake_under_way_is_answered_by_the_application() -> None:
    """A server that stops answered it with an internal error, in plain text."""
    goes_on = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await goes_on.wait()
        await send({"type": "websocket.accept"})

    transport = OverTls()
    protocol = SocketProtocol(Config(slow, log_config=None), ServerState(), {})
    protocol.connection_made(transport)
    protocol.data_received(HANDSHAKE)
    await asyncio.sleep(0)
    protocol.shutdown()
    assert (transport.written, transport.is_closed) == (b"", False)
    goes_on.set()
    await transport.has_written.wait()
    assert transport.written.startswith(b"HTTP/1.1 101 ")
