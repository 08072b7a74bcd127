"""How long a start takes, beside the bare import of what it stands on: CPU time of processes, by turns.

    python -m bench.startup [--runs 20]

    import okl_core     beside numpy and scipy.linalg
    okl_core.create     the same with what a first learner needs imported, that of its kind apart
    okl --help          beside typer and rich
    okl serve           until /healthz answers, beside numpy, scipy.linalg, fastapi and uvicorn

The time of a process is what the system counted for it when it had ended, its own start included, on both sides; the modules
of both sides are compiled before the clock runs, as they are after an installation.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence

SIDES = {
    "import okl_core": (["-c", "import okl_core"], ["-c", "import numpy, scipy.linalg"], 1.3),
    "okl_core.create": (["-c", "import okl_core; okl_core.create"], ["-c", "import numpy, scipy.linalg"], None),
    "okl --help": (["-m", "okl", "--help"], ["-c", "import typer, rich"], 1.5),
    "okl serve": (["-m", "okl", "serve"], ["-c", "import numpy, scipy.linalg, fastapi, uvicorn"], 1.5),
}
"""What is measured, what it is measured beside, and the bar of their ratio, if there is one."""

LISTENS = re.compile(rb"(http://127\.0\.0\.1:\d+)")


def cpu_s(arguments: Sequence[str]) -> float:
    """The CPU seconds of a Python process that runs these arguments; of `okl serve` until its first answer."""
    before = _of_children()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path[:1] or [""])}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if "serve" in arguments:
            _answer_once([*arguments, "--port", "0", "--store", "sqlite://"], folder, environment)
        else:
            command = [sys.executable, *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answer_once(arguments: Sequence[str], folder: str, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
    )
    assert process.stderr is not None
    told = b""
    try:
        for line in process.stderr:
            told += line
            if found := LISTENS.search(line):
                with urllib.request.urlopen(f"{found[1].decode()}/healthz", timeout=30) as answer:
                    assert answer.status == 200
                break
        else:
            raise RuntimeError(told.decode())
    finally:
        process.send_signal(signal.SIGKILL)  # a stop is no part of a start
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in SIDES}
    for run in range(-1, runs):  # the first round only fills the caches
        for name, (ours, beside, _) in SIDES.items():
            pair = cpu_s(ours), cpu_s(beside)
            if run >= 0:
                for side, seconds in zip(times[name], pair, strict=True):
                    side.append(seconds)
    print("| | CPU s | beside | ratio | bar |\n|---|---|---|---|---|")
    for name, (ours, beside) in times.items():
        one, other = statistics.median(ours), statistics.median(beside)
        print(f"| `{name}` | {one:.3f} | {other:.3f} | {one / other:.2f} | {SIDES[name][2] or ''} |")


if __name__ == "__main__":
    main()
