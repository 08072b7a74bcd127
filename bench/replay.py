"""How far a replay on another processor is from the record: `python -m bench.replay`.

A stream is recorded with one kernel of BLAS, and its rounds are played again with others in processes of their own, with the
recorded choices. For every kind: the largest difference of a forecast, relative to max(1, |value|), and the tolerance that
`replay_tolerance` gives the learner then. What is beyond its tolerance is marked, and the command fails.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from okl_core import OnlineLearner, create, learner_kinds
from okl_core.contract.checks import make_subject
from okl_core.contract.facade import replay_tolerance
from okl_core.errors import OklError
from okl_core.linalg.arithmetic import arithmetic

CPU = Path("/proc/cpuinfo")
HAS_AVX512 = CPU.exists() and "avx512vl" in CPU.read_text()

CORES = ("Haswell", "Zen", "Prescott", *(["SkylakeX"] if HAS_AVX512 else []))
"""Kernels that this processor can run; the first one records."""

ROUNDS = 600

GAUSSIAN = {"kind": "gaussian", "sigma": 0.7}

SPECS: dict[str, tuple[str, dict[str, Any]]] = (
    {kind: (kind, {}) for kind in learner_kinds()}
    | {
        f"{kind} alpha {alpha:g}": (kind, {"regularization": alpha, **more})
        for kind, more in (
            ("kons", {}),
            ("sketched-kons", {}),
            ("pros-n-kons", {}),
            ("ons", {}),
            ("kernel-ridge", {}),
            ("kernel-aar", {}),
            ("nystrom-ridge", {}),
            ("kernel-aioli", {}),
            ("aioli", {}),
            ("ftrl-logistic", {}),
        )
        for alpha in (1e-2, 1e-5)
    }
    | {
        "kons adaptive": ("kons", {"step": "adaptive"}),
        "kons adaptive alpha 1e-5": ("kons", {"step": "adaptive", "regularization": 1e-5}),
        "kons gaussian narrow": ("kons", {"kernel": {"kind": "gaussian", "sigma": 0.3}}),
        "kons window": ("kons", {"step": "adaptive", "window": 50}),
        "kons polynomial": ("kons", {"kernel": {"kind": "polynomial", "degree": 3}}),
        "kons polynomial alpha 1e-5": ("kons", {"kernel": {"kind": "polynomial", "degree": 3}, "regularization": 1e-5}),
        "kons hinge": ("kons", {"loss": "hinge", "step": 0.5}),
        "kernel-ogd polynomial": ("kernel-ogd", {"kernel": {"kind": "polynomial", "degree": 3}}),
        "kernel-ogd logistic": ("kernel-ogd", {"loss": "logistic", "kernel": GAUSSIAN}),
        "nogd 50": ("nogd", {"budget": 50}),
        "nogd logistic": ("nogd", {"budget": 50, "loss": "logistic", "buffer": "first"}),
        "skegd 50": ("skegd", {"budget": 50, "cycle": 20}),
        "skegd logistic": ("skegd", {"budget": 50, "cycle": 20, "loss": "logistic"}),
        "bao2ks 50": ("bao2ks", {"budget": 50}),
        "pomdr 50": ("pomdr", {"budget": 50, "pomd_budget": 20, "kernel": GAUSSIAN}),
        "pomdr in theory": ("pomdr", {"ald_exponent": 1.0, "ald_factor": 1.0}),
        "pomdr near": (
            "pomdr",
            {"ald_threshold": 0.0, "pomd_budget": 100, "kernel": {"kind": "gaussian", "sigma": 2.0}},
        ),
        "nons-ald shipped": ("nons-ald", {"step": "shipped", "threshold": 1e-3, "regularization": 1e-2}),
        "pros-n-kons ald": ("pros-n-kons", {"dictionary": {"kind": "ald", "threshold": 1e-3}, "regularization": 1e-3}),
        "nystrom-ridge ald": ("nystrom-ridge", {"dictionary": {"kind": "ald", "threshold": 1e-3}}),
        "pros-n-kons reset": ("pros-n-kons", {"carry": "reset", "kernel": GAUSSIAN}),
        "pros-n-kons half-life": ("pros-n-kons", {"half_life": 50, "kernel": GAUSSIAN}),
        "ons half-life": ("ons", {"half_life": 50}),
        "packing linear": ("packing", {"estimate": "linear"}),
        "metric-packing linear": ("metric-packing", {"estimate": "linear"}),
    }
)

Record = list[tuple[bytes, float, float]]
"""Choices, forecast and conditioning of every round."""


def rounds_of(name: str) -> tuple[OnlineLearner, list[tuple[Any, float]]]:
    kind, config = SPECS[name]
    subject = make_subject(kind, config, rounds=ROUNDS)
    return create(subject.spec, subject.dim), list(subject.rounds())


def record(name: str) -> Record:
    learner, rounds = rounds_of(name)
    kept: Record = []
    for x, y in rounds:
        condition = learner.conditioning
        played = learner.play(x, y)
        kept.append((played.choices, played.forecast.value, condition))
        learner.learn(played)
    return kept


def replayed(name: str, kept: Record) -> list[float]:
    """The difference of every forecast, up to the first round that does not replay."""
    learner, rounds = rounds_of(name)
    found: list[float] = []
    for (x, y), (choices, value, _) in zip(rounds, kept, strict=True):
        try:
            played = learner.play(x, y, choices=choices)
        except OklError as error:
            print(f"{name}, round {learner.t + 1}: {error}", file=sys.stderr)
            found.append(np.inf)
            break
        found.append(abs(played.forecast.value - value) / max(1.0, abs(value)))
        learner.learn(played)
    return found


def of_a_process(core: str, names: list[str], path: Path) -> None:
    environment = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "bench.replay", "--into", str(path), *names], env=environment, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="Of `SPECS`; all by default.")
    parser.add_argument("--into", type=Path, help="Record into this file, or if it is there replay it.")
    arguments = parser.parse_args()
    names = arguments.names or list(SPECS)
    if arguments.into is not None:
        work(arguments.into, names)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "record")
        for core in CORES:
            of_a_process(core, names, path)
        kept, differences = pickle.loads(path.read_bytes())
    beyond = 0
    print(f"{'':32}{'difference':>12}{'tolerance':>12}{'conditioning':>14}")
    for name in names:
        conditions = np.array([condition for _, _, condition in kept[name]])
        tolerances = np.array([replay_tolerance(condition) for condition in conditions])
        ratio = max(float((np.array(d) / tolerances[: len(d)]).max()) for d in differences[name])
        largest = max(max(d) for d in differences[name])
        beyond += ratio > 1.0
        mark = " beyond" if ratio > 1.0 else ""
        print(f"{name:32}{largest:12.1e}{tolerances[-1]:12.1e}{conditions[-1]:14.1e}{ratio:8.3f}{mark}")
    sys.exit(beyond > 0)


def work(path: Path, names: list[str]) -> None:
    print(arithmetic(), file=sys.stderr)
    if not path.exists():
        path.write_bytes(pickle.dumps(({name: record(name) for name in names}, {name: [] for name in names})))
        return
    kept, differences = pickle.loads(path.read_bytes())
    for name in names:
        differences[name].append(replayed(name, kept[name]))
    path.write_bytes(pickle.dumps((kept, differences)))


if __name__ == "__main__":
    main()
