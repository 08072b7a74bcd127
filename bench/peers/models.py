"""Vowpal Wabbit and scikit-learn's stochastic gradient descent as classifiers with River's methods."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import vowpalwabbit
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

FIRST = 200
"""Rows from which a feature map is fitted; until then the frequencies of the classes answer."""

FEATURES = 400

Record = Mapping[Any, float]


class VowpalWabbit:
    """Its library, linear, logistic loss, of one class against all others where there are more than two.

    It can be pickled: Vowpal Wabbit writes its model to a file, whose bytes are kept.
    """

    def __init__(self, labels: Sequence[Hashable], interactions: bool = False, model: bytes | None = None) -> None:
        self.labels = list(labels)
        self.interactions = interactions
        many = len(self.labels) > 2
        arguments = f"--oaa {len(self.labels)} --probabilities" if many else "--link logistic"
        arguments += " --interactions ::" if interactions else ""
        with tempfile.NamedTemporaryFile() as file:
            if model is not None:
                file.write(model)
                file.flush()
                arguments = f"--initial_regressor {file.name}"
            self._model = vowpalwabbit.Workspace(f"{arguments} --loss_function logistic --quiet")

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self._model.save(str(path))
            return VowpalWabbit, (self.labels, self.interactions, path.read_bytes())

    def learn_one(self, x: Record, y: Hashable) -> Self:
        told = self.labels.index(y)
        self._model.learn(f"{told + 1 if len(self.labels) > 2 else 2 * told - 1} {_line(x)}")
        return self

    def predict_proba_one(self, x: Record) -> dict[Hashable, float]:
        found: Any = self._model.predict(_line(x))
        shares = found if isinstance(found, list) else [1.0 - found, found]
        return dict(zip(self.labels, shares, strict=True))


def _line(x: Record) -> str:
    return "| " + " ".join(f"{str(name).replace(' ', '_')}:{value}" for name, value in x.items() if value)


class Sgd:
    """`SGDClassifier.partial_fit` on random Fourier features or a Nystroem map of standardised inputs.

    Its length scale is the median distance of the first FIRST rows.
    """

    def __init__(self, labels: Sequence[Hashable], kind: type[RBFSampler] | type[Nystroem]) -> None:
        self.labels = list(labels)
        self._kind = kind
        self._scaler = StandardScaler()
        self._model = SGDClassifier(loss="log_loss", random_state=0)
        self._map: RBFSampler | Nystroem | None = None
        self._first: list[tuple[list[float], int]] = []

    def learn_one(self, x: Record, y: Hashable) -> Self:
        row, told = list(x.values()), self.labels.index(y)
        self._scaler.partial_fit([row])
        if self._map is not None:
            self._model.partial_fit(self._map.transform(self._scaler.transform([row])), [told])
            return self
        self._first.append((row, told))
        if len(self._first) == FIRST:
            X = self._scaler.transform([one for one, _ in self._first])
            distances = np.square(X[:, None] - X[None]).sum(axis=2)
            gamma = 0.5 / max(float(np.median(distances)), 1e-12)
            most = FEATURES if self._kind is RBFSampler else min(FEATURES, FIRST)
            self._map = self._kind(gamma=gamma, n_components=most, random_state=0).fit(X)
            y_first = [told for _, told in self._first]
            self._model.partial_fit(self._map.transform(X), y_first, classes=list(range(len(self.labels))))
        return self

    def predict_proba_one(self, x: Record) -> dict[Hashable, float]:
        if self._map is None:
            counts = [1 + sum(told == label for _, told in self._first) for label in range(len(self.labels))]
            return dict(zip(self.labels, [count / sum(counts) for count in counts], strict=True))
        shares = self._model.predict_proba(self._map.transform(self._scaler.transform([list(x.values())])))[0]
        if not math.isfinite(shares.sum()):
            shares = np.full(len(self.labels), 1.0 / len(self.labels))
        return dict(zip(self.labels, shares.tolist(), strict=True))
