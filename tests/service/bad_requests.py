"""What a service must refuse: one row a request, with the problem type that answers it and the place that is wrong.

The sessions they are sent to are those of `sessions`: `s` takes two numbers and the labels no, yes; `r` two numbers and a
number in [0, 10]; `f` named features; `c` two numbers and the labels a, b, c; `new` has seen no round yet; `fixed` is
`r`, frozen. These are strict; `o` is not, and takes whatever is a record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.service.api import Api
from tests.service.definitions import MEAN, ONE_VS_REST, POMDR

HUGE = "1" + "0" * 400
DIGITS = "1" * 5_000
MEGABYTE = 1 << 20
DEEP, DEEPER = 5_000, 100_000
METRIC = {"kind": "kernel-aioli", "config": {"kernel": {"kind": "gaussian", "metric": [[1.0, 0.0], [0.0, 1.0]]}}}
PACKING = {"kind": "packing", "config": {"metric": [1.0, 1.0]}}
LARGE = {"kind": "fourier-aioli", "config": {"frequencies": 30_000}}


def member_of(learner: dict[str, Any]) -> dict[str, Any]:
    return ONE_VS_REST | {"config": {"member": learner}}


def pool_of(expert: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "pool", "config": {"experts": [expert]}}


@dataclass(frozen=True, slots=True)
class Bad:
    """`body` is sent as it is, or as JSON if it is no text; `pointer` is where the problem must say that it is."""

    slug: str
    path: str
    body: Any = None
    pointer: str | None = None
    method: str = "POST"

    @property
    def content(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


async def sessions(api: Api) -> None:
    await api.create(POMDR, labels=["no", "yes"])
    await api.create(MEAN, "r", y_range=[0.0, 10.0])
    await api.create(MEAN, "f", schema={"a": "number", "b": {"type": "category", "categories": ["x", "y"]}})
    await api.create(ONE_VS_REST, "c", labels=["a", "b", "c"])
    await api.predict([0.5, 0.5], "c", id="waits")
    await api.create(MEAN, "new")
    await api.create(MEAN, "two", dim=2)
    await api.create(MEAN, "two.loose", dim=2, strict=False)
    await api.create(MEAN, "o", strict=False, scale={"kind": "learned"})
    await api.update("yes", x=[0.0, 1.0], id="settled")
    await api.update(1.0, "r", x=[0.0, 1.0])
    await api.update(1.0, "f", x={"a": 1.0, "b": "x"})
    await api.predict([0.5, 0.5], id="waits")
    await api.call("POST", "/sessions/r/freeze", {"name": "fixed"}, status=201)


def _numbers() -> Iterator[tuple[str, str, str]]:
    """What is no number of JSON, or none of double precision: how it is called, its text, its problem type."""
    yield from (("NaN", "NaN", "not-finite"), ("Infinity", "Infinity", "not-finite"))
    yield from (("-Infinity", "-Infinity", "not-finite"), ("1e400", "1e400", "not-finite"))
    yield from (("10**400", HUGE, "not-finite"), ("-10**400", f"-{HUGE}", "not-finite"))
    yield from (("true", "true", "wrong-type"), ("text", '"1"', "wrong-type"), ("null", "null", "wrong-type"))
    yield from (("list", "[1]", "wrong-type"), ("object", "{}", "wrong-type"))


def _of_inputs() -> Iterator[tuple[str, Bad]]:
    actions = {"predict": '{{"x": [0.5, {0}]}}', "update": '{{"x": [0.5, {0}], "y": "yes"}}'}
    for name, text, kind in _numbers():
        # What is in a list or an object has a name of its own, and the number's name is missing.
        slug = "wrong-features" if name in ("list", "object") else kind
        for action, form in actions.items():
            yield f"{action}: x has {name}", Bad(slug, f"/sessions/s/{action}", form.format(text), "/x/1")
        rows = f'{{"x": [[0, 1], [0.5, {text}]], "y": ["no", "yes"]}}'
        yield f"rounds: x has {name}", Bad(slug, "/sessions/s/rounds", rows, "/x/1/1")
        rows = f'{{"x": [[0, 1], [0.5, 1]], "y": ["no", "yes"], "weight": [2, {text}]}}'
        yield f"rounds: weight has {name}", Bad(kind, "/sessions/s/rounds", rows, "/weight/1")
        for session in ("two", "two.loose"):
            if (session, name) == ("two.loose", "null"):
                continue
            of_two = f'{{"x": [0.5, {text}]}}'
            yield f"predict at {session}: x has {name}", Bad(kind, f"/sessions/{session}/predict", of_two, "/x/1")
            of_two = f'{{"x": [[0, 1], [0.5, {text}]], "y": [1, 2]}}'
            yield f"rounds at {session}: x has {name}", Bad(kind, f"/sessions/{session}/rounds", of_two, "/x/1/1")
    for x in ([True], {"a": 1.0, "b": 1.0}, [True, 1.0, 1.0]):
        yield f"predict at two: {x}", Bad("wrong-dimension", "/sessions/two/predict", {"x": x}, "/x")
    for name, x, slug, where in (
        ("too short", [1.0], "wrong-dimension", "/x"),
        ("too long", [1.0, 2.0, 3.0], "wrong-dimension", "/x"),
        ("empty", [], "wrong-dimension", "/x"),
        ("null", None, "wrong-type", "/x"),
        ("a number", 1.0, "wrong-type", "/x"),
        ("a text", "1, 2", "wrong-type", "/x"),
        ("an object", {"a": 1.0}, "wrong-features", "/x"),
        ("an empty object", {}, "wrong-features", "/x"),
        ("too large to square", [0.5, 1e308], "not-finite", "/x/1"),
    ):
        yield f"predict: x is {name}", Bad(slug, "/sessions/s/predict", {"x": x}, where)
        yield (
            f"rounds: x is {name}",
            Bad(slug, "/sessions/s/rounds", {"x": [x], "y": ["no"]}, f"/x/0{where[2:]}" if where == "/x" else "/x/0"),
        )
    for name, x, slug, where in (
        ("misses a feature", {"a": 1.0}, "wrong-features", "/x/b"),
        ("has a feature more", {"a": 1.0, "b": "x", "c/~": 1.0}, "wrong-features", "/x/c~1~0"),
        ("has another category", {"a": 1.0, "b": "z"}, "wrong-features", "/x/b"),
        ("has a number for a category", {"a": 1.0, "b": 1.0}, "wrong-features", "/x/b"),
        ("has a text for a number", {"a": "1", "b": "x"}, "wrong-type", "/x/a"),
        ("has a boolean for a number", {"a": True, "b": "x"}, "wrong-type", "/x/a"),
        ("has null for a number", {"a": None, "b": "x"}, "wrong-type", "/x/a"),
        ("is a list", [1.0, 1.0, 0.0], "wrong-features", "/x"),
    ):
        yield f"features: x {name}", Bad(slug, "/sessions/f/predict", {"x": x}, where)
    for text in ("{}", '{"a": {}}', '{"indices": [], "values": []}'):
        yield f"{text}, undeclared", Bad("wrong-features", "/sessions/new/predict", f'{{"x": {text}}}', "/x")
    yield "{}, declared", Bad("wrong-features", "/sessions/f/predict", {"x": {}}, "/x/a")
    yield "a feature of null, undeclared", Bad("wrong-features", "/sessions/new/predict", {"x": {"a": None}}, "/x/a")
    yield "a feature of a text, undeclared", Bad("wrong-features", "/sessions/new/predict", {"x": {"a": "red"}}, "/x/a")
    yield (
        "a feature's value is 1e400",
        Bad("not-finite", "/sessions/f/predict", '{"x": {"a": 1e400, "b": "x"}}', "/x/a"),
    )


def _of_records() -> Iterator[tuple[str, Bad]]:
    """What is no record for any session."""
    deep: Any = 1.0
    for _ in range(17):
        deep = {"a": deep}
    for name, text, slug, where in (
        ("is an empty list", "[]", "wrong-dimension", "/x"),
        ("is a text", '"a"', "wrong-type", "/x"),
        ("has a number out of range", '{"a": {"b": 1e400}}', "not-finite", "/x/a/b"),
        ("has an integer out of range", f'{{"a": [1, {HUGE}]}}', "not-finite", "/x/a/1"),
        ("has NaN", '[1, {"a": NaN}]', "not-finite", "/x/1/a"),
        ("is a list out of range", f"[1, {HUGE}]", "not-finite", "/x/1"),
        ("is deep", json.dumps(deep), "invalid-request", "/x" + "/a" * 16),
        ("has a long name", json.dumps({"a" * 1025: 1}), "invalid-request", None),
        ("has a long path", json.dumps({"a" * 1000: {"b" * 1000: 1}}), "invalid-request", None),
        ("has two values of one name", '{"a": {"b": 1}, "a.b": 2}', "invalid-request", "/x/a.b"),
        ("is sparse without values", '{"indices": [1], "values": []}', "invalid-request", "/x/values"),
        ("is sparse with an index twice", '{"indices": [1, 1], "values": [1, 2]}', "invalid-request", "/x/indices/1"),
        ("is sparse with an index below 0", '{"indices": [-1], "values": [1]}', "invalid-request", "/x/indices/0"),
        ("is sparse with half an index", '{"indices": [0.5], "values": [1]}', "invalid-request", "/x/indices/0"),
        ("is sparse with a text", '{"indices": [1], "values": ["a"]}', "invalid-request", "/x/values/0"),
    ):
        yield f"a record {name}", Bad(slug, "/sessions/o/predict", f'{{"x": {text}}}', where)
        at = where and where.replace("/x", "/x/0", 1)
        yield f"a record of rounds {name}", Bad(slug, "/sessions/o/rounds", f'{{"x": [{text}], "y": [1]}}', at)


def _of_truths() -> Iterator[tuple[str, Bad]]:
    for name, text, slug in _numbers():
        if name not in ("true", "text"):
            yield f"y is {name}", Bad(slug, "/sessions/r/update", f'{{"x": [0, 1], "y": {text}}}', "/y")
    for name, y in (("text", "5"), ("true", True)):
        yield f"y is {name}, not a number", Bad("wrong-type", "/sessions/r/update", {"x": [0, 1], "y": y}, "/y")
    for name, y in (("a number", 0), ("another", "d"), ("a boolean", True), ("empty", "")):
        yield f"of three classes, y is {name}", Bad("wrong-truth", "/sessions/c/update", {"id": "waits", "y": y}, "/y")
    for name, y in (("another label", "maybe"), ("a number", 1), ("a boolean", True), ("empty", "")):
        yield f"y is {name}", Bad("wrong-truth", "/sessions/s/update", {"id": "waits", "y": y}, "/y")
    for y in (-0.001, 10.001, 1e308):
        yield f"y is {y}, out of range", Bad("wrong-truth", "/sessions/r/update", {"x": [0, 1], "y": y}, "/y")
    for action, y in (("update", 1e308), ("update", 1e200), ("rounds", [1e308])):
        x = [0, 1] if action == "update" else [[0, 1]]
        yield f"{action}: y is {y}, no loss", Bad("numerical-failure", f"/sessions/new/{action}", {"x": x, "y": y})
    yield (
        "rounds: another label",
        Bad("wrong-truth", "/sessions/s/rounds", {"x": [[0, 1], [1, 0]], "y": ["no", "maybe"]}, "/y/1"),
    )


def _of_bodies() -> Iterator[tuple[str, Bad]]:
    for name, body in (
        ("nothing", b""),
        ("no JSON", b"x=1"),
        ("cut off", b'{"x": [0.5, 0.'),
        ("not UTF-8", b'{"x": [0.5, 0.5], "id": "\xff"}'),
        ("half a surrogate", b'{"x": [0.5, 0.5], "id": "\\ud800"}'),
        ("two documents", b'{"x": [0.5, 0.5]} {}'),
        ("lists in lists", b"[" * DEEP),
        ("objects in objects", b'{"x":' * DEEP),
        ("a deep input", b'{"x": ' + b"[" * DEEP + b"]" * DEEP + b"}"),
    ):
        yield f"the body is {name}", Bad("malformed-body", "/sessions/s/predict", body)
    for name, body in (
        ("lists in lists", b"[" * DEEPER),
        ("objects in objects", b'{"x":' * DEEPER),
        ("a deep input", b'{"x": ' + b"[" * DEEPER + b"]" * DEEPER + b"}"),
    ):
        yield f"the body is {name}, endlessly", Bad("payload-too-large", "/sessions/s/predict", body)
    for name, path, body in (
        ("integer", "predict", f'{{"x": [0.5, {DIGITS}]}}'),
        ("number", "predict", f'{{"x": [0.5, -{DIGITS}.5]}}'),
        ("truth", "update", f'{{"id": "waits", "y": {DIGITS}}}'),
        ("integer of many rows", "rounds", f'{{"x": [{"[0, 1], " * DEEP}[0, {DIGITS}]], "y": ["no"]}}'),
    ):
        yield f"the body has an endless {name}", Bad("not-finite", f"/sessions/s/{path}", body, "")
    for name, body in (("a list", []), ("a text", "x"), ("a number", 1)):
        yield f"the body is {name}", Bad("invalid-request", "/sessions/s/predict", json.dumps(body), "")
    yield "the body is null", Bad("invalid-request", "/sessions/s/predict", "null", "")
    yield "the body has 50 MB", Bad("payload-too-large", "/sessions/s/predict", bytes(50 * MEGABYTE))
    for path, body, where in (
        ("predict", {}, "/x"),
        ("predict", {"x": [0.5, 0.5], "y": 1}, "/y"),
        ("predict", {"x": [0.5, 0.5], "wait": "no"}, "/wait"),
        ("predict", {"x": [0.5, 0.5], "wait": 0}, "/wait"),
        ("predict", {"x": [0.5, 0.5], "id": ""}, "/id"),
        ("predict", {"x": [0.5, 0.5], "id": 5}, "/id"),
        ("predict", {"x": [0.5, 0.5], "id": "a b"}, "/id"),
        ("predict", {"x": [0.5, 0.5], "id": "é"}, "/id"),
        ("predict", {"x": [0.5, 0.5], "id": "x" * 129}, "/id"),
        ("update", {"y": "yes"}, ""),
        ("update", {"x": [0.5, 0.5]}, "/y"),
        ("update", {"id": "waits", "y": "yes", "loss": 0}, "/loss"),
        ("rounds", {"x": [[0, 1]], "y": ["no", "yes"]}, "/y"),
        ("rounds", {"x": [[0, 1]], "y": ["no"], "weight": [1, 1]}, "/weight"),
        ("rounds", {"x": [[0, 1]] * 9_000, "y": ["no"]}, "/y"),
        ("predictions", {"x": [[0, 1]], "ids": ["a", "b"]}, "/ids"),
        ("predictions", {"x": [[0, 1]] * 2, "ids": ["a", "a"]}, "/ids"),
        ("rounds", {"x": [], "y": []}, None),
        ("rounds", {"x": [[0, 1], [1]], "y": ["no", "yes"]}, "/x/1"),
    ):
        slug = "wrong-type" if (path == "predict" and where in ("/wait",)) or body.get("id") == 5 else "invalid-request"
        slug = "wrong-dimension" if path == "rounds" and where == "/x/1" else slug
        yield f"{path} of {json.dumps(body)[:60]}", Bad(slug, f"/sessions/s/{path}", body, where)


def _of_names() -> Iterator[tuple[str, Bad]]:
    names = ("../x", "a/b", "", ".", "-a", "a b", "a\n", "é", "x" * 65, "x" * 100_000, "a\x00", "{s}", None, 1, ["s"])
    for name in names:
        label = f"{str(name)[:20]!r} of {len(str(name))}"
        yield f"create {label}", Bad("invalid-name", "/sessions", {"name": name, "learner": MEAN}, "/name")
        yield f"predict at {label}", Bad("invalid-name", "/predict", {"session": name, "x": [1.0]}, "/session")
        yield f"update at {label}", Bad("invalid-name", "/update", {"session": name, "x": [1.0], "y": 1}, "/session")
    for name in ("nobody", "a b", "%00", "%ff", "{s}", "x" * 65, "x" * 10_000):
        slug = "session-not-found" if name == "nobody" else "uri-too-long" if len(name) > 8192 else "invalid-name"
        where = "/session" if slug == "invalid-name" else None
        for action, body in (
            ("predict", {"x": [1.0]}),
            ("update", {"x": [1.0], "y": 1}),
            ("step", {"update": {"x": [1.0], "y": 1}, "predict": {"x": [1.0]}}),
            ("rounds", {"x": [[1]], "y": [1]}),
            ("freeze", {"name": "n"}),
        ):
            label = f"{action} at nobody's {name[:20]!r} of {len(name)}"
            yield label, Bad(slug, f"/sessions/{name}/{action}", body, where)
        for method in ("GET", "DELETE"):
            yield f"{method} nobody's {name[:20]!r} of {len(name)}", Bad(slug, f"/sessions/{name}", None, where, method)
    yield "predict at nobody", Bad("session-not-found", "/predict", {"session": "nobody", "x": [1.0]})
    yield "a path that leads out", Bad("not-found", "/sessions/%2e%2e%2fx/predict", {"x": [1.0]})
    yield "an unknown action", Bad("not-found", "/sessions/s/forget", {"x": [1.0]})
    yield "a method that is none of the path's", Bad("method-not-allowed", "/sessions", method="PUT")
    yield "a page of -1", Bad("invalid-request", "/sessions?limit=-1", pointer="/limit", method="GET")
    yield "a page of a text", Bad("invalid-request", "/sessions?limit=x", pointer="/limit", method="GET")


def _of_ids() -> Iterator[tuple[str, Bad]]:
    for name, slug, action, body in (
        ("an unknown id", "prediction-not-found", "update", {"id": "nobody", "y": "yes"}),
        ("another input under a waiting id", "id-conflict", "predict", {"id": "waits", "x": [0.0, 0.0]}),
        ("another input of a waiting id", "id-conflict", "update", {"id": "waits", "x": [0.0, 0.0], "y": "yes"}),
        ("another truth under a settled id", "id-conflict", "update", {"id": "settled", "y": "no"}),
        ("another input under a settled id", "id-conflict", "update", {"id": "settled", "x": [5.0, 5.0], "y": "yes"}),
        ("a prediction under a settled id", "id-conflict", "predict", {"id": "settled", "x": [0.0, 1.0]}),
    ):
        yield name, Bad(slug, f"/sessions/s/{action}", body)


def _of_specs() -> Iterator[tuple[str, Bad]]:
    kernel = "/learner/config/kernel"
    for config, where in (
        ({"norm_bound": 0}, "/learner/config/norm_bound"),
        ({"norm_bound": -1.0}, "/learner/config/norm_bound"),
        ({"norm_bound": "large"}, "/learner/config/norm_bound"),
        ({"budget": 1}, "/learner/config/budget"),
        ({"budget": 2.5}, "/learner/config/budget"),
        ({"window": None}, "/learner/config/window"),
        ({"colour": "red"}, "/learner/config/colour"),
        ({"kernel": {"kind": "gaussian", "sigma": 0}}, f"{kernel}/sigma"),
        ({"kernel": {"kind": "gaussian", "sigma": "mean"}}, f"{kernel}/sigma"),
        ({"kernel": {"kind": "round"}}, kernel),
        ({"kernel": {"kind": "gaussian", "shape": 1}}, f"{kernel}/shape"),
        ({"kernel": 5}, kernel),
    ):
        spec = {"kind": "pomdr", "config": config}
        yield (
            f"a spec of {json.dumps(config)}",
            Bad("invalid-config", "/sessions", {"name": "n", "learner": spec}, where),
        )
    for text in ("NaN", "Infinity", "1e400"):
        body = f'{{"name": "n", "learner": {{"kind": "pomdr", "config": {{"norm_bound": {text}}}}}}}'
        yield f"a spec with {text}", Bad("invalid-config", "/sessions", body, "/learner/config/norm_bound")
    unknown = {"name": "n", "learner": {"kind": "oracle"}}
    yield "an unknown learner", Bad("unknown-learner", "/sessions", unknown)
    for name, slug, extra, where in (
        ("a session that exists", "session-exists", {"name": "s"}, None),
        ("a seed below 0", "invalid-request", {"learner": MEAN | {"seed": -1}}, "/learner/seed"),
        ("lags below 0", "invalid-request", {"learner": MEAN | {"lags": -1}}, "/learner/lags"),
        ("too many lags", "invalid-request", {"learner": MEAN | {"lags": 65}}, "/learner/lags"),
        ("dim 0", "invalid-request", {"dim": 0}, "/dim"),
        ("dim true", "wrong-type", {"dim": True}, "/dim"),
        ("dim as text", "wrong-type", {"dim": "3"}, "/dim"),
        ("dim over the limit", "invalid-request", {"dim": 10_001}, "/dim"),
        ("dim 10**400", "invalid-request", {"dim": 10**400}, "/dim"),
        ("dim and a schema", "invalid-request", {"dim": 1, "schema": {"a": "number"}}, ""),
        ("hashed names and a schema", "invalid-request", {"hashed": 4, "schema": {"a": "number"}}, ""),
        ("an empty schema", "invalid-request", {"schema": {}}, "/schema"),
        ("a schema of a list", "invalid-request", {"schema": [{"name": "a"}]}, "/schema"),
        ("a field without a name", "invalid-request", {"schema": {"": "number"}}, None),
        ("a field of no type", "invalid-request", {"schema": {"a": {"type": "date"}}}, "/schema/a/type"),
        ("a field of another word", "invalid-request", {"schema": {"a": "date"}}, "/schema/a/type"),
        (
            "categories of a number",
            "invalid-request",
            {"schema": {"a": {"type": "number", "categories": ["x"]}}},
            "/schema/a",
        ),
        ("no categories", "invalid-request", {"schema": {"a": {"type": "category", "categories": []}}}, "/schema/a"),
        (
            "a category twice",
            "invalid-request",
            {"schema": {"a": {"type": "category", "categories": ["x", "x"]}}},
            "/schema/a",
        ),
        (
            "a category of a number",
            "wrong-type",
            {"schema": {"a": {"type": "category", "categories": ["x", 1]}}},
            "/schema/a/categories/1",
        ),
        ("strict categories without values", "invalid-request", {"strict": True, "schema": {"a": "category"}}, ""),
        ("strict as text", "wrong-type", {"strict": "yes"}, "/strict"),
        ("no hashed columns", "invalid-request", {"hashed": 0}, "/hashed"),
        ("hashed columns over the limit", "invalid-request", {"hashed": 10_001}, "/hashed"),
        ("one label", "invalid-request", {"labels": ["a"]}, None),
        ("the same labels", "invalid-request", {"labels": [1, 1.0]}, "/labels"),
        ("no labels", "invalid-request", {"labels": []}, "/labels"),
        ("too many labels", "invalid-request", {"learner": ONE_VS_REST, "labels": list(range(1001))}, "/labels"),
        ("the same labels of three", "invalid-request", {"learner": ONE_VS_REST, "labels": ["a", "b", "a"]}, "/labels"),
        ("three labels for a learner of two", "invalid-request", {"learner": POMDR, "labels": [1, 2, 3]}, "/labels"),
        ("three labels for numbers", "invalid-request", {"labels": [1, 2, 3]}, "/labels"),
        (
            "labels of more classes than the config's",
            "invalid-config",
            {"learner": ONE_VS_REST | {"config": {"classes": 2}}, "labels": ["a", "b", "c"]},
            "/learner/config/classes",
        ),
        ("lags of classes", "invalid-config", {"learner": ONE_VS_REST | {"lags": 1}}, "/learner/lags"),
        ("a range of classes", "invalid-request", {"learner": ONE_VS_REST, "y_range": [0, 1]}, "/y_range"),
        (
            "a member without probabilities",
            "invalid-config",
            {"learner": ONE_VS_REST | {"config": {"member": {"kind": "pomdr"}}}, "labels": ["a", "b", "c"]},
            "/learner/config/member",
        ),
        (
            "a member of classes",
            "invalid-config",
            {"learner": ONE_VS_REST | {"config": {"member": ONE_VS_REST}}},
            "/learner/config/member",
        ),
        ("a metric of another dim", "invalid-request", {"dim": 3, "learner": METRIC}, "/dim"),
        ("a member's metric of another dim", "invalid-request", {"dim": 3, "learner": member_of(METRIC)}, "/dim"),
        ("an expert's metric of another dim", "invalid-request", {"dim": 3, "learner": pool_of(METRIC)}, "/dim"),
        ("a member of one input", "invalid-request", {"dim": 2, "learner": member_of({"kind": "foster-1d"})}, "/dim"),
        ("a packing of another dim", "invalid-request", {"dim": 3, "learner": PACKING}, "/dim"),
        ("a learner beyond the cap", "invalid-request", {"dim": 2, "learner": LARGE}, "/dim"),
        ("members beyond the cap", "invalid-request", {"dim": 2, "learner": member_of(LARGE)}, "/dim"),
        ("an expert beyond the cap", "invalid-request", {"dim": 2, "learner": pool_of(LARGE)}, "/dim"),
        ("many members", "invalid-request", {"dim": 5000, "learner": ONE_VS_REST, "labels": list(range(9))}, "/dim"),
        ("a label that is a list", "wrong-type", {"labels": [[1], 2]}, "/labels/0"),
        ("labels and a range", "invalid-request", {"labels": [0, 1], "y_range": [0, 1]}, ""),
        ("a range upside down", "invalid-request", {"y_range": [1, 0]}, "/y_range"),
        ("a range of infinite width", "invalid-request", {"y_range": [-1e308, 1e308]}, "/y_range"),
        ("a range of text", "wrong-type", {"y_range": ["0", 1]}, "/y_range/0"),
        ("a range for labels", "invalid-request", {"learner": POMDR, "y_range": [0, 1]}, "/y_range"),
        ("an unknown scale", "invalid-request", {"scale": {"kind": "log"}}, "/scale"),
        ("a scale upside down", "invalid-request", {"scale": {"kind": "ranges", "low": [1], "high": [0]}}, "/scale"),
        ("a scale of text", "wrong-type", {"scale": {"kind": "ranges", "low": ["0"], "high": [1]}}, "/scale/low/0"),
        ("half a scale", "invalid-request", {"scale": {"kind": "ranges", "low": [0]}}, "/scale/high"),
        ("a wide scale", "invalid-request", {"scale": {"kind": "ranges", "low": [-1e308], "high": [1e308]}}, "/scale"),
        (
            "a scale of another dim",
            "invalid-request",
            {"dim": 2, "scale": {"kind": "ranges", "low": [0], "high": [1]}},
            "/scale/low",
        ),
        ("a warm-up of 1", "invalid-request", {"warmup_rounds": 1}, "/warmup_rounds"),
        ("a warm-up of 1e9", "invalid-request", {"warmup_rounds": 10**9}, "/warmup_rounds"),
        ("a snapshot every 0", "invalid-request", {"snapshot_every": 0}, "/snapshot_every"),
        ("expiry at once", "invalid-request", {"expires_s": 0}, "/expires_s"),
        ("expiry true", "wrong-type", {"expires_s": True}, "/expires_s"),
        ("an unknown setting", "invalid-request", {"colour": "red"}, "/colour"),
    ):
        yield f"create with {name}", Bad(slug, "/sessions", {"name": "n", "learner": MEAN} | extra, where)


def _of_freezing() -> Iterator[tuple[str, Bad]]:
    for name, slug, session, body, where in (
        ("a name that is taken", "session-exists", "r", {"name": "s"}, None),
        ("no name", "invalid-request", "r", {}, "/name"),
        ("a name with a space", "invalid-name", "r", {"name": "a b"}, "/name"),
        ("an unknown rule", "invalid-request", "r", {"name": "n", "rule": "best"}, "/rule"),
        ("an unknown member", "invalid-request", "r", {"name": "n", "x": [1]}, "/x"),
        ("no session", "session-not-found", "none", {"name": "n"}, None),
        ("no round yet", "cannot-freeze", "new", {"name": "n"}, None),
        ("no reservoir", "cannot-freeze", "r", {"name": "n", "rule": "uniform"}, None),
        ("a frozen session", "cannot-freeze", "fixed", {"name": "n"}, None),
    ):
        yield f"freeze with {name}", Bad(slug, f"/sessions/{session}/freeze", body, where)
    yield "freeze with text", Bad("malformed-body", "/sessions/r/freeze", "freeze")
    yield (
        "create with a reservoir of text",
        Bad("wrong-type", "/sessions", {"name": "n", "learner": MEAN, "reservoir": "yes"}, "/reservoir"),
    )
    yield "create frozen", Bad("invalid-request", "/sessions", {"name": "n", "learner": MEAN, "frozen": {}}, "/frozen")
    yield "update a frozen session", Bad("session-frozen", "/sessions/fixed/update", {"x": [0, 1], "y": 1})
    yield "rounds of a frozen session", Bad("session-frozen", "/sessions/fixed/rounds", {"x": [[0, 1]], "y": [1]})


ROWS = [
    row
    for rows in (_of_inputs, _of_records, _of_truths, _of_bodies, _of_names, _of_ids, _of_specs, _of_freezing)
    for row in rows()
]
TABLE: dict[str, Bad] = dict(ROWS)
assert len(TABLE) == len(ROWS), "two rows have one name"
