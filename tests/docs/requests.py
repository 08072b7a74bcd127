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
BINARY = "application/octet-stream"
LISTED = 1
"""So many entries of a list that is longer than `MOST` are shown."""

MOST = 10
LINES = 6
"""So many lines of a text are shown."""

OF_A_SCHEMA = ("$ref", "$defs")
"""Left out of a schema that is an answer: who resolves the references of the document would look for its own there."""

TRIES = 60
EVENTS_S = 0.5
"""The first event comes sooner."""


class Asked(NamedTuple):
    """One request of the file."""

    title: str
    method: str
    path: str
    headers: dict[str, str]
    body: str


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
                body,
            )
        )
    return found


async def play() -> tuple[dict[str, Any], list[tuple[Asked, httpx.Response]]]:
    """The OpenAPI document, and each request with its answer, in order."""
    async with serving("sqlite://") as api:
        answers: list[tuple[Asked, asyncio.Task[httpx.Response]]] = []
        saved = b""
        for asked in requests():
            answer = asyncio.create_task(
                answered(api.http, asked, saved if asked.body.startswith("< ") else asked.body)
            )
            answers.append((asked, answer))
            if asked.path.endswith("/events"):  # which end with their session
                await asyncio.sleep(EVENTS_S)
            elif (await answer).headers.get("content-type") == BINARY:
                saved = answer.result().content
        return api.app.openapi(), [(asked, await answer) for asked, answer in answers]


async def answered(http: httpx.AsyncClient, asked: Asked, content: str | bytes) -> httpx.Response:
    for _ in range(TRIES):
        answer = await http.request(asked.method, asked.path, headers=asked.headers, content=content)
        if answer.status_code != 409 or not asked.path.endswith("/promote"):
            break
        await asyncio.sleep(0.05)  # a challenger follows a little later
    return answer


def operation_of(document: dict[str, Any], asked: Asked) -> dict[str, Any]:
    for path in sorted(document["paths"], key=lambda path: path.count("{")):
        item = document["paths"][path]
        if asked.method.lower() in item and compile_path(path)[0].match(asked.path.partition("?")[0]):
            return item[asked.method.lower()]
    raise LookupError(f"{asked.method} {asked.path}")


def examples(document: dict[str, Any], answers: list[tuple[Asked, httpx.Response]]) -> dict[str, Any]:
    """By operation: bodies of requests by their media types, and those of answers by status and media type."""
    found: dict[str, Any] = {}
    for asked, answer in answers:
        entry = found.setdefault(operation_of(document, asked)["operationId"], {"requests": {}, "answers": {}})
        bodies = (
            (entry["requests"], asked.headers.get("Content-Type", ""), asked.body),
            (
                entry["answers"].setdefault(str(answer.status_code), {}),
                answer.headers.get("content-type", ""),
                answer.text,
            ),
        )
        for place, content_type, text in bodies:
            kind = content_type.partition(";")[0]
            if kind and kind != BINARY:
                place.setdefault(kind, {"summary": asked.title, "value": shown(kind, text)})
    return dict(sorted(found.items()))


def shown(kind: str, text: str) -> Any:
    """JSON, or the beginning of another text."""
    return short(json.loads(text)) if kind == JSON else "".join(text.splitlines(keepends=True)[:LINES])


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
