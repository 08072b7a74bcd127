"""The form for predictions on a session's page: its fields, and the input that it starts with."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from okl_core.records.extension import EARNED_AT
from service.pages.input_form import input_form
from tests.service.api import Api
from tests.service.dashboard import NOW
from tests.service.definitions import MEAN

pytestmark = pytest.mark.anyio

EARLY, LATE = ["spring", "summer"], ["autumn", "winter"]
WARMUP = 20


class Form(HTMLParser):
    """What the form offers: the value of each of its fields, the categories of each list, and the input as JSON."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.values: list[tuple[str | None, str | None]] = []
        self.offered: list[list[str | None]] = []
        self._is_json, self._is_list, self._json = False, False, ""
        self.feed(page)
        self.input = json.loads(self._json)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if "data-field" in told:
            self.values.append((told["data-field"], told.get("value")))
        elif tag == "datalist":
            self.offered.append([])
            self._is_list = True
        elif tag == "option" and self._is_list:
            self.offered[-1].append(told.get("value"))
        self._is_json = tag == "textarea"

    def handle_endtag(self, tag: str) -> None:
        self._is_json = False
        self._is_list &= tag != "datalist"

    def handle_data(self, data: str) -> None:
        if self._is_json:
            self._json += data


async def form_of(api: Api, name: str = "s") -> Form:
    return Form((await api.http.get(f"/sessions/{name}/page", headers={"accept": "text/html"})).text)


async def learn(api: Api, xs: list[Any]) -> None:
    await api.rounds(xs, [0.5] * len(xs))


async def test_a_field_with_late_categories_is_one_input(memory: Api) -> None:
    """The answer of the API lists such a field once more for each category that it met after the warm-up."""
    await memory.create(MEAN, strict=False, warmup_rounds=WARMUP)
    await learn(memory, [{"hour": float(i), "season": EARLY[i % 2]} for i in range(WARMUP)])
    for late in LATE:
        await learn(memory, [{"hour": 1.0, "season": late}] * EARNED_AT)
    assert [one["name"] for one in (await memory.inspect())["fields"]] == ["hour", "season", "season", "season"]
    form = await form_of(memory)
    assert form.values == [("hour", "1"), ("season", "winter")]
    assert form.offered == [EARLY + LATE]
    page = (await memory.http.get("/sessions/s/page", headers={"accept": "text/html"})).text
    assert page.count('<th scope="row">season</th>') == 1
    assert "spring, summer, autumn, winter and others" in page


def test_a_late_field_of_numbers_and_words_takes_text() -> None:
    late = [{"name": "a", "type": "number", "columns": [3]}]
    late += [{"name": "a", "type": "category", "columns": [4], "categories": ["none"]}]
    form = input_form({"session": {"fields": late}, "waiting": {"predictions": [{"x": {"a": 3.0}}]}})
    assert form.fields == [{"name": "a", "type": "category", "columns": [3, 4], "categories": ["none"]}]
    assert form.given(form.fields[0]) == "3"


@pytest.mark.parametrize(
    ("value", "shown"), [("NA", ""), (None, ""), (True, "1"), ("12", "12"), ("+5", "5"), ("1e999", ""), (0.5, "0.5")]
)
def test_a_number_is_shown_if_it_is_one(value: Any, shown: str) -> None:
    fields = [{"name": "hour", "type": "number", "columns": [0]}]
    form = input_form({"session": {"fields": fields}, "rounds": {"rounds": [{"x": {"hour": value}}]}})
    assert form.given(fields[0]) == shown
    assert form.example == {"hour": value}


async def test_the_text_na_leaves_an_input_for_numbers_empty(memory: Api) -> None:
    await memory.create(MEAN, strict=False, warmup_rounds=WARMUP)
    await learn(memory, [{"hour": float(i), "wind": i / 2} for i in range(WARMUP)])
    await learn(memory, [{"hour": "NA", "wind": 1.5}])
    form = await form_of(memory)
    assert form.values == [("hour", ""), ("wind", "1.5")]
    assert form.input == {"hour": "NA", "wind": 1.5}


async def test_a_frozen_session_is_asked_in_its_own_words(memory: Api) -> None:
    """It has no round whose input could be shown."""
    await memory.create(MEAN, strict=False, warmup_rounds=WARMUP)
    await learn(
        memory,
        [
            {"i": i % 3, "on": i % 2 == 0, "season": EARLY[i % 2], "at": f"2026-11-{i + 1:02}", "note": f"word{i}"}
            for i in range(WARMUP)
        ],
    )
    await memory.call("POST", "/sessions/s/freeze", {"name": "still"}, status=201)
    form = await form_of(memory, "still")
    assert form.input.keys() == {"i", "on", "season", "at", "note"}
    assert (form.input["i"], form.input["on"], form.input["season"]) == (1.0, False, "spring")
    assert dict(form.values)["season"] == "spring"
    await memory.predict(form.input, "still", wait=False)


async def test_a_frozen_session_of_lists_is_asked_by_a_list(memory: Api) -> None:
    await memory.create(MEAN, strict=True)
    await learn(memory, [[0.0, 1.0, 2.0]] * 5)
    await memory.call("POST", "/sessions/s/freeze", {"name": "still"}, status=201)
    form = await form_of(memory, "still")
    assert (len(form.input), form.values) == (3, [])
    await memory.predict(form.input, "still", wait=False)


async def test_a_frozen_session_of_hashed_names_is_asked_by_name(memory: Api) -> None:
    await memory.create(MEAN, strict=False, hashed=256)
    await learn(memory, [{"word": 1.0}] * 5)
    await memory.call("POST", "/sessions/s/freeze", {"name": "still"}, status=201)
    form = await form_of(memory, "still")
    assert isinstance(form.input, dict)
    await memory.predict(form.input, "still", wait=False)


@pytest.mark.parametrize("strict", [False, True])
async def test_a_declared_session_is_asked_in_its_own_words_before_its_first_round(memory: Api, strict: bool) -> None:
    schema = {"area": "number", "balcony": "boolean", "district": {"type": "category", "categories": ["north", "west"]}}
    await memory.create(MEAN, strict=strict, schema=schema)
    form = await form_of(memory)
    assert form.input == {"area": 0.0, "balcony": False, "district": "north"}
    assert form.offered == [["north", "west"]]
    await memory.predict(form.input, wait=False)


async def test_a_declared_session_of_lists_is_asked_by_a_list_before_its_first_round(memory: Api) -> None:
    await memory.create(MEAN, strict=True, schema={"0": "number", "1": "number", "2": "number"})
    form = await form_of(memory)
    assert (form.input, form.values) == ([0.0] * 3, [])
    await memory.predict(form.input, wait=False)


def test_what_is_not_known_yet_is_made_up() -> None:
    assert input_form({"session": {"fields": None, "dim": None}, "now": NOW}).example == [0.0, 0.0]


@pytest.mark.parametrize(
    ("fields", "example"),
    [
        ({"0": "number", "1": "number"}, [0.0, 0.0]),
        ({"area": "number", "rooms": "number"}, {"area": 0.0, "rooms": 0.0}),
        ({"0": "number", "1": "boolean"}, {"0": 0.0, "1": False}),
    ],
)
def test_an_input_is_a_list_if_all_fields_are_numbers_without_names(fields: dict[str, str], example: Any) -> None:
    found = [{"name": name, "type": kind, "columns": [i]} for i, (name, kind) in enumerate(fields.items())]
    assert input_form({"session": {"fields": found}, "now": NOW}).example == example
