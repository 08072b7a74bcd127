"""What the benches measure: permanent ids, so that results of different days and machines can be compared.

A scenario names its stream, its learner, the floor that its times are given in, and the bars it must not cross. The floor
(`bench.floors`) is measured in the same process: a ratio to it says more than microseconds on a machine that others use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.floors import (
    Part,
    axpy,
    cosines,
    distances,
    exponentials,
    factor_pass,
    gradient_step,
    in_features,
    largest,
    on_dictionary,
    product,
    rank_one,
    row,
    small,
    solve,
    symmetric,
    triangle,
)
from bench.pool_floor import pool_floor
from bench.streams import (
    KONS_ROUNDS,
    LEADER_ROUNDS,
    Stream,
    first_input,
    kons_stream,
    leader_stream,
    magic_classes,
    magic_features,
    magic_stream,
    one_direction,
    ranked_inputs,
)


@dataclass(frozen=True)
class Scenario:
    id: str
    kind: str
    config: Mapping[str, Any]
    stream: Callable[[Path | None], Stream]
    """From the file given on the command line, or the data that ships."""
    floor: Callable[[], tuple[Part, ...]]
    """The parts that a round cannot do without."""
    update_bar: float = 4.0
    """Floors a round at most."""
    run_bar: float = 4.0


NAMED_UPDATE, NAMED_RUN = 2.0, 1.3
"""Bars of the learners that most depend on speed."""

RELEVANCE = {"kind": "relevance", "smooth": [0.5] * 10, "steps": [0.1] * 10, "pairs": [0.1] * 10}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        id="kons-magic-4000",
        kind="kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "logistic"},
        stream=kons_stream,
        floor=lambda: (factor_pass(KONS_ROUNDS), row(KONS_ROUNDS // 2)),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="kons-magic-window",
        kind="kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "logistic", "step": "adaptive", "window": 400},
        stream=kons_stream,
        floor=lambda: (row(400), solve(400)),
    ),
    Scenario(
        id="sketched-kons-magic-4000",
        kind="sketched-kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "logistic"},
        stream=kons_stream,
        floor=lambda: (row(KONS_ROUNDS // 2),),
    ),
    Scenario(
        id="kernel-ridge-magic-4000",
        kind="kernel-ridge",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=kons_stream,
        floor=lambda: (factor_pass(KONS_ROUNDS), row(KONS_ROUNDS // 2)),
    ),
    Scenario(
        id="kernel-aar-magic-4000",
        kind="kernel-aar",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=kons_stream,
        floor=lambda: (factor_pass(KONS_ROUNDS), row(KONS_ROUNDS // 2)),
    ),
    Scenario(
        id="kernel-aioli-magic-4000",
        kind="kernel-aioli",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=kons_stream,
        floor=lambda: (factor_pass(KONS_ROUNDS), row(KONS_ROUNDS // 2)),
    ),
    Scenario(
        id="nystrom-aioli-magic",
        kind="nystrom-aioli",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=magic_stream,
        floor=lambda: on_dictionary(400, steps_always=True),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="fourier-aioli-magic",
        kind="fourier-aioli",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=magic_stream,
        floor=lambda: (cosines(400), *in_features(400)),
    ),
    Scenario(
        id="nystrom-ridge-magic",
        kind="nystrom-ridge",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "clip": 1.0},
        stream=magic_stream,
        floor=lambda: on_dictionary(400, steps_always=True),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="pool-magic",
        kind="pool",
        config={},
        stream=magic_stream,
        floor=lambda: pool_floor({}, magic_stream(None)),
    ),
    Scenario(
        id="pool-magic-awake",
        kind="pool",
        config={"resting": 1},
        stream=magic_stream,
        floor=lambda: pool_floor({"resting": 1}, magic_stream(None)),
    ),
    Scenario(
        id="pros-n-kons-magic",
        kind="pros-n-kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "squared-hinge", "clip": 2.0},
        stream=magic_stream,
        floor=lambda: on_dictionary(400, steps_always=False),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="kernel-ogd-magic",
        kind="kernel-ogd",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "step_size": 0.1, "norm_bound": None, "budget": 400},
        stream=magic_stream,
        floor=lambda: (row(400),),
    ),
    Scenario(
        id="kernel-ogd-magic-ball",
        kind="kernel-ogd",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 400},
        stream=magic_stream,
        floor=lambda: (row(400), axpy(400)),
    ),
    Scenario(
        id="fogd-magic",
        kind="fogd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "step_factor": 100.0,
            "horizon": 19020,
        },
        stream=magic_stream,
        floor=lambda: (cosines(400), axpy(400, with_loss=True)),
    ),
    Scenario(
        id="nogd-magic",
        kind="nogd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "step_factor": 100.0,
            "horizon": 19020,
        },
        stream=magic_stream,
        floor=lambda: (row(400), axpy(400, with_loss=True)),
    ),
    Scenario(
        id="ahpatron-magic",
        kind="ahpatron",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=magic_stream,
        floor=lambda: (row(400),),
    ),
    Scenario(
        id="nons-ald-magic",
        kind="nons-ald",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "horizon": 19020},
        stream=magic_stream,
        floor=lambda: on_dictionary(400, steps_always=True),
    ),
    Scenario(
        id="aogd-ald-magic",
        kind="aogd-ald",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "dictionary_size": 100},
        stream=magic_stream,
        floor=lambda: (row(400), row(400)),
    ),
    Scenario(
        id="bogd-magic",
        kind="bogd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "step_factor": 100.0,
            "horizon": 19020,
        },
        stream=magic_stream,
        floor=lambda: (row(400), axpy(400, with_loss=True)),
    ),
    Scenario(
        id="aioli-magic",
        kind="aioli",
        config={},
        stream=magic_stream,
        floor=lambda: in_features(11),
    ),
    Scenario(
        id="aioli-magic-50",
        kind="aioli",
        config={},
        stream=partial(magic_features, count=50),
        floor=lambda: in_features(51),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="aioli-magic-400",
        kind="aioli",
        config={},
        stream=partial(magic_features, count=400),
        floor=lambda: in_features(401),
    ),
    Scenario(
        id="ons-magic",
        kind="ons",
        config={"loss": "squared-hinge", "clip": 2.0},
        stream=magic_stream,
        floor=lambda: in_features(11, with_loss=True),
    ),
    Scenario(
        id="ons-magic-400",
        kind="ons",
        config={"loss": "squared-hinge", "clip": 2.0},
        stream=partial(magic_features, count=400),
        floor=lambda: in_features(401, with_loss=True),
    ),
    Scenario(
        id="ftrl-logistic-magic-1000",
        kind="ftrl-logistic",
        config={},
        stream=leader_stream,
        floor=lambda: (triangle(LEADER_ROUNDS // 2, 11),),
    ),
    Scenario(
        id="ogd-logistic-magic",
        kind="ogd-logistic",
        config={},
        stream=magic_stream,
        floor=lambda: (gradient_step(11),),
    ),
    Scenario(
        id="foster-1d-magic",
        kind="foster-1d",
        config={},
        stream=first_input,
        floor=lambda: (exponentials(2001),),
    ),
    Scenario(
        id="auto-magic-classes",
        kind="auto",
        config={"classes": 4, "relevance": RELEVANCE},
        stream=magic_classes,
        floor=lambda: in_features(211),
    ),
    Scenario(
        id="one-vs-rest-magic-classes",
        kind="one-vs-rest",
        config={"classes": 4},
        stream=magic_classes,
        floor=lambda: (symmetric(11, 4), rank_one(11, 4), axpy(11, 4)),
    ),
    Scenario(
        id="softmax-aioli-magic-classes",
        kind="softmax-aioli",
        config={"classes": 4},
        stream=magic_classes,
        # Newton's steps, and an eigenvalue decomposition that takes as long as two more.
        floor=lambda: (product(33, 33), product(99, 33), product(99, 33), small(4, 8.0)),
    ),
    Scenario(
        id="packing-magic-ranks",
        kind="packing",
        config={"truth_range": [-1.0, 1.0]},
        stream=ranked_inputs,
        floor=lambda: (distances(1000, 3),),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="metric-packing-directional",
        kind="metric-packing",
        config={"truth_range": [-1.0, 2.0]},
        stream=one_direction,
        floor=lambda: (distances(1000, 5),),
    ),
    Scenario(
        id="skegd-magic",
        kind="skegd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "horizon": 19020,
            "step_factor": 100.0,
        },
        stream=magic_stream,
        floor=lambda: (row(400),),
    ),
    Scenario(
        id="bao2ks-magic",
        kind="bao2ks",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "step_size": "horizon", "horizon": 19020},
        stream=magic_stream,
        floor=lambda: (row(400),),
    ),
    Scenario(
        id="pomdr-magic",
        kind="pomdr",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "horizon": 19020, "step_factor": 0.05},
        stream=magic_stream,
        floor=lambda: (row(315), largest(200)),
        update_bar=NAMED_UPDATE,
        run_bar=NAMED_RUN,
    ),
    Scenario(
        id="pomdr-magic-wide",
        kind="pomdr",
        config={"kernel": {"kind": "gaussian", "sigma": 4.0}, "horizon": 19020},
        stream=magic_stream,
        floor=lambda: (
            row(163),
            solve(148, 2.0, with_loss=True),
            product(15, 148, with_loss=True),
            axpy(148, with_loss=True),
        ),
    ),
)
