"""Chromium, and services whose dashboard it opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from service.settings import Settings
from tests.chromium import chromium_browser
from tests.service.dashboard import MadeUp, app_of
from tests.service.listening import listening

SIZES = {"desktop": (1280, 800), "tablet": (900, 1000), "phone": (390, 844), "small": (360, 640)}


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Of this folder, since its start takes seconds: tests of asyncio, which cannot run beside it, are in others."""
    with chromium_browser() as browser:
        yield browser


@dataclass
class Seen:
    """What a page said and asked for."""

    console: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@pytest.fixture
def seen() -> Seen:
    return Seen()


class Opened:
    """Opens pages at one service, and notes what they do."""

    def __init__(self, browser: Browser, base: str, seen: Seen) -> None:
        self._browser = browser
        self.base = base
        self._seen = seen
        self.contexts: list[BrowserContext] = []

    def __call__(self, path: str, *, size: str = "desktop", scheme: str = "light", script: bool = True) -> Page:
        width, height = SIZES[size]
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            # A dot that breathes for ever is drawn sixty times a second, here by the processor.
            reduced_motion="reduce",
            java_script_enabled=script,
            base_url=self.base,
        )
        context.set_default_timeout(20_000)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self._seen.console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self._seen.console.append(str(error)))
        page.on("request", lambda request: self._seen.hosts.add(urlsplit(request.url).netloc))
        page.goto(path)
        return page


class Told(MadeUp):
    """Made-up sessions, and the stream of events that tells of their changes."""

    def __init__(self) -> None:
        super().__init__(many=40)
        self.is_streaming = True
        self.events = 0

    async def stream(self, _: object) -> Response:
        if not self.is_streaming:
            return Response(status_code=204)  # which tells a browser to ask no more, and says nothing on its console

        async def told() -> AsyncIterator[str]:
            last = self.events
            yield ": hello\n\n"
            while self.is_streaming:
                await asyncio.sleep(0.05)
                if self.events != last:
                    last = self.events
                    yield f"id: {last}\nevent: session\ndata: {{}}\n\n"

        return StreamingResponse(told(), media_type="text/event-stream")


@pytest.fixture(scope="package")
def told() -> Told:
    return Told()


@pytest.fixture(scope="package")
def dashboard(told: Told) -> Iterator[str]:
    """A service that shows made-up sessions; its API is the real one, on an empty store."""
    app = app_of(told, Settings(store="sqlite://", log_level="error"))
    app.router.routes.insert(0, Route("/sessions/{session}/events", told.stream))
    with listening("sqlite://", app) as base:
        yield base
        told.is_streaming = False


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with listening("sqlite://") as base:
        yield base


def _opened(chromium: Browser, base: str, seen: Seen) -> Iterator[Opened]:
    opened = Opened(chromium, base, seen)
    yield opened
    for context in opened.contexts:
        context.close()


@pytest.fixture
def open_page(chromium: Browser, dashboard: str, seen: Seen) -> Iterator[Opened]:
    """Opens a page of the made-up sessions."""
    yield from _opened(chromium, dashboard, seen)


@pytest.fixture
def open_real(chromium: Browser, service: str, seen: Seen) -> Iterator[Opened]:
    """Opens a page of a service with sessions of its own."""
    yield from _opened(chromium, service, seen)
