"""The Kubernetes files against the schemas of Kubernetes, and against the service that they run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.settings import SECRETS_VARIABLE, Settings
from tests.deployment.kept import kept_mib
from tests.service.api import openapi

DOCKER = Path(__file__).parents[2] / "docker"
VERSIONS = ("1.31", kubernetes_validate.latest_version())
KUSTOMIZATION = yaml.safe_load((DOCKER / "kustomization.yaml").read_text())


def written() -> Iterator[dict[str, Any]]:
    for name in KUSTOMIZATION["resources"]:
        yield from yaml.safe_load_all((DOCKER / name).read_text())


RESOURCES = list(written())
PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in RESOURCES if each["kind"] == "Deployment"}
SETTINGS = {SECRETS_VARIABLE} | {f"OKL_{name.upper()}" for name in Settings.model_fields}


def of(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in RESOURCES if each["kind"] == kind}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_resource(version: str) -> None:
    for resource in RESOURCES:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
def test_kubernetes_takes_what_kustomize_makes() -> None:
    made = subprocess.run(["kubectl", "kustomize", DOCKER], capture_output=True, text=True, check=True).stdout
    resources = list(yaml.safe_load_all(made))
    assert len(resources) == len(RESOURCES) + len(KUSTOMIZATION["configMapGenerator"])
    for resource in resources:
        kubernetes_validate.validate(resource, VERSIONS[-1], strict=True)
    maps = {each["metadata"]["name"]: each["data"] for each in resources if each["kind"] == "ConfigMap"}
    mounted = next(data for name, data in maps.items() if name.startswith("okl-nginx-"))
    assert mounted == {name: (DOCKER / "nginx" / name).read_text() for name in ("nginx.conf", "balance.sh")}


def test_the_files_of_the_config_are_there() -> None:
    files = [file for each in KUSTOMIZATION["configMapGenerator"] for file in each.get("files", ())]
    assert files
    assert all((DOCKER / file).is_file() for file in files)
    literals = [line for each in KUSTOMIZATION["configMapGenerator"] for line in each.get("literals", ())]
    assert {line.partition("=")[0] for line in literals} <= SETTINGS


@pytest.mark.parametrize("name", PODS)
def test_a_pod_may_do_no_more_than_it_needs(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"].keys() == {"requests", "limits"}
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


@pytest.mark.parametrize("name", PODS)
def test_all_that_speaks_of_a_pod_finds_it(name: str) -> None:
    labels = PODS[name]["metadata"]["labels"]
    assert of("Deployment")[name]["selector"]["matchLabels"] == labels
    assert of("Service")[name]["selector"] == labels
    assert of("PodDisruptionBudget")[name]["selector"]["matchLabels"] == labels
    assert of("NetworkPolicy")[name]["podSelector"]["matchLabels"] == labels
    named = {port["name"] for container in PODS[name]["spec"]["containers"] for port in container["ports"]}
    assert {port["targetPort"] for port in of("Service")[name]["ports"]} <= named


def test_the_workers_are_asked_what_they_answer() -> None:
    container = PODS["okl"]["spec"]["containers"][0]
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths <= set(openapi()["paths"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {variable["name"] for variable in container["env"]} <= SETTINGS | {"FORWARDED_ALLOW_IPS"}
    user = next(line for line in (DOCKER.parent / "Dockerfile").read_text().splitlines() if line.startswith("USER "))
    context = PODS["okl"]["spec"]["securityContext"]
    assert user == f"USER {context['runAsUser']}:{context['runAsGroup']}"


def test_large_bodies_fit_into_the_volume_of_nginx() -> None:
    volumes = {volume["name"]: volume for volume in PODS["okl-nginx"]["spec"]["volumes"]}
    assert kept_mib() < int(volumes["tmp"]["emptyDir"]["sizeLimit"].removesuffix("Gi")) << 10


def test_a_worker_that_stops_has_the_time_it_needs() -> None:
    spec = PODS["okl"]["spec"]
    asleep = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = Settings.model_fields["shutdown_grace_s"].default
    assert spec["terminationGracePeriodSeconds"] >= asleep + grace + 5
