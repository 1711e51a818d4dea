# SPDX-License-Identifier: Apache-2.0
"""Metrics with separate samples for each of several clouds.

In a process with one cloud, these metrics have no label for the cloud. With several clouds, each cloud has its own
samples, with the label `cloud`. The samples without that label, which would stay 0, are then not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self
from weakref import WeakKeyDictionary

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

#: Metric -> name of a cloud -> the metric of that cloud, which is in no registry.
_of_clouds: WeakKeyDictionary[MetricWrapperBase, dict[str, MetricWrapperBase]] = WeakKeyDictionary()


class _OfClouds(MetricWrapperBase):
    def __init__(self, name: str, documentation: str, labelnames: Iterable[str] = (), **options: Any) -> None:
        self._made_of = (name, documentation, tuple(labelnames), {**options, "registry": None})
        super().__init__(name, documentation, labelnames, **options)

    def of(self, cloud: str) -> Self:
        """Return the metric that has the samples of one cloud. `cloud`: the cloud's name, "" if it is the only one."""
        if not cloud:
            return self
        own = _of_clouds.setdefault(self, {})
        if cloud not in own:
            name, documentation, labelnames, options = self._made_of
            own[cloud] = type(self)(name, documentation, labelnames, **options)
        return own[cloud]  # type: ignore[return-value]  # of the same type

    def collect(self) -> Iterable[Metric]:
        shown = list(super().collect())
        if self not in _of_clouds:
            return shown
        shown[0].samples.clear()
        for cloud, own in _of_clouds[self].items():
            for sample in (sample for metric in own.collect() for sample in metric.samples):
                shown[0].samples.append(sample._replace(labels={**sample.labels, "cloud": cloud}))
        return shown


class CloudCounter(_OfClouds, Counter):
    """A counter with separate samples for each cloud."""


class CloudGauge(_OfClouds, Gauge):
    """A gauge with separate samples for each cloud."""


class CloudHistogram(_OfClouds, Histogram):
    """A histogram with separate samples for each cloud."""
