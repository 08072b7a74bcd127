"""Regression on a dictionary by approximate linear dependence: first order and second order."""

from okl_core.learners.ald.aogd_ald import AogdAld
from okl_core.learners.ald.nons_ald import NonsAld

__all__ = ["AogdAld", "NonsAld"]
