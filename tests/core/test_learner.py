"""Specs, the registry and the facade: what is refused, with which words, and that nothing changed."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from okl_core import (
    LearnerSpec,
    Spec,
    catalogue,
    create,
    create_delayed,
    get_learner,
    learner_kinds,
    parse_spec,
    register,
    resolve,
    restore,
    waits_for_inputs,
)
from okl_core.errors import (
    ConfigError,
    DivergedError,
    InputError,
    LabelError,
    NonFiniteError,
    OklError,
    ReplayDivergence,
    ShapeError,
    StateError,
    StateFormatError,
    UnknownKind,
)
from okl_core.types import F64, Forecast
from tests.contract.broken import Sleepy

X0 = np.zeros(2)


@pytest.fixture
def sleepy(own_registry: None) -> None:
    register(Sleepy)


def _pool(expert: Spec) -> Spec:
    return {"kind": "pool", "config": {"experts": [expert]}}


class TestSpec:
    def test_a_model_and_a_dict_mean_the_same(self) -> None:
        as_dict = {"kind": "mean", "seed": 3, "config": {}}
        assert parse_spec(as_dict)[0] == parse_spec(LearnerSpec(kind="mean", seed=3))[0]
        assert parse_spec({"kind": "mean"})[0] == LearnerSpec(kind="mean", seed=0, config={})

    def test_unknown_kind_says_what_is_known(self) -> None:
        with pytest.raises(UnknownKind, match=r"[Kk]nown: .*majority") as caught:
            create({"kind": "magic"}, dim=2)
        assert caught.value.kind == "magic"
        assert set(caught.value.known) == set(learner_kinds())
        assert caught.value.errors[0][0] == ("kind",)
        with pytest.raises(UnknownKind):
            get_learner("magic")

    def test_a_word_is_short_for_a_kind(self) -> None:
        assert parse_spec("mean")[0] == LearnerSpec(kind="mean") == LearnerSpec.model_validate("mean")
        assert create("mean", dim=2).spec.kind == "mean"
        for word, whole in (("kons", {"kind": "kons"}), ("mean", {"kind": "mean"})):
            assert parse_spec(_pool(word))[2] == parse_spec(_pool(whole))[2]
        members = [{"kind": "one-vs-rest", "config": {"member": member}} for member in ("aioli", {"kind": "aioli"})]
        assert parse_spec(members[0])[2] == parse_spec(members[1])[2]

    @pytest.mark.parametrize(
        ("spec", "path", "meant"),
        [
            ("meen", ("kind",), "mean"),
            ({"kind": "mean", "sed": 1}, ("sed",), "seed"),
            ({"kind": "kons", "config": {"regularisation": 1.0}}, ("config", "regularisation"), "regularization"),
            ({"kind": "kons", "config": {"loss": "squred"}}, ("config", "loss"), "squared"),
            ({"kind": "kons", "config": {"kernel": {"kind": "Gausian"}}}, ("config", "kernel"), "gaussian"),
            (
                {"kind": "kons", "config": {"kernel": {"kind": "gaussian", "sigme": 1.0}}},
                ("config", "kernel", "sigme"),
                "sigma",
            ),
            ({"kind": "pool", "config": {"experts": ["mean", "las-label"]}}, ("config", "experts", 1), "last-label"),
            (
                {"kind": "pool", "config": {"experts": [{"kind": "mean", "lag": 1}]}},
                ("config", "experts", 0, "lag"),
                "lags",
            ),
            ({"kind": "one-vs-rest", "config": {"member": "oali"}}, ("config", "member"), "aioli"),
        ],
        ids=str,
    )
    def test_a_wrong_word_is_told_with_the_right_one(self, spec: Spec, path: tuple[str | int, ...], meant: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_spec(spec)
        assert caught.value.errors[0][0] == path
        assert f"did you mean `{meant}`? Known: " in caught.value.errors[0][1]

    def test_fields_of_other_kernels_are_not_known(self) -> None:
        with pytest.raises(ConfigError, match=r"offset: is unknown; known: sigma, metric, kind$"):
            parse_spec({"kind": "kons", "config": {"kernel": {"kind": "gaussian", "offset": 1.0}}})

    @pytest.mark.parametrize(
        "wrong", [None, 5, [1], [("kind", "mean")], b"mean", {"mean"}, "", "m" * 10**6, True], ids=repr
    )
    def test_what_is_no_spec(self, wrong: Any) -> None:
        for make in (parse_spec, lambda spec: create(spec, 1), lambda spec: restore(spec, {}, 1), waits_for_inputs):
            with pytest.raises(ConfigError) as caught:
                make(wrong)
            assert len(str(caught.value)) < 1000
        for where in ("config", "kernel", "loss"):
            config = {"kind": "kons", "config": wrong if where == "config" else {where: wrong}}
            with pytest.raises(ConfigError):
                parse_spec(config)

    @pytest.mark.parametrize(
        ("spec", "paths"),
        [
            ({}, [("kind",)]),
            ({"kind": "mean", "seed": -1}, [("seed",)]),
            ({"kind": "mean", "seed": 2**63}, [("seed",)]),
            ({"kind": 3, "sed": 1}, [("kind",), ("sed",)]),
            ({"kind": "mean", "config": 5}, [("config",)]),
            ({"kind": "mean", "config": {"sigma": 1}}, [("config", "sigma")]),
        ],
        ids=str,
    )
    def test_every_field_at_fault_is_named(self, spec: dict[str, Any], paths: list[tuple[str, ...]]) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_spec(spec)
        assert [path for path, _ in caught.value.errors] == paths
        for path, message in caught.value.errors:
            assert message
            assert ".".join(path) in str(caught.value)

    @pytest.mark.usefixtures("sleepy")
    def test_all_faults_of_a_config_are_listed_at_once(self) -> None:
        with pytest.raises(ConfigError) as caught:
            create({"kind": "sleepy", "config": {"step_size": -1.0, "attention": 2.0, "depth": 3}}, dim=2)
        assert {path[-1] for path, _ in caught.value.errors} == {"step_size", "attention", "depth"}

    @pytest.mark.usefixtures("sleepy")
    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_configs_are_finite(self, value: float) -> None:
        with pytest.raises(ConfigError):
            create({"kind": "sleepy", "config": {"step_size": value}}, dim=2)

    @pytest.mark.parametrize("dim", [0, -1, 2.0, "2", None], ids=repr)
    def test_a_learner_needs_an_input(self, dim: Any) -> None:
        with pytest.raises(ShapeError, match="dim is"):
            create({"kind": "mean"}, dim)
        if dim is not None:
            with pytest.raises(ShapeError, match="dim is"):
                restore({"kind": "mean"}, create("mean", 1).state(), dim)
        with pytest.raises(ShapeError, match="dim is"):
            create_delayed({"kind": "kernel-aar", "config": {"clip": 1.0}}, dim)

    def test_its_dimension_is_a_number_of_python(self) -> None:
        assert type(create("mean", cast(int, np.int64(2))).dim) is int


KERNEL_KINDS = [kind for kind in learner_kinds() if "kernel" in get_learner(kind).config_type.model_fields]


class TestResolve:
    def test_a_spec_without_open_choices_is_left_alone(self) -> None:
        spec = LearnerSpec(kind="mean", seed=4)
        assert resolve(spec, np.ones((3, 2))) == spec
        assert not waits_for_inputs(spec)

    @pytest.mark.parametrize("kind", KERNEL_KINDS)
    @pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "matern"])
    def test_the_median_is_written_into_the_spec(self, kind: str, kernel: str) -> None:
        spec = {"kind": kind, "seed": 5, "config": {"kernel": {"kind": kernel, "sigma": "median"}}}
        assert waits_for_inputs(spec)
        resolved = resolve(spec, np.array([[0.0], [1.0], [3.0]]))
        assert resolved.config["kernel"]["sigma"] == 2.0
        assert resolved.seed == 5
        assert not waits_for_inputs(resolved)
        assert resolve(resolved, np.zeros((2, 1))) == resolved
        json.dumps(resolved.model_dump(mode="json"))
        create(resolved, dim=1)


class TestRegistry:
    def test_kinds_are_sorted_and_permanent(self) -> None:
        kinds = learner_kinds()
        assert kinds == sorted(kinds)
        assert {"last-label", "majority", "mean"} <= set(kinds)
        assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind) for kind in kinds)

    @pytest.mark.usefixtures("sleepy")
    def test_two_learners_of_one_kind_are_refused(self) -> None:
        class Other(Sleepy):
            kind: ClassVar[str] = "mean"

        with pytest.raises(ConfigError, match="mean"):
            register(Other)
        register(Sleepy)  # the same class again, as a reload does

    def test_the_catalogue_is_json_and_complete(self) -> None:
        entries = json.loads(json.dumps(catalogue()))
        assert [entry["kind"] for entry in entries] == learner_kinds()
        for entry in entries:
            assert entry["target"] in ("binary", "class", "real", "any")
            assert set(entry["defaults"]) == set(entry["config_schema"].get("properties", {}))
            spec, dim = {"kind": entry["kind"], "config": entry["defaults"]}, entry["dims"] or 2
            create(resolve(spec, np.eye(3, dim), np.array([0.0, 1.0, 0.0])), dim)


class TestBorder:
    @pytest.mark.parametrize(
        ("x", "error", "index"),
        [
            (np.zeros(3), ShapeError, None),
            (np.zeros((1, 2)), ShapeError, None),
            (np.array([0.0, np.nan]), NonFiniteError, 1),
            (np.array([-np.inf, 1e300]), NonFiniteError, 0),
            (np.array([0.0, -1e200]), NonFiniteError, 1),
        ],
        ids=str,
    )
    def test_bad_inputs(self, x: F64, error: type[InputError], index: int | None) -> None:
        learner = create({"kind": "mean"}, dim=2)
        for call in (learner.predict, lambda x: learner.play(x, 1.0), lambda x: learner.update(x, 1.0)):
            with pytest.raises(error) as caught:
                call(x)
            assert (caught.value.field, caught.value.index) == ("x", index)
        assert learner.t == 0

    def test_inputs_of_other_types_are_converted(self) -> None:
        learner = create({"kind": "mean"}, dim=2)
        learner.update([1, 2], 3)  # pyright: ignore[reportArgumentType]
        learner.update(np.ones(4, dtype=np.float32)[::2], np.float32(1.0))
        assert learner.predict(X0).value == 2.0

    @pytest.mark.parametrize("y", [0.0, 0.5, np.nan, np.inf])
    def test_bad_labels(self, y: float) -> None:
        learner = create({"kind": "majority"}, dim=2)
        with pytest.raises(LabelError) as caught:
            learner.update(X0, y)
        assert (caught.value.field, caught.value.index) == ("y", None)
        with pytest.raises(LabelError, match=r"y\[1\]") as caught:
            learner.run(np.zeros((2, 2)), np.array([1.0, y]))
        assert caught.value.index == 1
        assert learner.t == 0

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
    def test_a_block_with_a_bad_row_changes_nothing(self, value: float) -> None:
        learner = create({"kind": "mean"}, dim=2)
        X = np.zeros((4, 2))
        X[2, 1] = value
        with pytest.raises(NonFiniteError, match=r"X\[2\]\[1\]") as caught:
            learner.run(X, np.ones(4))
        assert caught.value.index == 2
        with pytest.raises(ShapeError):
            learner.run(np.zeros((4, 3)), np.ones(4))
        with pytest.raises(ShapeError) as caught:
            learner.run(np.zeros((4, 2)), np.ones(3))
        assert caught.value.field == "y"
        assert learner.t == 0

    @pytest.mark.parametrize("kind", ["frequencies", "auto"])
    def test_a_block_that_skips_a_class_changes_nothing(self, kind: str) -> None:
        learner = create(resolve({"kind": kind}, np.arange(3.0)[:, None], np.arange(3.0)), dim=1)
        with pytest.raises(LabelError, match="next new class is 2") as caught:
            learner.run(np.arange(3.0)[:, None], np.array([0.0, 1.0, 5.0]))
        assert (caught.value.index, learner.t) == (2, 0)

    def test_an_empty_block(self) -> None:
        learner = create({"kind": "mean"}, dim=2)
        info = learner.run(np.empty((0, 2)), np.empty(0))
        assert (info.t, len(info.values), info.choices) == (0, 0, b"")

    @pytest.mark.usefixtures("sleepy")
    def test_a_forecast_that_is_not_finite_is_never_given_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Sleepy, "predict", lambda *arguments: Forecast(float("nan")))
        learner = create({"kind": "sleepy"}, dim=2)
        with pytest.raises(DivergedError, match="round 1"):
            learner.predict(X0)
        with pytest.raises(DivergedError):
            learner.update(X0, 1.0)
        assert learner.t == 0


class TestRounds:
    def test_a_round_is_learned_at_its_own_time_only(self) -> None:
        learner = create({"kind": "mean"}, dim=2)
        played = learner.play(X0, 2.0)
        learner.learn(played)
        with pytest.raises(StateError, match="round 1 cannot be learned at t = 1"):
            learner.learn(played)
        assert learner.t == 1

    @pytest.mark.usefixtures("sleepy")
    def test_replay(self) -> None:
        live, other_seed = create({"kind": "sleepy", "seed": 1}, dim=2), create({"kind": "sleepy", "seed": 2}, dim=2)
        rng = np.random.default_rng(0)
        for _ in range(50):
            x, y = rng.normal(size=2), float(rng.choice([-1.0, 1.0]))
            played = live.play(x, y)
            live.learn(played)
            # The recorded coins decide, whatever the seed of the replay.
            other_seed.replay(x, y, choices=played.choices, value=played.forecast.value)
        np.testing.assert_array_equal(live.state()["w"], other_seed.state()["w"])
        for value in (played.forecast.value + 1e-6, float("nan")):
            with pytest.raises(ReplayDivergence):
                live.replay(x, y, choices=played.choices, value=value)
        assert live.t == 50

    def test_restore(self) -> None:
        learner = create({"kind": "mean"}, dim=2)
        learner.update(X0, 4.0)
        arrays = learner.state()
        for restored in (restore({"kind": "mean"}, arrays), restore({"kind": "mean"}, arrays, dim=2)):
            assert (restored.t, restored.dim, restored.predict(X0).value) == (1, 2, 4.0)
            assert restored.nbytes == learner.nbytes > 0
        with pytest.raises(StateFormatError, match="total"):
            restore({"kind": "mean"}, {"t": np.array(1.0), "dim": np.array(2.0)})
        with pytest.raises(StateFormatError, match="of dimension 2, not 3"):
            restore({"kind": "mean"}, arrays, dim=3)

    def test_a_state_of_no_dimension_is_refused(self) -> None:
        arrays: dict[str, Any] = create({"kind": "mean"}, dim=2).state()
        del arrays["dim"]
        of_another_type = ([2.0], [2.0, 2.0], "a", ["a"], 2j, None, True, 2, np.float32(2.0))
        for wrong in (
            {},
            *({"dim": np.array(dim)} for dim in (0.0, 1.5, np.nan, np.inf, 1e10, 1e300, *of_another_type)),
        ):
            with pytest.raises(StateFormatError, match="needs its dimension"):
                restore({"kind": "mean"}, arrays | wrong)

    @pytest.mark.parametrize("dim", [10**9, 2**31 - 1])
    def test_a_state_of_a_dimension_beyond_memory_is_refused(self, dim: int) -> None:
        with pytest.raises(StateFormatError, match=f"dimension, {dim}, does not fit"):
            restore({"kind": "ons"}, create({"kind": "ons"}, dim=2).state() | {"dim": np.array(float(dim))})

    def test_sign_of_zero_is_plus_one(self) -> None:
        assert [Forecast(value).label for value in (-0.1, -0.0, 0.0, 0.1)] == [-1, 1, 1, 1]


def test_every_error_is_one_of_ours() -> None:
    for error in (ConfigError, UnknownKind, InputError, LabelError, StateError, ReplayDivergence, DivergedError):
        assert issubclass(error, OklError)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "aioli"},
        {"kind": "ons", "config": {"intercept": False}},
        {"kind": "fourier-aioli", "config": {"frequencies": 30}},
        {"kind": "fogd", "config": {"frequencies": 5000}},
        {"kind": "one-vs-rest", "config": {"classes": 7}},
        {"kind": "softmax-aioli", "config": {"classes": 7}},
        {"kind": "pool", "config": {"experts": [{"kind": "ons", "lags": 2}, {"kind": "aioli"}]}},
    ],
    ids=lambda spec: spec["kind"],
)
def test_the_size_of_a_learner_is_known_before_it_is_made(spec: dict[str, Any]) -> None:
    _, algorithm, config = parse_spec(spec)
    told, learner = algorithm.initial_bytes(config, 20), create(spec, 20)
    learner.update(np.ones(20), 1.0)
    assert 0.8 * learner.nbytes <= told <= learner.nbytes


def test_the_size_of_exponential_weights_is_known_before_they_are_made() -> None:
    _, algorithm, config = parse_spec({"kind": "foster-1d"})
    assert algorithm.initial_bytes(config, 1) == create({"kind": "foster-1d"}, 1).nbytes


@pytest.mark.parametrize("kind", ["ons", "aioli", "ogd-logistic", "fogd", "kons"])
def test_where_an_array_begins_in_memory_changes_no_bit(kind: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 7)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    kept, spec = np.empty(X.size + 1), {"kind": kind, "config": {"loss": "squared"} if kind == "kons" else {}}
    shifted = kept[1:].reshape(X.shape)
    shifted[:] = X
    singles, blocks = [create(spec, 7) for _ in range(2)], [create(spec, 7) for _ in range(2)]
    for i, truth in enumerate(y.tolist()):
        one, other = (singles[j].update(given[i], truth) for j, given in enumerate((X, shifted)))
        assert one == other
    assert blocks[0].run(X, y).values.tolist() == blocks[1].run(shifted, y).values.tolist()
