# SPDX-License-Identifier: Apache-2.0
"""A single cloud's metrics have no `cloud` label; metrics of several clouds do not overwrite one another."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ccm.base.cloud_metrics import CloudCounter, CloudGauge, CloudHistogram


def count(kinds, cloud=None):
    """Return the metrics page of a counter, gauge and histogram of these types. `cloud`: None for plain metrics."""
    counter, gauge, histogram = kinds
    registry = CollectorRegistry()
    of = (lambda metric: metric) if cloud is None else (lambda metric: metric.of(cloud))
    gauge("silent", "Nobody sets it.", registry=registry)
    of(gauge("plain", "P.", registry=registry)).set(3)
    labelled = gauge("labelled", "L.", ["group"], registry=registry)
    labelled.labels("a")
    of(labelled).labels("b").set(4)
    of(counter("calls", "C.", ["operation", "result"], registry=registry)).labels("list", "success").inc()
    of(counter("ended", "E.", registry=registry)).inc(2)
    of(histogram("seconds", "S.", ["operation"], registry=registry, buckets=(0.5, 1))).labels("list").observe(0.7)
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def test_the_only_cloud_counts_with_the_metric_as_it_is():
    assert count((CloudCounter, CloudGauge, CloudHistogram), "") == count((Counter, Gauge, Histogram))


def test_a_cloud_of_several_has_the_same_samples_with_its_name():
    alone = count((Counter, Gauge, Histogram))
    assert [line for line in count((CloudCounter, CloudGauge, CloudHistogram), "one") if 'cloud="one"' in line] == [
        named(line) for line in alone if not line.startswith(("#", "silent", 'labelled{group="a"}'))
    ]


def named(line):
    """Return a line of the metrics page with the label `cloud="one"` added. Labels are sorted."""
    name, _, value = line.rpartition(" ")
    metric, _, labels = name.partition("{")
    every = sorted([*filter(None, labels.rstrip("}").split(",")), 'cloud="one"'])
    return f"{metric}{{{','.join(every)}}} {value}"


def test_each_of_several_clouds_has_samples_of_its_own_and_nobody_else():
    registry = CollectorRegistry()
    plain, labelled = CloudGauge("plain", "P.", registry=registry), CloudGauge("l", "L.", ["group"], registry=registry)
    labelled.labels("a")
    for value, cloud in enumerate(("one", "two"), 1):
        plain.of(cloud).set(value)
        labelled.of(cloud).labels("b").set(value)
    plain.of("two").set(5)
    assert [(each.labels, each.value) for metric in registry.collect() for each in metric.samples] == [
        ({"cloud": "one"}, 1.0),
        ({"cloud": "two"}, 5.0),
        ({"group": "b", "cloud": "one"}, 1.0),
        ({"group": "b", "cloud": "two"}, 2.0),
    ]


@pytest.mark.parametrize("kind", [CloudCounter, CloudGauge, CloudHistogram])
def test_a_metric_of_a_cloud_is_registered_once(kind):
    registry = CollectorRegistry()
    metric = kind("m", "M.", registry=registry)
    assert metric.of("one") is metric.of("one") is not metric.of("two")
    assert [each.name for each in registry.collect()] == ["m"]
