"""The page that `okl compare` saves: open to all, of any width, and alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from rich.console import Console

from service.commands.compare import compare
from service.commands.compare_page import save
from service.commands.recording import Selection
from tests.browser.conftest import SIZES
from tests.browser.test_dashboard import LOOK_RULES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    rows = [f"{i % 7},{'much' if i % 7 > 3 else 'little'}" for i in range(60)]
    (folder / "rows.csv").write_text("\n".join(["n,class", *rows]))
    selection = Selection.of("class", drop=None, only=None, fill="none")
    save(compare(Console(quiet=True), folder / "rows.csv", selection, ["majority", "pomdr"]), folder)
    return folder / "compare.html"


def test_the_page_is_open_to_all(chromium: Browser, saved: Path) -> None:
    page = chromium.new_page(color_scheme="dark")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        if not asked:
            page.goto(saved.as_uri())
        # All rules in one window; in the others those whose findings change with it.
        options = {} if size == "desktop" else {"resultTypes": ["violations"], "runOnly": LOOK_RULES}
        found = Axe().run(page, options=options)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        verdict = page.locator("tbody tr").last.locator("td").last
        assert (box := verdict.bounding_box()) is not None
        assert box["height"] < 60
    assert asked == [saved.as_uri()]
    page.close()
