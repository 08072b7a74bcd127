"""The learner contract as functions: what every learner promises, and what the service builds on.

Each clause is a function of a `Subject` that returns None or raises `ContractViolation` with what went wrong.
`check_learner` runs them all, on learners of this library and of others alike:

    import my_package.my_learner  # registers the kind "my-learner"
    from okl_core.contract.checks import check_learner
    check_learner("my-learner", {"step_size": 0.1})
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from okl_core.contract.agreement import (
    TOLERANCE,
    ContractViolation,
    Raises,
    close,
    close_arrays,
    close_states,
    require,
    same_arrays,
    same_rounds,
)
from okl_core.contract.facade import LAGS, OnlineLearner, create, restore
from okl_core.contract.learner import LearnerSpec, get_learner, given_probabilities, parse_spec, resolve
from okl_core.contract.state import from_bytes, pack, to_bytes
from okl_core.errors import (
    ConfigError,
    InputError,
    LabelError,
    NonFiniteError,
    OklError,
    ReplayDivergence,
    ShapeError,
    StateFormatError,
)
from okl_core.types import F64, REALS, Interval, Target

ROUNDS = 150
"""Long enough to cross the panels of a factor and a few doublings of capacity, short enough to run in tests."""


@dataclass(frozen=True)
class Subject:
    """What is checked: a spec without open choices, and a stream for it; X of shape (n, d), y of shape (n,)."""

    spec: LearnerSpec
    dim: int
    X: F64
    y: F64

    def create(self) -> OnlineLearner:
        return create(self.spec, self.dim)

    def after(self, rounds: int) -> OnlineLearner:
        """A learner that has seen the first rounds of the stream."""
        learner = self.create()
        for x, y in self.rounds(0, rounds):
            learner.update(x, y)
        return learner

    def rounds(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[F64, float]]:
        return zip(self.X[start:stop], self.y[start:stop].tolist(), strict=True)

    @property
    def half(self) -> int:
        return len(self.y) // 2


Check = Callable[[Subject], None]

CHECKS: list[Check] = []
"""The contract, clause by clause, in the order of this file."""


def _clause(check: Check) -> Check:
    """A check, for which an error that the learner should not have raised is a violation too."""

    @functools.wraps(check)
    def checked(subject: Subject) -> None:
        try:
            check(subject)
        except OklError as error:
            raise ContractViolation(f"{type(error).__name__} was raised: {error}") from error

    CHECKS.append(checked)
    return checked


def check_learner(
    kind: str, config: Mapping[str, Any] | None = None, *, dim: int | None = None, seed: int = 0, rounds: int = ROUNDS
) -> None:
    """Run every check of `CHECKS`, by default in a dimension that it takes.

    Raises ContractViolation that lists each broken clause.

    Examples
    --------
    >>> check_learner("mean")
    """
    subject = make_subject(kind, config, dim=dim, seed=seed, rounds=rounds)
    violations: list[str] = []
    for check in CHECKS:
        try:
            check(subject)
        except ContractViolation as violation:
            violations.append(f"{check.__name__}: {violation}")
        except Exception as error:
            error.add_note(f"while {check.__name__} ran on {kind!r}")
            raise
    if violations:
        raise ContractViolation("\n  ".join([f"{kind!r} breaks the learner contract:", *violations]))


def make_subject(
    kind: str, config: Mapping[str, Any] | None = None, *, dim: int | None = None, seed: int = 0, rounds: int = ROUNDS
) -> Subject:
    """A spec and a small stream that its learner takes. Raises UnknownLearner, ConfigError."""
    spec, learner, parsed = parse_spec({"kind": kind, "seed": seed, "config": dict(config or {})})
    dim = dim or learner.dims or 3
    X, y = small_stream(learner.target(parsed), learner.truth_range(parsed), dim, rounds, seed)
    return Subject(resolve(spec, X, y), dim, X, y)


def small_stream(target: Target, truths: Interval, dim: int, rounds: int, seed: int = 0) -> tuple[F64, F64]:
    """A stream with structure, noise, a zero and repeated inputs; real `truths` reach their ends (+-1 if infinite).

    Of K classes the first K rounds have one each.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (rounds, dim))
    X[1] = 0.0
    repeated = rng.choice(np.arange(2, rounds), rounds // 10, replace=False)
    X[repeated] = X[repeated // 2]
    signal = np.sin(3.0 * X.sum(axis=1)) + X[:, 0] ** 2 - 0.3 + 0.3 * rng.standard_normal(rounds)
    if target == "binary":
        return X, np.where(signal >= 0.0, 1.0, -1.0)
    low, high = (-1.0, 1.0) if truths == REALS else truths
    if target == "class":
        y = np.floor(low + (high - low + 1.0) * np.clip(0.5 * (signal + 1.0), 0.0, 1.0 - 1e-9))
        first = np.arange(low, high + 1.0)[:rounds]
        y[: len(first)] = first
        return X, y
    return X, low + (high - low) * np.clip(0.5 * (signal + 1.0), 0.0, 1.0)


@_clause
def check_identity(subject: Subject) -> None:
    """The kind is kebab-case, the learner has a summary and references, and no fields of its own."""
    learner = get_learner(subject.spec.kind)
    is_kebab = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", learner.kind) is not None
    require(is_kebab, f"the kind {learner.kind!r} is not kebab-case")
    require(learner.kind == subject.spec.kind, f"registered as {subject.spec.kind!r}, called {learner.kind!r}")
    require(bool((type(learner).__doc__ or "").strip()), "the class has no docstring; its first line is the summary")
    require(isinstance(learner.references, tuple), "references must be a tuple of citation keys")
    subject.after(subject.half)
    require(not getattr(learner, "__dict__", {}), f"the learner keeps fields: {sorted(vars(learner))}; use the state")


@_clause
def check_config_schema(subject: Subject) -> None:
    """The config gives a JSON schema that describes every field; its defaults validate, unknown fields do not."""
    config_type = get_learner(subject.spec.kind).config_type
    schema = json.loads(json.dumps(config_type.model_json_schema()))
    for owner, properties in [("the config", schema), *schema.get("$defs", {}).items()]:
        for name, field in properties.get("properties", {}).items():
            require("description" in field or "const" in field, f"{owner}: the field {name!r} has no description")
    defaults = config_type()
    again = config_type.model_validate(defaults.model_dump(mode="json"))
    require(again == defaults, f"the defaults change on the way through JSON: {defaults!r}, {again!r}")
    unknown = {"kind": subject.spec.kind, "config": {"no_such_field": 1}}
    with Raises(ConfigError, "a config with an unknown field"):
        create(unknown, subject.dim)


@_clause
def check_predict_is_pure(subject: Subject) -> None:
    """`predict` changes neither the state nor what comes after."""
    learner, undisturbed = subject.create(), subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        before = learner.state()
        first, second = learner.predict(x), learner.predict(x)
        require(first == second, f"round {t + 1}: two predictions in a row differ: {first}, {second}")
        same_arrays(before, learner.state(), f"round {t + 1}: predict changed the state")
        learner.update(x, y)
        undisturbed.update(x, y)
    same_arrays(undisturbed.state(), learner.state(), "predictions between the rounds changed the run")


@_clause
def check_play_is_pure(subject: Subject) -> None:
    """`play` changes nothing, gives the same round again, and a played round that is dropped leaves no trace."""
    learner, undisturbed = subject.create(), subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        before = learner.state()
        dropped = learner.play(subject.X[-1 - t], float(subject.y[-1 - t]))
        require(dropped.t == t + 1, f"the round after {t} was played as round {dropped.t}")
        first, second = learner.play(x, y), learner.play(x, y)
        same_rounds(first, second, f"round {t + 1}: played twice")
        same_arrays(before, learner.state(), f"round {t + 1}: play changed the state")
        learner.learn(second)
        undisturbed.update(x, y)
    same_arrays(undisturbed.state(), learner.state(), "rounds that were played and dropped changed the run")


@_clause
def check_forecast_is_blind(subject: Subject) -> None:
    """The forecast of `play` is that of `predict`: the truth has no influence on it."""
    learner = subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        forecast = learner.predict(x)
        for truth in (y, _another_truth(learner, y)):
            played = learner.play(x, truth).forecast
            close(forecast.value, played.value, f"round {t + 1}: predict and play with the truth {truth}")
            close(forecast.probability, played.probability, f"round {t + 1}: probabilities of predict and play")
            expected, given = forecast.probabilities or (), np.array(played.probabilities or ())
            close_arrays(expected, given, f"round {t + 1}: probabilities of predict and play")
        learner.update(x, y)


def _another_truth(learner: OnlineLearner, y: float) -> float:
    _, algorithm, config = parse_spec(learner.spec)
    low, high = algorithm.truth_range(config)
    if learner.target == "class":
        return (y + 1.0) % (high + 1.0)
    # The mirror image in the range of the truths.
    return -y if (low, high) == REALS else min(max(low + high - y, low), high)


@_clause
def check_update_is_play_and_learn(subject: Subject) -> None:
    """`update` is `play` and `learn`, and counts one round."""
    whole, halves = subject.create(), subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        info, played = whole.update(x, y), halves.play(x, y)
        halves.learn(played)
        require(info == (played.t, played.forecast, played.loss), f"round {t + 1}: update gives {info}, play {played}")
        require(whole.t == t + 1, f"after {t + 1} rounds the learner counts {whole.t}")
    same_arrays(whole.state(), halves.state(), "update and play with learn lead to different states")


@_clause
def check_run_equals_updates(subject: Subject) -> None:
    """`run` gives what `update` gives one by one, however the stream is cut, and replays its own choices."""
    n = len(subject.y)
    played, single = [], subject.create()
    for x, y in subject.rounds():
        played.append(single.play(x, y))
        single.learn(played[-1])
    for sizes in ([n], [0, 1, 2, 7, n - 10], [n // 3, n - n // 3], [n - 1, 1], [1] * n):
        learner = subject.create()
        cuts = list(itertools.accumulate(sizes, initial=0))
        for start, stop in itertools.pairwise(cuts):
            block = learner.run(subject.X[start:stop], subject.y[start:stop])
            where = f"rounds {start + 1} to {stop} of a run in blocks of {_shorten(sizes)}"
            require(block.t == stop, f"{where}: the block counts {block.t}")
            expected = played[start:stop]
            close_arrays([r.forecast.value for r in expected], block.values, f"{where}: values")
            close_arrays([r.loss for r in expected], block.losses, f"{where}: losses")
            require(block.choices == b"".join(r.choices for r in expected), f"{where}: other choices than one by one")
            probabilities = given_probabilities([r.forecast for r in expected])
            if expected:
                is_alike = (probabilities is None) == (block.probabilities is None)
                require(is_alike, f"{where}: rounds one by one give probabilities, or the block does, but not both")
            if expected and block.probabilities is not None:
                close_arrays(probabilities, block.probabilities, f"{where}: probabilities")
        close_states(single.state(), learner.state(), f"a run in blocks of {_shorten(sizes)}")
    choices = b"".join(r.choices for r in played)
    replayed = subject.create()
    replayed.run(subject.X, subject.y, choices=choices)
    close_states(single.state(), replayed.state(), "a run that replays recorded choices")


@_clause
def check_state_is_everything(subject: Subject) -> None:
    """A learner restored from `state()` continues bit for bit; the arrays are copies on both ways."""
    for stop in (0, 1, subject.half, len(subject.y) - 10):
        learner = subject.after(stop)
        arrays = learner.state()
        restored = restore(subject.spec, arrays, subject.dim)
        same_arrays(arrays, restored.state(), f"restored at round {stop}")
        kept = {name: array.copy() for name, array in arrays.items()}
        for x, y in subject.rounds(stop):
            expected, actual = learner.play(x, y), restored.play(x, y)
            same_rounds(expected, actual, f"round {expected.t}: original and restored at round {stop}")
            learner.learn(expected)
            restored.learn(actual)
        same_arrays(learner.state(), restored.state(), f"after the stream, restored at round {stop}")
        same_arrays(kept, arrays, "a learner writes into arrays that it gave away or was restored from")


@_clause
def check_copies(subject: Subject) -> None:
    """A copy goes on bit for bit as its original, and what one of the two learns leaves the other as it was."""
    for stop in (0, 1, subject.half, len(subject.y) - 10):
        learner = subject.after(stop)
        before = learner.state()
        copied, further = learner.copy(), learner.copy()
        same_arrays(before, copied.state(), f"copied at round {stop}")
        for x, y in subject.rounds(stop, stop + 20):
            further.update(x, y)
        further.run(subject.X[:20], subject.y[:20])
        for one, whose in ((learner, "the original"), (copied, "another copy")):
            same_arrays(before, one.state(), f"what a copy learns from round {stop} on changes {whose}")
        for x, y in subject.rounds(stop):
            expected, actual = learner.play(x, y), copied.play(x, y)
            same_rounds(expected, actual, f"round {expected.t}: the original and a copy of round {stop}")
            learner.learn(expected)
            copied.learn(actual)
        same_arrays(learner.state(), copied.state(), f"after the stream, copied at round {stop}")


@_clause
def check_replay(subject: Subject) -> None:
    """A recorded stream replays to the same state; a tampered value or choice is refused and changes nothing."""
    live, replayed = subject.create(), subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        played = live.play(x, y)
        live.learn(played)
        value, choices, where = played.forecast.value, played.choices, f"round {t + 1}"
        if t % 25 == 0 or (choices and t % 5 == 0):
            before = replayed.state()
            with Raises(ReplayDivergence, f"{where}: a replay with a tampered value"):
                replayed.replay(x, y, choices=choices, value=value + 1e-6 * max(1.0, abs(value)))
            with Raises(ReplayDivergence, f"{where}: a replay with a choice too many (play ends with rng.choices())"):
                replayed.replay(x, y, choices=choices + b"\0", value=value)
            if choices:
                with Raises(ReplayDivergence, f"{where}: a replay without the recorded choices"):
                    replayed.replay(x, y, choices=b"", value=value)
            same_arrays(before, replayed.state(), f"{where}: a refused replay changed the state")
        same_rounds(played, replayed.replay(x, y, choices=choices, value=value), f"{where}: live and replayed")
    same_arrays(live.state(), replayed.state(), "the replayed stream leads to another state")


@_clause
def check_same_seed_same_run(subject: Subject) -> None:
    """Two learners of one spec do the same: no randomness but the seed's, nothing shared between learners."""
    first, second = subject.after(subject.half), subject.after(subject.half)
    same_arrays(first.state(), second.state(), "two runs of one spec differ")


@_clause
def check_inputs_are_copied(subject: Subject) -> None:
    """A caller may use its arrays again: nothing writes into them, and nothing in the state refers to them."""
    learner, buffer = subject.create(), np.empty(subject.dim)
    for x, y in subject.rounds():
        buffer[:] = x
        learner.update(buffer, y)
        buffer[:] = np.pi
    same_arrays(subject.after(len(subject.y)).state(), learner.state(), "the state refers to an input of the caller")
    X = subject.X.copy()
    learner = subject.create()
    learner.run(X, subject.y)
    require(np.array_equal(X, subject.X), "run writes into the block of the caller")
    before = learner.state()
    X[:] = np.pi
    same_arrays(before, learner.state(), "the state refers to a block of the caller")


@_clause
def check_lags(subject: Subject) -> None:
    """With `lags` in the spec it is the learner of so many inputs more that is given the truths before each round.

    A learner of classes is refused lags, and so is one of a single input.
    """
    if subject.create().target == "class" or get_learner(subject.spec.kind).dims == 1:
        with Raises(ConfigError, "lags that are classes, or beside the only input"):
            parse_spec(subject.spec.model_copy(update={"lags": 1}))
        return
    # As many inputs together as the stream has: a config may be made for them.
    k = max(1, min(2, subject.dim - 1))
    dim = max(1, subject.dim - k)
    spec, X = subject.spec.model_copy(update={"lags": k}), subject.X[:, :dim]
    lagged, by_hand = create(spec, dim), create(subject.spec, dim + k)
    require(LAGS not in by_hand.state(), f"the array {LAGS!r} of a state is the library's; the learner has one too")
    past, choices = [0.0] * k, []
    for t, (x, y) in enumerate(zip(X, subject.y.tolist(), strict=True)):
        given, where = np.append(x, past), f"round {t + 1} with lags"
        require(lagged.predict(x) == by_hand.predict(given), f"{where}: another forecast than with the inputs by hand")
        played, expected = lagged.play(x, y), by_hand.play(given, y)
        same_rounds(expected, played, f"{where}: inputs by hand and lags")
        by_hand.learn(expected)
        lagged.learn(played)
        require(lagged.t == t + 1, f"{where}: the learner counts {lagged.t}")
        choices.append(played.choices)
        past = [y, *past[:-1]]
    state = lagged.state()
    same_arrays(by_hand.state() | {LAGS: np.array(past)}, state, "the state with lags")
    same_arrays(state, restore(spec, state, dim).state(), "the state with lags, restored")
    blocked = create(spec, dim)
    for block in (slice(0, subject.half), slice(subject.half, None)):
        blocked.run(X[block], subject.y[block], choices=b"".join(choices[block]))
    close_states(state, blocked.state(), "a run in two blocks with lags")


@_clause
def check_describe(subject: Subject) -> None:
    """`describe` gives finite numbers, `t`, `dictionary` and `bytes` among them, and changes nothing."""
    for stop in (0, 1, subject.half):
        learner = subject.after(stop)
        before = learner.state()
        numbers = learner.describe()
        same_arrays(before, learner.state(), "describe changed the state")
        for name in ("t", "dictionary", "bytes"):
            require(name in numbers, f"describe has no {name!r}")
        for name, value in numbers.items():
            is_finite = isinstance(value, int | float) and math.isfinite(value)
            require(is_finite, f"after {stop} rounds describe gives {name} = {value!r}")
        require(numbers["t"] == stop, f"after {stop} rounds describe gives t = {numbers['t']}")


@_clause
def check_announcements(subject: Subject) -> None:
    """The extra work of the rounds to come is finite, never less for more of them, and asking changes nothing."""
    _, algorithm, config = parse_spec(subject.spec)
    for stop in (0, 1, subject.half):
        learner = subject.after(stop)
        state = algorithm.unpack(config, learner.state())
        work = [algorithm.extra_work(config, state, rounds) for rounds in (1, 2, 10, 100, 10**6)]
        is_growing = all(a <= b for a, b in itertools.pairwise([0.0, *work]))
        require(is_growing and math.isfinite(work[-1]), f"after {stop} rounds the work ahead is {work}")
        same_arrays(learner.state(), pack(state), "extra_work changed the state")
        condition = learner.conditioning
        require(condition >= 1.0, f"after {stop} rounds the conditioning is {condition}, not a number from 1 on")


@_clause
def check_bad_input_changes_nothing(subject: Subject) -> None:
    """Wrong shapes, values that are not finite and wrong truths raise the typed error and leave the state as it was."""
    learner = subject.after(subject.half)
    x, y = subject.X[-1], float(subject.y[-1])
    before = learner.state()
    for error, bad, what in _bad_inputs(x):
        for name, call in {"predict": lambda x: learner.predict(x), "update": lambda x: learner.update(x, y)}.items():
            with Raises(error, f"{name} of {what}"):
                call(bad)
    bad_rows = subject.X[:5].copy()
    bad_rows[3, 0] = np.nan
    for error, X, truths, what in [
        (NonFiniteError, bad_rows, subject.y[:5], "a row with nan"),
        (ShapeError, subject.X[:5], subject.y[:4], "5 rows with 4 truths"),
        (ShapeError, subject.X[:5, :-1], subject.y[:5], "rows that are too short"),
    ]:
        with Raises(error, f"run of {what}"):
            learner.run(X, truths)
    for error, bad in _bad_truths(learner):
        with Raises(error, f"update with the truth {bad}"):
            learner.update(x, bad)
        with Raises(error, f"run with the truth {bad}"):
            learner.run(subject.X[:2], np.array([y, bad]))
    same_arrays(before, learner.state(), "a refused input changed the state")


def _bad_inputs(x: F64) -> Iterator[tuple[type[InputError], F64, str]]:
    yield ShapeError, x[:-1], "an input that is too short"
    yield ShapeError, np.append(x, 0.0), "an input that is too long"
    yield ShapeError, x[None, :], "an input with two axes"
    for value in (np.nan, np.inf, -np.inf):
        bad = x.copy()
        bad[-1] = value
        yield NonFiniteError, bad, f"an input with {value}"


def _bad_truths(learner: OnlineLearner) -> Iterator[tuple[type[InputError], float]]:
    if learner.target == "binary":
        yield from ((LabelError, bad) for bad in (0.0, 0.5, 2.0, math.nan, math.inf))
        return
    _, algorithm, config = parse_spec(learner.spec)
    low, high = algorithm.truth_range(config)
    if learner.target == "class":
        yield from ((LabelError, bad) for bad in (low - 1.0, low + 0.5, high + 1.0, math.nan, math.inf, -math.inf))
        return
    yield from ((NonFiniteError, bad) for bad in (math.nan, math.inf, -math.inf))
    if (low, high) != REALS:
        beyond = 0.001 * (high - low)
        yield from ((LabelError, bad) for bad in (low - beyond, high + beyond))


@_clause
def check_state_arrays(subject: Subject) -> None:
    """The state at rest is C-contiguous float64, and counts its rounds."""
    for stop in (0, 1, subject.half):
        for name, array in (arrays := subject.after(stop).state()).items():
            require(isinstance(array, np.ndarray), f"{name!r} is a {type(array).__name__}, not an array")
            require(array.dtype == np.float64, f"{name!r} is {array.dtype}, not float64")
            require(array.flags.c_contiguous, f"{name!r} is not C-contiguous")
        require(arrays["t"] == stop, f"after {stop} rounds the state counts {arrays['t']}")


@_clause
def check_state_bytes(subject: Subject) -> None:
    """The state goes through bytes without loss, and damaged bytes are refused."""
    arrays = subject.after(subject.half).state()
    meta = {"spec": subject.spec.model_dump(mode="json"), "dim": subject.dim}
    blob = to_bytes(arrays, meta)
    again, read = from_bytes(blob)
    same_arrays(arrays, again, "the state read back from its bytes")
    require(meta.items() <= read.items(), f"the metadata {meta} was read back as {read}")
    restore(subject.spec, again, subject.dim)
    for position in np.linspace(0, len(blob) - 1, 50).astype(int):
        damaged = bytearray(blob)
        damaged[position] ^= 0x10
        with Raises(StateFormatError, f"a state with a flipped bit in byte {position}"):
            from_bytes(bytes(damaged))
    with Raises(StateFormatError, "a state that was cut off"):
        from_bytes(blob[: len(blob) // 2])
    for name in arrays:
        with Raises(StateFormatError, f"a state without {name!r}"):
            restore(subject.spec, {key: array for key, array in arrays.items() if key != name}, subject.dim)


@_clause
def check_extreme_inputs(subject: Subject) -> None:
    """Forecasts stay finite for inputs that are huge, tiny, repeated, or far from all that came before."""
    streams = {
        "huge": 1e8 * subject.X,
        "tiny": 1e-150 * subject.X,
        "repeated": np.repeat(subject.X[:1], len(subject.y), axis=0),
        "first": np.where(np.arange(len(subject.y))[:, None] == 0, 1e8, 1.0) * subject.X,
        "far": np.where(np.arange(len(subject.y))[:, None] % 7 == 6, 1e8, 1.0) * subject.X,
    }
    for what, X in streams.items():
        learner = subject.create()
        for t, (x, y) in enumerate(zip(X, subject.y.tolist(), strict=True)):
            info = learner.update(x, y)
            is_finite = math.isfinite(info.forecast.value) and math.isfinite(info.loss)
            require(is_finite, f"{what} inputs, round {t + 1}: {info}")
            probability, many = info.forecast.probability, info.forecast.probabilities
            require(probability is None or 0.0 <= probability <= 1.0, f"{what} inputs, round {t + 1}: {info}")
            is_distribution = many is None or (min(many) >= 0.0 and abs(sum(many) - 1.0) <= TOLERANCE)
            require(is_distribution, f"{what} inputs, round {t + 1}: the probabilities are no distribution: {many}")
        for name, array in learner.state().items():
            require(bool(np.isfinite(array).all()), f"{what} inputs: {name!r} of the state is not finite any more")


def _shorten(sizes: list[int]) -> str:
    return "1" if set(sizes) == {1} else ", ".join(map(str, sizes))
