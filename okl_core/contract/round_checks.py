"""Checks of a learner's rounds: what `predict` and `play` may read and change, and equivalent ways to run rounds."""

from __future__ import annotations

import itertools

import numpy as np

from okl_core.contract.agreement import (
    Raises,
    clause,
    close,
    close_arrays,
    close_states,
    require,
    same_arrays,
    same_rounds,
)
from okl_core.contract.facade import create, restore
from okl_core.contract.learner import get_learner, parse_spec
from okl_core.contract.probabilities import given_probabilities
from okl_core.contract.state import DIM, LAGS
from okl_core.contract.subject import Subject
from okl_core.errors import ConfigError
from okl_core.types import REALS, Interval, Target

LOOKED_AT = 5
"""Of this many rounds, one whose state is compared before and after: a change that lasts would show in the last state."""


@clause
def check_predict_is_pure(subject: Subject) -> None:
    """`predict` changes neither the state nor later rounds."""
    learner = subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        before = learner.state() if t % LOOKED_AT == 0 else None
        first, second = learner.predict(x), learner.predict(x)
        require(first == second, f"round {t + 1}: two predictions in a row differ: {first}, {second}")
        if before is not None:
            same_arrays(before, learner.state(), f"round {t + 1}: predict changed the state")
        learner.update(x, y)
    same_arrays(subject.end, learner.state(), "predictions between the rounds changed the run")


@clause
def check_play_is_pure(subject: Subject) -> None:
    """`play` changes nothing and is repeatable, and a played round that is dropped leaves no trace."""
    learner, alone = subject.create(), subject.recording.played
    for t, (x, y) in enumerate(subject.rounds()):
        before = learner.state() if t % LOOKED_AT == 0 else None
        # Drop another input, or this one. Use an earlier truth or the next one: a class that skips a number is invalid.
        dropped = learner.play(x if t % 2 else subject.X[-1 - t], float(subject.y[t // 2]))
        require(dropped.t == t + 1, f"the round after {t} was played as round {dropped.t}")
        played = learner.play(x, y)
        same_rounds(alone[t], played, f"round {t + 1}: played alone, and after one that was dropped")
        if before is not None:
            same_arrays(before, learner.state(), f"round {t + 1}: play changed the state")
        learner.learn(played)
    same_arrays(subject.end, learner.state(), "rounds that were played and dropped changed the run")


@clause
def check_forecast_is_blind(subject: Subject) -> None:
    """The forecast of `play` is that of `predict`: the truth has no influence on it."""
    learner = subject.create()
    _, algorithm, config = parse_spec(subject.spec)
    target, truths = algorithm.target(config), algorithm.truth_range(config)
    for t, (x, y) in enumerate(subject.rounds()):
        forecast = learner.predict(x)
        # For classes, use one already seen: if the number of classes grows, no other is valid yet.
        known = (truths[0], subject.y[: t + 1].max()) if target == "class" else truths
        other, true = learner.play(x, _another_truth(target, known, y)), learner.play(x, y)
        for played in (other, true):
            value, where = played.forecast.value, f"round {t + 1}: probabilities of predict and play"
            close(forecast.value, value, f"round {t + 1}: predict and play with the truth {played.y}")
            close(forecast.probability, played.forecast.probability, where)
            close_arrays(forecast.probabilities or (), np.array(played.forecast.probabilities or ()), where)
        learner.learn(true)


@clause
def check_probabilities(subject: Subject) -> None:
    """Forecasts have probabilities if `gives_probabilities` says so, and those that `probability` reads from their values."""
    learner = subject.create()
    _, algorithm, config = parse_spec(subject.spec)
    has_classes, gives = algorithm.target(config) == "class", algorithm.gives_probabilities(config)
    for t, (x, y) in enumerate(subject.rounds()):
        forecast = learner.predict(x)
        given = forecast.probabilities if has_classes else forecast.probability
        require((given is not None) == gives, f"round {t + 1}: {forecast}, while gives_probabilities is {gives}")
        read = None if has_classes else algorithm.probability(config, forecast.value)
        if read is not None:
            close(read, forecast.probability, f"round {t + 1}: the probability of a forecast, and of its value")
        learner.update(x, y)


def _another_truth(target: Target, truths: Interval, y: float) -> float:
    low, high = truths
    if target == "class":
        return (y + 1.0) % (high + 1.0)
    # Mirror y in the range of the truths.
    return -y if truths == REALS else min(max(low + high - y, low), high)


@clause
def check_update_is_play_and_learn(subject: Subject) -> None:
    """`update` equals `play` followed by `learn`, and counts one round."""
    learner, played = subject.create(), subject.recording.played
    for t, (x, y) in enumerate(subject.rounds()):
        info, expected = learner.update(x, y), played[t][:3]
        require(info == expected, f"round {t + 1}: update gives {info}, play {expected}")
        require(learner.t == t + 1, f"after {t + 1} rounds the learner counts {learner.t}")
    same_arrays(learner.state(), subject.end, "update and play with learn lead to different states")


@clause
def check_run_equals_updates(subject: Subject) -> None:
    """`run` equals single updates however the stream is split, and replays recorded choices."""
    n, played = len(subject.y), subject.recording.played
    cut = {
        "in one block": [n],
        "in blocks of 0, 1, 2, 7 rounds, a long one, and single rounds": [0, 1, 2, 7, n - 10 - n // 4, *[1] * (n // 4)],
    }
    for how, sizes in cut.items():
        learner = subject.create()
        cuts = list(itertools.accumulate(sizes, initial=0))
        for start, stop in itertools.pairwise(cuts):
            block = learner.run(subject.X[start:stop], subject.y[start:stop])
            where = f"rounds {start + 1} to {stop} of a run {how}"
            require(block.t == stop, f"{where}: the block counts {block.t}")
            expected = played[start:stop]
            close_arrays([r.forecast.value for r in expected], block.values, f"{where}: values")
            close_arrays([r.loss for r in expected], block.losses, f"{where}: losses")
            require(block.choices == b"".join(r.choices for r in expected), f"{where}: other choices than one by one")
            # A class first seen in the block's last round has a column in the block, but no forecast yet.
            columns = (
                0 if block.probabilities is None or block.probabilities.ndim == 1 else block.probabilities.shape[1]
            )
            probabilities = given_probabilities([r.forecast for r in expected], columns)
            if expected:
                is_alike = (probabilities is None) == (block.probabilities is None)
                require(is_alike, f"{where}: rounds one by one give probabilities, or the block does, but not both")
            if expected and block.probabilities is not None:
                close_arrays(probabilities, block.probabilities, f"{where}: probabilities")
        close_states(subject.end, learner.state(), f"a run {how}")
    replayed = subject.create()
    for part in (slice(0, n // 3), slice(n // 3, n)):
        replayed.run(subject.X[part], subject.y[part], choices=b"".join(r.choices for r in played[part]))
    close_states(subject.end, replayed.state(), "a run that replays recorded choices")


@clause
def check_same_seed_same_run(subject: Subject) -> None:
    """Two learners of one spec behave alike: the seed is the only randomness, and learners share nothing."""
    first, second = subject.recording.states[subject.half], subject.after(subject.half)
    same_arrays(first, second.state(), "two runs of one spec differ")


@clause
def check_lags(subject: Subject) -> None:
    """A learner with `lags` equals one with that many more inputs, to which the previous truths are passed.

    Lags are refused for a learner of classes, and for one with a single input.
    """
    if subject.create().target == "class" or get_learner(subject.spec.kind).dims == 1:
        with Raises(ConfigError, "lags that are classes, or beside the only input"):
            parse_spec(subject.spec.model_copy(update={"lags": 1}))
        return
    # Keep the total number of inputs, since the config may be made for it.
    k = max(1, min(2, subject.dim - 1))
    dim = max(1, subject.dim - k)
    spec, X = subject.spec.model_copy(update={"lags": k}), subject.X[:, :dim]
    lagged, by_hand = create(spec, dim), create(subject.spec, dim + k)
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
    same_arrays(by_hand.state() | {DIM: np.array(float(dim)), LAGS: np.array(past)}, state, "the state with lags")
    same_arrays(state, restore(spec, state, dim).state(), "the state with lags, restored")
    blocked = create(spec, dim)
    for block in (slice(0, subject.half), slice(subject.half, None)):
        blocked.run(X[block], subject.y[block], choices=b"".join(choices[block]))
    close_states(state, blocked.state(), "a run in two blocks with lags")
