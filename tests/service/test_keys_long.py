"""What may go on for ever: it ends with its key. And websockets, which are asked as plain requests are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from okl.errors import Forbidden, TooManyRequests, Unauthenticated
from service.api import authentication
from service.api.access import READ, WEBSOCKET, AccessRule
from service.api.authentication import Authentication
from service.api.request_checks import RequestChecks
from service.keys import caller, keyring
from service.keys.key import Key, KeyScope, mint
from service.keys.keyring import Keyring
from service.settings import Settings
from service.store.opening import open_store
from service.telemetry.counts import Counts
from tests.service.keyed import Shelf, make

pytestmark = pytest.mark.anyio

LONG = AccessRule(WEBSOCKET, "/sessions/{session}/stream", READ, is_long=True)
EVENTS = AccessRule("GET", "/sessions/{session}/events", READ, is_long=True)


class Peer:
    """A client that says what it is told to, and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.says: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> Any:
        return await self.says.get()

    async def send(self, message: Any) -> None:
        self.heard.append(message)


async def chat(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers every message with whether it may be."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        try:
            await caller.admit()
            caller.named(message["text"])
            told = "ok"
        except (Forbidden, TooManyRequests, Unauthenticated) as error:
            told = error.slug
        await send({"type": "websocket.send", "text": told})


async def events(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"data\n\n", "more_body": True})
        await asyncio.sleep(0.01)


async def behind(
    app: ASGIApp, key: Key, *, counts: Counts | None = None, wall_clock: Callable[[], float] = time.time
) -> tuple[ASGIApp, Callable[[], Awaitable[None]]]:
    """The app behind a key, and a function that revokes the key."""
    shelf, ring = Shelf(), Keyring(is_open=False, wall_clock=wall_clock)
    shelf.put(key)
    ring.keep(shelf)
    await ring.refresh()

    async def revoke() -> None:
        shelf.put()
        await ring.refresh()

    authenticated = Authentication(app, ring, rules=(LONG, EVENTS))
    return RequestChecks(authenticated, Settings(store="sqlite://"), counts), revoke


def socket(path: str, **headers: str) -> Scope:
    given = [(b"host", b"okl"), *((name.encode(), value.encode()) for name, value in headers.items())]
    return {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": given,
        "extensions": {"websocket.http.response": {}},
    }


@pytest.mark.parametrize(
    ("path", "is_given", "status"),
    [
        ("/sessions/team-a/stream", False, 401),
        ("/sessions/other/stream", True, 403),
        ("/sessions/team-a/nothing", True, 404),
        ("/nothing", False, 401),
    ],
)
async def test_a_websocket_is_refused_before_it_opens(path: str, is_given: bool, status: int) -> None:
    key, text = mint("k", KeyScope.WRITE, prefix="team-", now=0.0)
    counts = Counts()
    app, _ = await behind(chat, key, counts=counts)
    peer = Peer()
    peer.says.put_nowait({"type": "websocket.connect"})
    await app(socket(path, **({"authorization": f"Bearer {text}"} if is_given else {})), peer.receive, peer.send)
    assert [message["type"] for message in peer.heard] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    assert peer.heard[0]["status"] == status
    assert [of for _, _, of in counts.requests] == [status // 100]


async def test_a_socket_of_another_pages_browser_is_refused_though_it_has_the_cookie() -> None:
    from service.keys.key import cookie_of

    key, _ = mint("k", KeyScope.WRITE, now=0.0)
    app, _ = await behind(chat, key, wall_clock=lambda: 1.0)
    cookie = f"okl_key={cookie_of(key, 1.0)[0]}"
    for origin, is_in in (({"origin": "http://evil.example"}, False), ({}, False), ({"origin": "http://okl"}, True)):
        peer = Peer()
        peer.says.put_nowait({"type": "websocket.connect"})
        peer.says.put_nowait({"type": "websocket.disconnect"})
        await app(socket("/sessions/s/stream", cookie=cookie, **origin), peer.receive, peer.send)
        assert (peer.heard[0]["type"] == "websocket.accept") == is_in, origin
        assert is_in or peer.heard[0]["status"] == 403


async def test_messages_of_a_socket_are_asked_too_and_it_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "SEEN_S", 0.05)
    key, text = mint("k", KeyScope.WRITE, prefix="team-", now=0.0)
    app, revoke = await behind(chat, key)
    peer = Peer()
    peer.says.put_nowait({"type": "websocket.connect"})
    for name in ("team-b", "other"):
        peer.says.put_nowait({"type": "websocket.receive", "text": name})
    scope = socket("/sessions/team-a/stream", authorization=f"Bearer {text}")
    talking = asyncio.create_task(app(scope, peer.receive, peer.send))
    await asyncio.sleep(0.2)
    assert [message.get("text") for message in peer.heard] == [None, "ok", "forbidden"]
    await revoke()
    peer.says.put_nowait({"type": "websocket.receive", "text": "team-b"})
    await asyncio.wait_for(talking, 5.0)
    assert peer.heard[-1] == {"type": "websocket.close", "code": 1008, "reason": "Unauthenticated"}
    assert [message.get("text") for message in peer.heard[3:-1]] in ([], ["unauthenticated"])


async def test_a_socket_that_needed_no_key_ends_when_keys_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (authentication, keyring):
        monkeypatch.setattr(module, "SEEN_S", 0.05)
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    store = open_store(url)
    await store.open()
    ring = Keyring(is_open=True)
    ring.keep(store)
    app = RequestChecks(Authentication(chat, ring), Settings(store="sqlite://"))
    peer = Peer()
    peer.says.put_nowait({"type": "websocket.connect"})
    peer.says.put_nowait({"type": "websocket.receive", "text": "any"})
    talking = asyncio.create_task(app(socket("/sessions/s/stream"), peer.receive, peer.send))
    done, _ = await asyncio.wait({talking}, timeout=0.2)
    assert not done
    assert [message.get("text") for message in peer.heard] == [None, "ok"]
    await make(url)
    await asyncio.wait_for(talking, 5.0)
    assert peer.heard[-1] == {"type": "websocket.close", "code": 1008, "reason": "Unauthenticated"}
    await store.close()


async def test_a_stream_of_events_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "SEEN_S", 0.05)
    key, text = mint("k", KeyScope.READ, now=0.0)
    app, revoke = await behind(events, key)
    peer = Peer()
    scope = socket("/sessions/s/events", authorization=f"Bearer {text}") | {"type": "http", "method": "GET"}
    listening = asyncio.create_task(app(scope, peer.receive, peer.send))
    await asyncio.sleep(0.2)
    assert not listening.done()
    assert len(peer.heard) > 2
    await revoke()
    await asyncio.wait_for(listening, 5.0)
    assert peer.heard[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_stream_that_has_not_begun_is_refused_when_its_key_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(authentication, "SEEN_S", 0.05)
    key, text = mint("k", KeyScope.READ, now=0.0)
    app, revoke = await behind(slow, key)
    peer = Peer()
    scope = socket("/sessions/s/events", authorization=f"Bearer {text}") | {"type": "http", "method": "GET"}
    listening = asyncio.create_task(app(scope, peer.receive, peer.send))
    await asyncio.sleep(0.1)
    assert not listening.done()
    await revoke()
    await asyncio.wait_for(listening, 5.0)
    assert [message.get("status") for message in peer.heard] == [Unauthenticated.status, None]


async def test_who_leaves_ends_the_stream_behind_him() -> None:
    key, text = mint("k", KeyScope.READ, now=0.0)
    ended = asyncio.Event()

    async def lasting(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await events(scope, receive, send)
        finally:
            ended.set()

    app, _ = await behind(lasting, key)
    peer = Peer()
    scope = socket("/sessions/s/events", authorization=f"Bearer {text}") | {"type": "http", "method": "GET"}
    listening = asyncio.create_task(app(scope, peer.receive, peer.send))
    await asyncio.sleep(0.05)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert ended.is_set()
