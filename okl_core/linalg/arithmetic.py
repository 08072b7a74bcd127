"""What computes here: the libraries, and the kernels that they chose for this processor."""

from __future__ import annotations

import functools

import numpy as np
import scipy
import scipy.linalg.blas  # its BLAS is loaded from here on
from numpy.lib.introspect import opt_func_info


@functools.cache
def arithmetic() -> str:
    """The libraries that compute, and the kernels that they run, as one line.

    Two processes with the same line give the same bits for the same calls. With another one sums are taken in another
    order, and `replay_tolerance` says how far a replay may be. "numpy 2.3.4 AVX512_SKX, scipy 1.16.3, openblas 0.3.29
    SkylakeX" is an example.

    Examples
    --------
    >>> arithmetic().split()[0]
    'numpy'
    """
    from threadpoolctl import threadpool_info  # the service brings it: learners need numpy, scipy and pydantic alone

    libraries = [f"numpy {np.__version__} {_vectors()}".strip(), f"scipy {scipy.__version__}"]
    # numpy and scipy each bring a BLAS of their own, mostly one and the same.
    used = {
        f"{library['internal_api']} {library.get('version')} {library.get('architecture', '')}".strip(): None
        for library in sorted(threadpool_info(), key=lambda library: str(library["filepath"]))
        if library["user_api"] == "blas"
    }
    return ", ".join([*libraries, *used])


def _vectors() -> str:
    """The instructions for which numpy has chosen its elementwise functions."""
    chosen = opt_func_info(func_name="^exp$", signature="float64").get("exp", {})
    return " ".join(sorted({str(entry.get("current", "")) for entry in chosen.values()}))
