"""The server's protocol for websockets, of which the application itself ends those that it has accepted."""

from __future__ import annotations

from typing import final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


@final
class SocketProtocol(WebSocketsSansIOProtocol):
    """A websocket that a stopping server leaves open until what was read from it is answered, within the grace period."""

    def shutdown(self) -> None:
        if not self.handshake_complete:
            super().shutdown()
