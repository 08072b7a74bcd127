"""How far a replay on other arithmetic may be: not at all where nothing magnifies rounding, and never beyond the cap."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, ReservoirLearner, create, freeze, learner_kinds, restore
from okl_core.contract.facade import LARGEST_TOLERANCE, REPLAY_TOLERANCE, replay_tolerance
from okl_core.contract.learner import get_learner
from okl_core.contract.subject import make_subject
from okl_core.errors import DivergedError, UnstableWarning
from okl_core.types import F64


def test_the_tolerance_grows_with_the_conditioning_up_to_a_cap() -> None:
    assert replay_tolerance(1.0) == REPLAY_TOLERANCE
    assert REPLAY_TOLERANCE < replay_tolerance(1e8) < replay_tolerance(1e9) < LARGEST_TOLERANCE
    assert replay_tolerance(np.inf) == replay_tolerance(1e300) == LARGEST_TOLERANCE


@pytest.mark.parametrize("kind", learner_kinds())
def test_learners_as_they_come_are_well_conditioned(kind: str) -> None:
    subject = make_subject(kind, rounds=300)
    learner = subject.create()
    assert learner.conditioning == pytest.approx(1.0, abs=1.0)
    learner.run(subject.X, subject.y)
    before = learner.state()
    assert learner.conditioning >= 1.0
    assert replay_tolerance(learner.conditioning) <= 2e-7
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


def after(kind: str, alpha: float, rounds: int = 200) -> OnlineLearner:
    subject = make_subject(kind, {"regularization": alpha}, rounds=rounds)
    learner = subject.create()
    learner.run(subject.X, subject.y)
    return learner


@pytest.mark.parametrize(
    "kind", ["kons", "sketched-kons", "kernel-ridge", "kernel-aar", "pros-n-kons", "nystrom-ridge", "ons"]
)
def test_it_grows_as_the_regularization_falls(kind: str) -> None:
    found = [after(kind, alpha).conditioning for alpha in (1.0, 1e-2, 1e-4)]
    assert found == sorted(found)
    # The root of A is as well conditioned as the root of it.
    assert found[-1] > (10.0 if kind == "ons" else 100.0) * found[0]


def test_the_condition_of_the_engine_bounds_that_of_its_matrix() -> None:
    learner = after("kernel-ridge", 1e-3)
    subject = make_subject("kernel-ridge", {"regularization": 1e-3}, rounds=200)
    K = np.exp(-0.5 * np.square(subject.X[:, None] - subject.X).sum(axis=-1))
    assert np.linalg.cond(K + 1e-3 * np.eye(len(K))) <= learner.conditioning


def test_that_of_a_root_is_the_root_of_the_condition() -> None:
    subject = make_subject("ons", {"loss": "squared", "step": 0.5, "intercept": False}, rounds=200)
    learner = subject.create()
    learner.run(subject.X, subject.y)
    S, u = learner.state()["space.posterior.S"], learner.state()["space.posterior.u"]
    A = np.linalg.inv(S @ S.T)
    assert learner.conditioning == pytest.approx(np.sqrt(np.linalg.cond(A)) + np.linalg.norm(u))


def test_the_other_facades_say_the_same() -> None:
    learner = after("kons", 0.1)
    reservoir = ReservoirLearner(create(learner.spec, learner.dim))
    subject = make_subject("kons", {"regularization": 0.1}, rounds=200)
    reservoir.run(subject.X, subject.y)
    assert reservoir.conditioning == pytest.approx(learner.conditioning)
    assert freeze(reservoir).conditioning == reservoir.conditioning


CLOSE = {"kind": "ald", "threshold": 1e-3}


@pytest.mark.parametrize(
    ("kind", "config", "seed"),
    [
        ("pomdr", {"ald_exponent": 1.0, "ald_factor": 1.0, "horizon": 1_000_000}, 23),
        ("pomdr", {"ald_threshold": 0.0, "pomd_budget": 150}, 23),
        ("pomdr", {"ald_threshold": 0.0, "pomd_budget": 12, "budget": 30}, 2),
        ("nons-ald", {"threshold": 1e-3, "step": "shipped", "regularization": 0.01}, 16),
        ("nystrom-ridge", {"dictionary": CLOSE}, 29),
        ("pros-n-kons", {"dictionary": CLOSE, "regularization": 1e-3}, 27),
        ("nogd", {"budget": 50, "rank": 40}, 33),
    ],
)
def test_points_near_the_span_of_others_are_allowed_for(kind: str, config: dict[str, Any], seed: int) -> None:
    """Kernel values rounded in another way, as from inputs in the next number, are magnified by all of L^{-1}."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(200, 1)), np.where(rng.random(200) < 0.5, 1.0, -1.0)
    learner, twin = (create({"kind": kind, "config": config}, 1) for _ in range(2))
    for x, truth in zip(X, y.tolist(), strict=True):
        played = learner.play(x, truth)
        again = twin.play(np.nextafter(x, np.inf), truth, choices=played.choices)
        learner.learn(played)
        twin.learn(again)
        value = played.forecast.value
        assert abs(again.forecast.value - value) <= replay_tolerance(learner.conditioning) * max(1.0, abs(value))


KERNELS: dict[str, Any] = {kind: {"kernel": {"kind": kind}} for kind in ("gaussian", "matern", "laplacian")}


def taking(kernel: str) -> list[str]:
    """The kinds that take this kernel; `auto` chooses its own."""
    fields = {kind: get_learner(kind).config_type.model_fields for kind in learner_kinds() if kind != "auto"}
    return [
        kind for kind, has in fields.items() if "kernel" in has and (kernel != "laplacian" or "frequencies" not in has)
    ]


@pytest.mark.each
@pytest.mark.parametrize(("kind", "kernel"), [(kind, kernel) for kernel in KERNELS for kind in taking(kernel)])
def test_digits_that_later_inputs_lose_to_an_absurd_first_one_are_allowed_for(kind: str, kernel: str) -> None:
    """It is the origin of all distances in rounds one by one, but only of those of its own block in `run`."""
    subject = make_subject(kind, KERNELS[kernel], rounds=200)
    X = np.random.default_rng(0).normal(120.0, 3.0, (200, 3))
    X[0] = 1e8
    one_by_one, as_a_block = (create(subject.spec, 3) for _ in range(2))
    values = np.array([one_by_one.update(x, y).forecast.value for x, y in zip(X, subject.y.tolist(), strict=True)])
    off = np.abs(as_a_block.run(X, subject.y).values - values) / np.maximum(1.0, np.abs(values))
    assert off.max() <= replay_tolerance(one_by_one.conditioning)


UNBOUNDED: dict[str, Any] = {"linear": {"kind": "linear"}, "cubic": {"kind": "polynomial", "degree": 3}}

ON_UNSCALED = (
    *("kernel-ridge", "kernel-aar", "kons", "sketched-kons", "kernel-aioli"),
    *("nystrom-ridge", "nystrom-aar", "pros-n-kons", "nystrom-aioli", "kernel-ogd", "bao2ks"),
)

STEADY = {"kons": {"step": "adaptive"}, "sketched-kons": {"step": "adaptive"}}
"""What `create` asks for with kernels that are not bounded."""


@pytest.mark.pairs
@pytest.mark.parametrize("regularization", [1e-5, 1e-3, 1e-1, 1.0])
@pytest.mark.parametrize("size", [1.0, 1e1, 1e2, 1e3, 1e4, 1e5])
@pytest.mark.parametrize("unscaled", ["all", "some", "offset"])
@pytest.mark.parametrize("kernel", UNBOUNDED)
@pytest.mark.parametrize("kind", ON_UNSCALED)
def test_run_and_update_differ_by_no_more_than_the_conditioning_allows(
    kind: str, kernel: str, unscaled: str, size: float, regularization: float
) -> None:
    """Inputs with all columns large, or some, or one with an offset. At its upper limit the tolerance promises nothing."""
    config = {"kernel": UNBOUNDED[kernel]} | STEADY.get(kind, {})
    if "regularization" in get_learner(kind).config_type.model_fields:
        config["regularization"] = regularization
    subject = make_subject(kind, config, rounds=150)
    X = np.random.default_rng(0).normal(size=(150, 3))
    if unscaled == "offset":
        X[:, 0] += size
    else:
        X *= size if unscaled == "all" else np.geomspace(1.0, size, 3)
    one_by_one, as_a_block = (create(subject.spec, 3) for _ in range(2))
    rows, values, tolerances = [], [], []
    for row, (x, truth) in enumerate(zip(X, subject.y.tolist(), strict=True)):
        with contextlib.suppress(DivergedError):
            values.append(one_by_one.update(x, truth).forecast.value)
            tolerances.append(replay_tolerance(one_by_one.conditioning))
            rows.append(row)
    off = np.abs(as_a_block.run(X[rows], subject.y[rows]).values - values) / np.maximum(1.0, np.abs(values))
    assert np.all((off <= tolerances) | (np.array(tolerances) == LARGEST_TOLERANCE))


@pytest.mark.slow
def test_replays_on_other_kernels_are_within_their_tolerance() -> None:
    """Of those whose arithmetic magnifies rounding most; `python -m bench.replay` has them all."""
    names = ["kons alpha 0.01", "kernel-aioli", "pros-n-kons alpha 1e-05", "ons", "pomdr in theory", "nons-ald shipped"]
    done = subprocess.run([sys.executable, "-m", "bench.replay", *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["kons", "sketched-kons"])
def test_steps_that_amplify_rounding_are_warned_of(kind: str) -> None:
    """A polynomial kernel has no bound: with flat quadratics a change of 1e-12 in the first row may grow to order 1."""
    config = {"kernel": {"kind": "polynomial"}, "loss": "squared-hinge"}
    with pytest.warns(UnstableWarning, match='take step "adaptive"'):
        create({"kind": kind, "config": config}, 2)
    for calm in ({"step": "adaptive"}, {"kernel": {"kind": "gaussian"}}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            create({"kind": kind, "config": config | calm}, 2)


SWINGING: dict[str, Any] = {"loss": "squared-hinge", "step": "adaptive", "clip": 2.0, "regularization": 0.1}


@pytest.mark.parametrize("half_life", [8, 16, "learned"])
@pytest.mark.parametrize("kind", ["kons", "sketched-kons", "pros-n-kons", "ons"])
def test_a_short_memory_of_margins_is_warned_of(kind: str, half_life: int | str) -> None:
    """Of the learner, of the pool that it stands for, and of a pool that has it."""
    spec = {"kind": kind, "config": SWINGING | {"half_life": half_life}}
    with pytest.warns(UnstableWarning, match="take 1 or more, or logistic loss"):
        create(spec, 2)
    with pytest.warns(UnstableWarning, match="take 1 or more, or logistic loss") as told:
        create({"kind": "pool", "config": {"experts": [spec, spec | {"lags": 1}]}}, 2)
    assert len(told) == 1
    squared = {"loss": "squared", "clip": 1.0}
    for calm in ({"regularization": 1.0}, {"clip": 1.0}, {"loss": "logistic"}, squared, {"half_life": 256}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            create({"kind": kind, "config": spec["config"] | calm}, 2)


@pytest.mark.parametrize("kind", ["kons", "sketched-kons", "pros-n-kons"])
def test_a_short_memory_is_warned_of_with_every_step_and_a_kernel_that_is_not_bounded(kind: str) -> None:
    config = SWINGING | {"half_life": 16, "regularization": 0.5}
    for step in ("curvature", "half-curvature", "inverse-sqrt", 0.5):
        with pytest.warns(UnstableWarning, match="take 1 or more"):
            create({"kind": kind, "config": config | {"step": step}}, 2)
    with pytest.warns(UnstableWarning, match="take k\\(x, x\\) or more"):
        create({"kind": kind, "config": config | {"regularization": 3.0, "kernel": {"kind": "polynomial"}}}, 2)


@pytest.mark.each
@pytest.mark.parametrize(
    ("own", "is_calm"),
    [
        ({"regularization": 0.1}, False),
        ({"regularization": 0.5, "clip": 10.0}, False),
        ({"regularization": 0.5, "step": "curvature"}, False),
        ({"regularization": 1.0}, True),
        ({"regularization": 1.0, "clip": 10.0}, True),
        ({"regularization": 1.0, "step": "curvature"}, True),
        ({"regularization": 0.1, "clip": 1.0}, True),
    ],
)
@pytest.mark.parametrize("kind", ["kons", "pros-n-kons"])
def test_a_short_memory_of_margins_amplifies_rounding(kind: str, own: dict[str, Any], is_calm: bool) -> None:
    """What the caution is about: an input changed by next to nothing changes forecasts 500 rounds later, or does not."""
    largest = 0.0
    # Half of the streams have no round that tells such learners apart; these have.
    for seed in (2, 3) if is_calm else (2, 3, 7, 9):
        rng = np.random.default_rng(seed)
        X = np.sin(0.05 * np.cumsum(rng.normal(size=(500, 2)), axis=0))
        y = np.sign(np.sin(2.0 * X.sum(axis=1)) + 0.1 * rng.normal(size=500))
        config = SWINGING | {"half_life": 8, "kernel": {"kind": "gaussian", "sigma": 0.5}} | own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnstableWarning)
            learners = [create({"kind": kind, "config": config}, 2) for _ in range(2)]
        moved = X.copy()
        moved[3, 0] += 1e-12
        off = np.abs(learners[0].run(X, y).values - learners[1].run(moved, y).values)[-100:].max()
        largest = max(largest, off)
        if largest > 1e-6:
            break
    assert largest < 1e-9 if is_calm else largest > 1e-6


@pytest.mark.parametrize(("kind", "part"), [("fogd", ""), ("fourier-aioli", "space.drawn.")])
@pytest.mark.parametrize("size", [1.0, 1e5, 1e9])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_random_features_of_far_inputs_have_lost_the_digits_of_their_angles(
    kind: str, part: str, size: float, kernel: str
) -> None:
    rng = np.random.default_rng(0)
    X, y = size * rng.standard_normal((200, 3)), np.sign(rng.standard_normal(200))
    learner = create({"kind": kind, "config": {"kernel": {"kind": kernel}}}, 3)
    learner.run(X[:10], y[:10])
    found = learner.state()
    # As if another processor had rounded the angles in another way.
    twin = restore(learner.spec, found | {f"{part}frequencies": found[f"{part}frequencies"] * (1.0 + 2.0**-52)}, 3)
    one, other = learner.run(X[10:], y[10:]).values, twin.run(X[10:], y[10:]).values
    state = learner.state()
    angles = 2.0 * np.pi * (X - state[f"{part}origin"]) @ state[f"{part}frequencies"].T
    assert learner.conditioning >= np.abs(angles).max()
    off = float(np.abs(one - other).max())
    assert off <= replay_tolerance(learner.conditioning)
    assert size < 1e9 or off > REPLAY_TOLERANCE
    # One by one, from what is stored, it is the same.
    again = restore(learner.spec, found, 3)
    for x, truth in zip(X[10:], y[10:].tolist(), strict=True):
        again.update(x, truth)
    assert again.conditioning == pytest.approx(learner.conditioning)
    assert restore(learner.spec, again.state(), 3).conditioning == again.conditioning


def with_burst(seed: int, burst: range, size: float, rounds: int) -> tuple[F64, F64]:
    """Ordinary inputs, but for a burst of huge ones, and labels."""
    X = np.random.default_rng(seed).standard_normal((rounds, 3))
    X[burst.start : burst.stop] *= size
    noise = np.random.default_rng(seed + 1000).standard_normal(rounds)
    return X, np.where(X[:, 0] + 0.3 * noise < 0.0, -1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "config", "seed", "burst", "size"),
    [
        ("kernel-aioli", {"window": 40, "regularization": 0.01}, 0, range(30, 36), 5e4),
        ("kons", {"half_life": 8, "regularization": 0.01}, 10, range(10, 14), 5e4),
        ("kons", {"half_life": 16, "regularization": 0.1}, 10, range(10, 14), 1e5),
        ("sketched-kons", {"window": 40, "regularization": 0.1}, 6, range(10, 14), 1e5),
    ],
)
def test_what_a_burst_left_in_the_rounds_after_it_is_allowed_for_once_it_is_forgotten(
    kind: str, config: dict[str, float], seed: int, burst: range, size: float
) -> None:
    X, y = with_burst(seed, burst, size, 260)
    rule = {} if kind == "kernel-aioli" else {"loss": "logistic", "step": "adaptive"}
    spec = {"kind": kind, "seed": 3, "config": {"kernel": {"kind": "linear"}} | config | rule}
    one_by_one, as_a_block = create(spec, 3), create(spec, 3)
    values, tolerances = [], []
    for x, truth in zip(X, y.tolist(), strict=True):
        values.append(one_by_one.update(x, truth).forecast.value)
        tolerances.append(replay_tolerance(one_by_one.conditioning))
    off = np.abs(as_a_block.run(X, y).values - values) / np.maximum(1.0, np.abs(values))
    assert (off <= tolerances).all()


@pytest.mark.each
@pytest.mark.parametrize(
    ("forgetting", "turn"), [({"window": 1}, 1), ({"window": 20}, 20), ({"half_life": 8}, 8), ({"half_life": 9}, 8)]
)
@pytest.mark.parametrize("kind", ["kons", "sketched-kons", "kernel-ridge", "kernel-aar", "kernel-aioli"])
def test_the_conditioning_of_a_burst_is_handed_on_and_halves_with_each_turn(
    kind: str, forgetting: dict[str, int], turn: int
) -> None:
    X, y = with_burst(0, range(12, 15), 1e4, 45 * turn + 20)
    config = {"kernel": {"kind": "linear"}} | forgetting | ({"step": "adaptive"} if kind.endswith("kons") else {})
    learner = create({"kind": kind, "config": config}, 3)
    learner.run(X[:10], y[:10])
    before = learner.conditioning
    learner.run(X[10:15], y[10:15])
    during = learner.conditioning
    assert during > 1e3 * before
    for past in range(1, 15 * turn):
        learner.update(X[14 + past], float(y[14 + past]))
        assert learner.conditioning >= 0.25 * during * 0.5 ** (past / turn)
    again = restore(learner.spec, learner.state(), 3)
    assert again.conditioning == learner.conditioning
    learner.run(X[14 + 15 * turn :], y[14 + 15 * turn :])
    calm = create(learner.spec, 3)
    calm.run(*with_burst(0, range(0), 1.0, len(y)))
    assert learner.conditioning < 2.0 * calm.conditioning


@pytest.mark.parametrize("config", [{}, {"regularization": 100.0}, {"comparator_norm": 20.0}, {"half_life": 8}])
@pytest.mark.parametrize("offset", [1e5, 1e7, 1e8])
def test_digits_that_cancel_in_inputs_with_a_large_offset_are_allowed_for(
    offset: float, config: dict[str, float]
) -> None:
    """With labels that are all the same, the weights of the rounds, and so the condition of A, say little of it."""
    for seed in range(3):
        X = np.random.default_rng(seed).normal(size=(60, 5)) + offset
        one_by_one, as_a_block = (create({"kind": "aioli", "config": config}, 5) for _ in range(2))
        values = np.array([one_by_one.update(x, 1.0).forecast.value for x in X])
        off = np.abs(as_a_block.run(X, np.ones(60)).values - values) / np.maximum(1.0, np.abs(values))
        assert off.max() <= replay_tolerance(one_by_one.conditioning)
        assert as_a_block.conditioning == pytest.approx(one_by_one.conditioning)
        again = restore(one_by_one.spec, one_by_one.state(), 5)
        assert again.conditioning == one_by_one.conditioning
        for x in X[:8]:
            again.update(x - offset, 1.0)
        farthest = np.sqrt(1.0 + np.square(X).sum(axis=1)).max()
        # With a half-life, rounds that are forgotten take their length along.
        kept = again.state()["space.drawn.farthest"].item()
        assert 0.5 * farthest < kept <= farthest if "half_life" in config else kept == pytest.approx(farthest)


def test_a_long_input_is_forgotten_with_its_half_life() -> None:
    """It slackened the check of a replay for good, and the more the less of it was left in the state."""
    X = np.random.default_rng(0).normal(size=(800, 3))
    X[5] *= 1e6
    learner, at_once = (create({"kind": "aioli", "config": {"half_life": 8}}, 3) for _ in range(2))
    for x in X[:10]:
        learner.update(x, 1.0)
    assert replay_tolerance(learner.conditioning) > REPLAY_TOLERANCE
    for x in X[10:]:
        learner.update(x, 1.0)
    at_once.run(X, np.ones(800))
    for one in (learner, at_once):
        assert replay_tolerance(one.conditioning) == REPLAY_TOLERANCE
        assert not any("drawn" in name for name in one.state())


@pytest.mark.parametrize("kind", ["aioli", "ons"])
def test_inputs_of_ordinary_length_add_nothing_to_the_state_or_the_tolerance(kind: str) -> None:
    subject = make_subject(kind, {"loss": "squared", "step": 0.5} if kind == "ons" else {}, rounds=2000)
    learner = subject.create()
    learner.run(10.0 * subject.X, subject.y)
    assert not any("drawn" in name for name in learner.state())
    assert replay_tolerance(learner.conditioning) == REPLAY_TOLERANCE


@pytest.mark.each
@pytest.mark.parametrize(("classes", "hedge"), [(2, 0.5), (3, 0.5), (4, 0.5), (7, 0.5), (20, 0.5), (10, 0.6), (7, 1.0)])
@pytest.mark.parametrize("offset", [0.0, 30.0, 1e3, 1e4, 1e6])
def test_what_softmax_makes_of_rounding_in_long_inputs_is_allowed_for(
    classes: int, hedge: float, offset: float
) -> None:
    """Less than 1 of the hedge and more than three classes amplify it from round to round."""
    rng = np.random.default_rng(classes)
    X, y = rng.normal(size=(60, 2)) + offset, rng.integers(classes, size=60).astype(np.float64)
    spec = {"kind": "softmax-aioli", "config": {"classes": classes, "hedge": hedge}}
    one, other = create(spec, 2), create(spec, 2)
    for x, truth in zip(X, y.tolist(), strict=True):
        value = one.update(x, truth).forecast.value
        off = abs(other.update(np.nextafter(x, np.inf), truth).forecast.value - value)
        assert off <= replay_tolerance(one.conditioning) or replay_tolerance(one.conditioning) == LARGEST_TOLERANCE
    assert offset > 0.0 or replay_tolerance(one.conditioning) == REPLAY_TOLERANCE
    again = restore(spec, one.state(), 2)
    assert again.conditioning == one.conditioning
    assert offset > 0.0 or not any("drawn" in name for name in one.state())


def test_what_a_long_input_of_softmax_costs_is_forgotten_with_its_half_life() -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 5.0
    X[5] *= 1e6
    learner = create({"kind": "softmax-aioli", "config": {"classes": 5, "half_life": 8}}, 2)
    learner.run(X[:10], y[:10])
    assert replay_tolerance(learner.conditioning) > REPLAY_TOLERANCE
    learner.run(X[10:], y[10:])
    assert replay_tolerance(learner.conditioning) == REPLAY_TOLERANCE
    assert not any("drawn" in name for name in learner.state())


@pytest.mark.parametrize("config", [{}, {"regularization": 1e-4}, {"half_life": 8}])
@pytest.mark.parametrize("size", [1e3, 1e4, 1e6])
def test_steps_along_long_inputs_that_others_multiply_are_allowed_for(size: float, config: dict[str, float]) -> None:
    """Forecasts of ons are clipped, so that errors do not count less where inputs are long."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = size * rng.normal(size=(80, 3))
        X = X[rng.integers(0, 5, 80)] if seed % 2 else X
        one, other = (create({"kind": "ons", "config": config}, 3) for _ in range(2))
        for x in X:
            value = one.update(x, 1.0).forecast.value
            off = abs(other.update(np.nextafter(x, np.inf), 1.0).forecast.value - value)
            tolerance = replay_tolerance(one.conditioning)
            assert off <= tolerance or tolerance == LARGEST_TOLERANCE


@pytest.mark.parametrize("regularization", [1e-4, 1.0])
@pytest.mark.parametrize("offset", [1e5, 1e7, 1e9])
def test_the_leader_takes_over_the_rounding_of_long_inputs(offset: float, regularization: float) -> None:
    config = {"regularization": regularization}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = offset + rng.normal(size=(40, 3)), np.sign(rng.normal(size=40))
        one, other = (create({"kind": "ftrl-logistic", "config": config}, 3) for _ in range(2))
        for x, truth in zip(X, y.tolist(), strict=True):
            value = one.update(x, truth).forecast.value
            off = abs(other.update(np.nextafter(x, np.inf), truth).forecast.value - value)
            assert off <= replay_tolerance(one.conditioning) < LARGEST_TOLERANCE


@pytest.mark.parametrize("dictionary", [{"kind": "kors"}, {"kind": "ald"}], ids=lambda d: d["kind"])
@pytest.mark.parametrize("offset", [1e3, 1e4, 1e5])
def test_digits_that_the_inverse_lost_are_allowed_for(offset: float, dictionary: dict[str, Any]) -> None:
    """The rounds of aioli are light where inputs are long, so that A stays small beside k(x, x)."""
    config = {"kernel": {"kind": "linear"}, "dictionary": dictionary, "regularization": 1.0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = offset + rng.normal(size=(80, 3)), np.sign(rng.normal(size=80))
        one, blocked = (create({"kind": "nystrom-aioli", "config": config, "seed": seed}, 3) for _ in range(2))
        values = [one.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
        off = np.abs(blocked.run(X, y).values - values).max()
        assert off <= replay_tolerance(one.conditioning) < LARGEST_TOLERANCE


@pytest.mark.parametrize("seed", range(3))
def test_large_values_that_a_step_back_cancelled_are_allowed_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = 1e9 + rng.normal(size=(60, 3)), np.sign(rng.normal(size=60))
    one, other = (create({"kind": "aogd-ald", "config": {"kernel": {"kind": "linear"}}}, 3) for _ in range(2))
    for x, truth in zip(X, y.tolist(), strict=True):
        value = one.update(x, truth).forecast.value
        off = abs(other.update(np.nextafter(x, np.inf), truth).forecast.value - value)
        assert off <= replay_tolerance(one.conditioning) < LARGEST_TOLERANCE
