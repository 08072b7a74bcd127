"""Which modules of the library one update enters: `python -m bench.entered [kind ...]`.

The algorithm is what a reader of the paper has to read; below it are kernels, linear algebra and losses, above it the
learner in use with its coins.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import FrameType

import numpy as np

from okl_core import create, learner_kinds, resolve

ALGORITHM = ("learners", "second_order", "first_order", "packing", "pool")
USE = ("contract",)


def entered_by_an_update(kind: str) -> dict[str, list[str]]:
    """The modules whose functions run in one update of a learner in the middle of a stream, by what they are."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (20, 1 if kind == "foster-1d" else 2))
    coins = rng.integers(2, size=len(X))
    coins[0] = 0  # classes are numbered as they come
    learner = create(resolve({"kind": kind}, X, coins), X.shape[1])
    low, high = (0.0, 1.0) if learner.target in ("real", "any", "class") else (-1.0, 1.0)
    rows = list(zip(X, np.where(coins, high, low).tolist(), strict=True))
    for x, y in rows[:-1]:
        learner.update(x, y)
    modules: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("okl_core."):
            modules.add(module.removeprefix("okl_core."))

    sys.setprofile(note)
    try:
        learner.update(*rows[-1])
    finally:
        sys.setprofile(None)
    found: dict[str, list[str]] = {"algorithm": [], "below": [], "use": []}
    for module in sorted(modules):
        folder = module.split(".")[0]
        found["algorithm" if folder in ALGORITHM else "use" if folder in USE else "below"].append(module)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="kind", help="of a learner; default: all")
    for kind in parser.parse_args(arguments).kinds or learner_kinds():
        found = entered_by_an_update(kind)
        print(
            f"{kind}: {len(found['algorithm'])} of the algorithm, {len(found['below'])} below, {len(found['use'])} above"
        )
        for what, modules in found.items():
            print(f"    {what:10s}{', '.join(modules)}")


if __name__ == "__main__":
    main()
