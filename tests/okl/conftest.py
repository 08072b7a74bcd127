"""A service on a real socket, and clients of it."""

from __future__ import annotations

from tests.service.conftest import client, url

__all__ = ["client", "url"]
