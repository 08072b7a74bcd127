"""Half-lives that are learned: one learner each, on one dictionary, and the best of them is followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import create, get_learner, learner_kinds, parse_spec, resolve, restore, waits_for_inputs
from okl_core.contract.learned_half_life import LOG_ODDS
from okl_core.errors import ConfigError
from okl_core.pool.expert_specs import HALF_LIVES, ExpertSpec
from okl_core.pool.pool_config import PoolConfig
from okl_core.types import F64

STORING = ("kons", "sketched-kons", "kernel-ridge", "kernel-aar", "kernel-aioli")
"""Those that store all rounds, or forget them."""

ON_A_DICTIONARY = ("nystrom-ridge", "nystrom-aar", "nystrom-aioli", "pros-n-kons", "nons-ald")

KINDS = ("ons", "aioli", "fourier-aioli", *ON_A_DICTIONARY, *STORING)
"""All that have a half-life, but for those of classes: tests/core/test_class_pool.py."""
OF_CLASSES = {"softmax-aioli"}

NUMBERS = (
    "ons",
    "nystrom-ridge",
    "nystrom-aar",
    "pros-n-kons",
    "nons-ald",
    "kons",
    "sketched-kons",
    "kernel-ridge",
    "kernel-aar",
)
"""Those of squared loss, which need a clip where a half-life is learned."""

MEDIAN = {"kind": "gaussian", "sigma": "median"}


def turning(n: int) -> tuple[F64, F64]:
    """Labels of a linear function that turns once in 377 rounds."""
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(n, 2))
    angle = np.arange(n) / 60.0
    return X, np.where(np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1] > 0.0, 1.0, -1.0)


def pool_of(expert: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"kind": "pool", "config": {"experts": [expert]} | config}


def test_these_are_all_that_have_a_half_life() -> None:
    """`auto` has one of another kind: that of its regressions."""
    found = {kind for kind in learner_kinds() if "half_life" in get_learner(kind).config_type.model_fields}
    assert found == {*KINDS, *OF_CLASSES, "auto"}


def test_two_grids_are_one_expert_a_pair() -> None:
    spec = ExpertSpec(kind="pros-n-kons", sigmas=[0.5, 1.0], half_lives=[16, None])
    pairs = [(expert.config["kernel"]["sigma"], expert.config["half_life"]) for expert in spec.expand()]
    assert pairs == [(0.5, 16), (0.5, None), (1.0, 16), (1.0, None)]
    names = [expert.name(i) for i, expert in enumerate(spec.expand())]
    assert names[:2] == ["0_pros-n-kons_sigma_0.5_half_life_16", "1_pros-n-kons_sigma_0.5"]
    learned = ExpertSpec.model_validate({"kind": "ons", "half_lives": "learned"})
    assert learned.half_lives == list(HALF_LIVES)
    assert ExpertSpec.model_validate(learned.model_dump()) == learned


def test_they_share_a_dictionary_and_lose_what_each_loses_alone() -> None:
    X, y = turning(400)
    far = {"dictionary": {"kind": "ald", "threshold": 0.2}, "loss": "squared", "clip": 1.0}
    learner = create(pool_of({"kind": "pros-n-kons", "config": far, "half_lives": [16, 64, None]}), 2)
    learner.run(X, y)
    told = learner.describe()
    assert told["units"] == 3  # the grid, and the two trivial ones
    for i, half_life in enumerate((16, 64, None)):
        alone = create({"kind": "pros-n-kons", "config": far | {"half_life": half_life}}, 2)
        values = alone.run(X, y).values
        name = f"loss_{i}_pros-n-kons" + ("" if half_life is None else f"_half_life_{half_life}")
        assert told[name] == pytest.approx(np.square(values - y).sum(), rel=1e-9)
        assert told["dictionary"] == alone.describe()["dictionary"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_the_grid_is_followed(kind: str) -> None:
    """Within what the pool's theorem allows."""
    clip, loss = (10.0, "logistic") if "aioli" in kind else (1.0, "squared")
    learner = create(pool_of({"kind": kind, "half_lives": "learned"}, loss=loss, clip=clip, share=0.0), 2)
    total = learner.run(*turning(300)).losses.sum()
    told = learner.describe()
    assert total <= told["best_loss"] + told["bound"] + 1e-9
    losses = {name: value for name, value in told.items() if name.startswith("loss_") and kind in name}
    assert len(losses) == len(HALF_LIVES)
    assert min(losses, key=lambda name: losses[name]).endswith(("half_life_16", "half_life_64"))


@pytest.mark.parametrize(
    ("expert", "told"),
    [
        ({"kind": "kernel-ogd", "half_lives": "learned"}, "kernel-ogd has no half-life; leave it out"),
        ({"kind": "ons", "half_lives": [3]}, "half_lives.0: must be at least 8, not 3"),
        ({"kind": "ons", "half_lives": []}, "half_lives: .*at least 1"),
        ({"kind": "ons", "half_lives": "often"}, "half_lives: is 'often'; give \"learned\", or a list"),
        ({"kind": "ons", "half_lives": [9], "config": {"half_life": 9}}, "either half_lives"),
    ],
)
def test_bad_grids_say_what_is_wrong(expert: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create(pool_of(expert), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_learned_half_life_stands_for_a_pool(kind: str) -> None:
    X, y = turning(90)
    clip = {"clip": 2.0} if kind in NUMBERS else {}
    loss = {"loss": "logistic", "clip": LOG_ODDS} if "aioli" in kind else {"truth": "numbers", "clip": 2.0}
    short = create({"kind": kind, "seed": 3, "config": clip | {"half_life": "learned"}}, 2)
    spelt = create(pool_of({"kind": kind, "config": clip, "half_lives": "learned"}, **loss) | {"seed": 3}, 2)
    assert short.spec == spelt.spec
    assert (short.run(X, y).values == spelt.run(X, y).values).all()
    again = create(short.spec, 2)
    assert again.spec == short.spec


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
def test_labels_are_weighed_by_the_loss_of_the_learner_or_its_square(loss: str) -> None:
    learner = create({"kind": "ons", "config": {"loss": loss, "clip": 0.5, "half_life": "learned"}}, 2)
    _, _, config = parse_spec(learner.spec)
    assert isinstance(config, PoolConfig)
    assert (config.truth, config.loss, config.clip) == {
        "squared-hinge": ("labels", "squared", 1.0),
        "logistic": ("labels", "logistic", 0.5),
    }[loss]


def test_what_waits_for_inputs_is_found_before_the_pool_is_made() -> None:
    X, y = turning(300)
    spec = {"kind": "nystrom-aioli", "lags": 1, "config": {"kernel": MEDIAN, "half_life": "learned"}}
    assert waits_for_inputs(spec)
    found = resolve(spec, X, y)
    learner = create(found, 2)
    assert (learner.spec.kind, learner.spec.lags) == ("pool", 1)
    plain = resolve(spec | {"config": {"kernel": MEDIAN}}, X, y)
    assert learner.spec.config["experts"][0]["config"]["kernel"] == plain.config["kernel"]
    assert restore(found, learner.state(), 2).t == 0


def test_an_expert_and_a_member_may_learn_it_too() -> None:
    own = {"kind": "aioli", "config": {"half_life": "learned"}}
    assert ExpertSpec.model_validate(own).half_lives == list(HALF_LIVES)
    X, y = turning(60)
    classes = create({"kind": "one-vs-rest", "config": {"classes": 2, "member": own}}, 2)
    assert classes.run(X, (y + 1.0) / 2.0).t == 60
    many = {"kind": "pool", "config": {"experts": [own] * 100}}
    with pytest.raises(ConfigError, match="600 experts"):
        create(many, 2)


@pytest.mark.parametrize(
    ("kind", "config", "told"),
    [
        ("nystrom-ridge", {"half_life": "learned"}, "half_life: .*give `clip`"),
        ("nystrom-aar", {"half_life": "learned", "kernel": MEDIAN}, "half_life: .*give `clip`"),
        ("aioli", {"half_life": "lerned"}, "half_life: is 'lerned'; give \"learned\", or a number of rounds"),
        ("softmax-aioli", {"half_life": "lerned"}, "half_life: is 'lerned'; give \"learned\", or a number of rounds"),
        ("aioli", {"half_life": 7}, "half_life: must be at least 8, not 7"),
        ("aioli", {"half_life": 8.0}, "half_life: must be a whole number, not 8.0"),
        ("aioli", {"half_life": True}, "half_life: must be a whole number, not true"),
        ("kernel-ogd", {"half_life": "learned"}, "half_life"),
    ],
)
def test_a_bad_half_life_is_told_in_one_sentence(kind: str, config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        create({"kind": kind, "config": config}, 2)
    assert [path for path, _ in error.value.errors] == [("config", "half_life")]


@pytest.mark.parametrize("kernel", [{}, {"kernel": MEDIAN}], ids=["given", "median"])
def test_a_clip_that_no_pool_takes_is_told_at_once(kernel: dict[str, Any]) -> None:
    config = kernel | {"loss": "logistic", "clip": 500.0, "half_life": "learned"}
    with pytest.raises(ConfigError, match=r"clip is 500.*at most 300"):
        parse_spec({"kind": "pros-n-kons", "config": config})
