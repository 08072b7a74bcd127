"""What a stream costs in theory, and what the best function in hindsight would have lost on it."""

from okl_core.diagnostics.alignment import RunningAlignment, alignment_deltas, kernel_alignment, kernel_polarization
from okl_core.diagnostics.bounds import (
    aar_bound,
    clipped_ridge_bound,
    effective_dimension,
    effective_dimensions,
    gradient_descent_bound,
    kons_bound,
    kons_dimension_bound,
    kons_log_det_bound,
    kons_step_bound,
    leverage_scores,
    log_det,
    online_effective_dimension,
    online_leverage_scores,
    ridge_optimum,
    sketched_kons_bound,
)
from okl_core.diagnostics.comparator import Comparator, best_in_hindsight, regret_curve
from okl_core.diagnostics.late_truths import late_ridge_bound

__all__ = [
    "Comparator",
    "RunningAlignment",
    "aar_bound",
    "alignment_deltas",
    "best_in_hindsight",
    "clipped_ridge_bound",
    "effective_dimension",
    "effective_dimensions",
    "gradient_descent_bound",
    "kernel_alignment",
    "kernel_polarization",
    "kons_bound",
    "kons_dimension_bound",
    "kons_log_det_bound",
    "kons_step_bound",
    "late_ridge_bound",
    "leverage_scores",
    "log_det",
    "online_effective_dimension",
    "online_leverage_scores",
    "regret_curve",
    "ridge_optimum",
    "sketched_kons_bound",
]
