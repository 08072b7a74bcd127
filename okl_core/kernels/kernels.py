r"""Kernels: k(x, z) by block, row and diagonal, and the registry of kernels that a config may name.

Each kernel takes its points either as a plain array or as `Points`, in an encoding that makes a row one matrix-vector
product. A row is k(s_i, x) over the points; a block has shape (n, m), points by inputs.

References: [rasmussen2006] chapter 4.
"""

from __future__ import annotations

import functools
import inspect
import operator
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, final, get_args

import numpy as np
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import ConfigError, DivergedError, NotPositiveDefiniteError, ShapeError, unresolved
from okl_core.kernels.points import Points
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.metrics.kernel_metric import learned_kernel_metric, matrix_root
from okl_core.metrics.mahalanobis import Matrix
from okl_core.types import F64, Parameters, Registered, bearable

MEDIAN_SAMPLE = 1000
"""Points used by the median heuristic: 500,000 pairs determine a median to well below one per cent."""

LARGEST = 1e150
"""Bound on k(x, x), and so on every value of the kernel: no product of two values overflows."""

TILE = 512
"""Rows and columns of a kernel matrix that are made symmetric at once."""

ZERO = np.zeros(())
"""An array, since numpy handles an array operand a third of a microsecond faster than a Python number."""

Sigma = Annotated[float, Field(gt=0.0)] | Literal["median"]


KERNELS: dict[str, type[Kernel]] = {}
"""The registered kernels, by kind."""

ANY_KERNEL = Registered(
    KERNELS, lambda: Annotated[functools.reduce(operator.or_, KERNELS.values()), Field(discriminator="kind")]
)


class Kernel(Parameters, ABC):
    """A positive semi-definite function k(x, z). A config field of this type takes any registered kernel by its kind.

    A concrete kernel has a field `kind: Literal["my-kernel"] = "my-kernel"`, `diag` and `encoded_block`. The rest has
    defaults; overriding `encoded_row` may be worthwhile for speed.
    """

    translation_invariant: ClassVar[bool]
    """Whether k is a function of x - z. Points are then kept relative to the first of them."""

    def points(self, dim: int, capacity: int = 16, floats: FloatType = DOUBLE) -> Points:
        """Return an empty set of points for this kernel. Raise ConfigError for a metric of another dimension."""
        root, unit = self.root_for(dim), self._unit()
        return Points(dim, centred=self.translation_invariant, unit=unit, root=root, capacity=capacity, floats=floats)

    def row(self, S: Points | F64, x: F64) -> F64:
        """Return k(s_i, x), shape (n,), for S of n points and x of shape (d,)."""
        points = self._as_points(S)
        return self.encoded_row(points, points.encode(x))

    def block(self, S: Points | F64, X: F64) -> F64:
        """Return k(s_i, x_j), shape (n, m), for S of n points and X of shape (m, d)."""
        return self.encoded_block(self._as_points(S), X)

    def gram(self, X: F64, points: Points | None = None) -> F64:
        """Return k(x_i, x_j), shape (m, m), for X of shape (m, d), symmetric with the exact diagonal. Raise DivergedError.

        `points`: the rows of X as `Points`, if they are kept differently from the default.
        """
        diagonal = self.diag(X)
        if len(X) == 1:
            return diagonal[:, None]
        K = self.block(X if points is None else points, X)
        for i in range(0, len(K), TILE):
            for j in range(0, i + 1, TILE):
                # In tiles, since K + K^T at once would allocate a second matrix.
                lower, upper = K[i : i + TILE, j : j + TILE], K[j : j + TILE, i : i + TILE]
                mean = lower + upper.T
                mean *= 0.5
                lower[...], upper[...] = mean, mean.T
        np.fill_diagonal(K, diagonal)
        return K

    def mass(self, points: Points, a: F64) -> float:
        """Return sum |a_i| k(x_i, x_i) `points.coarseness`, the scale of rounding errors in f = sum a_i k(x_i, .)."""
        if not len(points):
            return 0.0
        with np.errstate(over="ignore"):
            return points.coarseness * float(np.abs(a) @ self.diag(points.coordinates()))

    @abstractmethod
    def diag(self, X: F64) -> F64:
        """Return k(x_j, x_j), shape (m,), for X of shape (m, d). Raise DivergedError if a value is beyond LARGEST."""

    @abstractmethod
    def encoded_block(self, S: Points, X: F64) -> F64:
        """Return k(s_i, x_j), shape (n, m), for the points `S.coordinates()` and X of shape (m, d)."""

    def at(self, x: F64) -> float:
        """Return k(x, x). Raise DivergedError if it is beyond LARGEST."""
        return float(self.diag(x[None, :])[0])

    def encoded_row(self, S: Points, row: F64) -> F64:
        """Compute `row` for an x that S has encoded."""
        return self.encoded_block(S, S.decode(row)[None, :])[:, 0]

    def _unit(self) -> float:
        """Return the unit of length of this kernel's points."""
        return 1.0

    def root_for(self, dim: int) -> F64 | None:
        """Return the root of the metric in which distances are measured; None for the Euclidean metric.

        Raise ConfigError if the metric has another dimension, or is still to be learned.
        """
        return None

    def _as_points(self, S: Points | F64) -> Points:
        if isinstance(S, Points):
            return S
        root, unit = self.root_for(S.shape[1]), self._unit()
        return Points.of(S, centred=self.translation_invariant, unit=unit, root=root)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return ANY_KERNEL.__get_pydantic_core_schema__(source, handler) if inspect.isabstract(cls) else handler(source)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        if inspect.isabstract(cls):
            return ANY_KERNEL.__get_pydantic_json_schema__(schema, handler)
        return super().__get_pydantic_json_schema__(schema, handler)


K = TypeVar("K", bound=Kernel)


def register_kernel(cls: type[K]) -> type[K]:
    """Class decorator that registers a kernel, so that every config can name it by its kind.

    Parameters
    ----------
    cls : type[Kernel]
        Concrete, with a field `kind: Literal["my-kernel"] = "my-kernel"`. Registering the same class again is harmless.
        `okl_core.kernels.kernel_checks.check_kernel` checks whether it satisfies the kernel contract.

    Returns
    -------
    type[Kernel]
        The same class.

    Raises
    ------
    ConfigError
        Another kernel has the kind, or the class is abstract or has no kind.
    """
    kind = cls.model_fields.get("kind")
    if inspect.isabstract(cls) or kind is None or get_args(kind.annotation) != (kind.default,):
        raise ConfigError(f'{cls.__name__} is abstract, or has no field `kind: Literal["my-kernel"] = "my-kernel"`')
    if KERNELS.setdefault(kind.default, cls) is not cls:
        raise ConfigError(f"two kernels are called {kind.default!r}")
    return cls


class _Stationary(Kernel):
    """A function of x - z with k(x, x) = 1."""

    translation_invariant: ClassVar[bool] = True

    sigma: Sigma = Field(
        default=1.0,
        description='Length scale, in the units of the inputs; "median" takes the median distance of the first inputs.',
    )

    def diag(self, X: F64) -> F64:
        return np.ones(len(X))

    def at(self, x: F64) -> float:
        return 1.0

    def _unit(self) -> float:
        return self.scale

    @property
    def scale(self) -> float:
        """sigma as a number. Raises ConfigError while it is still "median"."""
        if self.sigma == "median":
            raise unresolved([(("kernel", "sigma"), "median")])
        return self.sigma

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        return [(("sigma",), "median")] if self.sigma == "median" else []

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        return self.model_copy(update={"sigma": self.median_distance(X)}) if self.sigma == "median" else self

    def median_distance(self, X: F64) -> float:
        """Return the median distance between distinct rows of X, shape (n, d); 1.0 if there are none."""
        if len(X) > MEDIAN_SAMPLE:
            X = X[np.linspace(0, len(X) - 1, MEDIAN_SAMPLE).astype(int)]
        distances = self._distances(X)
        distances = distances[distances > 0.0]
        return bearable(float(np.median(distances))) if len(distances) else 1.0

    def _distances(self, X: F64) -> F64:
        from scipy.spatial.distance import pdist

        return np.asarray(pdist(X), dtype=np.float64)


class _Radial(_Stationary):
    """A function of the distance sqrt((x - z)^T M (x - z)) with a metric M, or of the Euclidean distance."""

    metric: Matrix | Literal["learned"] | None = Field(
        default=None,
        description="M: a symmetric positive definite d x d matrix. `learned` estimates from the first inputs and truths in "
        "which directions the truth varies; 500 or more are needed for that.",
    )

    @field_validator("metric")
    @classmethod
    def _check_metric(cls, metric: Matrix | str | None) -> Matrix | str | None:
        if not isinstance(metric, str) and metric is not None:
            try:
                matrix_root(metric)
            except NotPositiveDefiniteError as error:
                raise ValueError(str(error)) from error
        return metric

    @functools.cached_property
    def _root(self) -> F64 | None:
        if self.metric == "learned":
            raise unresolved([(("kernel", "metric"), "learned")])
        return None if self.metric is None else matrix_root(self.metric)

    @property
    def dim(self) -> int | None:
        return len(self.metric) if isinstance(self.metric, list) else None

    def root_for(self, dim: int) -> F64 | None:
        if self.dim not in (None, dim):
            message = f"a metric for {self.dim} inputs, the learner has {dim}"
            raise ConfigError(f"kernel: {message}", [(("config", "kernel", "metric"), message)])
        return self._root

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        return super().waiting() + ([(("metric",), "learned")] if self.metric == "learned" else [])

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        # The metric first, since the median distance is measured in it.
        kernel = self
        if self.metric == "learned":
            if y is None:
                raise ShapeError('metric "learned" is estimated from inputs and as many truths', "y")
            kernel = self.model_copy(update={"metric": learned_kernel_metric(X, y).tolist()})
        return super(_Radial, kernel).resolved(X, y)

    def _distances(self, X: F64) -> F64:
        root = self.root_for(X.shape[1])
        return super()._distances(X if root is None else X @ root)

    @abstractmethod
    def _profile(self, u: F64) -> F64:
        """Compute the kernel from u = -|x - z|^2 / (2 sigma^2), in place."""

    def encoded_row(self, S: Points, row: F64) -> F64:
        return self._profile(S.exponents(row))

    def encoded_block(self, S: Points, X: F64) -> F64:
        return self._profile(S.exponents_block(X))


@final
@register_kernel
class Gaussian(_Radial):
    r"""k(x, z) = exp(-|x - z|^2 / (2 sigma^2)).

    Examples
    --------
    >>> Gaussian(sigma=0.5).row(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.0, 0.0])).round(4)
    array([1.    , 0.1353])
    """

    kind: Literal["gaussian"] = "gaussian"

    def _profile(self, u: F64) -> F64:
        # Rounding may lift u above 0 for near points far from the origin, and k could exceed 1 by any factor.
        return np.exp(np.minimum(u, ZERO, out=u), out=u)


@final
@register_kernel
class Matern(_Radial):
    r"""(1 + r) exp(-r) for nu = 3/2, (1 + r + r^2/3) exp(-r) for nu = 5/2, with r = sqrt(2 nu) |x - z| / sigma."""

    kind: Literal["matern"] = "matern"
    nu: Literal[1.5, 2.5] = Field(  # pyright: ignore[reportInvalidTypeForm]
        default=1.5, description="Smoothness: 1.5 (once differentiable) or 2.5 (twice)."
    )

    def _profile(self, u: F64) -> F64:
        u *= -4.0 * self.nu
        r = np.sqrt(np.maximum(u, 0.0, out=u))
        if self.nu == 1.5:
            u[...] = r
        else:
            u /= 3.0
            u += r
        u += 1.0
        np.negative(r, out=r)
        u *= np.exp(r, out=r)
        return u


@final
@register_kernel
class Laplacian(_Stationary):
    r"""k(x, z) = exp(-|x - z|_1 / sigma)."""

    kind: Literal["laplacian"] = "laplacian"

    def encoded_row(self, S: Points, row: F64) -> F64:
        return self._profile(S.city_blocks(row[None, :]))[:, 0]

    def encoded_block(self, S: Points, X: F64) -> F64:
        return self._profile(S.city_blocks(S.encoded_block(X)))

    def _profile(self, u: F64) -> F64:
        return np.exp(np.negative(u, out=u), out=u)

    def _distances(self, X: F64) -> F64:
        from scipy.spatial.distance import pdist

        return np.asarray(pdist(X, "cityblock"), dtype=np.float64)


class _InnerProduct(Kernel):
    translation_invariant: ClassVar[bool] = False

    @abstractmethod
    def _profile(self, u: F64) -> F64:
        """Compute the kernel from inner products, in place."""

    def diag(self, X: F64) -> F64:
        return _bounded(self._profile(np.einsum("ij,ij->i", X, X)))

    def at(self, x: F64) -> float:
        return _bounded(self._profile(np.array([ddot(x, x)]))).item()

    def encoded_row(self, S: Points, row: F64) -> F64:
        return self._profile(S.products(row))

    def encoded_block(self, S: Points, X: F64) -> F64:
        return self._profile(S.products_block(X))


@final
@register_kernel
class Linear(_InnerProduct):
    r"""k(x, z) = <x, z>."""

    kind: Literal["linear"] = "linear"

    def _profile(self, u: F64) -> F64:
        return u


@final
@register_kernel
class Polynomial(_InnerProduct):
    r"""k(x, z) = (<x, z> + offset)^degree."""

    kind: Literal["polynomial"] = "polynomial"
    degree: int = Field(default=2, ge=1, le=16, description="Degree of the polynomial.")
    offset: float = Field(default=1.0, ge=0.0, description="Added to the inner product; 0 keeps the top degree only.")

    def _profile(self, u: F64) -> F64:
        u += self.offset
        # An input whose k(x, x) is too large is refused, but the row may be computed before that check.
        with np.errstate(over="ignore"):
            return np.power(u, self.degree, out=u)


def _bounded(k: F64) -> F64:
    """Return values of k(x, x). Raise DivergedError if one of them is beyond LARGEST."""
    if not k.max(initial=0.0) < LARGEST:
        raise DivergedError(f"k(x, x) of an input is above {LARGEST:.0e}; scale the inputs down")
    return k
