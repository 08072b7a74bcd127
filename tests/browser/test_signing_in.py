"""Signing in in a browser: what its policy lets through, and pages whose forms are hidden."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from service.commands import keys
from tests.browser.conftest import Opened, Seen
from tests.service.listening import listening

pytestmark = pytest.mark.browser


@pytest.fixture
def closed(tmp_path: Path, chromium: Browser, seen: Seen) -> Iterator[tuple[Opened, dict[str, str]]]:
    """A service that asks for keys, opened by a browser; and a key of each scope."""
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    # The browser's loop runs in this thread, and the command has one of its own.
    with ThreadPoolExecutor(1) as thread:
        made = {scope: thread.submit(keys.create, store, scope, scope).result()[1] for scope in ("read", "admin")}
    with listening(store) as base:
        opened = Opened(chromium, base, seen)
        yield opened, made
        for context in opened.contexts:
            context.close()


def test_who_signs_in_creates_a_session_and_signs_out(closed: tuple[Opened, dict[str, str]], seen: Seen) -> None:
    open_page, made = closed
    page = open_page("/")
    expect(page).to_have_title("Sign in · okl")
    assert Axe().run(page).violations_count == 0
    page.get_by_label("Key").fill(made["admin"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_title("Sessions · okl")
    expect(page.locator("#create-curl")).to_contain_text('-H "Authorization: Bearer $OKL_KEY"')
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_title("demo · okl")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_title("Sign in · okl")
    assert page.context.cookies() == []
    assert seen.console == []


def test_a_page_without_its_forms_is_silent(closed: tuple[Opened, dict[str, str]], seen: Seen) -> None:
    open_page, made = closed
    page = open_page("/signin?next=%2F")
    page.get_by_label("Key").fill(made["admin"])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_title("demo · okl")
    reader = open_page("/sessions/demo/page")
    reader.get_by_label("Key").fill(made["read"])
    reader.get_by_role("button", name="Sign in").click()
    expect(reader).to_have_title("demo · okl")
    expect(reader.get_by_role("heading", name="Try it")).to_have_count(0)
    expect(reader.get_by_role("heading", name="Delete")).to_have_count(0)
    reader.goto("/")
    expect(reader.get_by_role("heading", name="New session")).to_have_count(0)
    assert seen.console == []


def test_a_phone_has_room_for_a_long_name_beside_the_way_home_and_out(closed: tuple[Opened, dict[str, str]]) -> None:
    open_page, made = closed
    name = "demand-forecast-store-" + "1234567890" * 4
    headers = {"Authorization": f"Bearer {made['admin']}"}
    assert httpx.post(f"{open_page.base}/sessions", json={"name": name}, headers=headers).status_code == 201
    page = open_page(f"/sessions/{name}/page", size="small")
    page.get_by_label("Key").fill(made["read"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#live-text")).to_have_text("Live")
    for part in (page.locator(".brand"), page.get_by_role("button", name="Sign out")):
        assert (box := part.bounding_box()) is not None
        assert box["height"] < 30
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("path", ["/", "/sessions/visits/page"])
def test_an_open_page_says_that_its_reader_is_signed_out(
    closed: tuple[Opened, dict[str, str]], tmp_path: Path, path: str
) -> None:
    open_page, made = closed
    headers = {"Authorization": f"Bearer {made['admin']}"}
    assert httpx.post(f"{open_page.base}/sessions", json={"name": "visits"}, headers=headers).status_code == 201
    page = open_page(path)
    page.get_by_label("Key").fill(made["read"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#live")).to_have_class("live on")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(keys.revoke, f"sqlite:///{tmp_path / 'okl.sqlite3'}", made["read"].split("_")[1]).result()
    expect(page.locator("#live-text")).to_have_text("Signed out", timeout=15_000)
    expect(page.locator("#live")).to_have_class("live off")
