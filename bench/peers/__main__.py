"""What people use today, beside ours, on the same rounds: `python -m bench.peers [--rounds N] [--set NAME] [--no-service]`.

First in process: each contestant predicts a round of a set, then learns it. The sets come with the service, River and
scikit-learn. River's learners are standardised, but for trees; Vowpal Wabbit is linear, or has all pairs of inputs;
scikit-learn's stochastic gradient descent is given random Fourier features or a Nystroem map, fitted on the first 200 rows;
ours is what a session takes by itself (`auto`), and two of its learners. No contestant is tuned. Then served over HTTP and
durable after each round, by `bench.http`: one client, eight on eight sessions, and eight on one session through two workers.

Exits with 1 if a bar is crossed: ours is the first in error on SETS_WON of the sets, and ahead in rounds/s of every peer that
is durable and safe in a leg.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from bench import http
from bench.peers.learning import CONTESTANTS, SETS, Result, measure

SETS_WON = 3
OURS = "okl"
LEGS = ("one", "sessions", "workers")


def show(data: str, found: Mapping[str, Result]) -> bool:
    """One set; is ours the first?"""
    print(f"\n{data}\n{'':<22}{'error':>8}{'log-loss':>10}{'rounds/s':>10}{'CPU us':>9}{'MB':>7}")
    for name, one in sorted(found.items(), key=lambda item: item[1].error):
        print(
            f"{name:<22}{one.error:8.2%}{one.log_loss:10.3f}{1e6 / one.cpu_us:10,.0f}{one.cpu_us:9.0f}{one.memory_mb:7.1f}",
            flush=True,
        )
    return min(found, key=lambda name: found[name].error).startswith(OURS)


def served(leg: http.Leg, rounds: int) -> bool:
    """Is ours on Redis ahead of every peer that is durable?"""
    runners = http.compare(leg, rounds, None)
    http.show(leg, runners)
    rates = {runner.name: runner.rounds_per_s for runner in runners}
    ours = max(rate for name, rate in rates.items() if name.startswith(OURS))
    return all(ours > rate for name, rate in rates.items() if not name.startswith((OURS, "echo")))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5_000, help="of each set at most")
    parser.add_argument("--set", choices=SETS, action="append", help="this set alone; repeatable")
    parser.add_argument("--no-service", action="store_true", help="nothing over HTTP")
    options = parser.parse_args(arguments)
    sets = options.set or list(SETS)
    won = [data for data in sets if show(data, {name: measure(data, name, options.rounds) for name in CONTESTANTS})]
    print(f"\nours is the first in error on {len(won)} of {len(sets)} sets: {', '.join(won)}", flush=True)
    holds = len(won) >= min(SETS_WON, len(sets))
    if not options.no_service:
        ahead = [leg for leg in LEGS if served(http.LEGS[leg], 4_000)]
        print(f"\nours is ahead of what is durable in {len(ahead)} of {len(LEGS)} legs: {', '.join(ahead)}")
        holds &= len(ahead) == len(LEGS)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
