"""A stream as its owner sees it: two real workers, a page that moves, an alarm, a prompt restart, the same history."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Opened, Seen
from tests.browser.test_dashboard import has_drawn
from tests.command import serving

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CALM, FLIPPED = 150, 60
SINGLE = 15
"""So many rounds of each part are asked for and told one by one; the others are sent in blocks."""

BLOCK = 15


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def served(folder: Path, port: int, workers: int) -> Iterator[str]:
    settings = {"OKL_LOG_LEVEL": "info", "OKL_PORT": str(port), "OKL_SHUTDOWN_GRACE_S": "5"}
    store = f"sqlite:///{folder / 'okl.sqlite3'}"
    with serving(store, folder, workers=workers, port=port, **settings) as (process, base):
        with httpx.Client(transport=httpx.HTTPTransport(retries=40)) as http:
            assert http.get(f"{base}/readyz").status_code == 200
        yield base
        started = time.monotonic()
        process.terminate()
        assert process.wait(20) == 0, "a stream of events held up the end"
    # Within less than the five seconds that those have who wait for an answer.
    assert time.monotonic() - started < 4.0


def listener(base: str) -> subprocess.Popen[bytes]:
    """Whoever reads a stream of events to its end."""
    curl = subprocess.Popen(["curl", "-sN", f"{base}/sessions/visits/events"], stdout=subprocess.PIPE)
    assert curl.stdout is not None
    while b"event: session" not in curl.stdout.readline():
        pass
    return curl


def play(http: httpx.Client, first: int, rounds: int, *, flipped: bool) -> None:
    """Each request is on a connection of its own, so that both workers get some."""
    xs = [{"a": (i * 7 % 11) / 11, "b": (i * 5 % 13) / 13} for i in range(first, first + rounds)]
    ys = ["yes" if (x["a"] > x["b"]) != flipped else "no" for x in xs]
    for start in range(0, rounds - SINGLE, BLOCK):
        block = slice(start, start + BLOCK)
        told = http.post("/sessions/visits/rounds", json={"x": xs[block], "y": ys[block]})
        assert told.status_code == 200, told.text
    for x, y in zip(xs[-SINGLE:], ys[-SINGLE:], strict=True):
        id = http.post("/sessions/visits/predict", json={"x": x}).json()["id"]
        told = http.post("/sessions/visits/update", json={"id": id, "y": y})
        assert told.status_code == 200, told.text


def test_a_stream_from_its_first_round_to_a_restart(chromium: Browser, seen: Seen, tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path, port, workers=2) as base:
        open_page = Opened(chromium, base, seen)
        page = open_page("/")
        form = page.locator("#create-form")
        form.get_by_label("Name").fill("visits")
        form.get_by_label("Labels").fill("no, yes")
        form.get_by_label("Learner").select_option("aioli")
        form.get_by_role("button").click()
        expect(page.locator("h1")).to_have_text("visits")
        phone = open_page("/sessions/visits/page", size="phone", scheme="dark")
        headers = {"connection": "close"}
        with httpx.Client(base_url=base, headers=headers, timeout=60) as http:
            play(http, 0, CALM, flipped=False)
            verdict = re.compile("beats the (majority|last label) by", re.IGNORECASE)
            for one in (page, phone):
                expect(one.get_by_text(verdict).first).to_be_visible()
                expect(one.get_by_text(f"{CALM}", exact=True).first).to_be_visible()
                has_drawn(one)
            calm = http.get("/sessions/visits/history").json()
            assert calm["alarms"] == []
            play(http, CALM, FLIPPED, flipped=True)
            told = http.get("/sessions/visits/history").json()
            assert told["alarms"][0]["kind"] == "drift"
            for one in (page, phone):
                expect(one.get_by_text(re.compile("rose from")).first).to_be_visible()
                expect(one.get_by_text(f"{CALM + FLIPPED}", exact=True).first).to_be_visible()
            page.locator("#try-form textarea").fill('{"a": 0.9, "b": 0.1}')
            page.get_by_role("button", name="Predict").click()
            expect(page.locator("#try-told")).to_contain_text(re.compile("yes|no"))
            page.goto("/")
            expect(page.get_by_text("drift").first).to_be_visible()
            last = http.get("/sessions/visits/rounds?last=1").json()["rounds"][0]
            assert last["t"] == CALM + FLIPPED
        silent, hosts = list(seen.console), set(seen.hosts)
        for context in open_page.contexts:
            context.close()
        curl = listener(base)
    curl.communicate(timeout=10)
    assert curl.returncode == 0
    with served(tmp_path, port, workers=1) as base:
        with httpx.Client(base_url=base, timeout=60) as http:
            assert http.get("/sessions/visits/history").json() == told
        open_page = Opened(chromium, base, seen)
        page = open_page("/sessions/visits/page")
        expect(page.get_by_text(re.compile("rose from")).first).to_be_visible()
        has_drawn(page)
        for context in open_page.contexts:
            context.close()
    assert silent == []
    assert hosts == {urlsplit(base).netloc}
