# SPDX-License-Identifier: Apache-2.0
"""Metrics of the service controller. Those that begin with `service_controller` have the names of upstream."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from ccm.base.cloud_metrics import CloudGauge

_BUCKETS = tuple(2.0**n for n in range(15))
SYNCS = Counter("service_controller_loadbalancer_sync", "Load balancers written to the cloud, for any reason.")
NODE_SYNC_ERRORS = Counter("service_controller_nodesync_error", "Failed updates of a load balancer's backends.")
NODE_SYNC_LATENCY = Histogram(
    "service_controller_nodesync_latency_seconds",
    "Seconds from a change of Nodes until the update is queued.",
    buckets=_BUCKETS,
)
UPDATE_LATENCY = Histogram(
    "service_controller_update_loadbalancer_host_latency_seconds",
    "Seconds to update the backends of one load balancer.",
    buckets=_BUCKETS,
)
ENSURE_LATENCY = Histogram(
    "ccm_load_balancer_ensure_duration_seconds",
    "Seconds from the first attempt to write a load balancer until it is ready in the cloud.",
    buckets=(0.1, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640),
)
FAILURES = Counter("ccm_service_sync_failures", "Failed attempts to serve or release a Service, by error.", ["error"])
WAITING = CloudGauge("ccm_load_balancers_pending", "Load balancers that are written but not yet ready in the cloud.")
