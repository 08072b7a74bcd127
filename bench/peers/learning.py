"""Each contestant predicts a round, then learns it, in a process of its own: its errors, and what a round costs."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

LEAST = 1e-6
"""A probability that is told smaller counts as this one."""

Rounds = tuple[list[dict[str, float]], list[Hashable]]
"""Inputs as records of numbers, and labels."""


class Peer(Protocol):
    def predict_proba_one(self, x: dict[str, float], /) -> Mapping[Any, float]: ...
    def learn_one(self, x: dict[str, float], y: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Result:
    """`cpu_us` a round; `memory_mb` is what the process grew by."""

    error: float
    log_loss: float
    cpu_us: float
    memory_mb: float


def _river(name: str) -> Rounds:
    from river import datasets

    rows = list(getattr(datasets, name)())
    order = np.random.default_rng(0).permutation(len(rows))
    return [{str(key): float(value) for key, value in rows[i][0].items()} for i in order], [rows[i][1] for i in order]


def _digits() -> Rounds:
    from sklearn.datasets import load_digits

    return _shuffled(*load_digits(return_X_y=True))


def _magic() -> Rounds:
    from service.demo_data import magic

    X, y = magic()
    return _shuffled(X, y > 0.0)


def _shuffled(X: np.ndarray, y: np.ndarray) -> Rounds:
    order = np.random.default_rng(0).permutation(len(y))
    return [{f"x{j}": float(value) for j, value in enumerate(X[i])} for i in order], y[order].tolist()


SETS: Mapping[str, Callable[[], Rounds]] = {
    "magic": _magic,
    "phishing": partial(_river, "Phishing"),
    "bananas": partial(_river, "Bananas"),
    "segments": partial(_river, "ImageSegments"),
    "digits": _digits,
}


def _linear(labels: Sequence[Hashable]) -> Peer:
    from river import linear_model, multiclass, preprocessing

    model: Any = linear_model.LogisticRegression()
    return preprocessing.StandardScaler() | (multiclass.OneVsRestClassifier(model) if len(labels) > 2 else model)


def _tree(labels: Sequence[Hashable]) -> Peer:
    from river import tree

    return tree.HoeffdingAdaptiveTreeClassifier(seed=0)


def _forest(labels: Sequence[Hashable]) -> Peer:
    from river import forest

    return forest.ARFClassifier(seed=0)


def _vowpal(labels: Sequence[Hashable], *, interactions: bool) -> Peer:
    from bench.peers.models import VowpalWabbit

    return VowpalWabbit(labels, interactions)


def _sgd(labels: Sequence[Hashable], *, kind: str) -> Peer:
    from bench.peers import models

    return models.Sgd(labels, getattr(models, kind))


def _ours(labels: Sequence[Hashable], *, kind: str) -> Peer:
    from okl.river import Classifier

    if len(labels) == 2 or kind == "auto":
        return Classifier(kind)
    return Classifier("one-vs-rest", {"classes": len(labels), "member": {"kind": kind}})


CONTESTANTS: Mapping[str, Callable[[Sequence[Hashable]], Peer]] = {
    "River, logistic": _linear,
    "River, adaptive tree": _tree,
    "River, forest (ARF)": _forest,
    "VW": partial(_vowpal, interactions=False),
    "VW, pairs": partial(_vowpal, interactions=True),
    "SGD, Fourier": partial(_sgd, kind="RBFSampler"),
    "SGD, Nystroem": partial(_sgd, kind="Nystroem"),
    "okl, auto": partial(_ours, kind="auto"),
    "okl, nystrom-aioli": partial(_ours, kind="nystrom-aioli"),
    "okl, aioli": partial(_ours, kind="aioli"),
}


def measure(data: str, contestant: str, rounds: int) -> Result:
    """In a process that ends with it."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.apply(play, (data, contestant, rounds))


def play(data: str, contestant: str, rounds: int) -> Result:
    rows, truths = (part[:rounds] for part in SETS[data]())
    labels = sorted(set(truths), key=str)
    peer = CONTESTANTS[contestant](labels)
    before = _resident_mb()
    told: list[Mapping[Any, float]] = []
    with threadpool_limits(1):
        started = time.process_time()
        for x, y in zip(rows, truths, strict=True):
            told.append(peer.predict_proba_one(x))
            peer.learn_one(x, y)
        seconds = time.process_time() - started
    wrong = [not shares or max(shares, key=shares.__getitem__) != y for shares, y in zip(told, truths, strict=True)]
    chances = [shares.get(y, 0.0) if shares else 1.0 / len(labels) for shares, y in zip(told, truths, strict=True)]
    log_loss = -sum(math.log(min(1.0, max(LEAST, chance))) for chance in chances) / len(truths)
    return Result(sum(wrong) / len(truths), log_loss, 1e6 * seconds / len(truths), _resident_mb() - before)


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
