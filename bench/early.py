"""The first rounds of sessions that are told nothing, beside sessions that know the scale: `python -m bench.early`.

Sets of labels whose rows are numbers alone. Both sessions have `auto`. One finds the scale of its inputs from the rounds so
far; the other is given the 5 % and 95 % quantiles of the whole set before the first round. Mistakes in the rounds 10 to 100,
over ORDERS random orders. Exits with 1 if the mean over the sets of the ratio of both is above BAR.

It needs scikit-learn and river.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from bench.naive_sets import NaiveSet, loaders
from service.session.definition import Definition, Ranges, Scale
from service.session.session import Session
from service.session.task import read_truth

SETS = ("iris", "wine", "breast_cancer", "digits", "Phishing", "ImageSegments", "Bananas")
FIRST, LAST = 10, 100
ORDERS = 10
BAR = 1.5


def mistakes(rows: list[list[float]], played: NaiveSet, scale: Scale) -> int:
    """Those of one session in the rounds FIRST to LAST."""
    session = Session(Definition(name="early", labels=tuple(sorted(played.labels, key=str)), scale=scale))
    count, task = 0.0, session.task
    for t, (row, truth) in enumerate(zip(rows[:LAST], played.truths, strict=False), start=1):
        y, task = read_truth(session.definition, task, truth)
        pending = session.play(session.read_input(row), y, task)
        session.learn(pending)
        count += pending.error if t >= FIRST else 0.0
    return round(count)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    ratios = []
    print(f"{'set':<16}{'found':>8}{'known':>8}{'ratio':>8}")
    with threadpool_limits(1):
        for name in SETS:
            whole = loaders()[name]()
            found = known = 0
            for order in range(ORDERS):
                played = whole.shuffled(order)
                rows = [list(map(float, row.values() if isinstance(row, dict) else row)) for row in played.rows]
                low, high = np.quantile(np.array(rows), (0.05, 0.95), axis=0)
                flat = ~(low < high)
                low[flat], high[flat] = np.array(rows).min(axis=0)[flat], np.array(rows).max(axis=0)[flat]
                high[~(low < high)] += 1.0
                found += mistakes(rows, played, "learned")
                known += mistakes(rows, played, Ranges(tuple(low.tolist()), tuple(high.tolist())))
            ratios.append(found / known)
            print(f"{name:<16}{found / ORDERS:>8.1f}{known / ORDERS:>8.1f}{ratios[-1]:>8.2f}", flush=True)
    mean = float(np.mean(ratios))
    print(f"{'mean':<32}{mean:>8.2f}")
    if mean > BAR:
        raise SystemExit(f"the mean is above {BAR}")


if __name__ == "__main__":
    main()
