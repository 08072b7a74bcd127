"""What `make tools` installs where only Chromium is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "install_tools.sh"
THERE = ("curl", "nginx", "openssl", "redis-server")

APT_GET = """#!/bin/sh
echo "$*" >> "{folder}/asked"
for package; do :; done
case "$1" in
update) touch "{folder}/lists" ;;
install) [ -e "{folder}/lists" ] && case " {known} " in *" $package "*) ;; *) false ;; esac ;;
esac
"""
"""It knows no package before its lists are fetched, as in a new container."""


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def install(folder: Path, known: str, user: int = 0) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What became of the script, and the commands that apt-get was given."""
    for name in THERE:
        program(folder / name, "#!/bin/sh\n")
    program(folder / "id", f"#!/bin/sh\necho {user}\n")
    program(folder / "apt-get", APT_GET.format(folder=folder, known=known))
    for name in ("dirname", "touch"):
        (folder / name).symlink_to(shutil.which(name) or name)
    found = subprocess.run(
        ["/bin/sh", str(SCRIPT)], env={"PATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False
    )
    asked = folder / "asked"
    return found, asked.read_text().splitlines() if asked.exists() else []


@pytest.mark.parametrize(
    ("known", "installed"),
    [
        ("chromium chromium-headless-shell", ["chromium-headless-shell"]),
        ("chromium", ["chromium-headless-shell", "chromium"]),
    ],
    ids=["with a small one", "without"],
)
def test_the_small_chromium_is_asked_for_first(tmp_path: Path, known: str, installed: list[str]) -> None:
    found, asked = install(tmp_path, known)
    assert found.returncode == 0, found.stderr
    assert asked[1] == "update"
    assert [*dict.fromkeys(one.split()[-1] for one in asked if one != "update")] == installed


@pytest.mark.parametrize(
    ("user", "told"), [(0, "apt-get could not install it"), (1000, "installing it needs root or sudo")]
)
def test_what_cannot_be_had_is_told(tmp_path: Path, user: int, told: str) -> None:
    found, _ = install(tmp_path, "nothing", user)
    assert found.returncode == 1
    assert f"There is no chromium, and {told}." in found.stderr
    assert "the package is chromium)" in found.stderr
