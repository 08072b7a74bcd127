"""What an open page does while its session changes, its service is away, and its reader reads on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from tests.browser.conftest import Opened, Told
from tests.browser.test_dashboard import PAGES, has_drawn, play

pytestmark = pytest.mark.browser


@contextmanager
def changed(told: Told, name: str) -> Iterator[None]:
    """The session's document is a copy within the block, and what it was after it."""
    before = told.documents[name]
    told.documents[name] = copy.deepcopy(before)
    try:
        yield
    finally:
        told.documents[name] = before


def legend(page: Page, chart: str) -> list[str]:
    """The names of a chart's lines, without their numbers."""
    lines = page.locator(f"#legend-{chart} li").all()
    return [
        line.evaluate("one => [...one.childNodes].slice(0, -1).map((part) => part.textContent).join('').trim()")
        for line in lines
    ]


def test_lines_keep_their_names_when_their_order_changes(open_page: Opened, told: Told) -> None:
    page = open_page(PAGES["numbers"])
    has_drawn(page)
    assert legend(page, "weights")[0] == "kernel-ridge sigma=1"
    with changed(told, "mixture"):
        history = told.documents["mixture"]["history"]
        history["weights"]["values"].reverse()
        history["rival"] = "last-value"
        told.events += 1
        expect(page.locator("#legend-weights li").first).to_contain_text("kernel-ridge sigma=2")
        assert legend(page, "quality") == ["this session", "last-value"]
        heads = page.locator("#table-weights th").all_text_contents()
        assert heads == ["round", *legend(page, "weights")]
        # The number beside a name is the latest of its own line.
        cells = page.locator("#table-weights tbody tr").first.locator("td").all_text_contents()
        assert page.locator("#legend-weights output").all_text_contents() == cells[1:]


def test_a_new_chart_leaves_what_was_chosen(open_page: Opened, told: Told) -> None:
    page = open_page(PAGES["classes"])
    has_drawn(page)
    chosen = page.get_by_label("Loss, all rounds", exact=True)
    chosen.check(force=True)
    with changed(told, "flights"):
        told.documents["flights"]["history"]["points"]["regret"] = [1.0] * 512
        told.events += 1
        expect(page.locator("#plot-regret canvas")).to_be_visible()
        expect(chosen).to_be_checked()


def test_charts_stay_as_they_are_while_a_figure_comes_and_goes(open_page: Opened, told: Told) -> None:
    page = open_page(PAGES["classes"])
    has_drawn(page)
    page.locator("#chart-quality summary").click()
    page.get_by_label("Loss, all rounds", exact=True).check(force=True)
    in_step = "uPlot.sync('rounds').plots.length"
    plots = page.evaluate(in_step)
    with changed(told, "flights"):
        waiting = told.documents["flights"]["waiting"]
        points = told.documents["flights"]["history"]["points"]
        for focused in (page.get_by_label("Loss, all rounds", exact=True), page.locator("#chart-waits summary")):
            focused.focus()
            for has_more in (0, 1):
                waiting["waiting"] = has_more
                points["regret"] = [1.0 if has_more else None] * 512
                told.events += 1
                for chart in ("#chart-ages", "#plot-regret canvas"):
                    expect(page.locator(chart)).to_have_count(has_more)
                expect(focused).to_be_focused()
                assert page.evaluate(in_step) == plots + has_more
        expect(page.get_by_label("Loss, all rounds", exact=True)).to_be_checked()
        expect(page.locator("#table-quality")).to_be_visible()


def test_a_comparison_says_whose_loss_it_draws_once_a_regressor_has_rounds(open_page: Opened, told: Told) -> None:
    [place] = [i for i, one in enumerate(told.entries) if one["name"] == "demand"]
    before = told.entries[place]
    with changed(told, "demand"):
        told.documents["demand"]["history"] = None
        told.entries[place] = before | {"error_name": None}
        try:
            page = open_page("/compare?session=flights&session=demand")
            expect(page.locator("#charts h3")).to_have_text(["Mistake rate", "Mean loss"])
        finally:
            told.entries[place] = before
    titles = ["Mistake rate", "Mean loss of classifiers", "RMSE", "Mean loss of regressors"]
    expect(page.locator("#charts h3")).to_have_text(titles, timeout=15_000)
    for chart in ("rate", "rate-loss", "rmse", "rmse-loss"):
        expect(page.locator(f"#plot-{chart} canvas")).to_be_visible()


def test_selected_text_stays_until_it_is_no_longer_selected(open_page: Opened, told: Told) -> None:
    page = open_page(PAGES["classes"])
    expect(page.locator("#live-text")).to_have_text("Live")
    rounds = page.locator("#numbers dd").first
    selected = rounds.inner_text()
    rounds.select_text()
    now = f"{play(told, 'flights', 5):,}"
    expect(page.locator("#rounds tbody th").first).to_have_text(now)
    assert page.evaluate("getSelection().toString().trim()") == selected
    page.evaluate("getSelection().removeAllRanges()")
    expect(rounds).to_have_text(now)


def test_a_slow_answer_does_not_replace_a_later_one(open_page: Opened, told: Told) -> None:
    page = open_page(PAGES["classes"])
    expect(page.locator("#live-text")).to_have_text("Live")
    held: list[tuple[Route, APIResponse]] = []
    looks = 0

    def hold_first(route: Route) -> None:
        nonlocal looks
        looks += 1
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    page.route("**/sessions/flights/page", hold_first)
    with page.expect_request("**/sessions/flights/page"):
        play(told, "flights", 5)
    rounds = play(told, "flights", 7)
    page.wait_for_timeout(2500)
    assert looks == 1
    [(route, answer)] = held
    route.fulfill(response=answer)
    expect(page.locator("#numbers")).to_contain_text(f"{rounds:,}")


@pytest.mark.slow
def test_windows_whose_streams_take_all_connections_poll(open_page: Opened, told: Told) -> None:
    """A browser opens six to a service that speaks HTTP/1.1."""
    first = open_page(PAGES["classes"])
    pages = [first, *(first.context.new_page() for _ in range(5))]
    for page in pages:
        page.goto(PAGES["classes"])
        expect(page.locator("#live-text")).to_have_text("Live")
    rounds = play(told, "flights", 5)
    for page in pages:
        expect(page.locator("#numbers")).to_contain_text(f"{rounds:,}", timeout=30_000)


def test_a_page_says_that_its_session_has_another_name(open_real: Opened) -> None:
    with httpx.Client(base_url=open_real.base) as http:
        assert http.post("/sessions", json={"name": "old"}).status_code == 201
        page = open_real("/sessions/old/page")
        expect(page.locator("#live-text")).to_have_text("Live")
        assert http.post("/sessions/old/rename", json={"name": "new"}).is_success
    expect(page.locator("#live-text")).to_have_text("Deleted or renamed", timeout=15_000)


@pytest.mark.parametrize("size", ["desktop", "small"])
def test_a_comparison_says_which_session_is_gone(open_real: Opened, size: str) -> None:
    gone = f"gone-{size}-".ljust(64, "x")
    with httpx.Client(base_url=open_real.base) as http:
        for name in (f"kept-{size}", gone):
            assert http.post("/sessions", json={"name": name}).status_code == 201
        page = open_real(f"/compare?session=kept-{size}&session={gone}", size=size)
        expect(page.locator("#live-text")).to_have_text("Every 5 s")
        assert http.delete(f"/sessions/{gone}").is_success
    expect(page.locator("#live-text")).to_have_text(f"{gone} is deleted or renamed", timeout=15_000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_list_keeps_the_focus_on_its_heads(open_page: Opened, told: Told) -> None:
    page = open_page("/?limit=5")
    expect(page.locator("#live-text")).to_have_text("Every 3 s")
    for name in ("Rounds/s", "Next page"):
        link = page.get_by_role("link", name=name)
        link.focus()
        rounds = play(told, "flights", 1)
        expect(page.locator("#sessions")).to_contain_text(f"{rounds:,}")
        expect(link).to_be_focused()


def test_a_page_asks_again_after_an_answer_failed(open_page: Opened, told: Told) -> None:
    """Though its stream of events is open and has no more to tell."""
    page = open_page(PAGES["classes"])
    has_drawn(page)
    expect(page.locator("#live-text")).to_have_text("Live")

    def refuse(route: Route) -> None:
        route.fulfill(status=503, body="")

    page.route("**/sessions/flights/page", refuse)
    rounds = play(told, "flights", 3)
    expect(page.locator("#live-text")).to_have_text("No answer, trying again")
    page.unroute("**/sessions/flights/page", refuse)
    expect(page.locator("#numbers")).to_contain_text(f"{rounds:,}", timeout=15_000)
    expect(page.locator("#live-text")).to_have_text("Live")


def test_the_session_of_a_challenger_is_added_to_others(open_page: Opened) -> None:
    page = open_page(PAGES["compare"])
    name = page.get_by_label("Name")
    name.fill("demand~pomdr")
    assert name.evaluate("one => one.validity.valid")
    name.fill("no such name")
    assert not name.evaluate("one => one.validity.valid")


def test_no_late_truth_has_no_chart(open_page: Opened, told: Told) -> None:
    with changed(told, "flights"):
        for one in told.documents["flights"]["history"]["delays"]:
            one["rounds"] = 0
        page = open_page(PAGES["classes"])
        expect(page.locator("#chart-ages")).to_be_visible()
        expect(page.locator("#chart-delays")).to_have_count(0)
