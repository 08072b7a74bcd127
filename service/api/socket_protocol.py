"""The server's protocol for websockets, of which the application itself ends those that it has accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

MOST_PARTS: Final = 1_000
"""The parts of a message that are kept apart: each takes memory beyond its bytes, and an empty one does too."""


@final
class SocketProtocol(WebSocketsSansIOProtocol):
    """A websocket that a stopping server leaves open until the application has answered its handshake, and what was read
    from it, within the grace period."""

    def handle_cont(self, event: Frame) -> None:
        """Take a part of a message, which may have any number of them."""
        super().handle_cont(event)
        if len(self.frames) >= MOST_PARTS:
            self.frames = [b"".join(self.frames)]

    def send_receive_event_to_app(self) -> None:
        """Pass a message on, unless it is a text that is not UTF-8: the server would log a traceback for each of those."""
        if self.curr_msg_data_type == "bytes" or self.close_sent or _is_text(self.frames):
            super().send_receive_event_to_app()
            return
        self.frames = []
        # Otherwise the client has closed the websocket behind the text, which then is answered like any other close.
        if self.conn.state is State.OPEN:
            self.conn.fail(CloseCode.INVALID_DATA, "a text is not UTF-8")
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Tell the client the code, and drop what it still sends: closing would reset the connection, and lose the code."""
        # TLS cannot end one direction alone.
        if not self.transport.can_write_eof():
            super().handle_parser_exception()
            self.disconnected = True
        elif not self.close_sent:
            assert self.conn.close_sent is not None
            code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.write_eof()
            self.close_sent = self.disconnected = True
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def shutdown(self) -> None:
        """Close nothing: a client whose handshake is under way would be told of an internal error."""


def _is_text(parts: Sequence[bytes]) -> bool:
    try:
        b"".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True
