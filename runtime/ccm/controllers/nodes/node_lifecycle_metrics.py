# SPDX-License-Identifier: Apache-2.0
"""The metrics of the node lifecycle controller. This file knows answers of the cloud, but no Nodes."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import CloudError, Instance, NotFound, NotImplementedByCloud

DELETED = Counter("ccm_node_deletions", "Nodes deleted because their instance is gone.")
FAILED = Counter("ccm_node_deletion_failures", "Deletions of Nodes that the API server did not carry out.")
HELD = Counter(
    "ccm_node_deletions_held",
    "Checks of a NotReady Node that did not delete it, by reason: Unconfirmed, TooYoung, RateLimited (others go "
    "first), Fenced (it was just fenced), ListingDoubted (Ready Nodes contradict the cloud's listing), TurnedOff, "
    "NoProviderID, CloudUnknown (the cloud could not say whether the instance exists).",
    ["reason"],
)
for _reason in (
    "Unconfirmed",
    "TooYoung",
    "RateLimited",
    "Fenced",
    "ListingDoubted",
    "TurnedOff",
    "NoProviderID",
    "CloudUnknown",
):
    HELD.labels(_reason)
FENCED = Counter("ccm_node_fences", "Nodes that got the taint node.kubernetes.io/out-of-service.")
FENCES_HELD = Counter(
    "ccm_node_fences_held",
    "Decisions not to fence a Node whose machine is reported shut down or gone, by reason: Unconfirmed, TooYoung, "
    "OtherMachine and SameProviderID (another machine may be the Node's), CloudUnknown (the last reads do not agree), "
    "StateDoubted (Ready Nodes are reported shut down), ListingDoubted (Ready Nodes contradict it), MassEvent.",
    ["reason"],
)
for _reason in (
    "Unconfirmed",
    "TooYoung",
    "OtherMachine",
    "SameProviderID",
    "CloudUnknown",
    "StateDoubted",
    "ListingDoubted",
    "MassEvent",
):
    FENCES_HELD.labels(_reason)
MISSING = CloudGauge("ccm_nodes_missing", "Existing NotReady Nodes whose instance the cloud reports gone.")
PASS_SECONDS = Histogram(
    "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
    "Seconds that one check of all Nodes took.",
    buckets=[0.001 * 2**exponent for exponent in range(15)],
)
CALLS = Counter(
    "cloud_node_lifecycle_controller_cloud_provider_calls",
    "Answers about NotReady Nodes: one instance_exists for each Node in each check, and one instance_shutdown if its "
    "instance exists. One read of the cloud answers for all Nodes: ccm_cloud_requests_total counts the reads.",
    ["operation", "result"],
)


def count_answer(answer: Instance | CloudError) -> None:
    """Count the answer about one Node as upstream counts its two calls: existence first, then the power state."""
    CALLS.labels("instance_exists", _result(answer)).inc()
    if isinstance(answer, Instance):
        CALLS.labels("instance_shutdown", "success").inc()


def _result(answer: Instance | CloudError) -> str:
    """Return upstream's name for the result. Upstream's "canceled" has no counterpart here: a cancelled check counts
    nothing."""
    if isinstance(answer, Instance):
        return "success"
    if isinstance(answer, NotFound):
        return "instance_not_found"
    return "not_implemented" if isinstance(answer, NotImplementedByCloud) else "error"
