"""`okl serve` as an operator starts it: a process of its own, which serves or says in one line why it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from okl.client import Client
from service.cli import app
from service.demos.processes import worker_pids
from service.server import WORKER_ANSWERS_WITHIN_S
from tests.command import START_S, environment, okl, until, until_imports
from tests.redis_server import connect as connect_redis
from tests.redis_server import redis_process, redis_server


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


WRONG = {
    "a setting": ([], {"OKL_LOG_LEVEL": "loud"}, "Setting OKL_LOG_LEVEL: "),
    "two settings": ([], {"OKL_LOG_LEVEL": "loud", "OKL_MAX_DIM": "0"}, "; OKL_MAX_DIM: "),
    "kernels": ([], {"OKL_BLAS_KERNELS": "fast"}, "Haswell"),
    "a store of no kind": (["--store", "mongo://host"], {}, "sqlite"),
    "an option of SQLite": (["--store", "sqlite:///x.sqlite3?synchronous=maybe"], {}, "synchronous"),
    "an option of SQLite that is none": (["--store", "sqlite:///x.sqlite3?colour=red"], {}, "colour"),
    "a file of SQLite without a name": (["--store", "sqlite:///"], {}, "names no file; sqlite:// is a store in memory"),
    "a file of SQLite in memory": (["--store", "sqlite:///:memory:", "--workers", "2"], {}, "names no file"),
    "a file of SQLite without slashes": (["--store", "sqlite:x.sqlite3"], {}, "expected sqlite:///path"),
    "an option of Redis that is none": (["--store", "redis://:hush@127.0.0.1:9/0?colour=red"], {}, "colour"),
    "a port of Redis": (["--store", "redis://:hush@127.0.0.1:port/0"], {}, "store url"),
    "a file of settings that is not there": ([], {"OKL_CONFIG_FILE": "nowhere.toml"}, "nowhere.toml"),
    "no file of settings": ([], {"OKL_CONFIG_FILE": ""}, "OKL_CONFIG_FILE is empty: give it a path, or unset it."),
    "no folder of secrets": ([], {"OKL_SECRETS_DIR": ""}, "OKL_SECRETS_DIR is empty: give it a path, or unset it."),
    "a certificate that is not there": (
        [],
        {"OKL_TLS_CERT": "none.pem"},
        "OKL_TLS_CERT: [Errno 2] No such file or directory: 'none.pem'",
    ),
    "authorities of Redis that are not there": (
        ["--store", "rediss://:hush@127.0.0.1:9/0?ssl_ca_certs=none.pem"],
        {},
        "ssl_ca_certs names none.pem",
    ),
    "a file of the audit log that is a folder": (
        [],
        {"OKL_AUDIT_FILE": "/proc"},
        "OKL_AUDIT_FILE: [Errno 21] Is a directory: '/proc'",
    ),
    "a webhook that is none": ([], {"OKL_WEBHOOK": "hush.example"}, "OKL_WEBHOOK"),
    "a folder for metrics that is none": ([], {"OKL_METRICS_DIR": "/dev/null/metrics"}, "OKL_METRICS_DIR"),
    "a folder for metrics that takes no file": ([], {"OKL_METRICS_DIR": "/proc"}, "OKL_METRICS_DIR"),
    "an address of no machine": (["--host", "256.0.0.1"], {"OKL_ALLOW_ANONYMOUS": "1"}, "OKL_HOST"),
    "an address of another machine": (["--host", "192.0.2.1"], {"OKL_ALLOW_ANONYMOUS": "1"}, "OKL_HOST"),
    "a store in memory for two": (["--store", "sqlite://", "--workers", "2"], {}, "memory"),
}


@pytest.fixture
def told_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What `okl serve` says in this process, where it must refuse to start."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OKL_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str, code: int = 2, **variables: str) -> str:
        result = CliRunner().invoke(app, ["serve", *arguments], env=variables)
        assert (result.exit_code, result.stdout) == (code, "")
        assert len(result.stderr.splitlines()) == 1, result.stderr
        return result.stderr

    return run


@pytest.mark.parametrize(("arguments", "variables", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_at_once(
    told_here: Callable[..., str], arguments: list[str], variables: dict[str, str], told: str
) -> None:
    line = told_here(*arguments, **variables)
    assert told in line
    assert "hush" not in line


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no toml", "OKL_CONFIG_FILE: okl.toml is not TOML"),
        ("colour = 'red'", "colour"),
        ("port = 'red'", "port"),
        ("blas_kernels = 3", "blas_kernels"),
    ],
)
def test_a_wrong_file_of_settings_is_told(
    told_here: Callable[..., str], tmp_path: Path, content: str, told: str
) -> None:
    (tmp_path / "okl.toml").write_text(content)
    assert told in told_here()


def test_a_secret_that_cannot_be_read_is_told(told_here: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "okl_webhook_secret").write_bytes(b"\xff")
    line = told_here(OKL_SECRETS_DIR=str(tmp_path))
    assert "OKL_SECRETS_DIR: " in line
    assert "webhook_secret" in line


# What each store says of each trouble is in tests/contract; here is who is told, and with which code.


def test_a_file_that_cannot_be_a_store_is_told_at_once(told_here: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert "file/okl.sqlite3" in told_here("--store", "sqlite:///file/okl.sqlite3", code=75)


def test_a_store_that_is_down_is_told(tmp_path: Path, port: int) -> None:
    store = f"redis://user:hush@127.0.0.1:{port}/0"
    with okl("serve", "--port", "0", cwd=tmp_path, OKL_STORE=store, OKL_STORE_PATIENCE_S="0.5") as process:
        _, err = process.communicate(timeout=START_S)
    assert process.returncode == 75
    assert "hush" not in err
    assert "Traceback" not in err
    assert f"redis://127.0.0.1:{port}/0" in err.splitlines()[-1]
    assert "OKL_STORE_PATIENCE_S" in err.splitlines()[-1]
    assert 1 <= len(err.splitlines()) <= 2


@pytest.mark.redis
def test_a_wrong_password_is_told_at_once(told_here: Callable[..., str], tmp_path: Path) -> None:
    with redis_server(tmp_path) as port:
        with connect_redis(port) as client:
            client.config_set("requirepass", "secret")
        line = told_here("--store", f"redis://:hush@127.0.0.1:{port}/0")
        assert "password" in line.lower()
        assert "hush" not in line


@pytest.mark.redis
def test_a_store_that_is_on_its_way_is_waited_for(tmp_path: Path, port: int) -> None:
    """Compose starts both at once."""
    store = f"redis://127.0.0.1:{port}/0"
    with okl("serve", "--port", "0", "--store", store, cwd=tmp_path) as process:
        assert "111" in until(process, "does not answer")
        with redis_server(tmp_path, port=port):
            until(process, "http://127.0.0.1:")


@pytest.mark.redis
def test_a_redis_that_may_lose_rounds_is_warned_of(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path, "--appendonly", "no", "--maxmemory-policy", "allkeys-lru") as lossy,
        okl("serve", "--port", "0", "--store", f"redis://127.0.0.1:{lossy}/0", cwd=tmp_path) as process,
    ):
        until(process, "http://127.0.0.1:", kept := [])
    told = "".join(line for line in kept if "WARNING" in line)
    assert "maxmemory-policy" in told
    assert "appendonly" in told


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_it_serves_and_stops_without_standard_streams(tmp_path: Path, port: int, closed: str, workers: int) -> None:
    """A socket that has the number of such a stream would make libuv abort."""
    command = [sys.executable, "-m", "service.start", "serve", "--port", str(port), "--workers", str(workers)]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *command]
    ours = environment(PYTHONPATH=os.getcwd(), OKL_STORE=f"sqlite:///{tmp_path / 'okl.sqlite3'}")
    with (
        subprocess.Popen(
            shell, cwd=tmp_path, env=ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process,
        Client(f"http://127.0.0.1:{port}") as client,
    ):
        try:
            give_up = time.monotonic() + START_S
            while not is_listening(port) and process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.05)
            assert client.is_ready()
            pids = [process.pid, *(worker_pids(process.pid) if workers > 1 else [])]
            streams = {os.readlink(f"/proc/{pid}/fd/{descriptor}") for pid in pids for descriptor in range(3)}
            assert streams == {os.devnull}
            process.terminate()
            assert process.wait(START_S) == 0
        finally:
            process.kill()


def test_it_says_where_it_listens_and_stops_on_ctrl_c(tmp_path: Path, port: int) -> None:
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    with okl("serve", "--port", str(port), "--store", store, cwd=tmp_path) as process:
        until(process, f"http://127.0.0.1:{port}", kept := [])
        assert "WARNING" not in "".join(kept)
        with Client(f"http://127.0.0.1:{port}") as client:
            assert client.is_ready()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=START_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_what_any_client_may_cause_is_not_logged_as_an_error(tmp_path: Path, port: int) -> None:
    """Until it is stopped by SIGTERM."""
    with okl("serve", "--port", str(port), "--store", f"sqlite:///{tmp_path / 'okl.sqlite3'}", cwd=tmp_path) as process:
        until(process, f"http://127.0.0.1:{port}", [])
        with pytest.raises(InvalidStatus):
            connect(f"ws://127.0.0.1:{port}/sessions/nobody/stream")
        with Client(f"http://127.0.0.1:{port}") as client:
            client.create("s", {"kind": "mean"})
        with connect(f"ws://127.0.0.1:{port}/sessions/s/stream") as connection:
            connection.send(b"\xff", text=True)
            with pytest.raises(ConnectionClosed):
                connection.recv(timeout=10)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=START_S)
    assert process.returncode == 0, err
    assert "ERROR" not in err
    assert "Traceback" not in err


@pytest.mark.each
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["early in the imports", "late in them", "while the store is waited for"])
def test_it_stops_while_it_starts(tmp_path: Path, port: int, stop: signal.Signals, moment: str) -> None:
    store = f"redis://127.0.0.1:{port}/0"
    with okl("serve", "--store", store, cwd=tmp_path, is_warm=moment == "while the store is waited for") as process:
        if moment == "while the store is waited for":
            until(process, "does not answer")
        else:
            until_imports(process)
            time.sleep(0.0 if moment.startswith("early") else 0.3)
        process.send_signal(stop)
        _, err = process.communicate(timeout=START_S)
    assert "Traceback" not in err
    assert process.returncode in (-stop, 130, 143), err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_told(told_here: Callable[..., str], workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in told_here("--port", port, "--workers", workers)


def test_workers_that_cannot_start_are_no_success(tmp_path: Path, port: int) -> None:
    store = tmp_path / "okl.sqlite3"
    serve = ("serve", "--port", str(port), "--store", f"sqlite:///{store}", "--workers", "2")
    with okl(*serve, cwd=tmp_path) as process:
        # The command has looked at the store; its workers are yet to open it.
        until(process, "Started parent process")
        store.write_bytes(b"no store" * 1000)
        _, err = process.communicate(timeout=START_S)
    assert process.returncode == 1
    assert "did not start" in err.splitlines()[-1]


@pytest.mark.redis
def test_workers_read_secrets_themselves(tmp_path: Path, port: int) -> None:
    """The environment of a process can be read by others of its user; what the command line names is there."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    with redis_process(tmp_path / "redis", password="hush") as store:
        (secrets / "okl_store").write_text(f"redis://:hush@127.0.0.1:{store.port}/0")
        serve = ("serve", "--port", str(port), "--workers", "2")
        with (
            okl(*serve, cwd=tmp_path, OKL_SECRETS_DIR=str(secrets)) as process,
            Client(f"http://127.0.0.1:{port}") as client,
        ):
            until(process, "serving")
            environments = [
                Path(f"/proc/{pid}/environ").read_text() for pid in (process.pid, *worker_pids(process.pid))
            ]
            assert len(environments) == 3
            assert not any("hush" in environment for environment in environments)
            assert all(f"OKL_PORT={port}" in environment for environment in environments[1:])
            while not client.is_ready():
                time.sleep(0.02)


def test_workers_of_one_port_tell_the_metrics_of_all(tmp_path: Path, port: int) -> None:
    """Whichever answers; one that is killed comes back under its number; nothing is left behind."""

    def told() -> set[bytes]:
        answers = (http.get(f"http://127.0.0.1:{port}/metrics", headers={"Connection": "close"}) for _ in range(8))
        return {b"".join(re.findall(rb"^okl_build_info.*\n", one.content, re.MULTILINE)) for one in answers}

    def settled(workers: int) -> bool:
        found = told()
        return len(found) == 1 and found.pop().count(b"\n") == workers

    def wait(workers: int) -> None:
        deadline = time.monotonic() + START_S
        while not settled(workers):
            assert time.monotonic() < deadline, told()
            time.sleep(0.2)

    with (
        okl("serve", "--port", str(port), "--workers", "2", cwd=tmp_path, TMPDIR=str(tmp_path)) as process,
        httpx.Client(trust_env=False) as http,
    ):
        with Client(f"http://127.0.0.1:{port}") as client:
            while not client.is_ready():  # a worker says that it has started before it listens
                time.sleep(0.02)
        wait(2)
        assert [path.name[:12] for path in tmp_path.glob("okl-metrics-*")] == ["okl-metrics-"]
        workers = worker_pids(process.pid)
        assert len(workers) == 2
        assert worker_pids(os.getpid()) == []
        os.kill(workers[-1], signal.SIGKILL)
        wait(2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
        assert list(tmp_path.glob("okl-metrics-*")) == []


def test_a_worker_that_dies_while_it_is_asked_is_replaced_at_once(tmp_path: Path, port: int) -> None:
    """A worker is asked twice a second whether it lives, and has half a minute to answer."""
    with okl("serve", "--port", str(port), "--workers", "2", cwd=tmp_path) as process:
        with Client(f"http://127.0.0.1:{port}") as client:
            while not client.is_ready():
                time.sleep(0.02)
        dying = worker_pids(process.pid)[0]
        os.kill(dying, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(dying, signal.SIGKILL)
        deadline = time.monotonic() + WORKER_ANSWERS_WITHIN_S / 3
        while len(set(worker_pids(process.pid)) - {dying}) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
