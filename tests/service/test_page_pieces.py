"""What pages are made of: charts and their tables, values in words, small pictures, the data of a page."""

from __future__ import annotations

import copy
import json
import math
import re
from itertools import pairwise
from typing import Any

import pytest

from service.pages import charts, formats
from service.pages.rendering import prefers_html
from service.pages.sparkline import sparkline
from tests.service.api import Api
from tests.service.dashboard import HOSTILE, MadeUp
from tests.service.definitions import POMDR

pytestmark = pytest.mark.anyio


def test_a_chart_has_what_its_table_has() -> None:
    """The block of data and the tables are of the same columns; no chart without a number."""
    views = MadeUp()
    for name in ("flights", "demand", "mixture"):
        told = views.documents[name]
        drawn = charts.of_session(told)
        block = json.loads(drawn.data())
        ids = [chart.id for chart in drawn.charts]
        assert ("regret" in ids) == ("weights" in ids) == (name == "mixture")
        assert ("reliability" in ids) == (name == "flights")
        assert ("residuals" in ids) == ("coverage" in ids) == (name != "flights")
        for chart, sent in zip(drawn.charts, block["charts"], strict=True):
            heads, rows = drawn.table(chart)
            assert all(len(row) == len(heads) for row in rows)
            assert 0 < len(rows) <= charts.TABLE_ROWS
            for face in sent["faces"]:
                for x, y in face["lines"]:
                    assert len(block["columns"][x]) == len(block["columns"][y])
                    assert all(before < after for before, after in pairwise(block["columns"][x]))
        points = told["history"]["points"]
        assert block["columns"]["window_error"] == pytest.approx(points["window_error"], rel=1e-4)


def test_what_has_no_number_is_not_drawn() -> None:
    told = copy.deepcopy(MadeUp().documents["mixture"])
    points = told["history"]["points"]
    del points["bound"], points["high"], points["total_rival_loss"]
    points["window_rival_error"] = [None] * len(points["t"])
    points["window_error"][3] = math.inf
    points["loss"][0] = math.nan
    drawn = charts.of_session(told)
    block = json.loads(drawn.data())
    sent = {chart["id"]: chart for chart in block["charts"]}
    assert sent["regret"]["faces"][0]["lines"] == [["t", "regret"]]
    assert ["bound" in chart.about for chart in drawn.charts if chart.id == "regret"] == [False]
    assert sent["residuals"]["band"] is None
    assert [len(face["lines"]) for face in sent["quality"]["faces"]] == [1, 2, 2, 1]
    assert block["columns"]["window_error"][3] is None
    for chart in drawn.charts:
        drawn.table(chart)


@pytest.mark.parametrize(("points", "is_drawn"), [(0.0, False), (3.0, True)])
def test_the_dictionary_is_drawn_of_learners_that_store_points(points: float, is_drawn: bool) -> None:
    told = copy.deepcopy(MadeUp().documents["demand"])
    rounds = len(told["history"]["points"]["t"])
    told["history"]["points"]["dictionary"] = [0.0] * (rounds - 1) + [points]
    ids = [chart.id for chart in charts.of_session(told).charts]
    assert ("dictionary" in ids) == is_drawn
    assert "bytes" in ids


@pytest.mark.parametrize(("name", "is_drawn"), [("waiting", True), ("never_came", True), ("other", False)])
def test_what_waits_is_drawn_if_anything_ever_waited(name: str, *, is_drawn: bool) -> None:
    told = copy.deepcopy(MadeUp().documents["demand"])
    rounds = len(told["history"]["points"]["t"])
    told["history"]["points"] |= {"waiting": [0] * rounds, "never_came": [0] * rounds, name: [0] * (rounds - 1) + [1]}
    assert ("waits" in [chart.id for chart in charts.of_session(told).charts]) == is_drawn


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 512])
def test_rows_are_spread_over_all_rounds(length: int) -> None:
    found = charts.spread(length)
    assert found[0] == length - 1
    assert len(found) == len(set(found)) == min(length, charts.TABLE_ROWS)
    assert all(before > after >= 0 for before, after in pairwise(found))


@pytest.mark.parametrize("text", [HOSTILE, "<!--", "]]>", "\u2028"])
def test_data_cannot_end_its_block(text: str) -> None:
    told = charts.in_page({text: [text]})
    assert not set("<>&\u2028") & set(told)
    assert json.loads(told) == {text: [text]}


def test_a_sparkline() -> None:
    drawn = sparkline([1.0, 2.0, None, 4.0, 1.0])
    assert re.findall(r'd="([^"]*)"', drawn) == ["M2.0 22.0L25.0 15.3M71.0 2.0L94.0 22.0"]
    assert sparkline([3.0, 3.0])
    for nothing in (None, [], [1.0], [None, None, 2.0]):
        assert sparkline(nothing) == ""


@pytest.mark.parametrize(
    ("say", "value", "told"),
    [
        (formats.count, 1234567, "1,234,567"),
        (formats.number, 0.12345678, "0.1235"),
        (formats.number, 123456.7, "123,457"),
        (formats.number, 1000.0, "1,000"),
        (formats.number, 1e-7, "1.000e-07"),
        (formats.number, -1e300, "-1.000e+300"),
        (formats.share, 0.1234, "12.3 %"),
        (formats.size, 999, "999 B"),
        (formats.size, 2_345_678, "2.3 MB"),
        (formats.size, 12e15, "12000 TB"),
        (formats.duration, 0.00034, "340 µs"),
        (formats.duration, 7.0, "7 s"),
        (formats.duration, 90, "1.5 min"),
        (formats.duration, 5400, "1.5 h"),
        (formats.duration, 0, "0 s"),
        (formats.rate, 0.034, "0.034"),
        (formats.moment, 0.0, "1970-01-01T00:00:00Z"),
        (formats.moment, 1e300, ""),
        (formats.value, "a" * 300, "a" * 199 + "…"),
        (formats.value, {"a": [1, None]}, '{"a": [1, null]}'),
    ],
)
def test_how_a_value_is_told(say: Any, value: Any, told: str) -> None:
    assert say(value) == told
    if say not in (formats.value, formats.moment):
        assert say(None) == formats.UNKNOWN


@pytest.mark.parametrize(
    ("at", "ago", "until"),
    [(940.0, "1 min ago", "now"), (1000.0, "now", "now"), (1001.9, "now", "in 1 s"), (None, "–", "–")],
)
def test_a_time_is_told_from_now(at: float | None, ago: str, until: str) -> None:
    assert (formats.ago(at, 1000.0), formats.until(at, 1000.0)) == (ago, until)


@pytest.mark.parametrize(
    ("accept", "is_preferred"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html", True),
        ("TEXT/HTML;q=0.2", True),
        ("*/*", False),
        ("", False),
        ("application/json", False),
        ("text/html;q=0.5,application/json", False),
        ("text/html;q=0", False),
        ("text/html;q=nan", False),
        ("text/html;q=x", False),
    ],
)
def test_who_reads_pages(accept: str, is_preferred: bool) -> None:
    assert prefers_html(accept) is is_preferred


def test_a_long_value_is_not_written_out_to_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps, seen = json.dumps, list[int]()
    monkeypatch.setattr(formats.json, "dumps", lambda given, **more: seen.append(len(given)) or dumps(given, **more))
    for long in ([0] * 9000, {str(i): i for i in range(9000)}):
        assert formats.value(long) == dumps(long)[: formats.LONGEST - 1] + "…"
    assert formats.value([1, {"a": None}]) == '[1, {"a": null}]'
    assert max(seen) <= formats.LONGEST


async def test_a_missing_number_is_null_in_the_form_too(memory: Api) -> None:
    """NaN would be no JSON to send."""
    await memory.call("POST", "/sessions", {"name": "s"}, status=201)
    await memory.update(1.0, x=[0.5, 2.0])
    await memory.update(1.0, x=[None, 2.0])
    page = (await memory.http.get("/sessions/s/page", headers={"accept": "text/html"})).text
    assert "[null, 2.0]</textarea>" in page
    assert "NaN" not in page


async def test_a_boolean_in_a_field_of_numbers_is_a_number_in_the_form(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s"}, status=201)
    for i, flag in enumerate([0.5, 1.5, 2.5, 1.5, 0.5, 2.5, 1.5, 0.5, True]):
        await memory.update(float(i), x={"n": flag})
    page = (await memory.http.get("/sessions/s/page", headers={"accept": "text/html"})).text
    assert re.findall(r'data-type="number"[^>]* value="([^"]*)"', page) == ["1"]


async def test_labels_that_are_numbers_are_told_exactly(memory: Api) -> None:
    await memory.create(POMDR, labels=[1234567.25, 0.123456789])
    await memory.update(1234567.25, x=[0.5, 0.5])
    page = (await memory.http.get("/sessions/s/page", headers={"accept": "text/html"})).text
    assert '<span class="badge plain">0.123456789</span>' in page
    assert "<td>1234567.25</td>" in page


def test_a_session_without_a_round_does_not_change_the_unit_of_others() -> None:
    known = {
        "name": "known",
        "error_name": "mistake rate",
        "points": {"t": [8], "window_error": [0.125], "total_loss": [0.5]},
    }
    fresh = {"name": "fresh", "error_name": None, "points": None}
    drawn = charts.of_several([known, fresh])
    assert [chart.faces[0].unit for chart in drawn.charts] == ["share", "number"]
    assert [chart.title for chart in drawn.charts] == ["Mistake rate", "Mean loss"]


def test_mistake_rates_and_rmse_are_not_compared_on_one_axis() -> None:
    points = {"t": [8], "window_error": [0.125], "total_loss": [0.5]}
    rate = {"name": "rate", "error_name": "mistake rate", "points": points}
    rmse = {"name": "rmse", "error_name": "RMSE", "points": points | {"window_error": [2e5]}}
    drawn = charts.of_several([rmse, rate, rate | {"name": "late"}]).charts
    assert [(chart.id, chart.title, chart.faces[0].unit) for chart in drawn] == [
        ("rmse", "RMSE", "number"),
        ("rmse-loss", "Mean loss of regressors", "number"),
        ("rate", "Mistake rate", "share"),
        ("rate-loss", "Mean loss of classifiers", "number"),
    ]
    lines = {chart.id: [(line.label, line.tone, line.y) for line in chart.legend] for chart in drawn}
    assert lines["rmse"] == [("rmse", "series-1", "window_error_0")]
    assert lines["rate"] == [("rate", "series-2", "window_error_1"), ("late", "series-3", "window_error_2")]


def test_an_empty_text_can_be_seen() -> None:
    assert (formats.value(""), formats.value(" a")) == ('""', " a")


def test_no_text_of_a_client_turns_the_words_of_a_page_around() -> None:
    turned = "a\u202eb\u2066"
    assert formats.value(turned) == "a\\u202eb\\u2066"
    for shown in (formats.json_line({turned: [turned]}), formats.value({turned: [turned]})):
        assert shown.isascii()
        assert json.loads(shown) == {turned: [turned]}
