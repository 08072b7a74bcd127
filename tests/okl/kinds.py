"""The kinds of learners that the libraries' own checks look at: some, which are made in different ways; with TIMES=2 all."""

from __future__ import annotations

from okl_core import learner_kinds
from tests.budget import TIMES

SOME = ("aioli", "frequencies", "mean", "nystrom-aar", "pomdr")
CHECKED = tuple(learner_kinds()) if TIMES > 1 else SOME
