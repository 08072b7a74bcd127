r"""Randomness that depends on (seed, stream, round) only, and a record of every choice.

Draws come from Philox, a counter-based generator: the key is a hash of the seed and the stream's name, the counter is
the round. Only raw 64-bit words are used, u = (word >> 11) 2^-53, because numpy keeps a bit generator's words stable
across versions, but not the streams of its distributions.

A *choice* is an outcome on which the rest of a run depends discontinuously: a coin, a threshold test, an arg max. It is
recorded, and on replay the recorded outcome is taken, since BLAS differs in the last bit between processors.
"""

from __future__ import annotations

import hashlib

import numpy as np

from okl_core.errors import ReplayDivergence
from okl_core.types import F64


class RoundRng:
    """The coins and choices of one learner.

    `begin` starts a recording (or a replay of one) and `finish` ends it; in between `at` names the round whose coins
    come next, and `choices` are those of that round.

    Examples
    --------
    >>> rng = RoundRng(seed=7)
    >>> rng.begin(); rng.at(3)
    >>> first = rng.uniform(2)
    >>> rng.at(3)
    >>> bool((rng.uniform(2) == first).all())
    True
    """

    __slots__ = ("_drawn", "_key", "_position", "_record", "_replay", "_start", "_t")

    def __init__(self, seed: int, stream: str = "") -> None:
        digest = hashlib.blake2b(f"{seed}:{stream}".encode(), digest_size=16).digest()
        self._key = np.frombuffer(digest, dtype=np.uint64)
        self._t = 0
        self._drawn = 0
        self._start = 0
        self._record: list[int] = []
        self._replay: list[int] | None = None
        self._position = 0

    def begin(self, replay: bytes | None = None) -> None:
        """Start a record of choices; with `replay`, take its outcomes instead of deciding."""
        self._record = []
        self._start = 0
        self._replay = None if replay is None else decode_choices(replay)
        self._position = 0

    def at(self, t: int) -> None:
        """The draws that follow belong to round t."""
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
        bits = np.random.Philox(counter=[0, 0, self._drawn, self._t], key=self._key)
        self._drawn += 1
        return np.asarray(bits.random_raw(n) >> 11, dtype=np.float64) * 2.0**-53

    def bernoulli(self, p: float) -> bool:
        """A coin with probability p, recorded. One uniform is consumed whatever p is."""
        return self.decide(bool(self.uniform(1)[0] < p))

    def decide(self, outcome: bool) -> bool:
        """Record the outcome of a threshold test."""
        return bool(self.pick(int(outcome)))

    def pick(self, outcome: int) -> int:
        """Record the outcome of a choice among indices, outcome >= 0."""
        if self._replay is not None:
            if self._position >= len(self._replay):
                raise ReplayDivergence(f"round {self._t}: the replay makes more choices than were recorded")
            outcome = self._replay[self._position]
            self._position += 1
        self._record.append(outcome)
        return outcome


def encode_choices(choices: list[int]) -> bytes:
    """Little-endian base-128, the high bit says that more follows: one byte a choice below 128."""
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
