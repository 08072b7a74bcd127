"""The distribution's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

# The one without a window comes first: the same engine, in four fifths of the processor time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    """Start Chromium. It runs a loop in this thread, so asyncio cannot run here meanwhile. Raises FileNotFoundError."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        raise FileNotFoundError("there is no chromium on PATH: run `make tools`")
    with sync_playwright() as playwright:
        # Containers often lack the user namespace that the sandbox needs; only our own pages are opened.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
