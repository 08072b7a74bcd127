"""Attempts to break the theorems of docs/theorems.md, and what theorem 2 gains: `python -m bench.theorems`.

Of each theorem half the streams are made by Hypothesis, which is told the room of each and looks for less: inputs that are
all over a square, repeat, or nearly do; truths that are numbers, signs, or the opposite of what the learner forecasts. The
other half are the steps of a search that starts at those with the least room and follows the gradient of the room downhill,
estimated from pairs of streams [spall1992]. The *room* of a stream is the right side of the theorem minus its left side, as a
share of the right side: below 0 the theorem is false. The best function in hindsight comes with a certificate
(`diagnostics.best_in_hindsight`); projections on a dictionary are solved densely, from its points alone. Exits with 1 if a
theorem is broken.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from bench.streams import magic_stream
from okl_core import Gaussian, OnlineLearner, create, diagnostics
from okl_core.losses import LOSSES
from okl_core.second_order.embedding import INDEPENDENT
from okl_core.types import F64

ROUNDS = 10
SIGMA = 0.4
KERNEL = Gaussian(sigma=SIGMA)
"""k(x, x) = 1."""
CLIP = 1.5
ALPHA = 0.5
NORM = 4.0
"""B."""
CLASSES = 3
ROUNDING = 1e-7
"""The room that the solver of the comparator may miss."""
STEPS = 40
"""Of one search."""
GAIN_ROUNDS = 6000
DICTIONARIES = ({"kind": "ald", "threshold": 0.3}, {"kind": "kors", "regularization": 0.5})


class Stream(NamedTuple):
    X: F64
    """(T, 2)."""
    y: F64
    """(T,), numbers in [-1, 1]; a theorem about labels takes their signs. NaN: the opposite of what is forecast."""
    seed: int
    """Of what else the theorem may choose."""


POINTS = st.tuples(st.floats(-1.0, 2.0), st.floats(-1.0, 2.0))
NEAR = st.sampled_from([0.0, 1e-9, 1e-4, 0.05])
"""How far a repeated input is from the first."""


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Inputs of a few places, or each of its own; truths that are numbers, signs, or an adversary's in some rounds or all."""
    places = draw(st.lists(POINTS, min_size=1, max_size=ROUNDS))
    offsets = draw(st.lists(NEAR, min_size=ROUNDS, max_size=ROUNDS))
    order = draw(st.lists(st.integers(0, len(places) - 1), min_size=ROUNDS, max_size=ROUNDS))
    X = np.array([places[i] for i in order]) + np.array(offsets)[:, None]
    truth = draw(st.sampled_from([st.floats(-1.0, 1.0), st.sampled_from([-1.0, 1.0]), st.just(math.nan)]))
    truth = truth | st.just(math.nan) if draw(st.booleans()) else truth
    y = draw(st.lists(truth, min_size=ROUNDS, max_size=ROUNDS))
    return Stream(X, np.array(y), draw(st.integers(0, 999)))


class Played(NamedTuple):
    y: F64
    losses: F64
    described: dict[str, float]
    dictionaries: list[list[int]]
    """Of every round: the rounds whose inputs were in the dictionary when it was forecast."""


def play(spec: dict[str, Any], stream: Stream, *, labels: bool) -> Played:
    learner = create(spec | {"seed": stream.seed}, 2)
    y, losses, dictionaries, known = np.empty(ROUNDS), np.empty(ROUNDS), [], list[int]()
    described = learner.describe()
    for t, x in enumerate(stream.X):
        y[t] = truth(learner, x, stream.y[t], labels=labels)
        dictionaries.append(list(known))
        losses[t] = learner.update(x, y[t]).loss
        described = learner.describe()
        if described.get("dictionary", 0.0) > len(known):
            known.append(t)
    return Played(y, losses, described, dictionaries)


def truth(learner: OnlineLearner, x: F64, y: float, *, labels: bool) -> float:
    if math.isnan(y):
        return -math.copysign(1.0, learner.predict(x).value)
    return math.copysign(1.0, y) if labels else min(1.0, max(-1.0, y))


class Sides(NamedTuple):
    left: float
    right: float

    @property
    def room(self) -> float:
        return (self.right - self.left) / max(1.0, abs(self.right))


def newton(stream: Stream) -> Sides:
    """Theorem 1, for each loss and step in turn."""
    loss = ("squared", "squared-hinge", "logistic")[stream.seed % 3]
    step = ("adaptive", "curvature")[stream.seed // 3 % 2]
    spec = {"kind": "kons", "config": newton_config(loss, step)}
    played = play(spec, stream, labels=loss != "squared")
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, played.y, loss, regularization=ALPHA, clip=CLIP)
    return Sides(played.losses.sum(), best.objective + played.described["bound_gradient"])


def newton_config(loss: str, step: str) -> dict[str, Any]:
    return {"kernel": KERNEL.model_dump(), "loss": loss, "step": step, "clip": CLIP, "regularization": ALPHA}


def aioli_config(stream: Stream) -> dict[str, Any]:
    curvature = ("exact", "half")[stream.seed % 2]
    return {
        "kernel": KERNEL.model_dump(),
        "comparator_norm": NORM,
        "regularization": 0.5 * ALPHA,
        "curvature": curvature,
    }


def improper(stream: Stream) -> Sides:
    """Theorem 2, for each curvature in turn."""
    played = play({"kind": "kernel-aioli", "config": aioli_config(stream)}, stream, labels=True)
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, played.y, "logistic", regularization=ALPHA, radius=NORM)
    return Sides(played.losses.sum(), best.objective + played.described["bound"])


class Projected(NamedTuple):
    """What dictionaries see of a function f, and what they miss of the inputs."""

    values: F64
    """<f, P phi_t>, shape (T,)."""
    missed: F64
    """|phi_t - P phi_t|, shape (T,)."""


def projected(X: F64, coefficients: F64, dictionaries: list[list[int]]) -> Projected:
    K = KERNEL.gram(X)
    values, missed = np.zeros(len(X)), np.zeros(len(X))
    seen, known = 0, list[int]()
    for t, dictionary in enumerate(dictionaries):
        # Those with a coordinate.
        for i in dictionary[seen:]:
            if K[i, i] - K[i, known] @ np.linalg.solve(K[np.ix_(known, known)], K[known, i]) > INDEPENDENT * K[i, i]:
                known.append(i)
        seen = len(dictionary)
        weights = np.linalg.solve(K[np.ix_(known, known)], K[known, t])
        values[t] = weights @ (K[known] @ coefficients)
        missed[t] = math.sqrt(max(0.0, K[t, t] - weights @ K[known, t]))
    return Projected(values, missed)


def on_a_dictionary(stream: Stream, kind: str, config: dict[str, Any], loss: str, norm: float, bound: str) -> Sides:
    """Against the best f with |f| <= norm, and what the dictionaries miss of f."""
    spec = {"kind": kind, "config": config | {"dictionary": DICTIONARIES[stream.seed // 6 % 2]}}
    played = play(spec, stream, labels=loss != "squared")
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, played.y, loss, regularization=ALPHA, radius=norm)
    seen = projected(stream.X, best.coefficients, played.dictionaries)
    price = float(LOSSES[loss].values(seen.values, played.y).sum()) - best.loss
    most = (1.0 if loss == "logistic" else LOSSES[loss].lipschitz(norm)) * best.norm * float(seen.missed.sum())
    # The smaller price is that of what the dictionaries see of f, from which the theorem is proved.
    return Sides(played.losses.sum(), best.objective + played.described[bound] + min(price, most))


def newton_on_a_dictionary(stream: Stream) -> Sides:
    """Theorem 3 for Newton steps."""
    loss = ("squared", "squared-hinge", "logistic")[stream.seed % 3]
    config = newton_config(loss, ("adaptive", "curvature")[stream.seed // 3 % 2])
    return on_a_dictionary(stream, "pros-n-kons", config, loss, CLIP, "bound_gradient")


def improper_on_a_dictionary(stream: Stream) -> Sides:
    """Theorem 3 for AIOLI."""
    return on_a_dictionary(stream, "nystrom-aioli", aioli_config(stream), "logistic", NORM, "bound")


def points(stream: Stream) -> Sides:
    """Theorem 4."""
    threshold = (0.1, 0.3, 0.7)[stream.seed % 3]
    config = aioli_config(stream) | {"dictionary": {"kind": "ald", "threshold": threshold}}
    learner = create({"kind": "nystrom-aioli", "config": config}, 2)
    learner.run(stream.X, np.ones(ROUNDS))
    return Sides(
        learner.describe()["dictionary"], diagnostics.log_det(KERNEL.gram(stream.X), threshold**2) / math.log(2.0)
    )


def switching(stream: Stream) -> Sides:
    """Theorem 5: the best sequence of experts, each switch paid for, by dynamic programming."""
    share = (0.001, 0.02, 0.2)[stream.seed % 3]
    base = newton_config("squared", "adaptive") | {"clip": 1.0, "dictionary": DICTIONARIES[0]}
    experts = [{"kind": "pros-n-kons", "config": base | {"regularization": a}} for a in (0.01, 1.0, 100.0)]
    config = {"experts": experts, "clip": 1.0, "share": share, "truth": "numbers", "loss": "squared"}
    learner = create({"kind": "pool", "config": config, "seed": stream.seed}, 2)
    loss, paid, before = 0.0, np.zeros(0), np.zeros(0)
    for x, y in zip(stream.X, stream.y, strict=True):
        loss += learner.update(x, truth(learner, x, y, labels=False)).loss
        now = np.array([value for name, value in learner.describe().items() if name.startswith("loss_")])
        first, N = not len(paid), len(now)
        stay, switch = -2.0 * math.log(1.0 - share), 2.0 * math.log(N / share)
        paid = now + 2.0 * math.log(N) if first else np.minimum(paid + stay, paid.min() + switch) + now - before
        before = now
    return Sides(loss, paid.min())


def frequencies(stream: Stream) -> Sides:
    """Theorem 6: the share of draws of 40 frequencies in which f is missed, and epsilon."""
    epsilon, D, draws = 0.5, 40, 100
    rng = np.random.default_rng(stream.seed)
    c = np.where(np.isnan(stream.y), rng.normal(size=ROUNDS), stream.y)
    # The theorem does not depend on the size of f, but the squares of what is tiny are 0.
    c = c / (np.abs(c).max() or 1.0)
    K = KERNEL.gram(stream.X)
    norm = math.sqrt(max(1e-12 * (c @ c), c @ K @ c))  # what rounding leaves of f = 0
    angles = np.einsum("mdk,tk->mdt", rng.normal(size=(draws, D, 2)) / SIGMA, stream.X)
    cosines, sines = np.cos(angles), np.sin(angles)
    a, b = cosines @ c, sines @ c
    values = (np.einsum("md,mdt->mt", a, cosines) + np.einsum("md,mdt->mt", b, sines)) / D
    is_long = (a**2 + b**2).mean(1) > 2.0 / epsilon * norm**2
    is_far = np.abs(values - K @ c).sum(1) > 2.0 / epsilon * ROUNDS * norm / math.sqrt(D)
    return Sides(float((is_long | is_far).mean()), epsilon)


def classes(stream: Stream) -> Sides:
    """Theorem 7, of three classes, for each hedge in turn; NaN: the class that is the least probable."""
    config = {"classes": CLASSES, "comparator_norm": NORM, "intercept": False, "hedge": (0.5, 1.0)[stream.seed % 2]}
    learner = create({"kind": "softmax-aioli", "config": config}, 2)
    y = np.empty(ROUNDS)
    for t, x in enumerate(stream.X):
        p = learner.predict(x).probabilities or ()
        number = stream.y[t]
        y[t] = p.index(min(p)) if math.isnan(number) else min(CLASSES - 1, max(0, int(CLASSES * (number + 1.0) / 2.0)))
        learner.update(x, y[t])
    told = learner.describe()
    return Sides(told["loss"], best_matrix(stream.X, y, CLASSES, NORM, 1.0 / NORM**2) + told["bound"])


def best_matrix(X: F64, y: F64, K: int, norm: float, lam: float) -> float:
    """The least log-loss of a softmax and lambda |W|^2, over the W with |W| <= norm."""
    rows, truths = np.arange(len(y)), y.astype(int)

    def cost(w: F64) -> tuple[float, F64]:
        Z = X @ w.reshape(K, -1).T
        log_sums = np.asarray(logsumexp(Z, axis=1))
        G = np.exp(Z - log_sums[:, None])
        G[rows, truths] -= 1.0
        return float((log_sums - Z[rows, truths]).sum() + lam * (w @ w)), (G.T @ X).ravel() + 2.0 * lam * w

    ball = {"type": "ineq", "fun": lambda w: norm * norm - w @ w, "jac": lambda w: -2.0 * w}
    start = np.zeros(K * X.shape[1])
    found = minimize(cost, start, jac=True, method="SLSQP", constraints=[ball], options={"maxiter": 500, "ftol": 1e-12})
    return float(found.fun)


THEOREMS: dict[str, Callable[[Stream], Sides]] = {
    "1 newton steps": newton,
    "2 aioli": improper,
    "3 a dictionary, newton steps": newton_on_a_dictionary,
    "3 a dictionary, aioli": improper_on_a_dictionary,
    "4 points": points,
    "5 switching": switching,
    "6 frequencies": frequencies,
    "7 classes": classes,
}


def descend(sides: Callable[[Stream], Sides], start: Stream) -> float:
    """The least room on the way of STEPS steps, two streams each, against the estimated gradient of the room."""
    rng, least = np.random.default_rng(start.seed), math.inf
    here = start
    for step in range(STEPS):
        width = 0.1 / (1.0 + step) ** 0.2
        dX, dy = rng.choice([-1.0, 1.0], size=start.X.shape), rng.choice([-1.0, 1.0], size=start.y.shape)
        there, back = (
            Stream(here.X + sign * width * dX, np.clip(here.y + sign * width * dy, -1.0, 1.0), start.seed)
            for sign in (1.0, -1.0)
        )
        rooms = sides(there).room, sides(back).room
        least = min(least, *rooms)
        slope = (rooms[0] - rooms[1]) / (2.0 * width)
        here = Stream(here.X - 0.5 * slope * dX, np.clip(here.y - 0.5 * slope * dy, -1.0, 1.0), start.seed)
    return least


def attack(sides: Callable[[Stream], Sides], count: int) -> tuple[float, float]:
    """The least room of streams that Hypothesis made, and of as many that a search made of those with the least."""
    found: list[tuple[float, Stream]] = []

    @settings(
        max_examples=count // 2, derandomize=True, deadline=None, database=None, suppress_health_check=HealthCheck
    )
    @given(streams())
    def play_one(stream: Stream) -> None:
        room = sides(stream).room
        found.append((room, stream))
        target(-room)

    play_one()
    found.sort(key=lambda pair: pair[0])
    starts = [stream for _, stream in found[: max(1, count // (4 * STEPS))]]
    return found[0][0], min(descend(sides, start) for start in starts)


def gains() -> None:
    """What the weights of theorem 2 gain."""
    X, y = (part[:GAIN_ROUNDS] for part in magic_stream(None))
    labels = np.where(y > 0.0, 1.0, -1.0)
    print("| B | curvature | mistakes, % | loss | bound |\n|---:|---|---:|---:|---:|")
    for norm in (5.0, 10.0, 30.0):
        for curvature in ("paper", "half", "exact"):
            config = {"kernel": {"kind": "gaussian", "sigma": 0.3}, "budget": 150, "comparator_norm": norm}
            learner = create({"kind": "nystrom-aioli", "config": config | {"curvature": curvature}}, X.shape[1])
            played = learner.run(X, labels)
            mistakes = 100.0 * float((played.values * labels <= 0.0).mean())
            bound = learner.describe()["bound"]
            print(f"| {norm:g} | {curvature} | {mistakes:.2f} | {played.losses.mean():.4f} | {bound:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000, help="for each theorem, half of them by Hypothesis")
    asked = parser.parse_args()
    print(f"{asked.streams:,} streams of {ROUNDS} rounds for each theorem\n")
    print("| theorem | least room, by Hypothesis | searched | |\n|---|---|---|---|")
    broken = False
    with threadpool_limits(1):
        for name, sides in THEOREMS.items():
            rooms = attack(sides, asked.streams)
            holds = min(rooms) >= -ROUNDING
            broken |= not holds
            print(f"| {name} | {rooms[0]:.4f} | {rooms[1]:.4f} | {'holds' if holds else 'BROKEN'} |", flush=True)
        print(f"\n{GAIN_ROUNDS:,} rounds of MAGIC\n")
        gains()
    raise SystemExit(broken)


if __name__ == "__main__":
    main()
