"""Coins that depend on (seed, stream, round) only, and a record of choices that replays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.contract.rng import RoundRng, decode_choices, encode_choices
from okl_core.errors import ReplayDivergence

choice_lists = st.lists(st.one_of(st.integers(0, 1), st.integers(0, 127), st.integers(0, 2**40)))


GOLDEN = [
    [0.39005665839919323, 0.13894692063982406, 0.4489826586695256, 0.9376537970262906],
    [0.07225639846331411, 0.6362879021029627, 0.10667049352337843, 0.47403933279143506],
]


def coins(rng: RoundRng, t: int, n: int = 4) -> list[float]:
    rng.at(t)
    return rng.uniform(n).tolist()


def test_draws_are_golden() -> None:
    # Fixed for ever: journals of randomised learners replay with these.
    assert coins(RoundRng(0), 1) == GOLDEN[0]
    assert coins(RoundRng(7, "sketch"), 1000) == GOLDEN[1]


@given(seed=st.integers(0, 2**63 - 1), t=st.integers(1, 2**50))
def test_draws_depend_on_seed_stream_and_round_only(seed: int, t: int) -> None:
    rng, other = RoundRng(seed, "a"), RoundRng(seed, "a")
    expected = coins(rng, t)
    coins(other, t + 1, 100)
    assert coins(other, t) == expected
    assert coins(rng, t) == expected
    assert coins(rng, t + 1) != expected
    assert coins(RoundRng(seed, "b"), t) != expected
    assert coins(RoundRng(seed ^ 1, "a"), t) != expected


def test_calls_within_a_round_continue_it() -> None:
    rng = RoundRng(3)
    rng.at(1)
    first, second = rng.uniform(4), rng.uniform(4)
    assert not np.array_equal(first, second)
    assert rng.uniform(0).shape == (0,)


@given(seed=st.integers(0, 2**63 - 1), n=st.integers(0, 9))
def test_a_few_draws_are_the_same_as_python_numbers(seed: int, n: int) -> None:
    rng, other = RoundRng(seed), RoundRng(seed)
    rng.at(5)
    other.at(5)
    for _ in range(2):
        assert rng.uniforms(n) == other.uniform(n).tolist()


def test_draws_are_uniform() -> None:
    rng = RoundRng(11)
    rng.at(1)
    within = rng.uniform(100_000)
    across = np.array([coins(rng, t, 1)[0] for t in range(1, 5001)])
    for draws in (within, across):
        assert 0.0 <= draws.min() < draws.max() < 1.0
        counts, _ = np.histogram(draws, bins=10, range=(0.0, 1.0))
        expected = len(draws) / 10
        # chi-squared with 9 degrees of freedom exceeds 33.7 once in ten thousand.
        assert ((counts - expected) ** 2 / expected).sum() < 33.7
    assert abs(np.corrcoef(across[:-1], across[1:])[0, 1]) < 0.06


def test_a_coin_uses_one_draw_whatever_its_probability() -> None:
    def after_a_coin(p: float) -> float:
        rng = RoundRng(5)
        rng.begin()
        rng.at(1)
        assert rng.bernoulli(p) is (p == 1.0)
        return float(rng.uniform(1)[0])

    assert after_a_coin(0.0) == after_a_coin(1.0)


@given(choices=choice_lists)
def test_choices_go_through_bytes(choices: list[int]) -> None:
    assert decode_choices(encode_choices(choices)) == choices


@given(first=choice_lists, second=choice_lists)
def test_encoded_choices_can_be_joined(first: list[int], second: list[int]) -> None:
    assert decode_choices(encode_choices(first) + encode_choices(second)) == first + second


def test_small_choices_take_a_byte() -> None:
    assert encode_choices([0, 1, 127]) == b"\x00\x01\x7f"
    assert encode_choices([128]) == b"\x80\x01"


def test_a_replay_takes_the_recorded_outcomes() -> None:
    rng = RoundRng(0)
    rng.begin()
    rng.at(1)
    made = [rng.decide(True), rng.decide(False), rng.pick(300)]
    choices = rng.choices()
    assert rng.finish() == choices
    rng.begin(choices)
    rng.at(1)
    assert [rng.decide(False), rng.decide(True), rng.pick(0)] == made
    assert rng.finish() == choices


def test_rounds_of_a_block_have_their_own_choices() -> None:
    rng = RoundRng(0)
    rng.begin()
    rounds = []
    for t, outcome in enumerate([3, 200, 5], start=1):
        rng.at(t)
        rng.pick(outcome)
        rounds.append(rng.choices())
    assert rounds == [b"\x03", b"\xc8\x01", b"\x05"]
    assert rng.finish() == b"".join(rounds)


def test_a_replay_that_makes_another_number_of_choices_diverges() -> None:
    rng = RoundRng(0)
    rng.begin(b"\x01")
    rng.at(9)
    rng.decide(True)
    with pytest.raises(ReplayDivergence, match=r"round 9.*more choices"):
        rng.decide(True)
    rng.begin(b"\x01\x00")
    rng.at(9)
    rng.decide(True)
    with pytest.raises(ReplayDivergence, match=r"round 9: 2 choices were recorded, the replay made 1"):
        rng.finish()
