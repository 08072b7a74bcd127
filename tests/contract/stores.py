"""The stores that the contract suite runs on. A new store is one row here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tests.redis_server import connect


@dataclass(frozen=True, slots=True)
class StoreCase:
    """`url_fixture` starts the server and gives its url (None: a file in a folder of the test). `residue` lists all that
    is stored."""

    url_fixture: str | None
    residue: Callable[[str], Collection[object]]
    marks: Collection[pytest.MarkDecorator] = ()


def _rows(url: str) -> Collection[object]:
    connection = sqlite3.connect(urlsplit(url).path[1:])
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = [row for table in tables for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    return rows


def _keys(url: str) -> Collection[object]:
    with connect(urlsplit(url).port or 6379) as client:
        return list(client.scan_iter("*"))


STORES = {
    "sqlite": StoreCase(None, _rows),
    "redis": StoreCase("redis_url", _keys, marks=(pytest.mark.redis,)),
    "redis-cluster": StoreCase("redis_cluster_url", _keys, marks=(pytest.mark.redis,)),
}
