"""The parts of the documentation that are made from the code: `make docs`, or `python -m tests.docs.generated`.

A page has them between two comments, and a test compares them with what would be written now: the config of each learner,
from its JSON schema; the parameters of the kernels; the list of the learners; the ranges of the settings; and what benches
have printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from okl.values import Json
from okl_core import Kernel, catalogue, get_learner
from okl_core.losses import LOSSES
from service.settings import Settings
from tests.docs.results import BENCH, results

DOCS = Path(__file__).parents[2] / "docs"

BEGIN, END = "<!-- Made by `make docs` from the code. -->\n", "<!-- To here. -->"


@cache
def own_learners() -> list[Json]:
    """The catalogue's entries of the library's own learners: tests may have registered more."""
    entries = catalogue()
    return [e for e in entries if type(get_learner(e["kind"])).__module__.startswith("okl_core.learners.")]


def pages() -> dict[Path, str]:
    """What is made, by page."""
    made = {DOCS / "learners" / f"{entry['kind']}.md": config(entry) for entry in own_learners()}
    made[DOCS / "learners" / "index.md"] = learners()
    made[DOCS / "kernels.md"] = kernels()
    made[DOCS / "operations.md"] = settings()
    made[BENCH / "results.md"] = results()
    return made


def learners() -> str:
    rows = [(f"[{e['kind']}]({e['kind']}.md)", truths(e), e["summary"]) for e in own_learners()]
    return table(("kind", "truth", "summary"), rows)


def truths(entry: Json) -> str:
    """What the learner takes as truth, whatever its config says."""
    learner = get_learner(entry["kind"])
    taken: set[str] = set()
    for name in ("loss", "truth"):
        field = entry["config_schema"]["properties"].get(name, {})
        known = [*LOSSES] if name == "loss" and field else [None]
        for choice in field.get("enum", known):
            try:
                chosen = learner.config_type.model_validate({} if choice is None else {name: choice})
            except ValidationError:
                continue
            target, (low, high) = learner.target(chosen), learner.truth_range(chosen)
            taken |= {"real", "binary"} if target == "any" else {target}
            if target == "real" and low <= -1.0 and high >= 1.0:
                taken.add("binary")
    words = {"real": "a number", "binary": "two labels", "class": "classes"}
    return " or ".join(word for target, word in words.items() if target in taken)


def config(entry: Json) -> str:
    schema = entry["config_schema"]
    if not schema["properties"]:
        return "There are no parameters.\n"
    parts = [parameters(schema["properties"], entry["defaults"])]
    for name, field in schema["properties"].items():
        if name == "kernel":
            continue
        for found in objects(field, schema.get("$defs", {})):
            kind = found["properties"].get("kind", {}).get("const")
            whose = f"`{name}`" + (f" of kind `{kind}`" if kind else "")
            members = {key: value for key, value in found["properties"].items() if "const" not in value}
            parts.append(f"Members of {whose}:\n\n{parameters(members, {}, found.get('required', ()))}")
    return "\n".join(parts)


def kernels() -> str:
    """The parameters of all kernels; what is the same in several is told once."""
    schema = TypeAdapter(Kernel).json_schema()
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind, reference in schema["discriminator"]["mapping"].items():
        for row in described(definition(reference, schema["$defs"])["properties"], {}):
            if row[0] != "`kind`":
                rows.setdefault(row, []).append(f"`{kind}`")
    heading = ("parameter", "of", "type", "default", "meaning")
    return table(heading, [(row[0], ", ".join(kinds), *row[1:]) for row, kinds in rows.items()])


def settings() -> str:
    """The settings that are numbers, by their range."""
    by_range: dict[str, list[str]] = {}
    for name, field in Settings.model_json_schema()["properties"].items():
        if field["type"] in ("integer", "number"):
            by_range.setdefault(type_of(field).replace(f", ≤ {2**53:,}", ""), []).append(f"`OKL_{name.upper()}`")
    rows = [(bounds, ", ".join(names)) for bounds, names in sorted(by_range.items())]
    return table(("range", "settings"), rows)


def parameters(properties: Json, defaults: Json, required: Collection[str] = ()) -> str:
    return table(("parameter", "type", "default", "meaning"), described(properties, defaults, required))


def described(properties: Json, defaults: Json, required: Collection[str] = ()) -> list[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each field."""
    rows = []
    for name, field in properties.items():
        default = "required" if name in required else f"`{shown(defaults.get(name, field.get('default', {})))}`"
        typed = "[kernel](../kernels.md)" if name == "kernel" else type_of(field)
        rows.append((f"`{name}`", typed, default, field.get("description", "")))
    return rows


def table(heading: tuple[str, ...], rows: list[Any]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def shown(default: Any) -> str:
    """As JSON, without the members of an object that are null."""
    if isinstance(default, dict):
        # The kind first, as one writes it.
        kept = {key: value for key, value in default.items() if value is not None}
        default = {key: kept[key] for key in sorted(kept, key=lambda key: key != "kind")}
    if isinstance(default, float) and default not in (0.0, 1.0):
        default = float(f"{default:.6g}")
    return json.dumps(default)


def type_of(field: Json) -> str:
    """A field's type in words, with its range."""
    if "anyOf" in field:
        return " or ".join(type_of(one) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field.get("enum", [field.get("const")]))
    if "$ref" in field or "oneOf" in field:
        return "object"
    if field["type"] == "array":
        fixed = field.get("minItems") if field.get("minItems") == field.get("maxItems") else None
        items = field.get("items", {})
        plural = "lists of numbers" if items.get("type") == "array" else plural_of(items)
        return f"list of {fixed} {plural}" if fixed else f"list of {plural}"
    return f"{field['type']}{range_of(field)}"


def plural_of(field: Json) -> str:
    """The word in the plural, before its range."""
    if "anyOf" in field:
        return " and ".join(plural_of(one) for one in field["anyOf"])
    word, space, bounds = type_of(field).partition(" ")
    return f"{word}s{space}{bounds}"


def range_of(field: Json) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    above, below = field.get("exclusiveMinimum"), field.get("exclusiveMaximum")
    bounds = [f"> {number(above)}" if above is not None else "", f"≥ {number(least)}" if least is not None else ""]
    bounds += [f"< {number(below)}" if below is not None else "", f"≤ {number(most)}" if most is not None else ""]
    told = ", ".join(bound for bound in bounds if bound)
    return f" {told}" if told else ""


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def definition(reference: str, definitions: Json) -> Json:
    return definitions[reference.rpartition("/")[2]]


def objects(field: Json, definitions: Json) -> list[Json]:
    """The objects that a field may hold."""
    if "$ref" in field:
        found = definition(field["$ref"], definitions)
        return [one for one in found.get("anyOf", [found]) if "properties" in one]
    inner = [*field.get("anyOf", []), *field.get("oneOf", [])]
    inner += [field["items"]] if isinstance(field.get("items"), dict) else []
    return [found for one in inner for found in objects(one, definitions)]


def replaced(text: str, made: str) -> str:
    """The page's text with what stands between the comments made anew. Raises ValueError if there are none."""
    pattern = re.compile(f"({re.escape(BEGIN)}).*?({re.escape(END)})", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the page needs one part between {BEGIN.strip()!r} and {END!r}")
    return pattern.sub(lambda found: f"{found[1]}\n{made}\n{found[2]}", text)


def main() -> None:
    for page, made in pages().items():
        text = page.read_text()
        if (new := replaced(text, made)) != text:
            page.write_text(new)
            print(page)


if __name__ == "__main__":
    main()
