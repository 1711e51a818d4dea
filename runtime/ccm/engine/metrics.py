# SPDX-License-Identifier: Apache-2.0
"""Metrics of the engine: names, labels and buckets of Kubernetes' Go components, so that dashboards carry over.

Source: k8s.io/component-base `metrics/prometheus/{workqueue,restclient,clientgo/leaderelection}`. All live in
prometheus_client's default registry, as do those of the other layers.
"""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

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
    "Size of what was sent to the API server.",
    ["verb", "host"],
    buckets=_SIZE_BUCKETS,
)
REST_RESPONSE_SIZE = Histogram(
    "rest_client_response_size_bytes",
    "Size of what the API server answered, watches apart.",
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
    "Requests that were sent again, by the code that caused it.",
    ["code", "verb", "host"],
)

LEADER = Gauge(
    "leader_election_master_status", "1 while this process holds the Lease of that name, otherwise 0.", ["name"]
)

CACHED = Gauge("ccm_cached_objects", "Objects in the cache of that informer.", ["name"])

LEADER_SLOWPATH = Counter(
    "leader_election_slowpath", "Renewals for which the Lease had to be read first, since somebody wrote it.", ["name"]
)

WATCH_RESTARTS = Counter(
    "ccm_watch_restarts", "Watches that ended and were begun again, by what ended them.", ["name", "reason"]
)
NOT_UNDERSTOOD = Gauge(
    "ccm_objects_not_understood",
    "Objects of that informer that cannot be decoded: they are left as they were last known, the others go on.",
    ["name"],
)
DOUBTED = Gauge(
    "ccm_objects_doubted",
    "Objects of that informer that the last list lacks and that are kept: too many are missing at once for the list to "
    "be believed, a read of the object finds it, or it is not its turn.",
    ["name"],
)
LISTS_DOUBTED = Counter(
    "ccm_lists_doubted", "Lists of that informer that lacked objects which were kept all the same.", ["name"]
)
EVENTS_DROPPED = Counter("ccm_events_dropped", "Kubernetes Events that were not sent, by why.", ["reason"])


TASKS = Gauge("ccm_asyncio_tasks", "Tasks of the event loop that answers the question; grows when some are lost.")


def _tasks() -> float:
    try:
        return float(len(asyncio.all_tasks()))
    except RuntimeError:  # asked from a thread without a loop
        return 0.0


TASKS.set_function(_tasks)


class QueueMetrics:
    """The `workqueue_*` families; one instance serves all queues of a registry, told apart by the label `name`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        label = ["name"]
        self.depth = Gauge("workqueue_depth", "Keys that wait for a worker.", label, registry=registry)
        self.adds = Counter(
            "workqueue_adds", "Keys added, without those that waited already.", label, registry=registry
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
            "How long a worker took for a key.",
            label,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Sum of the ages of the work in progress; grows without end when workers are stuck.",
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
