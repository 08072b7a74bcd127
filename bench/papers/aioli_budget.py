"""What AIOLI loses on a dictionary, or on random features, to AIOLI in the space of the kernel: the question left open."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.papers.kons_runs import classification
from okl_core import create, diagnostics
from okl_core.diagnostics import Comparator
from okl_core.kernels.kernels import Gaussian
from okl_core.types import F64
from service.demo_data import magic

ROUNDS = 3000
SEEDS = 3
BUDGETS = (25, 50, 100, 200, 400, 800)
B = 10.0
NEAR = 0.01
"""A loss that is larger by this share is called as good."""

EXACT, PAPER = "kernel-aioli", "kernel-aioli, paper"
FOURIER = "fourier-aioli"
DICTIONARIES: dict[str, dict[str, Any]] = {
    "nystrom-aioli, KORS 1": {"kind": "kors", "regularization": 1.0},
    "nystrom-aioli, KORS 0.1": {"kind": "kors", "regularization": 0.1},
    "nystrom-aioli, ALD 0.03": {"kind": "ald", "threshold": 0.03},
}


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    X: F64
    y: F64
    kernel: Gaussian


@dataclass(frozen=True, slots=True)
class Form:
    """One of the learners. `allowed`: points or frequencies."""

    name: str
    kind: str
    config: dict[str, Any]
    allowed: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Means over the seeds; of the time the least."""

    form: Form
    size: float
    """Points stored, or frequencies."""
    loss: float
    """Cumulative."""
    round_us: float
    bound: float
    """`bound` of `describe`."""


@dataclass(frozen=True, slots=True)
class Study:
    task: Task
    best: Comparator
    """Among the functions with norm at most B."""
    found: list[Found]

    @property
    def exact(self) -> Found:
        return next(found for found in self.found if found.form.name == EXACT)

    def excess(self, found: Found) -> float:
        """Loss above that of the exact learner, as a share."""
        return found.loss / self.exact.loss - 1.0

    def enough(self, name: str) -> Found | None:
        """The smallest from which on this form is as good as the exact learner."""
        listed = [found for found in self.found if found.form.name == name]
        smallest = None
        for found in reversed(listed):
            if self.excess(found) > NEAR:
                break
            smallest = found
        return smallest

    def broken(self) -> list[str]:
        """The exact learners whose regret was above lambda |f|^2 + bound."""
        said = []
        for found in self.found:
            regret, bound = found.loss - self.best.loss, (self.best.norm / B) ** 2 + found.bound
            if found.form.kind == "kernel-aioli" and regret > bound:
                said.append(f"{self.task.name}, {found.form.name}: regret {regret} > {bound}")
        return said


def tasks(rounds: int) -> list[Task]:
    X, y = magic()
    order = np.random.default_rng(0).permutation(len(y))[:rounds]
    X, y = X[order], y[order]
    sigma = Gaussian().median_distance(X)
    Z, z = classification(rounds)
    return [
        Task(f"MAGIC, σ = {sigma:.2g}", X, y, Gaussian(sigma=sigma)),
        Task(f"MAGIC, σ = {0.5 * sigma:.2g}", X, y, Gaussian(sigma=0.5 * sigma)),
        Task("two inputs", Z, z, Gaussian(sigma=Gaussian().median_distance(Z))),
    ]


def forms(task: Task, budgets: Sequence[int]) -> list[Form]:
    shared: dict[str, Any] = {"kernel": task.kernel.model_dump(), "comparator_norm": B}
    listed = [
        Form(EXACT, "kernel-aioli", shared),
        Form(PAPER, "kernel-aioli", shared | {"curvature": "paper"}),
    ]
    for name, dictionary in DICTIONARIES.items():
        listed += [
            Form(name, "nystrom-aioli", shared | {"dictionary": dictionary, "budget": budget}, budget)
            for budget in budgets
        ]
    listed += [Form(FOURIER, "fourier-aioli", shared | {"frequencies": count}, count) for count in budgets]
    return listed


def measure(task: Task, budgets: Sequence[int], seeds: int) -> Study:
    """All forms; of those that a larger budget does not change only the first."""
    found: list[Found] = []
    for form in forms(task, budgets):
        played = play(task, form, seeds)
        last = found[-1] if found else None
        if last is None or last.form.name != form.name or (played.size, played.loss) != (last.size, last.loss):
            found.append(played)
    best = diagnostics.best_in_hindsight(task.kernel, task.X, task.y, "logistic", radius=B, tolerance=1e-6)
    return Study(task, best, found)


def play(task: Task, form: Form, seeds: int) -> Found:
    runs = np.array([_play(task, form, seed) for seed in range(seeds)])
    size, loss, _, bound = runs.mean(axis=0).tolist()
    return Found(form, size, loss, runs[:, 2].min().item(), bound)


def _play(task: Task, form: Form, seed: int) -> tuple[float, float, float, float]:
    made = create({"kind": form.kind, "config": form.config, "seed": seed}, task.X.shape[1])
    before = time.process_time()
    losses = made.run(task.X, task.y).losses
    seconds = time.process_time() - before
    description = made.describe()
    size = form.allowed if form.kind == "fourier-aioli" else description["dictionary"]
    return float(size or 0.0), float(losses.sum()), 1e6 * seconds / len(losses), description["bound"]
