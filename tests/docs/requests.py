"""docs/okl.http played against the application, and the examples of the OpenAPI document that its answers are.

python -m tests.docs.requests     writes service/api/examples.json
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from starlette.routing import compile_path

from tests.service.api import serving

ROOT = Path(__file__).parents[2]
REQUESTS = ROOT / "docs" / "okl.http"
EXAMPLES = ROOT / "service" / "api" / "examples.json"
JSON = "application/json"
LISTED = 1
"""So many entries of a list that is longer than `MOST` are shown."""

MOST = 10
OF_A_SCHEMA = ("$ref", "$defs")
"""Left out of a schema that is an answer: who resolves the references of the document would look for its own there."""

TRIES = 60


class Asked(NamedTuple):
    """One request of the file."""

    title: str
    method: str
    path: str
    headers: dict[str, str]
    body: Any


def requests() -> list[Asked]:
    found = []
    for part in re.split(r"^### ", REQUESTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.strip().partition("\n\n")
        title, line, *headers = head.split("\n")
        method, url = line.split()
        found.append(
            Asked(
                title,
                method,
                url.removeprefix("{{okl}}"),
                dict(one.split(": ", 1) for one in headers),
                json.loads(body) if body else None,
            )
        )
    return found


async def play() -> tuple[dict[str, Any], list[tuple[Asked, httpx.Response]]]:
    """The OpenAPI document, and each request with its answer, in order."""
    async with serving("sqlite://") as api:
        answers = []
        for asked in requests():
            content = None if asked.body is None else json.dumps(asked.body)
            for _ in range(TRIES):
                answer = await api.http.request(asked.method, asked.path, headers=asked.headers, content=content)
                if answer.status_code != 409 or not asked.path.endswith("/promote"):
                    break
                await asyncio.sleep(0.05)  # a challenger follows a little later
            answers.append((asked, answer))
        return api.app.openapi(), answers


def operation_of(document: dict[str, Any], asked: Asked) -> dict[str, Any]:
    for path in sorted(document["paths"], key=lambda path: path.count("{")):
        item = document["paths"][path]
        if asked.method.lower() in item and compile_path(path)[0].match(asked.path):
            return item[asked.method.lower()]
    raise LookupError(f"{asked.method} {asked.path}")


def examples(document: dict[str, Any], answers: list[tuple[Asked, httpx.Response]]) -> dict[str, Any]:
    """By operation: the body of the request, and the answer."""
    found: dict[str, Any] = {}
    for asked, answer in answers:
        entry: dict[str, Any] = {"title": asked.title}
        if asked.body is not None:
            entry["request"] = asked.body
        if answer.headers.get("content-type", "").startswith(JSON):
            entry["answer"] = short(answer.json())
        found.setdefault(operation_of(document, asked)["operationId"], entry | {"status": str(answer.status_code)})
    return dict(sorted(found.items()))


def short(value: Any) -> Any:
    """The answer, only the beginning of a long list, without references."""
    if isinstance(value, list):
        return [short(one) for one in (value[:LISTED] if len(value) > MOST else value)]
    if isinstance(value, dict):
        return {name: short(one) for name, one in value.items() if name not in OF_A_SCHEMA}
    return value


def main() -> None:
    text = json.dumps(examples(*asyncio.run(play())), indent=1, ensure_ascii=False)
    EXAMPLES.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
