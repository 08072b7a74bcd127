"""The pictures of the dashboard in the documentation: `python -m tests.browser.screenshots`.

A real service, a real data set, and labels that change their meaning after two thirds of it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser

from okl.client import Client
from service.demo_data import magic
from tests.chromium import chromium_browser
from tests.command import serving

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
ROUNDS, FLIP, BLOCK, LATE = 3000, 2000, 25, 30
GAUSSIAN = {"kernel": {"kind": "gaussian", "sigma": "median"}}
SESSIONS = {
    "telescope": None,
    "telescope-aioli": {"kind": "nystrom-aioli", "config": GAUSSIAN},
    "telescope-pomdr": {"kind": "pomdr", "config": GAUSSIAN},
    "telescope-majority": {"kind": "majority"},
}
LABELS = ["hadron", "gamma"]


def stream(client: Client) -> None:
    X, y = magic()
    truths = [LABELS[int((truth > 0.0) != (i >= FLIP))] for i, truth in enumerate(y[: ROUNDS + LATE].tolist())]
    for name, learner in SESSIONS.items():
        client.create(name, learner, labels=LABELS, interval=None if name.endswith(("pomdr", "majority")) else 0.9)
    for start in range(0, ROUNDS, BLOCK):
        for name in SESSIONS:
            client.rounds(name, X[start : start + BLOCK].tolist(), truths[start : start + BLOCK])
    for name in SESSIONS:
        asked = [client.predict(name, X[i].tolist())["id"] for i in range(ROUNDS, ROUNDS + LATE)]
        for i, id in enumerate(asked[: LATE // 2]):
            client.update(name, truths[ROUNDS + i], id=id)


def shoot(browser: Browser, url: str, name: str, *, width: int, height: int, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("document.querySelectorAll('.plot canvas').length > 3 || !document.querySelector('.plot')")
    page.wait_for_timeout(1500)
    page.screenshot(path=FIGURES / f"{name}.png")
    context.close()


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(f"sqlite:///{folder}/okl.sqlite3", Path(folder)) as (_, base),
        Client(base) as client,
        chromium_browser() as browser,
    ):
        while not client.is_ready():
            time.sleep(0.1)
        stream(client)
        page = f"{base}/sessions/telescope-aioli/page"
        shoot(browser, page, "dashboard", width=1280, height=1060, scheme="light")
        shoot(browser, base, "dashboard-sessions", width=1280, height=560, scheme="dark")
        shoot(browser, page, "dashboard-phone", width=390, height=844, scheme="dark")


if __name__ == "__main__":
    main()
