# SPDX-License-Identifier: Apache-2.0
"""Metrics of the engine. Those without `ccm_` have the names, labels and buckets of Kubernetes' Go components, so
dashboards work unchanged.

Source: k8s.io/component-base `metrics/prometheus/{workqueue,restclient,clientgo/leaderelection}`. All metrics are in
prometheus_client's default registry, like those of the other packages.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

Family = TypeVar("Family", Counter, Histogram)

#: Upstream: ExponentialBuckets(10e-9, 10, 10), seconds.
_QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 2))

_SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
_REST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)

REST_REQUESTS = Counter(
    "rest_client_requests", "Requests to the API server, by status code, method and host.", ["code", "method", "host"]
)
REST_DURATION = Histogram(
    "rest_client_request_duration_seconds",
    "How long the API server took to answer, without our own rate limit.",
    ["verb", "host"],
    buckets=_REST_BUCKETS,
)
REST_REQUEST_SIZE = Histogram(
    "rest_client_request_size_bytes",
    "Size of requests to the API server.",
    ["verb", "host"],
    buckets=_SIZE_BUCKETS,
)
REST_RESPONSE_SIZE = Histogram(
    "rest_client_response_size_bytes",
    "Size of answers of the API server, without watches.",
    ["verb", "host"],
    buckets=_SIZE_BUCKETS,
)
REST_LIMITER = Histogram(
    "rest_client_rate_limiter_duration_seconds",
    "How long requests waited for our own rate limit (--kube-api-qps, --kube-api-burst).",
    ["verb", "host"],
    buckets=_REST_BUCKETS,
)
REST_RETRIES = Counter(
    "rest_client_request_retries",
    "Retried requests, by the status code that caused the retry.",
    ["code", "verb", "host"],
)


@functools.cache
def labelled(family: Family, *labels: str) -> Family:
    """Return the metric with these labels. The result is cached, because looking up a metric takes longer than
    counting, and a request needs several."""
    return family.labels(*labels)


LEADER = Gauge(
    "leader_election_master_status", "1 while this process holds the Lease with that name, otherwise 0.", ["name"]
)

CACHED = Gauge("ccm_cached_objects", "Objects in the cache of the informer with that name.", ["name"])

LEADER_SLOWPATH = Counter(
    "leader_election_slowpath", "Renewals that had to read the Lease first because it had changed.", ["name"]
)

WATCH_RESTARTS = Counter(
    "ccm_watch_restarts", "Watches that ended and were restarted, by the cause of the end.", ["name", "reason"]
)
NOT_UNDERSTOOD = Gauge(
    "ccm_objects_not_understood",
    "Objects of the informer that cannot be decoded: they keep their last known state and do not affect others.",
    ["name"],
)
DOUBTED = Gauge(
    "ccm_objects_doubted",
    "Objects of the informer that are missing from the last list and are kept: too many are missing for the list to "
    "be trusted, a read still finds the object, or its turn has not come yet.",
    ["name"],
)
LISTS_DOUBTED = Counter(
    "ccm_lists_doubted", "Lists of the informer in which objects were missing that the cache kept.", ["name"]
)
EVENTS_DROPPED = Counter("ccm_events_dropped", "Kubernetes Events that were not sent, by reason.", ["reason"])


TASKS = Gauge("ccm_asyncio_tasks", "Tasks of the event loop that serves this metric; it grows if tasks leak.")


def _tasks() -> float:
    try:
        return float(len(asyncio.all_tasks()))
    except RuntimeError:  # called from a thread without an event loop
        return 0.0


TASKS.set_function(_tasks)


class QueueMetrics:
    """The `workqueue_*` families; one instance serves all queues of a registry, distinguished by the label `name`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        label = ["name"]
        self.depth = Gauge("workqueue_depth", "Keys that wait for a worker.", label, registry=registry)
        self.adds = Counter(
            "workqueue_adds", "Keys added, without those that were already waiting.", label, registry=registry
        )
        self.queue_duration = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key waited for a worker.",
            label,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.work_duration = Histogram(
            "workqueue_work_duration_seconds",
            "How long a worker took to process a key.",
            label,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Total age of the work in progress; grows without limit while workers are stuck.",
            label,
            registry=registry,
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest work in progress.",
            label,
            registry=registry,
        )
        self.retries = Counter("workqueue_retries", "Keys added with a delay.", label, registry=registry)


QUEUES = QueueMetrics()
