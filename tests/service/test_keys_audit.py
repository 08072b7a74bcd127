"""Who did what, and that no secret is told anywhere."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from okl.errors import ConfigurationError
from service.keys.audit import FILES, REFUSALS_A_SECOND, Audit, AuditFile
from service.keys.key import KeyScope, Rate
from service.logs import JsonFormatter, configure
from service.settings import Settings
from tests.service.api import Api, serving
from tests.service.keyed import Made, look_again, make, revoke

ROOT = Path(__file__).parents[2]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Any]:
    """The audit log's lines, and all other logs of the test."""
    path = tmp_path / "all.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in ("okl", "okl.audit", "uvicorn")]
    before = [(one, one.handlers, one.propagate, one.level) for one in loggers]
    yield path, handler
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    handler.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if json.loads(line)["logger"] == "okl.audit"]


async def _every_way(api: Api, url: str, made: Made) -> list[str]:
    """What a client is told who sends a key in every place that a request has."""
    heard: list[str] = []
    text = made.text
    wrong = text[:-2] + ("AA" if not text.endswith("AA") else "BB")
    for value in (text, wrong):
        for headers in (
            {"Authorization": f"Bearer {value}"},
            {"Authorization": value},
            {"Authorization": f"Basic {value}"},
            {"Cookie": f"okl_key={value}"},
            {"X-Request-Id": "a", "Authorization": f"Bearer {value}x"},
        ):
            for method, path, body in (
                ("GET", "/sessions", None),
                ("GET", "/", None),
                ("GET", "/metrics", None),
                ("POST", "/sessions", {"name": "s"}),
                ("POST", "/predict", {"session": "s", "x": [1.0]}),
                ("POST", "/predict", {"session": "s", "x": "nonsense"}),
                ("DELETE", "/sessions/nobody", None),
                ("GET", "/nothing", None),
            ):
                for accept in ("text/html", "application/json"):
                    found = await api.http.request(method, path, json=body, headers=headers | {"Accept": accept})
                    heard += [found.text, str(found.headers)]
    for value in (text, wrong):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        found = await api.http.post("/signin", content=f"key={value}&next={value}", headers=form)
        api.http.cookies.clear()
        heard += [found.text, str(found.headers)]
    metrics = await api.http.get("/metrics", headers=made.headers)
    heard.append(metrics.text)
    assert metrics.status_code == 200
    return heard


@pytest.mark.anyio
async def test_no_secret_is_in_any_log_error_metric_or_page(tmp_path: Path, told: Any) -> None:
    path, handler = told
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    made = await make(url)
    async with serving(url, log_requests=True) as api:
        for name in ("okl", "okl.audit", "uvicorn"):
            logger = logging.getLogger(name)
            logger.handlers = [handler]
            logger.setLevel(logging.DEBUG)
        heard = await _every_way(api, url, made)
        heard += [repr(api.worker), repr(api.worker.settings), repr(api.app.state.keyring), repr(vars(api.app.state))]
    everything = "\n".join([*heard, path.read_text()])
    assert "audit" in everything
    assert made.key.id in everything
    assert made.secret not in everything
    assert made.secret[:-2] not in everything
    assert made.key.digest.hex() not in everything
    stored = _bytes_of(tmp_path)
    assert made.key.id.encode() in stored
    assert made.secret.encode() not in stored


def _bytes_of(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.glob("okl.sqlite3*"))


@pytest.mark.anyio
async def test_acts_and_refusals_are_told_with_who_and_what(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'okl.sqlite3'}", tmp_path / "audit.log"
    admin = await make(url)
    reader = await make(url, KeyScope.READ, prefix="team-")
    writer = await make(url, KeyScope.WRITE, prefix="team-", rate=Rate(0.001, 2.0))
    async with serving(url, audit_file=str(path)) as api:
        await api.http.post("/sessions", json={"name": "team-a"}, headers=admin.headers)
        await api.http.post("/sessions", json={"name": "team-a"}, headers=admin.headers)
        await api.http.delete("/sessions/team-a", headers=reader.headers)
        await api.http.get("/sessions/other", headers=reader.headers)
        await api.http.post("/predict", json={"session": "other", "x": [1.0]}, headers=writer.headers)
        await api.http.post("/predict", json={"session": "team-a", "x": [1.0]}, headers=writer.headers)
        await api.http.post("/predict", json={"session": "team-a", "x": [1.0]}, headers=writer.headers)
        await api.http.get("/sessions/team-a", headers={"Authorization": f"Bearer okl_{admin.key.id}_{reader.secret}"})
        await api.http.get("/sessions", headers={"Authorization": "Bearer nothing"})
        await api.http.delete("/sessions/team-a", headers=admin.headers)
    found = [
        (one["key"], one["method"], one["route"], one.get("session"), one["outcome"], one["status"], one.get("problem"))
        for one in lines(path)
    ]
    a, r, w = admin.key.id, reader.key.id, writer.key.id
    assert found == [
        (a, "POST", "/sessions", "team-a", "done", 201, None),
        (a, "POST", "/sessions", "team-a", "failed", 409, None),
        (r, "DELETE", "/sessions/{session}", "team-a", "refused", 403, "forbidden"),
        (r, "GET", "/sessions/{session}", "other", "refused", 403, "forbidden"),
        (w, "POST", "/predict", "other", "refused", 403, "forbidden"),
        (w, "POST", "/predict", None, "refused", 429, "too-many-requests"),
        ("none", "GET", "/sessions/{session}", "team-a", "refused", 401, "unauthenticated"),
        ("none", "GET", "/sessions", None, "refused", 401, "unauthenticated"),
        (a, "DELETE", "/sessions/{session}", "team-a", "done", 204, None),
    ]
    assert lines(path)[6]["claimed"] == a
    assert all(one["instance"] and one["time"] for one in lines(path))


@pytest.mark.anyio
async def test_where_no_key_is_required_acts_are_told_all_the_same(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'okl.sqlite3'}", tmp_path / "audit.log"
    async with serving(url, audit_file=str(path)) as api:
        await api.http.post("/sessions", json={"name": "s"})
        await api.http.post("/sessions/s/freeze", json={"name": "t", "rule": "last"})
        await api.http.delete("/sessions/s/predictions/x")
        await api.http.delete("/sessions/s/challengers/c")
        await api.http.delete("/templates/shops")
        await api.http.get("/sessions/s")
        await api.http.delete("/sessions/s")
    found = [(one["key"], one["route"], one.get("session"), one.get("target"), one["status"]) for one in lines(path)]
    assert found == [
        ("none", "/sessions", "s", None, 201),
        ("none", "/sessions/{session}/freeze", "s,t", None, 409),
        ("none", "/sessions/{session}/predictions/{id:path}", "s", "x", 404),
        ("none", "/sessions/{session}/challengers/{challenger}", "s", "c", 404),
        ("none", "/templates/{template}", None, "shops", 404),
        ("none", "/sessions/{session}", "s", None, 204),
    ]


@pytest.mark.anyio
async def test_only_names_are_told_as_sessions(tmp_path: Path) -> None:
    """What else a path holds is as long as a path, and a comma in it would look like two sessions."""
    url, path = f"sqlite:///{tmp_path / 'okl.sqlite3'}", tmp_path / "audit.log"
    made = await make(url, prefix="team-")
    name, challenger = "team-" + "a" * 59, "team-" + "a" * 59 + "~" + "b" * 64
    given = [f"team-{'a' * 7_000}", "team-a,other", "team-a\nb", name, challenger]
    async with serving(url, audit_file=str(path)) as api:
        for session in given:
            where = f"/sessions/{quote(session)}/predictions/x"
            await api.http.delete(where, headers=made.headers)
            await api.http.delete(where)
    found = [(one["outcome"], one.get("session")) for one in lines(path)]
    told = [None, None, None, name, challenger]
    assert found == [(outcome, session) for session in told for outcome in ("failed", "refused")]


@pytest.mark.anyio
async def test_a_revoked_key_is_told_as_the_one_that_was_claimed(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'okl.sqlite3'}", tmp_path / "audit.log"
    made = await make(url)
    async with serving(url, audit_file=str(path)) as api:
        await revoke(url, made)
        await look_again(api)
        await api.http.get("/sessions", headers=made.headers)
    assert [(one["key"], one["claimed"]) for one in lines(path)] == [("none", made.key.id)]


def test_a_flood_of_refusals_is_counted_and_not_told() -> None:
    now = 10.0
    audit = Audit(lambda: now)
    logger, kept = logging.getLogger("okl.audit"), Kept()
    before = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [kept], False
    logger.setLevel(logging.INFO)
    try:
        for _ in range(1000):
            audit.refused({"key": "none"}, 401, "unauthenticated")
        audit.done({"key": "abcdefgh"}, 201)
        now = 11.0
        for _ in range(REFUSALS_A_SECOND + 5):
            audit.refused({"key": "none"}, 401, "unauthenticated")
        now = 12.0
        audit.done({"key": "abcdefgh"}, 201)
        for _ in range(REFUSALS_A_SECOND + 7):
            audit.refused({"key": "none"}, 401, "unauthenticated")
        audit.flush()
    finally:
        logger.handlers, level, logger.propagate = before
        logger.setLevel(level)
    left_out = {i: vars(one)["left_out"] for i, one in enumerate(kept.records) if "left_out" in vars(one)}
    n = REFUSALS_A_SECOND
    assert left_out == {n + 1: 1000 - n, 2 * n + 2: 5, 3 * n + 4: 7}
    assert len(kept.records) == 3 * n + 5


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


WRITER = """
import logging, sys
from service.keys.audit import AuditFile
file = AuditFile(sys.argv[1], 4096)
for i in range(300):
    file.emit(logging.makeLogRecord({"msg": f"{sys.argv[2]} {i} " + "x" * 20}))
"""


def test_several_processes_share_a_file_that_is_rotated_and_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER.replace("4096", "9000"), str(path), str(n)], env=environment)
        for n in range(2)
    ]
    assert [one.wait(60) for one in running] == [0, 0]
    kept = [path, *(tmp_path / f"audit.log.{i}" for i in range(1, FILES))]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(
        [*(p.name for p in kept if p.exists()), "audit.log.lock"]
    )
    assert all(one.stat().st_size <= 9000 for one in kept if one.exists())
    assert all(one.stat().st_mode & 0o077 == 0 for one in kept if one.exists())
    written = [line.split()[:2] for one in kept if one.exists() for line in one.read_text().splitlines()]
    assert len(written) == 600
    for writer in ("0", "1"):
        assert sorted(int(i) for who, i in written if who == writer) == list(range(300))


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path / "audit.log"), 4096)
    for i in range(2_000):
        file.emit(logging.makeLogRecord({"msg": f"{i} " + "x" * 50}))
    kept = [one for one in tmp_path.iterdir() if one.suffix != ".lock"]
    assert len(kept) == FILES
    assert sum(one.stat().st_size for one in kept) <= FILES * 4096
    assert (tmp_path / "audit.log").read_text().splitlines()[-1].startswith("1999 ")


FILLER = """
import logging, os, resource, sys
from service.keys.audit import AuditFile
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
logging.raiseExceptions = False
file = AuditFile(sys.argv[1], 1 << 20)
before = len(os.listdir("/dev/fd"))
for i in range(100):
    file.emit(logging.makeLogRecord({"msg": f"{i} " + "x" * 300}))
print(len(os.listdir("/dev/fd")) - before)
"""


def test_on_a_full_disk_no_file_stays_open_and_no_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", FILLER, str(path)], env=environment, stdout=subprocess.PIPE, check=True, timeout=60
    )
    assert done.stdout.strip() == b"0"
    assert path.read_text() == "".join(f"{i} {'x' * 300}\n" for i in range(3))


def test_a_file_that_cannot_be_written_is_told_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="OKL_AUDIT_FILE"):
        configure(Settings(audit_file=str(tmp_path / "folder")))
    logging.getLogger("okl.audit").handlers = []
