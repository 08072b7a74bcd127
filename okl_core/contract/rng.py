r"""Randomness that depends only on (seed, stream, round), and a record of every choice.

Draws come from Philox, a counter-based generator: the key is a hash of the seed and the stream's name, the counter is
the round. Only raw 64-bit words are used, u = (word >> 11) 2^-53, because NumPy keeps a bit generator's words stable
across versions, but not the streams of its distributions.

A *choice* is an outcome on which the rest of a run depends discontinuously: a coin, a threshold test, an arg max. Choices
are recorded, and a replay takes the recorded outcome, since BLAS results differ in the last bit between processors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import ReplayDivergence
from okl_core.types import F64

WORDS = 2**18
"""Words drawn at once. A learner may want millions, and their temporaries would take several times as much memory."""


class RoundRng:
    """The random draws and choices of one learner.

    `begin` starts a recording, or the replay of one, and `finish` ends it. In between, `at` sets the round of the next
    draws, and `choices` returns the choices of that round.

    Examples
    --------
    >>> rng = RoundRng(seed=7)
    >>> rng.begin(); rng.at(3)
    >>> first = rng.uniform(2)
    >>> rng.at(3)
    >>> bool((rng.uniform(2) == first).all())
    True
    """

    __slots__ = (
        "_bits", "_drawn", "_first", "_forks", "_name", "_position", "_record", "_replay", "_rounds", "_seeded", "_start",
        "_t",
    )  # fmt: skip

    def __init__(self, seed: int, stream: str = "") -> None:
        self._name = seed, stream
        self._forks: dict[str, RoundRng] = {}
        digest = hashlib.blake2b(f"{seed}:{stream}".encode(), digest_size=16).digest()
        self._bits = np.random.Philox(counter=0, key=np.frombuffer(digest, dtype=np.uint64))
        self._seeded = self._bits.state
        self._t = 0
        self._first = 0
        self._drawn = 0
        self._start = 0
        self._record: list[int] = []
        self._rounds: list[int] = []
        """The round of each choice of the record."""
        self._replay: list[int] | None = None
        self._position = 0

    def begin(self, replay: bytes | None = None, t: int = 0) -> None:
        """Start a record of choices at round t; with `replay`, take its outcomes instead of deciding."""
        self._begin(None if replay is None else decode_choices(replay), t)

    def _begin(self, replay: list[int] | None, t: int) -> None:
        self._record, self._rounds = [], []
        self._replay = replay
        self._position = 0
        self._t = t
        self._drawn = 0
        self._start = 0

    def begin_forks(self, parts: Mapping[str, int], first: int, rounds: int) -> list[RoundRng]:
        """A generator for each part of a learner, with a separate record, for `rounds` rounds from `first` on.

        `parts` maps each name to the number that the part gives the first round; a part that skips rounds counts fewer. The
        draws depend on the seed, the name and the part's round. `end_forks` merges their choices into this record.
        """
        replays: list[list[int]] | None = None
        if self._replay is not None:
            replays = [[] for _ in parts]
            for t in range(first, first + rounds):
                self._t = t
                for replay in replays:
                    replay += [self.pick(0) for _ in range(self.pick(0))]
        forks = []
        for i, (name, own_first) in enumerate(parts.items()):
            if name not in self._forks:
                seed, stream = self._name
                self._forks[name] = RoundRng(seed, f"{stream}/{name}")
            fork = self._forks[name]
            fork._begin(None if replays is None else replays[i], own_first)
            fork._first = own_first
            forks.append(fork)
        return forks

    def end_forks(self, forks: Sequence[RoundRng], first: int, rounds: int) -> None:
        """Merge the choices of the parts into this record by round, then by part, each list preceded by its length.

        Raises ReplayDivergence if a part has not used up its replay.
        """
        for fork in forks:
            fork.verify()
        if self._replay is not None:
            # On replay, `begin_forks` recorded the choices as it read them.
            return
        positions = [0] * len(forks)
        for t in range(first, first + rounds):
            self._t = t
            for i, fork in enumerate(forks):
                start = stop = positions[i]
                while stop < len(fork._rounds) and fork._rounds[stop] - fork._first <= t - first:
                    stop += 1
                self._record.append(stop - start)
                self._record += fork._record[start:stop]
                positions[i] = stop
            self._rounds += [t] * (len(self._record) - len(self._rounds))

    def at(self, t: int) -> None:
        """Set the round of the following draws to t."""
        self._t = t
        self._drawn = 0
        self._start = len(self._record)

    def choices(self) -> bytes:
        """The choices made since `at`: those of one round."""
        return encode_choices(self._record[self._start :])

    def verify(self) -> None:
        """Raises ReplayDivergence if a replay was not used up."""
        if self._replay is not None and self._position != len(self._replay):
            raise ReplayDivergence(
                f"round {self._t}: {len(self._replay)} choices were recorded, the replay made {self._position}"
            )

    def finish(self) -> bytes:
        """The choices made since `begin`: those of a block. Raises ReplayDivergence if a replay was not used up."""
        self.verify()
        return encode_choices(self._record)

    def uniform(self, n: int) -> F64:
        """n uniforms in [0, 1), shape (n,); each call within a round continues the round's stream."""
        words = self._words(min(n, WORDS))
        if n <= WORDS:
            return np.asarray(words >> 11, dtype=np.float64) * 2.0**-53
        u = np.empty(n)
        for start in range(0, n, WORDS):
            if start:
                # The generator continues its stream.
                words = self._bits.random_raw(min(n - start, WORDS))
            np.multiply(words >> 11, 2.0**-53, out=u[start : start + WORDS])
        return u

    def uniforms(self, n: int) -> list[float]:
        """`uniform` as a list of Python floats, which is faster for a few."""
        return [(word >> 11) * 2.0**-53 for word in self._words(n).tolist()]

    def _words(self, n: int) -> NDArray[np.uint64]:
        # Setting the counter takes a fifth of the time of creating a generator.
        self._seeded["state"]["counter"][2:] = self._drawn, self._t
        self._bits.state = self._seeded
        self._drawn += 1
        return self._bits.random_raw(n)

    def bernoulli(self, p: float) -> bool:
        """Toss a coin with probability p and record it. Consumes one uniform for every p."""
        return self.decide(self.uniforms(1)[0] < p)

    def decide(self, outcome: bool) -> bool:
        """Record the outcome of a threshold test."""
        if self._replay is not None:
            return bool(self.pick(int(outcome)))
        # `pick` inlined, since nearly every round has a test.
        self._record.append(1 if outcome else 0)
        self._rounds.append(self._t)
        return bool(outcome)

    def pick(self, outcome: int) -> int:
        """Record the outcome of a choice among indices, outcome >= 0."""
        if self._replay is not None:
            if self._position >= len(self._replay):
                raise ReplayDivergence(f"round {self._t}: the replay makes more choices than were recorded")
            outcome = self._replay[self._position]
            self._position += 1
        self._record.append(outcome)
        self._rounds.append(self._t)
        return outcome


def encode_choices(choices: list[int]) -> bytes:
    """The choices in little-endian base 128, where a high bit marks a continuation: one byte per choice below 128."""
    if not choices or max(choices) < 128:
        return bytes(choices)
    out = bytearray()
    for choice in choices:
        while choice >= 128:
            out.append(choice & 127 | 128)
            choice >>= 7
        out.append(choice)
    return bytes(out)


def decode_choices(data: bytes) -> list[int]:
    choices: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        if byte & 128:
            shift += 7
        else:
            choices.append(value)
            value = shift = 0
    return choices
