"""All learners on a budget, on the same sets: `python -m bench.frontier [--set FILE.npz ...] [--budget B ...] [--orders N]`.

A set is an .npz file with X and y: labels in {-1, 1}, or numbers. MAGIC, which comes with the service, is `--set magic`, and
played if none is named. Inputs are scaled to [0, 1] by column, and so are truths that are numbers. Each learner takes the
Gaussian kernel of the sigma that is best for it on the first order of the rows, out of one grid for all of them; the steps of
gradient descent, and the parameters of `pomdr` and `bao2ks`, are those of `bench.papers.pomdr` on MAGIC. Then it plays all
orders.

The table has the share of mistakes in %, or the mean squared error times 1,000, with the standard error over the orders; the
points that are stored at the end; the bytes of the state; and the CPU time of a round by `run`. The best is marked. The last
tables have a line a set: our best, the best of the others, and by how many standard errors ours is ahead; and how many times
the error is if a learner starts again at each new point.

`--results FILE` keeps what was played, and plays only what is not there. `--figures DIR` draws, for each set with several
budgets, the errors against the time of a round and against the bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.papers.markdown import table
from bench.papers.pomdr_runs import MAGIC_NARROW, pomdr
from bench.streams import load, scaled
from okl_core import create
from okl_core.types import F64
from service.demo_data import magic

SIGMAS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
OURS = ("nystrom-", "pros-n-kons")
COLUMNS = ("learner", "sigma", "error", "s.e.", "points", "KiB", "us a round")
NEWTON, HINGE, RESET = "pros-n-kons", "pros-n-kons, squared hinge", "pros-n-kons, reset"
DUEL = ("set", "budget", "ours", "error", "other", "error", "s.e. ahead")


class Contender(NamedTuple):
    """A learner at one budget, all but its sigma."""

    name: str
    kind: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """A learner on one order."""

    error: float
    points: float
    bytes: float
    us: float
    """A round."""


@dataclass(slots=True)
class Entry:
    """A learner on a set, with its best sigma: one `Told` an order."""

    set: str
    learner: str
    budget: int
    sigma: float = math.nan
    tried: list[float] = field(default_factory=list[float])
    """The sigmas of which this one errs least on the first order."""
    orders: list[Told] = field(default_factory=list[Told])

    def mean(self, what: str) -> float:
        return float(np.mean([getattr(told, what) for told in self.orders]))

    @property
    def spread(self) -> float:
        """The standard error of the error; nan of one order."""
        if len(self.orders) < 2:
            return math.nan
        return float(np.std([told.error for told in self.orders], ddof=1) / math.sqrt(len(self.orders)))

    @property
    def is_ours(self) -> bool:
        return self.learner.startswith(OURS)


def of_labels(T: int, B: int) -> list[Contender]:
    """Of T rounds; `fogd` has as many features as others have points."""
    steps = {"step_size": "horizon", "horizon": T, "step_factor": 100.0}
    published = pomdr(MAGIC_NARROW, T)
    published["pomd_budget"] = min(published["pomd_budget"], B // 2)
    mirrored = steps | {"step_factor": 10.0, "reservoir": math.ceil(math.log(T))}
    newton = {"clip": 2.0, "budget": B}
    return [
        Contender("fogd", "fogd", steps | {"frequencies": B}),
        Contender("bogd", "bogd", steps | {"budget": B}),
        Contender("nogd", "nogd", steps | {"budget": B}),
        Contender("skegd", "skegd", steps | {"budget": B}),
        Contender("bao2ks", "bao2ks", mirrored | {"budget": B}),
        Contender("pomdr", "pomdr", published | {"budget": B}),
        Contender("ahpatron", "ahpatron", {"budget": B}),
        Contender("nystrom-aioli", "nystrom-aioli", {"budget": B}),
        Contender("pros-n-kons, squared", "pros-n-kons", newton | {"loss": "squared"}),
        Contender(HINGE, "pros-n-kons", newton | {"loss": "squared-hinge"}),
        Contender(RESET, "pros-n-kons", newton | {"loss": "squared-hinge", "carry": "reset"}),
    ]


def of_numbers(T: int, B: int) -> list[Contender]:
    """Of T rounds with truths in [0, 1]; `nons-ald` and `aogd-ald` as their authors' programs are."""
    steps = {"step_size": "horizon", "horizon": T, "loss": "squared", "clip": 1.0}
    far = {"kind": "ald", "threshold": min(0.99, 5.0 / math.sqrt(T))}
    newton = {"loss": "squared", "clip": 1.0, "budget": B}
    return [
        Contender("fogd", "fogd", steps | {"frequencies": B, "step_factor": 10.0}),
        Contender("nogd", "nogd", steps | {"budget": B, "step_factor": 10.0}),
        Contender("aogd-ald", "aogd-ald", {"horizon": T, "budget": B}),
        Contender("nons-ald", "nons-ald", {"horizon": T, "budget": B, "step": "shipped"}),
        Contender("pros-n-kons, same dictionary", "pros-n-kons", newton | {"dictionary": far}),
        Contender(NEWTON, "pros-n-kons", newton),
        Contender(RESET, "pros-n-kons", newton | {"carry": "reset"}),
        Contender("nystrom-aar", "nystrom-aar", {"budget": B}),
        Contender("nystrom-ridge", "nystrom-ridge", {"budget": B, "clip": 1.0}),
    ]


def play(one: Contender, sigma: float, X: F64, y: F64, seed: int, coins: int | None = None) -> Told:
    """One pass in the order that `seed` gives; the learner's own seed is `coins`, or the same."""
    order = np.random.default_rng(seed).permutation(len(y))
    config = {**one.config, "kernel": {"kind": "gaussian", "sigma": sigma}}
    made = create({"kind": one.kind, "seed": seed if coins is None else coins, "config": config}, X.shape[1])
    start = time.process_time()
    values = made.run(X[order], y[order]).values
    us = 1e6 * (time.process_time() - start) / len(y)
    is_wrong = np.where(values >= 0.0, 1.0, -1.0) != y[order]
    error = 100.0 * is_wrong.mean() if has_labels(y) else 1000.0 * np.square(values - y[order]).mean()
    description = made.describe()
    return Told(float(error), description["dictionary"], description["bytes"], us)


def has_labels(y: F64) -> bool:
    return set(np.unique(y[:1000]).tolist()) <= {-1.0, 1.0}


class Results:
    """What was played, kept in a file of JSON lines, if one is named; the last line of an entry counts."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: dict[tuple[str, str, int], Entry] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                found = json.loads(line)
                found["orders"] = [Told(**told) for told in found["orders"]]
                self._put(Entry(**found))

    def _put(self, entry: Entry) -> None:
        self._entries[entry.set, entry.learner, entry.budget] = entry

    def find(self, name: str, learner: str, budget: int) -> Entry | None:
        return self._entries.get((name, learner, budget))

    def add(self, entry: Entry) -> None:
        self._put(entry)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(entry)) + "\n")


def entries(name: str, X: F64, y: F64, budget: int, orders: int, results: Results) -> list[Entry]:
    """Of all learners on a set; what the results do not have is played."""
    found: list[Entry] = []
    for one in (of_labels if has_labels(y) else of_numbers)(len(y), budget):
        entry = results.find(name, one.name, budget) or Entry(name, one.name, budget)
        untried = [sigma for sigma in SIGMAS if sigma not in entry.tried]
        is_new = bool(untried) or len(entry.orders) < orders
        for sigma in untried:
            first = play(one, sigma, X, y, 0)
            entry.tried.append(sigma)
            if not entry.orders or first.error < entry.orders[0].error:
                entry.sigma, entry.orders = sigma, [first]
        entry.orders += [play(one, entry.sigma, X, y, seed) for seed in range(len(entry.orders), orders)]
        if is_new:
            results.add(entry)
        found.append(entry)
    return found


def lines(found: Sequence[Entry]) -> Iterator[list[str]]:
    """The cells of each learner; the least error is bold."""
    best = min(entry.mean("error") for entry in found)
    for entry in found:
        error = f"{entry.mean('error'):.2f}"
        error = f"**{error}**" if entry.mean("error") == best else error
        spread = "" if math.isnan(entry.spread) else f"{entry.spread:.2f}"
        numbers = f"{entry.mean('points'):.0f}", f"{entry.mean('bytes') / 1024:,.0f}", f"{entry.mean('us'):.0f}"
        yield [entry.learner, f"{entry.sigma:g}", error, spread, *numbers]


class Duel(NamedTuple):
    """The best of ours and the best of the others on a set at one budget; `ahead` in standard errors, nan of one order."""

    ours: Entry
    other: Entry
    ahead: float

    @property
    def cells(self) -> list[str]:
        pairs = [(each.learner, f"{each.mean('error'):.2f}") for each in (self.ours, self.other)]
        return [self.ours.set, str(self.ours.budget), *pairs[0], *pairs[1], self._told]

    @property
    def cell(self) -> str:
        return f"{self.ours.mean('error'):.2f} / {self.other.mean('error'):.2f}, {self._told}"

    @property
    def _told(self) -> str:
        return "" if math.isnan(self.ahead) else f"{self.ahead:+.0f}"


def duel(found: Sequence[Entry]) -> Duel:
    """Of all learners on a set at one budget."""
    ours, other = (
        min((entry for entry in found if entry.is_ours == is_ours), key=lambda entry: entry.mean("error"))
        for is_ours in (True, False)
    )
    width = math.hypot(ours.spread, other.spread)
    return Duel(ours, other, (other.mean("error") - ours.mean("error")) / width if width > 0.0 else math.nan)


def restarts(found: Sequence[Entry]) -> list[str]:
    """The error of the learner that starts again at each new point, over that of the same one that carries on."""
    errors = {entry.learner: entry.mean("error") for entry in found}
    carried = next(errors[name] for name in (HINGE, NEWTON) if name in errors)
    return [found[0].set, str(found[0].budget), f"{errors[RESET] / carried:.2f}"]


def over_budgets(duels: Sequence[Duel]) -> Iterator[list[str]]:
    """A line a set, and a cell a budget: the least error of ours, that of the others, how far ours is ahead."""
    for name in dict.fromkeys(each.ours.set for each in duels):
        yield [name, *(each.cell for each in duels if each.ours.set == name)]


def sets(named: Sequence[str]) -> Iterator[tuple[str, F64, F64]]:
    """Name, inputs and truths of each."""
    for one in named:
        X, y = magic() if one == "magic" else load(Path(one))
        yield Path(one).stem, scaled(X), y if has_labels(y) else scaled(y[:, None])[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontier", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", action="append", metavar="FILE.npz", help="or magic; repeatable")
    parser.add_argument("--budget", type=int, action="append", help="points at most; repeatable; by default 400")
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--results", type=Path, help="a file of JSON lines")
    parser.add_argument("--figures", type=Path, help="a folder")
    options = parser.parse_args()
    results, budgets = Results(options.results), options.budget or [400]
    print("error: mistakes in %, or the mean squared error times 1,000")
    duels: list[Duel] = []
    restarted: list[list[str]] = []
    with threadpool_limits(1):
        for name, X, y in sets(options.set or ["magic"]):
            curves: list[Entry] = []
            for budget in budgets:
                found = entries(name, X, y, budget, options.orders, results)
                orders = min(len(entry.orders) for entry in found)
                print(f"\n{name}, {len(y):,} rounds of {X.shape[1]} inputs, budget {budget}, {orders} orders\n")
                print("\n".join(table(COLUMNS, list(lines(found)))), flush=True)
                duels.append(duel(found))
                restarted.append(restarts(found))
                curves += found
            if options.figures is not None and len(budgets) > 1:
                from bench.frontier_figures import draw

                draw(options.figures / f"frontier-{name}.svg", name, has_labels(y), curves)
    print("\n" + "\n".join(table(DUEL, [each.cells for each in duels])))
    print("\n" + "\n".join(table(("set", "budget", "error of a restart, times"), restarted)))
    if len(budgets) > 1:
        print("\n" + "\n".join(table(("set", *map(str, budgets)), list(over_budgets(duels)))))


if __name__ == "__main__":
    main()
