"""The server's protocol for websockets, of which the application itself ends those that it has accepted."""

from __future__ import annotations

from typing import final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


@final
class SocketProtocol(WebSocketsSansIOProtocol):
    """A websocket that a stopping server leaves open until what was read from it is answered, within the grace period."""

    def handle_parser_exception(self) -> None:
        """Tell the client the code, and drop what it still sends: closing would reset the connection, and lose the code."""
        # TLS cannot end one direction alone, and refusals by the server itself mostly leave nothing unread.
        if self.conn.parser_exc is None or not self.transport.can_write_eof():
            super().handle_parser_exception()
        elif not self.close_sent:
            assert self.conn.close_sent is not None
            code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.write_eof()
            self.close_sent = self.disconnected = True
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def shutdown(self) -> None:
        if not self.handshake_complete:
            super().shutdown()
