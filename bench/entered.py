"""Which modules of the library one update enters: `python -m bench.entered [kind ...]`.

The algorithm is what a reader of the paper has to read; below it are kernels, linear algebra and losses, above it the
learner in use with its coins.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

import numpy as np

from okl_core import create, learner_kinds

ALGORITHM = ("learners", "second_order", "first_order", "packing", "pool")
USE = ("contract",)


def entered_by_an_update(kind: str) -> dict[str, list[str]]:
    """The modules whose functions run in one update of a learner in the middle of a stream, by what they are."""
    learner = create({"kind": kind}, dim=1 if kind == "foster-1d" else 2)
    rng = np.random.default_rng(0)
    low, high = (0.0, 1.0) if learner.target in ("real", "any", "class") else (-1.0, 1.0)
    rows = [(rng.uniform(-0.5, 0.5, learner.dim), low if rng.random() < 0.5 else high) for _ in range(20)]
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


def main(kinds: Sequence[str]) -> None:
    for kind in kinds or learner_kinds():
        found = entered_by_an_update(kind)
        print(
            f"{kind}: {len(found['algorithm'])} of the algorithm, {len(found['below'])} below, {len(found['use'])} above"
        )
        for what, modules in found.items():
            print(f"    {what:10s}{', '.join(modules)}")


if __name__ == "__main__":
    main(sys.argv[1:])
