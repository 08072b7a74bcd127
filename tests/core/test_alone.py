"""okl_core needs numpy, scipy and pydantic, and nothing else that is not Python's own."""

from __future__ import annotations

import subprocess
import sys

from okl_core import learner_kinds

ALONE = """
import sys

ALLOWED = {"numpy", "scipy", "pydantic", "okl_core"}
# What pydantic itself is made of.
ALLOWED |= {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}


class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ALLOWED or top in sys.stdlib_module_names or top.startswith("_sysconfigdata"):
            return None
        raise ModuleNotFoundError(f"okl_core asks for {name}", name=name)


sys.meta_path.insert(0, Only())

import numpy as np
import okl_core

rng = np.random.default_rng(0)
X = rng.uniform(0.1, 0.9, size=(20, 1))
for kind in okl_core.learner_kinds():
    learner = okl_core.create(okl_core.resolve(kind, X, np.sign(X[:, 0] - 0.5)), dim=1)
    x = X[0]
    learner.predict(x)
    learner.update(x, 0.0 if kind in ("auto", "frequencies", "one-vs-rest", "softmax-aioli") else 1.0)
    assert learner.t == 1, kind
    print(kind)
"""


def test_a_round_of_each_kind_without_any_other_package() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(learner_kinds())
