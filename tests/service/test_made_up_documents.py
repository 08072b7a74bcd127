"""Snapshots whose documents or numbers no session can have, under digests that match: refused with 422 before anything is
stored. They were taken, and the session then answered 500 to a route or to every round."""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from okl_core.contract.state import from_bytes, to_bytes
from service.archive.portable import MAGIC
from tests.service.api import Api
from tests.service.test_states import X, put, take

pytestmark = pytest.mark.anyio

_HEAD = len(MAGIC) + 6

Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes the arrays and the document of a snapshot in place."""


def forged(blob: bytes, change: Change) -> bytes:
    """The snapshot with what `change` makes of its state; all digests match."""
    (length,) = struct.unpack_from("<I", blob, _HEAD - 4)
    arrays, meta = from_bytes(blob[_HEAD + length : -16])
    del meta["format"]
    arrays, meta = dict(arrays), copy.deepcopy(meta)
    change(arrays, meta)
    body = blob[: _HEAD + length] + to_bytes(arrays, meta)
    return body + hashlib.blake2b(body, digest_size=16).digest()


def field(**changes: Any) -> Change:
    return lambda _, meta: meta["prepared"]["fields"]["fields"][1].update(changes)


def prepared(**changes: Any) -> Change:
    return lambda _, meta: meta["prepared"].update(changes)


def document(**changes: Any) -> Change:
    return lambda _, meta: meta.update(changes)


def number(name: str, value: float, place: int = 0) -> Change:
    def change(arrays: dict[str, Any], meta: Mapping[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].reshape(-1)[place] = value

    return change


WARMING_UP: dict[str, Change] = {
    "config": document(spec={"kind": "kernel-ogd", "config": {"kernel": 7}}),
    "experts": document(spec={"kind": "pool", "config": {"experts": []}}),
}

KNOWN: dict[str, Change] = {
    "field's kind": field(kind=[]),
    "unknown kind": field(kind="colour"),
    "field's name": field(name=True),
    "name that is no text": field(name="\ud800"),
    "field twice": field(name="a"),
    "field's indicator": field(has_indicator="2.0"),
    "field's centre": field(centre=float("nan")),
    "categories": field(categories=2**63),
    "unknown part of a field": field(colour="red"),
    "text without columns": field(kind="text"),
    "names without columns": lambda _, meta: meta["prepared"]["fields"].update(fields=[], is_wide=True),
    "hashed": lambda _, meta: meta["prepared"]["fields"].update(hashed=-1),
    "label": document(task={"labels": [[], "yes"]}),
    "label twice": document(task={"labels": ["no", "no"]}),
    "missing label": document(task={"labels": ["no"]}),
    "label that is no text": document(task={"labels": ["\ud800", "yes"]}),
    "frozen": document(frozen=["s", 12, "first"]),
    "frozen by none": document(frozen=[[], 12, "last"]),
    "place of a new field": prepared(extension='[[["c",null,9999,0]],[]]'),
    "name of a new field": prepared(extension="[[],[[[],null,3]]]"),
    "count of a new field": prepared(extension='[[],[["c",null,"many"]]]'),
    "scaling": number("scaling.low", np.nan),
    "rounds of the learner": number("learner.t", 2.0**63),
    "total": number("card.totals", np.inf, 1),
    "window": number("card.window", np.nan, 3),
    "open chunk": number("history.open", np.inf, 1),
    "time": number("history.counts", np.nan, 1),
    "other fields": document(fields={"fields": [], "hashed": 2**63, "spare": 0, "is_wide": True}),
}


@pytest.mark.parametrize("name", KNOWN)
async def test_what_no_session_can_have_is_refused(memory: Api, name: str) -> None:
    await memory.create({"kind": "auto"}, strict=False, scale={"kind": "learned"}, warmup_rounds=8)
    for i in range(12):
        await memory.update(("no", "yes")[i % 2], x={"a": X[i, 0], "b": X[i, 1]})
    blob, _ = await take(memory)
    response = await put(memory, forged(blob, KNOWN[name]), "copy", If_None_Match="*")
    assert response.status_code == 422, response.text
    assert response.json()["type"] == "/problems/invalid-snapshot"
    assert len(response.json()["detail"]) < 500
    assert "pydantic" not in response.json()["detail"]
    await memory.refused("session-not-found", "GET", "/sessions/copy")
    response = await put(memory, forged(blob, lambda *_: None), "copy", If_None_Match="*")
    assert response.status_code == 201, response.text


@pytest.mark.parametrize("name", WARMING_UP)
async def test_a_learner_that_is_not_made_yet_must_be_possible(memory: Api, name: str) -> None:
    await memory.create({"kind": "kernel-ogd"}, strict=False, scale={"kind": "learned"}, warmup_rounds=20)
    await memory.update(1.0, x={"a": 1.0})
    blob, _ = await take(memory)
    response = await put(memory, forged(blob, WARMING_UP[name]), "copy", If_None_Match="*")
    assert response.status_code == 422, response.text
    await memory.refused("session-not-found", "GET", "/sessions/copy")
