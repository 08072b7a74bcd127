"""What the charts write and draw where numbers are very large, very small, or few."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opened, Told
from tests.browser.test_live import changed

pytestmark = pytest.mark.browser

AXIS_PX = 50
"""So much room a number has beside an axis."""

WATCHED = """
window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...places) {
  window.written.push([text, this.measureText(text).width / devicePixelRatio]);
  return write.call(this, text, ...places);
};
"""


def own_pixels(page: Page, chart: str) -> int:
    """Of the colour in which a session's own line is drawn, in light."""
    return page.locator(f"#plot-{chart} canvas").evaluate(
        """canvas => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let many = 0;
            for (let i = 0; i < data.length; i += 4) many += data[i] === 0x4f && data[i + 1] === 0x46 && data[i + 2] === 0xe5;
            return many;
        }"""
    )


@pytest.mark.parametrize(
    ("size", "own", "mark"), [(1e60, "1.230e+60", "5e+59"), (1e-9, "1.230e-09", "5e-10"), (1e-40, "1.230e-40", "5e-41")]
)
def test_numbers_of_any_size_fit_beside_an_axis(
    open_page: Opened, told: Told, size: float, own: str, mark: str
) -> None:
    with changed(told, "demand"):
        points = told.documents["demand"]["history"]["points"]
        points["window_error"], points["window_rival_error"] = [1.23 * size] * 512, [2.3 * size] * 512
        page = open_page("/")
        page.context.add_init_script(WATCHED)
        page.goto("/sessions/demand/page")
        expect(page.locator("#legend-quality output").first).to_have_text(own)
        written = page.evaluate("window.written")
        assert mark in [text for text, _ in written]
        assert [text for text, width in written if width > AXIS_PX] == []


@pytest.mark.parametrize("has_neighbours", [False, True])
def test_a_number_between_two_that_are_not_known_is_a_dot(open_page: Opened, told: Told, has_neighbours: bool) -> None:
    with changed(told, "demand"):
        points = told.documents["demand"]["history"]["points"]
        points["delay_s"] = [None] * 200 + [60.0] + [None] * 311
        if not has_neighbours:
            for name, column in points.items():
                points[name] = column[200:201]
        page = open_page("/sessions/demand/page")
        expect(page.locator("#plot-delay canvas")).to_be_visible()
        assert own_pixels(page, "delay") > 4
