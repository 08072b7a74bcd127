"""The `uv` that the set-up installs beside Python: it builds wheels and makes environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.command import environment

ROOT = Path(__file__).parents[2]


def uv(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """What it prints."""
    command = [str(Path(sys.executable).with_name("uv")), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
