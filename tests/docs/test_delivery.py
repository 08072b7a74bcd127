"""What a user runs without reading it: make, the image."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from service.settings import Settings

ROOT = Path(__file__).parents[2]


def make(target: str) -> str:
    return subprocess.run(["make", "-n", *target.split()], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def image() -> dict[str, str]:
    """The last instruction of each kind in the image's own stage, its lines joined."""
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    return {line.split()[0]: " ".join(line.split()[1:]) for line in stage.splitlines() if re.match(r"[A-Z]+ ", line)}


@pytest.mark.parametrize("package", ["okl", "okl_core", "service"])
def test_the_wheel_says_that_it_is_typed(package: str) -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert package in built["only-include"]
    assert (ROOT / package / "py.typed").is_file()


def test_hooks_before_a_commit_need_no_network() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"- repo: (.*)", text) == ["local"]
    assert all(entry.startswith(".venv/bin/") for entry in re.findall(r"entry: (.*)", text))
    assert set(re.findall(r"language: (.*)", text)) == {"system"}


def test_the_environment_is_made_by_one_version_of_uv() -> None:
    assert re.search(r"uv==\d+\.\d+\.\d+$", make(".venv/uv --always-make"), re.MULTILINE)


def test_every_package_of_the_image_is_locked_with_its_hashes() -> None:
    """That which builds the wheel too, which pip would otherwise fetch in its latest version."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    commands = re.findall(r"pip (?:install|wheel) [^&]*", " && ".join(lines))
    fetching = [command for command in commands if "--no-deps" not in command]
    building = [command for command in commands if "--no-deps" in command and not command.strip().endswith(".whl")]
    assert fetching
    assert building
    assert all("--require-hashes" in command for command in fetching)
    assert all("--no-build-isolation" in command for command in building)


def test_make_clean_keeps_the_sessions() -> None:
    store = Path(Settings.model_fields["store"].default.removeprefix("sqlite:///"))
    removed = [name for line in make("clean").splitlines() for name in line.split()[1:] if not name.startswith("-")]
    assert ".venv" in removed
    assert str(store.parts[0]) not in removed


def test_sessions_are_deleted_after_a_question_only(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    data = tmp_path / "data"
    for answer, is_there in (("\n", True), ("no\n", True), ("", True), ("yes\n", False)):
        data.mkdir(exist_ok=True)
        subprocess.run(["make", "delete-data"], cwd=tmp_path, input=answer, text=True, capture_output=True, check=False)
        assert data.exists() == is_there, answer


def test_the_image_serves_as_nobody_in_particular() -> None:
    assert json.loads(image()["CMD"]) == ["okl", "serve"]
    uid, _, gid = image()["USER"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert image()["STOPSIGNAL"] == "SIGTERM"


def test_the_health_check_asks_whether_the_process_lives() -> None:
    """A store that is away would otherwise restart every worker."""
    program = image()["HEALTHCHECK"].partition("CMD ")[2]
    assert "/healthz" in " ".join(json.loads(program))
    compile(json.loads(program)[-1], "HEALTHCHECK", "exec")


def test_the_image_leaves_the_kernels_to_the_setting() -> None:
    assert "OPENBLAS_CORETYPE" not in image()["ENV"]
