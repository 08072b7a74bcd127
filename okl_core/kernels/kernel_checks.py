"""Checks of the kernel contract: row, block, gram and diagonal agree, and k is positive semi-definite.

Each check takes a kernel and returns None, or raises ContractViolation. `check_kernel` runs them all:

    from okl_core.kernels.kernel_checks import check_kernel
    check_kernel(MyKernel(width=0.5))
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable

import numpy as np

from okl_core.contract.agreement import ContractViolation, require, run_checks
from okl_core.errors import DivergedError
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.types import F64

DIM = 3
ROWS = 60

ROUNDING = 1e-9
"""Median difference allowed between two computations of the same value, relative to the largest k(x, x)."""

ROOT_OF_ROUNDING = 1e-7
"""Largest difference allowed: between near points, the root of the squared distance's rounding error counts."""


def check_kernel(kernel: Kernel) -> None:
    """Run every check of `KERNEL_CHECKS`, on random points in three dimensions.

    Parameters
    ----------
    kernel : Kernel
        Registered or not, with all its parameters resolved.

    Raises
    ------
    ContractViolation
        Lists every check that failed.

    Examples
    --------
    >>> from okl_core import Matern
    >>> check_kernel(Matern(nu=2.5))
    """
    run_checks(KERNEL_CHECKS, kernel, f"the kernel {kernel!r}")


def check_kind(kernel: Kernel) -> None:
    """The kind is kebab-case, every other field has a description, and the kernel survives a round trip through JSON."""
    kind = kernel.model_dump().get("kind", "")
    require(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind) is not None, f"the kind {kind!r} is not kebab-case")
    for name, field in type(kernel).model_fields.items():
        require(name == "kind" or bool(field.description), f"the field {name!r} has no description")
    again = type(kernel).model_validate(json.loads(kernel.model_dump_json()))
    require(again == kernel, f"{kernel!r} comes back from JSON as {again!r}")


def check_symmetric(kernel: Kernel) -> None:
    """k(x, z) = k(z, x)."""
    X = _points()
    _require_close(kernel, kernel.block(X[:20], X[20:]), kernel.block(X[20:], X[:20]).T, "k(x, z) and k(z, x)")


def check_positive_semidefinite(kernel: Kernel) -> None:
    """No eigenvalue of a kernel matrix is below 0, up to rounding."""
    for scale in (0.1, 1.0, 10.0):
        K = kernel.gram(scale * _points())
        least = float(np.linalg.eigvalsh(K).min())
        require(
            least >= -ROOT_OF_ROUNDING * float(K.diagonal().max()), f"a kernel matrix has the eigenvalue {least:.3g}"
        )


def check_ways_agree(kernel: Kernel) -> None:
    """`row`, `block`, `gram`, `diag` and `at` give the same values, for plain arrays and for `Points`."""
    X, points = _points(), kernel.points(DIM)
    for x in X[:20]:
        points.append(x)
    points.extend(X[20:])
    block = kernel.block(X, X)
    _require_close(kernel, block, kernel.block(points, X), "block of rows and of points")
    _require_close(kernel, block, np.array([kernel.row(points, x) for x in X]).T, "block and row")
    gram = kernel.gram(X)
    _require_close(kernel, block, gram, "block and gram")
    require(np.array_equal(gram, gram.T), "gram is not symmetric")
    require(np.array_equal(gram.diagonal(), kernel.diag(X)), "the diagonal of gram is not diag")
    _require_close(kernel, kernel.diag(X), np.array([kernel.at(x) for x in X]), "diag and at")


def check_points(kernel: Kernel) -> None:
    """Points that are empty, replaced, selected, or packed and unpacked give the same rows as plain arrays."""
    X, points = _points(), kernel.points(DIM)
    require(kernel.row(points, X[0]).shape == (0,), "a row over no points is not empty")
    require(kernel.block(points, X).shape == (0, len(X)), "a block over no points is not empty")
    points.extend(X[:12])
    points.replace(3, points.encode(X[12]))
    points.select(np.array([9, 3, 0]))
    expected = kernel.row(X[[9, 12, 0]], X[5])
    _require_close(kernel, expected, kernel.row(points, X[5]), "rows of plain points and of others")
    _require_close(kernel, expected, kernel.row(Points.unpack(points.pack()), X[5]), "rows of points unpacked")


def check_inputs_are_kept(kernel: Kernel) -> None:
    """No method writes into its arguments."""
    X, points = _points(), kernel.points(DIM)
    points.extend(X)
    before, rows = X.copy(), points.pack()["rows"]
    for ask in (kernel.gram, kernel.diag, lambda X: kernel.block(points, X), lambda X: kernel.row(points, X[0])):
        ask(X)
    require(np.array_equal(X, before), "an input was written into")
    require(np.array_equal(points.pack()["rows"], rows), "the points were written into")


def check_far_points(kernel: Kernel) -> None:
    """Values at far points are finite, at most (k(x, x) k(z, z))^(1/2), and raise no warning; or the points are refused."""
    for size in (1e8, 1e40, 1e80, 1e120, 1e150):
        X = np.vstack((_points()[:5], size * _points()[5:10], [np.zeros(DIM)]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                K = kernel.gram(X)
                rows = np.array([kernel.row(X, x) for x in X])
            except DivergedError:
                continue
            except RuntimeWarning as warning:
                raise ContractViolation(f"points of size {size:.0e}: {warning}") from warning
        largest = (1.0 + ROUNDING) * np.sqrt(np.abs(np.outer(K.diagonal(), K.diagonal()))) + ROOT_OF_ROUNDING
        for what, values in (("gram", K), ("row", rows)):
            is_bounded = bool((np.abs(values) <= largest).all())
            require(is_bounded, f"{what} of points of size {size:.0e} is not a number, or beyond the diagonal")


KERNEL_CHECKS: list[Callable[[Kernel], None]] = [
    check_kind,
    check_symmetric,
    check_positive_semidefinite,
    check_ways_agree,
    check_points,
    check_inputs_are_kept,
    check_far_points,
]
"""The contract, one check per clause."""


def _points() -> F64:
    """Return random points, some of them equal, one of them 0."""
    X = np.random.default_rng(0).uniform(-1.5, 1.5, (ROWS, DIM))
    X[30:33], X[40] = X[:3], 0.0
    return X


def _require_close(kernel: Kernel, expected: F64, actual: F64, what: str) -> None:
    require(expected.shape == actual.shape, f"{what}: shapes {expected.shape} and {actual.shape}")
    scale = max(1.0, float(kernel.diag(_points()).max()))
    distance = np.abs(expected - actual) / scale
    worst = float(distance.max(initial=0.0))
    require(worst <= ROOT_OF_ROUNDING, f"{what} differ by {worst:.3g}")
    usual = float(np.median(distance)) if distance.size else 0.0
    require(usual <= ROUNDING, f"{what} differ by {usual:.3g}")
