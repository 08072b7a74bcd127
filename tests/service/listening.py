"""The service on a real socket, in a thread of this process: for tests that neither kill a worker nor are about its start."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from fastapi import FastAPI

from service.server import config
from service.settings import Settings
from tests.service.api import app_with


@contextmanager
def listening(store: str, app: FastAPI | None = None, *, port: int = 0) -> Iterator[str]:
    """The url of a service on this store, or of the app on whatever it was made with, until the end of the block."""
    settings = Settings(store=store, log_level="error", shutdown_grace_s=1)
    with socket.create_server(("127.0.0.1", port)) as listening:
        server = uvicorn.Server(config(app or app_with(settings), settings))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            # The socket takes connections already: they wait until the service is there.
            assert httpx.get(f"{url}/readyz", timeout=60.0, trust_env=False).status_code == 200
            yield url
        finally:
            server.should_exit = True
            thread.join()
