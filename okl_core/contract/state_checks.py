"""Checks of a learner's state: it is complete and unshared, and can be copied, stored and replayed."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np

from okl_core.contract.agreement import Raises, clause, require, same_arrays, same_rounds
from okl_core.contract.facade import OnlineLearner, restore
from okl_core.contract.state import from_bytes, to_bytes
from okl_core.contract.subject import Subject
from okl_core.errors import ReplayDivergence, StateFormatError

SOME = 10
"""Most rounds that a copy and its original play; `check_state_is_everything` shows that a state, which both have, is all."""


@clause
def check_state_is_everything(subject: Subject) -> None:
    """A learner restored from `state()` continues bit for bit; arrays are copied both ways."""
    played, states, given = subject.recording
    for stop in subject.stops:
        kept, arrays = states[stop], given[stop]
        same_arrays(kept, arrays, "a learner writes into arrays that it gave away")
        restored = restore(subject.spec, arrays)
        same_arrays(kept, restored.state(), f"restored at round {stop}")
        until = subject.half if stop < subject.half else len(subject.y)
        for x, y in subject.rounds(stop, until):
            expected, actual = played[restored.t], restored.play(x, y)
            same_rounds(expected, actual, f"round {expected.t}: original and restored at round {stop}")
            restored.learn(actual)
        same_arrays(states[until], restored.state(), f"the rounds after it was restored at round {stop}")
        same_arrays(kept, arrays, "a learner writes into arrays that it was restored from")


@clause
def check_copies(subject: Subject) -> None:
    """Copies and pickles continue bit for bit like the original, and learning in one does not affect the others."""
    learner = subject.create()
    for stop, following in itertools.pairwise((*subject.stops, len(subject.y))):
        for x, y in subject.rounds(learner.t, stop):
            learner.update(x, y)
        before = learner.state()
        copied, further = learner.copy(), copy.copy(learner)
        pickled: OnlineLearner = pickle.loads(pickle.dumps(learner))
        same_arrays(before, copied.state(), f"copied at round {stop}")
        same_arrays(before, pickled.state(), f"pickled at round {stop}")
        for x, y in subject.rounds(stop, stop + SOME):  # also at a stop with another right after it
            further.update(x, y)
        further.run(subject.X[:SOME], subject.y[:SOME])
        for one, whose in ((learner, "the original"), (copied, "another copy")):
            same_arrays(before, one.state(), f"what a copy learns from round {stop} on changes {whose}")
        for x, y in subject.rounds(stop, min(stop + SOME, following)):
            expected, actual = learner.play(x, y), copied.play(x, y)
            same_rounds(expected, actual, f"round {expected.t}: the original and a copy of round {stop}")
            restored = pickled.play(x, y)
            same_rounds(expected, restored, f"round {expected.t}: the original and a pickle of round {stop}")
            learner.learn(expected)
            copied.learn(actual)
            pickled.learn(restored)
        same_arrays(learner.state(), copied.state(), f"the rounds after it was copied at round {stop}")
        same_arrays(learner.state(), pickled.state(), f"the rounds after it was pickled at round {stop}")


@clause
def check_replay(subject: Subject) -> None:
    """A recorded stream replays to the same state; a tampered value or choice is refused and changes nothing."""
    replayed = subject.create()
    for t, (x, y) in enumerate(subject.rounds()):
        played = subject.recording.played[t]
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
    same_arrays(subject.end, replayed.state(), "the replayed stream leads to another state")


@clause
def check_inputs_are_copied(subject: Subject) -> None:
    """A caller may reuse its arrays: nothing writes into them, and the state does not refer to them."""
    learner, buffer = subject.create(), np.empty(subject.dim)
    for x, y in subject.rounds():
        buffer[:] = x
        learner.update(buffer, y)
        buffer[:] = np.pi
    same_arrays(subject.end, learner.state(), "the state refers to an input of the caller")
    X = subject.X.copy()
    learner = subject.create()
    learner.run(X, subject.y)
    require(np.array_equal(X, subject.X), "run writes into the block of the caller")
    before = learner.state()
    X[:] = np.pi
    same_arrays(before, learner.state(), "the state refers to a block of the caller")


@clause
def check_state_arrays(subject: Subject) -> None:
    """The arrays of a state are C-contiguous, float64 or float32, and its `t` counts the rounds."""
    for stop, arrays in subject.recording.given.items():
        for name, array in arrays.items():
            require(isinstance(array, np.ndarray), f"{name!r} is a {type(array).__name__}, not an array")
            require(array.dtype in (np.float64, np.float32), f"{name!r} is {array.dtype}, not float64 or float32")
            require(array.flags.c_contiguous, f"{name!r} is not C-contiguous")
        require(arrays["t"] == stop, f"after {stop} rounds the state counts {arrays['t']}")


@clause
def check_state_bytes(subject: Subject) -> None:
    """The state survives conversion to bytes and back without loss, and damaged bytes are refused."""
    arrays = subject.recording.states[subject.half]
    meta = {"spec": subject.spec.model_dump(mode="json"), "dim": subject.dim}
    blob = to_bytes(arrays, meta)
    again, read = from_bytes(blob)
    same_arrays(arrays, again, "the state read back from its bytes")
    require(meta.items() <= read.items(), f"the metadata {meta} was read back as {read}")
    restore(subject.spec, again, subject.dim)
    with Raises(StateFormatError, "a state of another dimension than was asked for"):
        restore(subject.spec, again, subject.dim + 1)
    for position in np.linspace(0, len(blob) - 1, 50).astype(int):
        damaged = bytearray(blob)
        damaged[position] ^= 0x10
        with Raises(StateFormatError, f"a state with a flipped bit in byte {position}"):
            from_bytes(bytes(damaged))
    with Raises(StateFormatError, "a state that was cut off"):
        from_bytes(blob[: len(blob) // 2])
    for name in arrays:
        with Raises(StateFormatError, f"a state without {name!r}"):
            restore(subject.spec, {key: array for key, array in arrays.items() if key != name})
