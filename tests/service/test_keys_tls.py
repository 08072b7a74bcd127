"""TLS with a certificate that the test makes, and one for clients; a real server process."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import okl
from okl.errors import ConfigurationError
from service.server import config
from service.settings import Settings
from tests.docs.test_delivery import image
from tests.warm import warm


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for this machine, and a client's."""
    folder: Path = tmp_path_factory.mktemp("tls")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, *new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl(folder, *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


@contextmanager
def served(tmp_path: Path, **settings: str) -> Iterator[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OKL_")}
    environment |= {"OKL_STORE": f"sqlite:///{tmp_path / 'okl.sqlite3'}", "OKL_PORT": "0"} | settings
    program = [sys.executable, "-m", "service.start", "serve"]
    process = warm(program, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        told = ""
        while not (found := re.search(r"running on (https?://127\.0\.0\.1:\d+)", told)):
            line = process.stderr.readline()
            assert line, told
            told += line
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def trusting(certificates: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates / "ca.pem"))


def test_the_service_speaks_tls_and_the_commands_find_it(certificates: Path, tmp_path: Path) -> None:
    files = {"OKL_TLS_CERT": str(certificates / "server.pem"), "OKL_TLS_KEY": str(certificates / "server.key")}
    with served(tmp_path, **files) as url:
        assert url.startswith("https://")
        with httpx.Client(base_url=url, verify=trusting(certificates)) as http:
            assert http.get("/healthz").json()["status"] == "alive"
            assert http.post("/sessions", json={"name": "s"}, headers={"Origin": url}).status_code == 201
            body = {"x": [[float(i)] for i in range(2000)], "y": [0.0] * 2000}
            assert http.post("/sessions/s/rounds", json=body).json()["t"] == 2000
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/healthz")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url.replace('https', 'http')}/healthz")
        _refused_at_once(url, "SSL_CERT_FILE")
        environment = dict(os.environ) | files | {"SSL_CERT_FILE": str(certificates / "ca.pem")}
        environment |= {"OKL_PORT": url.rpartition(":")[2]}
        program = [sys.executable, "-m", "service.start", "sessions", "s", "--json"]
        listed = warm(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert '"t": 2000' in listed.communicate(timeout=60)[0]


@pytest.mark.parametrize("has_tls", [True, False])
def test_the_health_check_of_the_image_asks_as_the_service_answers(
    certificates: Path, tmp_path: Path, has_tls: bool
) -> None:
    cert, key = str(certificates / "server.pem"), str(certificates / "server.key")
    files = {"OKL_TLS_CERT": cert, "OKL_TLS_KEY": key} if has_tls else {}
    program = json.loads(image()["HEALTHCHECK"].partition("CMD ")[2])
    with served(tmp_path, **files) as url:
        environment = dict(os.environ) | files | {"OKL_PORT": url.rpartition(":")[2]}
        subprocess.run([sys.executable, *program[1:]], env=environment, check=True)


def test_a_service_without_tls_is_not_asked_again(url: str) -> None:
    _refused_at_once(url.replace("http", "https"), "http://")


def _refused_at_once(url: str, fix: str) -> None:
    """A client that retries for 30 s gives up at the first handshake, and says what to change."""
    started = time.monotonic()
    with okl.Client(url) as client:
        with pytest.raises(ConfigurationError, match=fix):
            client.session("s").describe()
        with pytest.raises(ConfigurationError, match=fix):
            client.stream("s")
        with pytest.raises(ConfigurationError, match=fix):
            next(client.events("s"))
    assert time.monotonic() - started < 10.0


def test_clients_need_a_certificate_where_an_authority_is_named(certificates: Path, tmp_path: Path) -> None:
    files = {
        f"OKL_TLS_{name}": str(certificates / file) for name, file in (("CERT", "server.pem"), ("KEY", "server.key"))
    }
    with served(tmp_path, **files, OKL_TLS_CA=str(certificates / "ca.pem")) as url:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/healthz", verify=trusting(certificates))
        context = trusting(certificates)
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        assert httpx.get(f"{url}/healthz", verify=context).status_code == 200


def test_files_that_cannot_be_used_are_told_before_anything_is_served(certificates: Path, tmp_path: Path) -> None:
    cert, key = str(certificates / "server.pem"), str(certificates / "server.key")
    none, other = str(tmp_path / "none.pem"), str(certificates / "client.key")
    for wrong, told in (
        ({"tls_key": key}, "OKL_TLS_CERT"),
        ({"tls_ca": cert}, "OKL_TLS_CERT"),
        ({"tls_cert": none, "tls_key": key}, f"OKL_TLS_CERT: .*{none}"),
        ({"tls_cert": cert, "tls_key": none}, f"OKL_TLS_KEY: .*{none}"),
        ({"tls_cert": cert, "tls_key": key, "tls_ca": none}, f"OKL_TLS_CA: .*{none}"),
        ({"tls_cert": cert}, f"OKL_TLS_CERT {cert} without OKL_TLS_KEY: "),
        ({"tls_cert": cert, "tls_key": other}, f"OKL_TLS_CERT {cert} with OKL_TLS_KEY {other}: "),
        ({"tls_cert": cert, "tls_key": key, "tls_ca": key}, f"OKL_TLS_CA {key}: "),
    ):
        with pytest.raises(ConfigurationError, match=told):
            config(_nothing, Settings(**wrong))


async def _nothing(*_: object) -> None: ...
