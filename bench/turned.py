"""A stream whose rule turns round half-way, as a CSV file to compare learners on: `python -m bench.turned FILE`.

Two numbers and a colour; the class is `near` within a circle, and from the middle on outside of it. One label in twenty is
wrong. It is the stream of docs/comparing.md.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Sequence
from pathlib import Path

ROWS = 3_000
WRONG = 0.05


def rows(seed: int = 0) -> list[tuple[str, ...]]:
    rng, found = random.Random(seed), []
    for i in range(ROWS):
        east, north = rng.uniform(-1.0, 1.0), rng.uniform(-1.0, 1.0)
        # An odd number of the three makes it near.
        is_near = (east**2 + north**2 < 0.64) ^ (i >= ROWS // 2) ^ (rng.random() < WRONG)
        colour = rng.choice(("red", "green", ""))
        found.append((f"{east:.3f}", f"{north:.3f}", colour, "near" if is_near else "far"))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    path = parser.parse_args(arguments).file
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("east", "north", "colour", "class"), *rows()])


if __name__ == "__main__":
    main()
