"""B(AO)2KS: optimistic mirror descent that asks for few gradients."""

from okl_core.learners.bao2ks.bao2ks import Bao2ks

__all__ = ["Bao2ks"]
