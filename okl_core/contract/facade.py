"""Learners in use: the class that users work with, and its factories `create` and `restore`."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from okl_core.contract.arguments import as_numbers, checked_dim, checked_input, checked_truth, not_finite
from okl_core.contract.lags import LARGEST_TRUTH, first_lags, kept_lags, lag_rows, next_lags
from okl_core.contract.learner import LearnerSpec, Spec, parse_spec, require_dims
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import DIM, LAGS, pack, require_like, require_rounds, stored_dim
from okl_core.contract.threads import OneBlasThread, needs_one_thread, one_thread_if
from okl_core.errors import (
    DivergedError,
    LabelError,
    NumericalError,
    ReplayDivergence,
    ShapeError,
    StateError,
    StateFormatError,
    UnstableWarning,
    WeightError,
    unresolved,
)
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round, RoundInfo, Standing, Stored, Target

REPLAY_TOLERANCE = 1e-9
"""Largest difference between a replayed and a recorded forecast, relative to max(1, |value|)."""

ALIGNED = 16
"""Alignment of arrays, in bytes.

On processors without AVX, BLAS sums in another order if an array is not aligned, as a row of a matrix may not be. The
library's arrays are aligned and unaligned ones of the caller are copied, so that the same numbers give the same bits.
"""

LOOKED_EVERY = 64
"""Rounds between checks of whether BLAS would divide the learner's products among threads; a check takes 3 us."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
"""Range of a round's weight: with a wider range, light rounds would be lost to rounding beside heavy ones."""

ROUNDING_GROWTH = 64.0 * float(np.finfo(np.float64).eps)
"""Growth of the replay tolerance per unit of conditioning, if the arithmetic (processor or BLAS) differs."""

LARGEST_TOLERANCE = 1e-2
"""Upper limit of the replay tolerance, however badly conditioned the learner is."""


def replay_tolerance(conditioning: float) -> float:
    """The tolerance of a forecast replayed with different arithmetic, relative to max(1, |recorded value|)."""
    return min(LARGEST_TOLERANCE, max(REPLAY_TOLERANCE, ROUNDING_GROWTH * conditioning))


class OnlineLearner:
    """A learner in use: algorithm, config, state, random draws and lags. Created by `create` and `restore`.

    Inputs and truths may be anything that NumPy reads as real numbers: arrays of any type and layout, lists, rows and
    columns of data frames.

    With `lags` in the spec, the last k learned truths are appended to each x automatically. If truths arrive late, save
    the `lags` used for the forecast and pass them as `lags=` when the truth arrives, so that the learner learns from the
    same input that it predicted from.
    """

    def __init__(self, spec: LearnerSpec, state: LearnerState | None, dim: int, lags: Stored | None = None) -> None:
        self.spec, self._learner, self._config = parse_spec(spec)
        if waiting := self._config.waiting():
            raise unresolved(waiting)
        self.dim = dim
        self._k = self.spec.lags
        require_dims(self._learner, dim + self._k)
        self._rng = RoundRng(self.spec.seed)
        self._state = self._learner.init(self._config, dim + self._k) if state is None else state
        low, high = self._learner.truth_range(self._config)
        self.target: Target = self._learner.target(self._config)
        self.loss = self._learner.loss(self._config)
        if self._k:
            low, high = max(low, -LARGEST_TRUTH), min(high, LARGEST_TRUTH)
        self._truths: Interval = low, high
        self._lags = first_lags(self._k)
        if lags is not None:
            self._lags = kept_lags(self._checked_lags(lags, self._lags.shape))
        self._is_divided = self._would_be_divided()

    @property
    def t(self) -> int:
        """Rounds learned."""
        return self._state.t

    @property
    def lags(self) -> F64:
        """The lagged truths of the next round, shape (k,), newest first, read-only."""
        return self._lags

    def predict(self, x: ArrayLike, *, lags: ArrayLike | None = None) -> Forecast:
        """The forecast for x, shape (d,). Changes nothing. `lags` replaces the current lags.

        Raises ShapeError, NonFiniteError, LabelError.
        """
        x = self._input(x, lags)
        with one_thread_if(self._is_divided):
            forecast = self._learner.predict(self._config, self._state, x)
        if not math.isfinite(forecast.value):
            raise self._diverged(forecast.value, self._state.t + 1)
        return forecast

    def play(
        self,
        x: ArrayLike,
        y: float,
        *,
        choices: bytes | None = None,
        lags: ArrayLike | None = None,
        weight: float = 1.0,
    ) -> Round:
        """Play one round, which `learn` can carry into the state; changes nothing. `choices` are outcomes to replay.

        `weight`, from 1e-6 to 1e6, multiplies the loss; the forecast and the returned loss do not depend on it. Raises
        ShapeError, NonFiniteError, LabelError, WeightError, NumericalError.
        """
        with one_thread_if(self._is_divided):
            return self._play(x, y, choices, lags, weight)

    def learn(self, played: Round) -> None:
        """Carry a played round into the state. Raises StateError if it was played at a different t."""
        if played.t != self._state.t + 1:
            raise StateError(f"round {played.t} cannot be learned at t = {self._state.t}")
        with one_thread_if(self._is_divided):
            self._learn(played)

    def update(self, x: ArrayLike, y: float, *, lags: ArrayLike | None = None, weight: float = 1.0) -> RoundInfo:
        """One full round at the current state: predict, observe, learn. `weight`: see `play`."""
        if not self._is_divided:  # entering an empty context would take a tenth of a small learner's round
            return self._update(x, y, lags, weight)
        with OneBlasThread():
            return self._update(x, y, lags, weight)

    def _update(self, x: ArrayLike, y: float, lags: ArrayLike | None, weight: float) -> RoundInfo:
        played = self._play(x, y, None, lags, weight)
        self._learn(played)
        return RoundInfo(played.t, played.forecast, played.loss)

    def _play(self, x: ArrayLike, y: float, choices: bytes | None, lags: ArrayLike | None, weight: float) -> Round:
        x, y = self._input(x, lags), checked_truth(y, self.target, self._truths)
        if weight != 1.0:
            weight = checked_weights([weight]).item()
        rng = self._rng
        rng.begin(choices, self._state.t + 1)
        try:
            if weight == 1.0:
                played = self._learner.play(self._config, self._state, x, y, rng)
            else:
                played = self._learner.play_weighted(self._config, self._state, x, y, weight, rng)
        except OverflowError as error:
            raise self._overflow() from error
        if choices is not None:
            rng.verify()
        if not math.isfinite(played.forecast.value):
            raise self._diverged(played.forecast.value, played.t)
        return played

    def _learn(self, played: Round) -> None:
        self._learner.learn(self._config, self._state, played)
        if self._k:
            self._lags = next_lags(self._lags, played.y)
        if played.t % LOOKED_EVERY == 0 and not self._is_divided:
            self._is_divided = self._would_be_divided()

    def replay(
        self,
        x: ArrayLike,
        y: float,
        *,
        choices: bytes,
        value: float,
        lags: ArrayLike | None = None,
        weight: float = 1.0,
    ) -> Round:
        """Play and learn a recorded round, with its recorded choices. Raises ReplayDivergence."""
        played = self.play(x, y, choices=choices, lags=lags, weight=weight)
        if not abs(played.forecast.value - value) <= REPLAY_TOLERANCE * max(1.0, abs(value)):
            raise ReplayDivergence(f"round {played.t}: recorded {value!r}, replayed {played.forecast.value!r}")
        self.learn(played)
        return played

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        choices: bytes | None = None,
        lags: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> BlockInfo:
        """n rounds in order, X of shape (n, d), y of shape (n,): equal to n updates up to rounding, but much faster.

        Forecasts agree to 1e-9 where the learner is well conditioned, and in general to about
        `replay_tolerance(learner.conditioning)`, as long as this is below its upper limit: with a linear kernel and columns
        up to 1e5, say, only to 1e-4. In single precision they agree to about 1e-3. Every row is checked first, so an invalid
        one changes nothing. If a round fails with NumericalError, those before it are learned; if only its forecast is not
        finite, all are. `lags`, shape (n, k), gives the lags of each row, if they are not the truths of the rows before
        it. `weight`, shape (n,), gives the weights of the rows, 1 by default.
        """
        X, y = self.check_rows(X, y, lags)
        weights = None if weight is None else checked_weights(weight, len(y))
        before, after = self._state.t, None
        if self._k or lags is not None:
            after = lag_rows(self._lags, y)
            X = np.hstack((X, after[:-1] if lags is None else lags))
        self._rng.begin(choices)
        try:
            with OneBlasThread():
                if weights is None:
                    info = self._learner.run(self._config, self._state, X, y, self._rng)
                else:
                    info = self._learner.run_weighted(self._config, self._state, X, y, weights, self._rng)
        except OverflowError as error:
            raise self._overflow() from error
        finally:
            self._is_divided = self._would_be_divided()
            # A run that fails at some round has learned the rounds before it.
            if after is not None:
                self._lags = kept_lags(after[self._state.t - before])
        self._rng.verify()
        if not np.isfinite(info.values).all():
            row = int(np.argmin(np.isfinite(info.values)))
            raise self._diverged(info.values.item(row), before + row + 1, row)
        return info

    def check_rows(self, X: ArrayLike, y: ArrayLike, lags: ArrayLike | None = None) -> tuple[F64, F64]:
        """X and y converted and validated for `run`. Raises what `run` raises for an invalid row."""
        X = np.ascontiguousarray(as_numbers(X, "X"))
        if X.__array_interface__["data"][0] % ALIGNED:
            X = X.copy()
        y = np.ascontiguousarray(as_numbers(y, "y", "y"))
        if X.ndim != 2 or X.shape[1] != self.dim:
            raise ShapeError(f"X has shape {X.shape}, this learner takes (n, {self.dim})")
        if y.shape != (len(X),):
            raise ShapeError(f"y has shape {y.shape}, X has {len(X)} rows", "y")
        squares = np.einsum("ij,ij->i", X, X)
        if not np.isfinite(squares).all():
            row = int(np.argmin(np.isfinite(squares)))
            raise not_finite(X[row], f"X[{row}]", row)
        if not self._takes(y).all():
            for row, truth in enumerate(y.tolist()):
                checked_truth(truth, self.target, self._truths, row)
        if lags is not None:
            self._checked_lags(lags, (len(y), self._k))
        return X, y

    def state(self) -> dict[str, Stored]:
        """Copies of every array of the state; together with the spec they determine the learner."""
        arrays = pack(self._state) | {DIM: np.array(float(self.dim))}
        return arrays | {LAGS: self._lags.copy()} if self._k else arrays

    def has_long_round(self, rounds: int = 1) -> bool:
        """Whether one of the next rounds may do far more work than those around it."""
        return self._learner.has_long_round(self._config, self._state, rounds)

    @property
    def conditioning(self) -> float:
        """Factor by which a relative rounding error may have grown in a forecast, at least 1."""
        return self._learner.conditioning(self._config, self._state)

    def copy(self) -> OnlineLearner:
        """An independent learner in the same state.

        Cheaper than `restore(spec, state())`: nothing is parsed, and data that is never written again is shared.
        """
        other = OnlineLearner.__new__(OnlineLearner)
        other.__dict__ |= self.__dict__
        other._state, other._rng = copy.deepcopy(self._state), RoundRng(self.spec.seed)
        return other

    __copy__ = copy  # Python's shallow copy would share the state, but not the lags that belong to it

    def describe(self) -> dict[str, float]:
        return self._learner.describe(self._config, self._state)

    def standing(self) -> Standing | None:
        """The current standing of the parts of a composite learner; None for any other learner."""
        return self._learner.standing(self._config, self._state)

    @property
    def nbytes(self) -> int:
        """Memory taken by the state, in bytes."""
        return int(self.describe()["bytes"]) + self._lags.nbytes

    def _would_be_divided(self) -> bool:
        # "bytes" may be missing only if the learner breaks the contract, which its checks report.
        return needs_one_thread(self.describe().get("bytes", 0.0))

    def _input(self, x: ArrayLike, lags: ArrayLike | None) -> F64:
        x = checked_input(x, self.dim)
        if self._k or lags is not None:
            x = np.concatenate((x, self._lags if lags is None else self._checked_lags(lags, self._lags.shape)))
        return x

    def _checked_lags(self, lags: ArrayLike, shape: tuple[int, ...]) -> F64:
        lags = as_numbers(lags, "lags", "lags")
        if lags.shape != shape:
            raise ShapeError(f"lags have shape {lags.shape}, this learner takes {shape}", "lags")
        if not (self._takes(lags) | (lags == 0.0)).all():
            raise LabelError("lags are truths that this learner takes, or 0", "lags")
        return lags

    def _takes(self, y: F64) -> NDArray[np.bool_]:
        """Mask of the truths y, of any shape, that `checked_truth` accepts."""
        if self.target == "binary":
            return np.abs(y) == 1.0
        low, high = self._truths
        taken = np.isfinite(y) & (low <= y) & (y <= high)
        return taken & (np.floor(y) == y) if self.target == "class" else taken

    def _overflow(self) -> DivergedError:
        return DivergedError(f"round {self._state.t + 1} overflows; scale the inputs and the truths down")

    def _diverged(self, value: float, t: int, row: int | None = None) -> DivergedError:
        return DivergedError(f"the forecast of round {t} is {value}; raise the regularization", index=row)


def checked_weights(weights: ArrayLike, n: int = 1) -> F64:
    """n weights, shape (n,). Raises ShapeError, WeightError."""
    weights = as_numbers(weights, "weight", "weight")
    if weights.shape != (n,):
        raise ShapeError(f"weights have shape {weights.shape}, there are {n} rounds", "weight")
    taken = (weights >= SMALLEST_WEIGHT) & (weights <= LARGEST_WEIGHT)
    if not taken.all():
        row = int(np.argmin(taken))
        message = f"a weight is a number from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}, not {weights[row]}"
        raise WeightError(message, row if n > 1 else None)
    return weights


def create(spec: Spec, dim: int) -> OnlineLearner:
    """A new learner for inputs in R^dim. Raises UnknownKind, ConfigError, ShapeError; may warn with `UnstableWarning`.

    Examples
    --------
    >>> learner = create({"kind": "mean"}, dim=1)
    >>> learner.update(np.array([0.0]), 3.0).loss
    9.0
    >>> learner.predict(np.array([0.0])).value
    3.0
    """
    dim = checked_dim(dim)
    parsed, _, config = parse_spec(spec)
    for caution in config.cautions:
        warnings.warn(f"{parsed.kind}: {caution}", UnstableWarning, stacklevel=2)
    return OnlineLearner(parsed, None, dim)


def restore(spec: Spec, arrays: Mapping[str, Stored], dim: int | None = None) -> OnlineLearner:
    """The learner whose `state()` returned these arrays. It continues bit for bit on the same machine.

    A state of another dimension than `dim` is refused, if that is given. Raises StateFormatError, ShapeError.
    """
    parsed, learner, config = parse_spec(spec)
    if waiting := config.waiting():
        raise unresolved(waiting)
    remaining = dict(arrays)
    is_given, dim = dim is not None, stored_dim(remaining.pop(DIM, None), dim)
    lags = remaining.pop(LAGS, None) if parsed.lags else None
    if parsed.lags and lags is None:
        raise StateFormatError(f"the state has no array {LAGS!r}; a spec with lags needs it")
    try:
        new = learner.init(config, dim + parsed.lags)
        require_like(remaining, new)
        # A learner's own numbers do not overflow here.
        with np.errstate(all="ignore", over="raise"):
            state = learner.unpack(config, remaining)
            require_rounds(state, new)
            restored = OnlineLearner(parsed, state, dim, lags)
        # A forecast shows what no array shows alone, such as another length than that of its neighbour.
        with np.errstate(all="ignore"), contextlib.suppress(NumericalError, OverflowError):
            restored.predict(np.zeros(dim))
        return restored
    except StateError:
        raise
    # Arrays that another made reach the learner, which may raise anything; their dimension may be beyond all memory.
    except Exception as error:
        if is_given and isinstance(error, MemoryError):
            raise
        raise StateFormatError(f"the state, with its dimension, {dim}, does not fit the spec: {error}") from error
