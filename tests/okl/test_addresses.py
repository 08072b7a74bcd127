"""What a client is told of where the service is: a url, a key, and the environment's proxies."""

from __future__ import annotations

import time

import pytest

import okl
from okl.client import Client
from okl.errors import ConfigurationError, Unreachable


@pytest.fixture
def session(client: Client) -> str:
    client.create("near", "mean", dim=1)
    return "near"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "localhost:8000",
        "ftp://okl.example",
        "http://",
        "http://a:b",
        "http://a:65536",
        "http://a:0",
        "http://a:-1",
        f"http://{'a' * 64}",
        "",
    ],
)
def test_what_is_no_url_is_told_at_once(url: str) -> None:
    """Not after 30 s, as where nobody answers."""
    started = time.monotonic()
    for made in (okl.Client, okl.AsyncClient):
        with pytest.raises(ConfigurationError, match="url"):
            made(url)
    assert time.monotonic() - started < 5.0


def test_a_key_is_taken_from_a_line_and_never_told(url: str) -> None:
    with Client(url, key=" okl_abc\n") as client:
        assert client.sessions() == []
    for wrong in ("okl_sécret", "okl_sec\nret"):
        with pytest.raises(ConfigurationError, match="key") as told:
            Client(url, key=wrong)
        assert "okl_s" not in str(told.value)


def test_a_password_in_the_url_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("okl.conversation.BACK_WITHIN_S", 0.0)
    for wrong in ("bob:hunter2@127.0.0.1", "http://bob:hunter2"):
        with pytest.raises(ConfigurationError) as refused:
            Client(wrong)
        assert "hunter2" not in str(refused.value)
    with Client("http://bob:hunter2@127.0.0.1:9") as client:
        for call in (client.sessions, lambda: next(client.events("s")), lambda: client.stream("s").__enter__()):
            with pytest.raises(Unreachable, match=r"//127\.0\.0\.1:9 ") as told:
                call()
            assert "hunter2" not in str(told.value)
        assert repr(client.session("clicks")) == "Session('clicks', 'http://127.0.0.1:9')"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_no_proxy_leads_to_this_machine(url: str, session: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Client(url) as client:
        assert client.is_ready()
        with client.stream(session) as stream:
            assert stream.one({"x": [1.0], "wait": False})["session"] == session


@pytest.mark.anyio
async def test_nor_for_tasks(url: str, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with okl.AsyncClient(url) as client, client.stream(session) as stream:
        assert (await stream.one({"x": [1.0], "wait": False}))["session"] == session


def test_others_are_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Here the service itself stands for one, and refuses what it is asked for."""
    monkeypatch.setenv("HTTP_PROXY", url)
    for address in ("http://okl.example", "http://[2001:db8::1]:8000"):
        with Client(address) as client, pytest.raises(okl.ServiceError) as told:
            client.sessions()
        assert not isinstance(told.value, Unreachable)
    with Client("http://[::1]:9") as client:
        assert not client.is_ready()
