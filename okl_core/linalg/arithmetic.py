"""The numerical libraries in use, and the processor-specific kernels that they selected."""

from __future__ import annotations

import functools

import numpy as np
import scipy
import scipy.linalg.blas  # its BLAS is loaded from here on
from numpy.lib.introspect import opt_func_info


@functools.cache
def arithmetic() -> str:
    """Describe the numerical libraries and the kernels that they run, as one line.

    Two processes with the same line give the same bits for the same calls. If the lines differ, sums are taken in a
    different order, and `replay_tolerance` bounds how far a replay may deviate. An example is "numpy 2.3.4 AVX512_SKX,
    scipy 1.16.3, openblas 0.3.29 SkylakeX".

    Examples
    --------
    >>> arithmetic().split()[0]
    'numpy'
    """
    from threadpoolctl import threadpool_info  # only the service depends on it

    libraries = [f"numpy {np.__version__} {_vectors()}".strip(), f"scipy {scipy.__version__}"]
    # numpy and scipy each bundle a BLAS, usually the same one.
    used = {
        f"{library['internal_api']} {library.get('version')} {library.get('architecture', '')}".strip(): None
        for library in sorted(threadpool_info(), key=lambda library: str(library["filepath"]))
        if library["user_api"] == "blas"
    }
    return ", ".join([*libraries, *used])


def _vectors() -> str:
    """Return the instruction sets that numpy has selected for its elementwise functions."""
    chosen = opt_func_info(func_name="^exp$", signature="float64").get("exp", {})
    return " ".join(sorted({str(entry.get("current", "")) for entry in chosen.values()}))
