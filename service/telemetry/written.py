"""The text formats of the series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest as as_text
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics
from prometheus_client.registry import Collector

from .counts import SECONDS, Sample
from .families import OPENMETRICS, STORE_FAMILIES, WORKER_FAMILIES, Family


class Figures(Collector):
    """Samples as metric families of prometheus-client."""

    def __init__(self, workers: Mapping[str, Sequence[Sample]], sessions: Sequence[Sample]) -> None:
        self._workers = workers
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        """The families with samples, in the order of the tables."""
        by_name: dict[str, list[tuple[list[str], float | list[float]]]] = {}
        for worker, samples in self._workers.items():
            for name, labels, value in samples:
                by_name.setdefault(name, []).append(([worker, *labels], value))
        for name, labels, value in self._sessions:
            by_name.setdefault(name, []).append((labels, value))
        for family in (*WORKER_FAMILIES, *STORE_FAMILIES):
            if family.name in by_name:
                yield _written(family, by_name[family.name])


def _written(family: Family, samples: Iterable[tuple[Sequence[str], float | list[float]]]) -> Metric:
    if family.type == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in samples:
            assert isinstance(value, list)
            counts = accumulate(value[:-1])
            buckets = [(end, count) for end, count in zip(_ENDS, counts, strict=True)]
            histogram.add_metric(labels, buckets, value[-1])
        return histogram
    kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        assert not isinstance(value, list)
        metric.add_metric(labels, value)
    return metric


_ENDS: Final = (*[str(end) for end in SECONDS], "+Inf")


def written(result: Figures, content_type: str) -> bytes:
    """The text of the samples: OpenMetrics, or Prometheus' text format."""
    return as_openmetrics(result) if content_type == OPENMETRICS else as_text(result)
