"""Keeps what a bench prints: `python -m bench.record NAME [ARGUMENT ...]` writes bench/results/NAME.txt.

It runs `python -m bench.NAME ARGUMENT ...` with one thread of BLAS and shows what it prints. The file begins with the
command, whose paths are reduced to their names, the date, the minutes that it took, the processor and its cores. What a bench
whose exit code is 1 prints is kept too: a bar is crossed. Of one that is broken off nothing is kept.
`make docs` then puts the file into bench/results.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """Its model, and how many cores it has for us."""
    named = re.search(r"^model name\s*:\s*(.+)$", CPUINFO.read_text(), re.MULTILINE) if CPUINFO.exists() else None
    return f"{named[1] if named else platform.machine()}, {os.cpu_count()} cores"


def without_folders(argument: str) -> str:
    return Path(argument).name if "/" in argument else argument


def file_of(name: str) -> Path:
    """The file of a bench: bench/papers/pomdr.py has bench/results/papers/pomdr.txt."""
    return RESULTS.joinpath(*name.split(".")).with_suffix(".txt")


def record(name: str, arguments: Sequence[str]) -> int:
    """Run a bench and write its file; its exit code."""
    if find_spec(f"bench.{name}") is None:
        raise SystemExit(f"there is no bench.{name}")
    command = ["python", "-m", f"bench.{name}", *arguments]
    begun, printed = time.monotonic(), []
    with subprocess.Popen(
        [sys.executable, "-u", *command[1:]],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as bench:
        assert bench.stdout is not None
        for line in bench.stdout:
            print(line, end="", flush=True)
            printed.append(line.rstrip())
    if bench.returncode not in (0, 1) or any(line.startswith("Traceback") for line in printed):
        return bench.returncode
    told = " ".join(map(without_folders, command))
    head = [
        f"# {told}",
        f"# {datetime.now(UTC):%Y-%m-%d}, {(time.monotonic() - begun) / 60.0:.1f} minutes on {processor()}",
        *(["# exit code 1"] if bench.returncode else []),
    ]
    file = file_of(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(head) + "\n\n" + "\n".join(printed).strip("\n") + "\n")
    return bench.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a module of bench: theorems, or papers.kons")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the bench")
    asked = parser.parse_args()
    return record(asked.name, asked.arguments)


if __name__ == "__main__":
    sys.exit(main())
