"""`python -m bench.history [--store sqlite|redis|sentinel|cluster] [--transport requests|socket|lines|mixed] [--rounds N]
[--workers N] [--clients N] [--seed S] [--faults kill-worker,upgrade,...] [--each N]`: is every acknowledged round there?

Exit codes: 0 all is well, 1 a violation, 2 a wrong option.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from service.start import prepare

STORES = ("sqlite", "redis", "sentinel", "cluster")
FAULTS = ("kill-worker", "upgrade", "kill-redis", "stop-master", "promote", "restore-backup", "recreate")
APPLY = {
    "sqlite": ("kill-worker", "upgrade", "restore-backup", "recreate"),
    "redis": ("kill-worker", "upgrade", "kill-redis", "stop-master", "restore-backup", "recreate"),
    "sentinel": ("kill-worker", "upgrade", "kill-redis", "stop-master", "promote", "restore-backup", "recreate"),
    "cluster": ("kill-worker", "upgrade", "kill-redis", "stop-master", "promote", "restore-backup", "recreate"),
}
"""Faults that a store can have."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--transport", choices=("requests", "socket", "lines", "mixed"), default="requests")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--faults", help="comma-separated; default: all that the store can have; none: an empty text")
    parser.add_argument("--each", type=int, default=4, help="faults of each kind")
    parser.add_argument(
        "--appendfsync", choices=("always", "everysec"), help="default: always where nothing may be lost"
    )
    parser.add_argument("--wait-replicas", type=int, default=0, help="Sentinel: replicas that acknowledge each write")
    parser.add_argument("--plant", choices=("lose", "twice", "reorder", "stale"), help="plant a fault, to be found")
    parser.add_argument("--keep", type=Path, help="folder for logs and data; else they are kept if something is wrong")
    options = parser.parse_args(arguments)
    faults = APPLY[options.store] if options.faults is None else tuple(filter(None, options.faults.split(",")))
    if wrong := set(faults) - set(APPLY[options.store]):
        parser.error(f"{options.store} cannot have: {', '.join(sorted(wrong))}")

    # The learners are replayed here as in the workers, with the same kernels of the BLAS: numpy is not loaded yet.
    prepare(os.environ)
    from bench.history.plants import plant
    from bench.history.report import report, save
    from bench.history.run import RunOptions, run
    from bench.history.verdict import check

    own = RunOptions(
        options.store,
        options.rounds,
        options.workers,
        options.clients,
        options.sessions,
        random.randrange(10**6) if options.seed is None else options.seed,
        faults,
        options.each,
        options.appendfsync,
        options.wait_replicas,
        options.transport,
    )
    folder = options.keep or Path(tempfile.mkdtemp(prefix="okl-history-"))
    folder.mkdir(parents=True, exist_ok=True)
    history, finals = run(own, folder)
    if options.plant:
        print(f"planted: {plant(options.plant, history, finals)}")
    violations = check(history, finals)
    print(report(history, finals, violations, _again(options, own.seed)))
    if options.keep is None and not violations:
        shutil.rmtree(folder)
    else:
        save(history, folder)
        print(f"Logs and data: {folder}")
    return 1 if violations else 0


def _again(options: argparse.Namespace, seed: int) -> str:
    given = {name: value for name, value in vars(options).items() if value not in (None, 0) and name != "seed"}
    words = [f"--{name.replace('_', '-')} {value}" for name, value in given.items()]
    return f"python -m bench.history {' '.join(words)} --seed {seed}"


if __name__ == "__main__":
    sys.exit(main())
