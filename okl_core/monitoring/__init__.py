"""Is a session better than a trivial forecaster, and has it got worse?"""

from okl_core.monitoring.thinned import Thinned

__all__ = ["Thinned"]
