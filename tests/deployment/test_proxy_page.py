"""The nginx of docs/proxy.md passes on what the service looks at."""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from tests.deployment.upstreams import upstreams
from tests.docs.pages import text_of
from tests.redis_server import free_port


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_proxy_of_the_page_passes_on_address_and_protocol(tmp_path: Path) -> None:
    """A form of the dashboard is refused unless `Host` is the page's own address, with its port."""
    files = ("-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt")
    command = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-days",
        "1",
        "-newkey",
        "rsa:2048",
        *files,
        "-subj",
        "/CN=okl.example.com",
    ]
    subprocess.run(command, check=True, capture_output=True)
    found = re.search(r"```nginx\n(.*?)```", text_of("proxy.md"), re.DOTALL)
    assert found
    port = free_port()
    with upstreams(1) as (server,):
        text = found[1]
        for old, new in (
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("/etc/okl/", f"{tmp_path}/"),
            ("127.0.0.1:8000", server.name),
        ):
            assert old in text
            text = text.replace(old, new)
        folders = "".join(
            f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (tmp_path / "nginx.conf").write_text(
            f"pid {tmp_path}/pid; events {{}} http {{ access_log off; {folders}\n{text} }}"
        )
        nginx = subprocess.Popen(
            ["nginx", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", "stderr", "-g", "daemon off;"],
            env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"},
        )
        try:
            for _ in range(200):
                if is_listening(port):
                    break
                time.sleep(0.05)
            else:
                pytest.fail("nginx does not listen")
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
            connection.request("GET", "/sessions", headers={"Host": f"okl.example.com:{port}", "Upgrade": "h2c"})
            assert connection.getresponse().read().decode() == server.name
            connection.close()
        finally:
            nginx.terminate()
            nginx.wait()
        (head,) = server.heads
    assert head["host"] == f"okl.example.com:{port}"
    assert head["x-forwarded-proto"] == "https"
    assert head["connection"] != "upgrade"
