"""The two sides of theorems 1 to 10 of docs/theorems.md, and of those of docs/late-truths.md, on a short stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from bench.late import schedule
from okl_core import DelayedLearner, Gaussian, OnlineLearner, create, create_delayed, diagnostics
from okl_core.losses import LOSSES
from okl_core.second_order.embedding import INDEPENDENT
from okl_core.types import F64, Forecast

ROUNDS = 10
SIGMA = 0.4
KERNEL = Gaussian(sigma=SIGMA)
"""k(x, x) = 1."""
CLIP = 1.5
ALPHA = 0.5
NORM = 4.0
"""B."""
CLASSES = 3
DICTIONARIES = ({"kind": "ald", "threshold": 0.3}, {"kind": "kors", "regularization": 0.5})


class Stream(NamedTuple):
    X: F64
    """(T, 2)."""
    y: F64
    """(T,), numbers in [-1, 1]; a theorem about labels takes their signs. NaN: the opposite of what is forecast."""
    seed: int
    """Of what else the theorem may choose."""


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
        y[t] = truth(learner.predict(x).value, stream.y[t], labels=labels)
        dictionaries.append(list(known))
        losses[t] = learner.update(x, y[t]).loss
        described = learner.describe()
        if described.get("dictionary", 0.0) > len(known):
            known.append(t)
    return Played(y, losses, described, dictionaries)


def truth(forecast: float, y: float, *, labels: bool) -> float:
    """The truth of a round; NaN is the opposite of the forecast."""
    if math.isnan(y):
        return -math.copysign(1.0, forecast)
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
    return switched(learner, stream, share, 2.0, lambda forecast, y: truth(forecast.value, y, labels=False))


def switching_classes(stream: Stream) -> Sides:
    """Theorem 5, of three classes and log-loss; NaN: the class that is the least probable."""
    share = (0.001, 0.02, 0.2)[stream.seed % 3]
    experts = [
        {"kind": "softmax-aioli", "config": {"comparator_norm": norm}, "half_lives": [8, None]} for norm in (1.0, 30.0)
    ]
    config = {"truth": "classes", "classes": CLASSES, "experts": experts, "share": share}
    learner = create({"kind": "pool", "config": config, "seed": stream.seed}, 2)
    return switched(learner, stream, share, 1.0, class_of)


def switched(
    learner: OnlineLearner, stream: Stream, share: float, price: float, truth_of: Callable[[Forecast, float], float]
) -> Sides:
    """A pool against the best sequence of its experts, whose logarithms count `price` times."""
    loss, paid, before = 0.0, np.zeros(0), np.zeros(0)
    for x, y in zip(stream.X, stream.y, strict=True):
        loss += learner.update(x, truth_of(learner.predict(x), y)).loss
        now = np.array([value for name, value in learner.describe().items() if name.startswith("loss_")])
        first, N = not len(paid), len(now)
        stay, switch = -price * math.log(1.0 - share), price * math.log(N / share)
        paid = now + price * math.log(N) if first else np.minimum(paid + stay, paid.min() + switch) + now - before
        before = now
    return Sides(loss, paid.min())


def class_of(forecast: Forecast, number: float) -> float:
    """The class that a number of a stream stands for; of NaN the least probable."""
    p = forecast.probabilities or ()
    return p.index(min(p)) if math.isnan(number) else min(CLASSES - 1, max(0, int(CLASSES * (number + 1.0) / 2.0)))


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
        y[t] = class_of(learner.predict(x), stream.y[t])
        learner.update(x, y[t])
    description = learner.describe()
    return Sides(description["loss"], best_matrix(stream.X, y, CLASSES, NORM, 1.0 / NORM**2) + description["bound"])


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


def perceptron(stream: Stream) -> Sides:
    """Theorem 8: hinge losses against the best f of norm U at most, on budgets that are used up."""
    budget = (2, 4, 6)[stream.seed % 3]
    config = {"kernel": KERNEL.model_dump(), "budget": budget, "slack": (0.5, 0.0)[stream.seed // 3 % 2]}
    played = play({"kind": "ahpatron", "config": config}, stream, labels=True)
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, played.y, "hinge", radius=0.5 * math.sqrt(budget))
    return Sides(played.losses.sum(), best.loss + played.described["bound"])


def newton_by_distance(stream: Stream) -> Sides:
    """Theorem 9, for each step, with few points and with as many as are far enough."""
    config = {
        "kernel": KERNEL.model_dump(),
        "clip": 1.0,
        "regularization": ALPHA,
        "threshold": (0.3, 0.7)[stream.seed % 2],
        "step": ("textbook", "shipped")[stream.seed // 2 % 2],
        "budget": (2, 400)[stream.seed // 4 % 2],
    }
    played = play({"kind": "nons-ald", "config": config}, stream, labels=False)
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, played.y, "squared", regularization=ALPHA, clip=1.0)
    told, norm = played.described, best.norm
    price = told["bound_gradient"] + told["bound_missed"] * norm + told["bound_square"] * norm * norm
    return Sides(played.losses.sum(), best.objective + price)


def descent_by_distance(stream: Stream) -> Sides:
    """Theorem 10, with points that are dropped and without."""
    U, budget = (0.7, 2.0)[stream.seed % 2], (3, 400)[stream.seed // 2 % 2]
    config = {"kernel": KERNEL.model_dump(), "norm_bound": U, "threshold": 0.5, "dictionary_size": 2, "budget": budget}
    played = play({"kind": "aogd-ald", "config": config}, stream, labels=False)
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, played.y, "squared", radius=U)
    return Sides(played.losses.sum(), best.loss + played.described["bound"])


def delays_of(stream: Stream) -> NDArray[np.int64]:
    """From 0 to all rounds."""
    return np.random.default_rng(stream.seed).integers(0, (3, ROUNDS)[stream.seed % 2], ROUNDS)


def on_arrival(stream: Stream) -> Sides:
    """Least squares that learn a round when its truth comes, ridge regression and AAR in turn."""
    is_shrunk = stream.seed // 2 % 2 == 1
    config = {"kernel": KERNEL.model_dump(), "regularization": ALPHA, "clip": 1.0}
    learner = create({"kind": "kernel-aar" if is_shrunk else "kernel-ridge", "config": config}, 2)
    times = schedule(delays_of(stream))
    y, issued, learned = np.empty(ROUNDS), np.empty(ROUNDS), 0
    for now, known in enumerate(times.known.tolist()):
        for t in times.order[learned:known].tolist():
            learner.update(stream.X[t], y.item(t))
        learned = known
        issued[now] = learner.predict(stream.X[now]).value
        y[now] = truth(issued.item(now), stream.y[now], labels=False)
    K, order = KERNEL.gram(stream.X), times.order
    best = diagnostics.ridge_optimum(K, y, ALPHA)
    inputs, known = K[np.ix_(order, order)], times.known[order]
    return Sides(
        float(((issued - y) ** 2).sum()),
        best + diagnostics.late_ridge_bound(inputs, ALPHA, 1.0, known, is_shrunk=is_shrunk),
    )


def play_delayed(learner: DelayedLearner[Any], stream: Stream, *, labels: bool) -> tuple[F64, F64]:
    """Truths, and losses of what was issued; NaN: the opposite of what was issued."""
    delays = delays_of(stream)
    y, losses, waiting = np.empty(ROUNDS), np.empty(ROUNDS), dict[int, int]()
    for now in range(2 * ROUNDS):
        if now < ROUNDS:
            issued = learner.issue(stream.X[now])
            waiting[now] = issued.id
            y[now] = truth(issued.value, stream.y[now], labels=labels)
        for t in [t for t in waiting if t + delays[t] == now]:
            losses[t] = learner.learn(waiting.pop(t), y.item(t))
    return y, losses


def delayed_squares(stream: Stream) -> Sides:
    """Least squares with late truths: the bound is known before the truths are."""
    spec = {"kind": "kernel-aar", "config": {"kernel": KERNEL.model_dump(), "regularization": ALPHA, "clip": 1.0}}
    learner = create_delayed(spec, 2)
    y, losses = play_delayed(learner, stream, labels=False)
    best = diagnostics.ridge_optimum(KERNEL.gram(stream.X), y, ALPHA)
    return Sides(losses.sum(), best + learner.describe()["bound"])


def delayed_newton(stream: Stream) -> Sides:
    """Newton steps with late truths, for each loss and step in turn."""
    loss = ("squared", "squared-hinge", "logistic")[stream.seed % 3]
    step = ("adaptive", "curvature")[stream.seed // 3 % 2]
    learner = create_delayed({"kind": "kons", "config": newton_config(loss, step)}, 2)
    y, losses = play_delayed(learner, stream, labels=loss != "squared")
    best = diagnostics.best_in_hindsight(KERNEL, stream.X, y, loss, regularization=ALPHA, clip=CLIP)
    return Sides(losses.sum(), best.objective + learner.describe()["bound"])


THEOREMS: dict[str, Callable[[Stream], Sides]] = {
    "1 newton steps": newton,
    "2 aioli": improper,
    "3 a dictionary, newton steps": newton_on_a_dictionary,
    "3 a dictionary, aioli": improper_on_a_dictionary,
    "4 points": points,
    "5 switching": switching,
    "5 switching, classes": switching_classes,
    "6 frequencies": frequencies,
    "7 classes": classes,
    "8 ahpatron": perceptron,
    "9 nons-ald": newton_by_distance,
    "10 aogd-ald": descent_by_distance,
}
LATE_TRUTHS: dict[str, Callable[[Stream], Sides]] = {
    "late truths, on arrival": on_arrival,
    "late truths, least squares": delayed_squares,
    "late truths, newton steps": delayed_newton,
}
