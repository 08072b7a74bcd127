"""The Compose files as Compose itself reads them, and the secrets that they make."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from bench.balancer import SCRIPT, balancer
from service.settings import Settings
from service.store.base import Tip
from service.store.opening import open_store
from tests.contract.store_calls import entry
from tests.deployment.kept import kept_mib
from tests.deployment.upstreams import upstreams
from tests.redis_server import connect, free_port, redis_process, wait_until

ROOT = Path(__file__).parents[2]
MAKE_SECRETS = ROOT / "docker" / "redis" / "make_secrets.sh"


def composed(*files: str, **environment: str) -> dict[str, Any]:
    """What `docker compose config` makes of the files, all profiles included."""
    command = [Path(sys.executable).parent / "docker-compose", *(part for file in files for part in ("-f", file))]
    command += ["--profile", "*", "config", "--format", "json"]
    found = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return composed("docker-compose.yml")["services"]


def test_no_container_may_do_more_than_it_needs(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        # The options are this driver's: with another one as the engine's default, no container would start.
        assert service["logging"]["driver"] == "json-file", name
        if name != "secrets":
            assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
            assert service.get("user") != "0:0", name
    assert services["secrets"]["network_mode"] == "none"


def test_images_are_of_one_version(services: dict[str, dict[str, Any]]) -> None:
    images = [service["image"] for service in services.values() if "image" in service]
    assert all(re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", image) for image in images), images
    assert services["secrets"]["image"] == services["redis"]["image"]


def test_ports_are_of_this_machine_only(services: dict[str, dict[str, Any]]) -> None:
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert {port["host_ip"] for each in ports.values() for port in each} == {"127.0.0.1"}
    assert [(port["published"], port["target"]) for port in ports["nginx"]] == [("8000", 8080)]
    assert "redis" not in ports
    assert "okl" not in ports


def test_workers_alone_reach_redis(services: dict[str, dict[str, Any]]) -> None:
    networks = composed("docker-compose.yml")["networks"]
    assert networks["back"]["internal"]
    assert {name for name, service in services.items() if "back" in service.get("networks", {})} == {"okl", "redis"}


def test_requests_get_their_time_when_a_worker_stops(services: dict[str, dict[str, Any]]) -> None:
    grace = int(services["okl"]["stop_grace_period"].removesuffix("s"))
    assert grace >= Settings.model_fields["shutdown_grace_s"].default + 5


def test_redis_may_read_its_file_for_minutes(services: dict[str, dict[str, Any]]) -> None:
    """Otherwise it is unhealthy after the retries, and Compose does not start the workers."""
    assert services["redis"]["healthcheck"]["start_period"] == "10m0s"


def test_what_is_mounted_is_in_the_checkout(services: dict[str, dict[str, Any]]) -> None:
    sources = [
        mount["source"]
        for service in services.values()
        for mount in service.get("volumes", [])
        if mount["type"] == "bind"
    ]
    assert sources
    assert all(Path(source).exists() and mount_is_read_only(services, source) for source in sources)


def mount_is_read_only(services: dict[str, dict[str, Any]], source: str) -> bool:
    mounts = (mount for service in services.values() for mount in service.get("volumes", []))
    return all(mount.get("read_only") for mount in mounts if mount["source"] == source)


def test_nobody_is_in_the_image_whom_the_secrets_are_not_for(services: dict[str, dict[str, Any]]) -> None:
    script = MAKE_SECRETS.read_text()
    user = re.search(r"^USER (\d+):\d+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert f"OKL_USER:-{user[1]}" in script
    assert f"OKL_REDIS_USER:-{services['redis']['user'].partition(':')[0]}" in script


def test_large_bodies_fit_into_the_folder_of_nginx(services: dict[str, dict[str, Any]]) -> None:
    (options,) = services["nginx"]["tmpfs"]
    found = re.search(r"size=(\d+)m", options)
    assert found
    assert kept_mib() < int(found[1])


def test_workers_believe_nginx_how_a_client_came(services: dict[str, dict[str, Any]]) -> None:
    assert services["okl"]["environment"]["FORWARDED_ALLOW_IPS"] == "*"


def test_tls_is_one_more_file() -> None:
    nginx = composed("docker-compose.yml", "docker/tls.yml", OKL_TLS="/certificates")["services"]["nginx"]
    assert nginx["environment"]["OKL_LISTEN_TLS"] == "8443"
    assert {"443", "8000"} == {port["published"] for port in nginx["ports"]}
    assert "/run/tls" in {mount["target"] for mount in nginx["volumes"]}


# Secrets


def made(folder: Path, **environment: str) -> tuple[Path, Path]:
    acl, secrets = folder / "acl", folder / "secrets"
    for each in (acl, secrets):
        each.mkdir(exist_ok=True)
    user = {"OKL_USER": str(os.getuid()), "OKL_REDIS_USER": str(os.getuid())}
    subprocess.run(["sh", MAKE_SECRETS, acl, secrets], env=os.environ | user | environment, check=True)
    return acl / "users.acl", secrets / "okl_store"


def test_secrets_are_made_once(tmp_path: Path) -> None:
    files = made(tmp_path)
    first = [file.read_text() for file in files]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert [file.read_text() for file in made(tmp_path)] == first
    (tmp_path / "other").mkdir()
    assert made(tmp_path / "other")[1].read_text() != first[1]
    password = re.fullmatch(r"redis://okl:([0-9a-f]{64})@redis:6379/0\n", first[1])
    assert password
    assert password[1] not in first[0]


@contextlib.contextmanager
def composed_redis(folder: Path, acl: Path, port: int) -> Iterator[None]:
    """The server with the configuration of Compose, once its health check would succeed."""

    def is_healthy() -> bool:
        with connect(port, "none", user="probe") as probe:
            try:
                return bool(probe.ping())
            except redis.ConnectionError:
                return False

    options = (str(ROOT / "docker" / "redis" / "redis.conf"), "--aclfile", str(acl))
    with redis_process(folder, *options, port=port, is_awaited=False):
        wait_until(is_healthy)
        yield


@pytest.mark.redis
def test_redis_knows_the_workers_and_nobody_else(tmp_path: Path, services: dict[str, dict[str, Any]]) -> None:
    """All that the store asks for is allowed to its user; the user of the health check may send a ping."""
    assert "--user probe --pass none" in services["redis"]["healthcheck"]["test"][1]
    port = free_port()
    acl, store = made(tmp_path, OKL_REDIS_ADDRESS=f"127.0.0.1:{port}")

    async def rounds() -> list[str]:
        url = store.read_text().strip()
        opened = open_store(url)
        await opened.open()
        tip = Tip(0, b"0" * 16)
        await opened.create("s", b"record", tip)
        new = entry(tip, "x")
        await opened.commit("s", tip, [new])
        await opened.snapshot("s", new.tip, b"state")
        assert len((await opened.list(None, 10)).heads) == 1
        warnings = await opened.warnings()
        await opened.delete("s")
        await opened.close()
        return list(warnings)

    with composed_redis(tmp_path / "redis", acl, port):
        assert asyncio.run(rounds()) == []
        commands = (("KEYS", "*"), ("GET", "x"), ("ACL", "LIST"), ("CONFIG", "GET", "*"), ("SHUTDOWN",))
        with connect(port) as stranger, connect(port, "none", user="probe") as probe:
            for command in (("PING",), *commands):
                with pytest.raises(redis.exceptions.AuthenticationError):
                    stranger.execute_command(*command)
            for command in commands:
                with pytest.raises(redis.exceptions.NoPermissionError):
                    probe.execute_command(*command)
        with connect(port, "none", user="default") as stranger, pytest.raises(redis.exceptions.AuthenticationError):
            stranger.ping()
        worker = redis.Redis.from_url(store.read_text().strip())
        for command in (("FLUSHALL",), ("CONFIG", "SET", "appendonly", "no"), ("ACL", "LIST"), ("SET", "mine", "1")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                worker.execute_command(*command)


@pytest.mark.redis
def test_rounds_are_there_after_redis_has_restarted(tmp_path: Path) -> None:
    """It reads its file as the user `default`, and leaves out the transactions that this user may not run."""
    port = free_port()
    acl, store = made(tmp_path, OKL_REDIS_ADDRESS=f"127.0.0.1:{port}")
    tip = Tip(0, b"0" * 16)
    new = entry(tip, "x")

    async def learn() -> None:
        opened = open_store(store.read_text().strip())
        await opened.open()
        await opened.create("s", b"record", tip)
        await opened.commit("s", tip, [new])
        await opened.close()

    async def learned() -> Tip:
        opened = open_store(store.read_text().strip())
        await opened.open()
        head = (await opened.list(None, 10)).heads[0]
        await opened.close()
        return head.tip

    with composed_redis(tmp_path / "redis", acl, port):
        asyncio.run(learn())
    with composed_redis(tmp_path / "redis", acl, port):
        assert asyncio.run(learned()) == new.tip


# TLS


def test_a_new_certificate_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()

    def certify(name: str) -> None:
        files = ("-keyout", folder / "tls.key", "-out", folder / "tls.crt")
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        command = ["openssl", "req", "-x509", "-nodes", "-days", "1", *curve, *files, *subject]
        subprocess.run(command, check=True, capture_output=True)

    def shown(port: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", port))

    assert shutil.which("openssl")
    certify("one.test")
    port = free_port()
    environment = {"OKL_LISTEN_TLS": f"127.0.0.1:{port}", "OKL_TLS_DIR": str(folder)}
    with upstreams(1) as (server,), balancer([server.name], environment):
        assert shown(port) == (folder / "tls.crt").read_text()
        certify("two.test")
        second = (folder / "tls.crt").read_text()
        for _ in range(100):
            if shown(port) == second:
                break
            time.sleep(0.05)
        else:
            pytest.fail("the first certificate is still shown")


@pytest.mark.parametrize("is_there", [True, False])
def test_it_does_not_start_without_the_certificate_that_it_is_to_have(tmp_path: Path, is_there: bool) -> None:
    """Such as links that lead to a folder which is not mounted."""
    folder = tmp_path / "tls"
    if is_there:
        folder.mkdir()
        (folder / "tls.crt").symlink_to("../../archive/fullchain1.pem")
        (folder / "tls.key").symlink_to("../../archive/privkey1.pem")
    mine = {"OKL_RUN_DIR": str(tmp_path), "OKL_WORKERS": "127.0.0.1:8000", "OKL_TLS_DIR": str(folder)}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(SCRIPT), "test"]
        return subprocess.run(command, env=os.environ | mine | more, capture_output=True, text=True, check=False)

    found = run(OKL_LISTEN_TLS="8443")
    assert found.returncode == 1
    assert f"{folder}/tls.crt" in found.stderr
    assert run().returncode == 0


def test_the_file_of_nginx_is_understood(tmp_path: Path) -> None:
    environment = os.environ | {"OKL_RUN_DIR": str(tmp_path), "OKL_WORKERS": "127.0.0.1:8000"}
    found = subprocess.run(["sh", SCRIPT, "test"], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "warn" not in found.stderr
