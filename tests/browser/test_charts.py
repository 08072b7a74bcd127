"""What the pages write and draw where numbers are very large, very small, or few, and where texts are long."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SIZES, Opened, Told
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


def test_a_calibration_tells_numbers_only_at_the_cursor(open_page: Opened) -> None:
    """Those of its last bin would look like a summary."""
    page = open_page("/sessions/flights/page")
    expect(page.locator("#legend-quality output").first).to_contain_text("%")
    happened = page.locator("#legend-reliability output").first
    expect(happened).to_have_text("")
    page.locator("#plot-reliability .u-over").hover()
    expect(happened).to_contain_text("%")


@pytest.mark.parametrize("size", SIZES)
def test_long_numbers_and_labels_stay_whole_and_in_place(open_page: Opened, told: Told, size: str) -> None:
    with changed(told, "demand"):
        one = told.documents["demand"]
        for last in one["rounds"]["rounds"]:
            last |= {"label": "L" * 200, "y": "L" * 200, "value": None}
        one["session"] |= {"t": 123_456_789, "fields": [{"name": "f" * 200, "type": "number", "columns": [0]}]}
        one["session"]["metrics"] |= {"window_rmse": 2.4531e100, "rmse": 2.4531e100}
        page = open_page("/sessions/demand/page", size=size)
        number = page.locator("#numbers dd")
        for i, text in ((0, "123,456,789"), (1, "2.453e+100"), (2, "2.453e+100")):
            expect(number.nth(i)).to_have_text(text)
            assert number.nth(i).evaluate("one => one.scrollWidth <= one.clientWidth && one.offsetHeight < 40")
        for cell in page.locator("#rounds tbody tr:first-child td").all():
            assert cell.evaluate("one => one.offsetWidth") <= 340
        if size == "desktop":
            assert page.locator("#inputs").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_a_long_name_leaves_room_for_the_verdicts(open_page: Opened, told: Told) -> None:
    before = told.entries[0]
    long = {
        "name": "0" * 64,
        "t": 1_000_000,
        "error_name": "RMSE",
        "error": 2.4531e100,
        "verdict": {"text": "1 % worse than the majority so far, not sure yet"},
    }
    told.entries[0] = before | long
    try:
        page = open_page("/?limit=5")
        for width in (1081, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            verdicts = page.locator(".sessions .verdict .mark")
            expect(verdicts.first).to_contain_text("1 % worse")
            assert max(one.evaluate("one => one.offsetHeight") for one in verdicts.all()) < 90
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        told.entries[0] = before
