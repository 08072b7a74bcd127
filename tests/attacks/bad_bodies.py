"""Bodies that are refused: the path, and what is said there."""

from __future__ import annotations

import json
from collections.abc import Callable

MIB = 1 << 20
MANY = 8_000_000


def repeated(before: bytes, piece: bytes, after: bytes, size: int = MANY) -> bytes:
    return before + piece * ((size - len(before) - len(after)) // len(piece)) + after


def numbered(form: str, size: int = MANY) -> bytes:
    """Members with names of their own, as many as there is room for."""
    count = size // (len(form) + 5)
    return ",".join(form % i for i in range(count)).encode()


SAY: dict[str, Callable[[], tuple[str, bytes]]] = {
    "booleans": lambda: ("/predict", repeated(b'{"session": "s", "x": [', b"true,", b"1]}")),
    "booleans of a row": lambda: ("/predict", repeated(b'{"session": "s", "x": [', b"true,", b"1]}", MIB)),
    "rows of the wrong type": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b"1,", b'1], "y": [1]}')),
    "few rows of the wrong type": lambda: (
        "/sessions/s/rounds",
        repeated(b'{"x": [', b"1,", b'1], "y": [1]}', 2 * MIB),
    ),
    "empty rows": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b"[],", b'[1]], "y": [1]}')),
    "rows of one number": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b"[1],", b'[1]], "y": [1]}')),
    "rows of nothing but names": lambda: ("/sessions/s/rounds", repeated(b'{"x": [', b'{"":1},', b'[1]], "y": [1]}')),
    "truths of the wrong type": lambda: ("/sessions/s/rounds", repeated(b'{"x": [[1, 2]], "y": [', b"[],", b"1]}")),
    "good rows, and a bad one": lambda: (
        "/sessions/s/rounds",
        json.dumps({"x": [[0.123456789] * 40] * 9000 + [[True]], "y": [1.0] * 9001}).encode(),
    ),
    "unknown members": lambda: ("/predict", b'{"session": "s", "x": [1, 2],' + numbered('"k%d":1') + b"}"),
    "some unknown members": lambda: (
        "/predict",
        b'{"session": "s", "x": [1, 2],' + numbered('"k%d":1', MIB // 4) + b"}",
    ),
    "unknown members of rounds": lambda: ("/sessions/s/rounds", b"{" + numbered('"k%d":1') + b"}"),
    "unknown features": lambda: ("/sessions/f/predict", b'{"x": {' + numbered('"k%d":1', MIB // 4) + b"}}"),
    "features of the wrong type": lambda: ("/sessions/f/predict", b'{"x": {' + numbered('"k%d":[]', MIB // 5) + b"}}"),
    "rows of unknown features": lambda: (
        "/sessions/f/rounds",
        b'{"x": [' + b",".join([b"{" + numbered('"k%d":1', 600) + b"}"] * 9000) + b'], "y": [' + b"1," * 8999 + b"1]}",
    ),
    "brackets": lambda: ("/predict", b"[" * MANY),
    "brackets of a row": lambda: ("/predict", b'{"x":' + b"[" * (MIB // 2)),
    "brackets in rounds": lambda: ("/sessions/s/rounds", b'{"x": [' + b"[" * MANY),
    "one long text": lambda: ("/predict", b'{"session": "' + b"s" * (MIB - 100) + b'", "x": [1]}'),
    "one long name": lambda: ("/predict", b'{"' + b"s" * (MIB - 100) + b'": "", "x": [1]}'),
    "one long name in rounds": lambda: ("/sessions/s/rounds", b'{"' + b"s" * MANY + b'": "", "x": [1]}'),
    "escapes": lambda: ("/sessions/s/rounds", repeated(b'{"id": "', b"\\u0000", b'", "x": [[1]], "y": [1]}')),
    "blanks": lambda: ("/sessions/s/rounds", b" " * MANY),
    "a long number": lambda: ("/predict", b'{"session": "s", "x": [' + b"1" * (MIB - 100) + b"]}"),
    "a long name of a session": lambda: ("/predict", b'{"session": "' + b"a" * 60_000 + b'", "x": [1, 2]}'),
    "a long name in the path": lambda: ("/sessions/" + "a" * 60_000 + "/predict", b'{"x": [1, 2]}'),
    "a long id": lambda: ("/predict", b'{"session": "s", "x": [1, 2], "id": "' + b"a" * 60_000 + b'"}'),
    "a config of booleans": lambda: (
        "/sessions",
        repeated(b'{"name": "n", "learner": {"kind": "packing", "config": {"metric": [', b"true,", b"1]}}}", MIB // 9),
    ),
    "a config of unknown members": lambda: (
        "/sessions",
        b'{"name": "n", "learner": {"kind": "mean", "config": {' + numbered('"k%d":1', MIB // 4) + b"}}}",
    ),
    "a schema of nothing": lambda: (
        "/sessions",
        repeated(b'{"name": "n", "learner": {"kind": "mean"}, "schema": [', b"{},", b"1]}", MIB // 20),
    ),
}
