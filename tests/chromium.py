"""Chromium, as the distribution has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    """As long as it is there a loop runs in this thread, and nothing of asyncio can. Raises FileNotFoundError."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        raise FileNotFoundError("there is no chromium on PATH: run `make tools`")
    with sync_playwright() as playwright:
        # In a container there is often no user namespace for its sandbox; it opens our own pages only.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
