# SPDX-License-Identifier: Apache-2.0
"""The table of test_rules.py: what happens to a process, minute by minute, and which alerts fire.

A situation changes the runtime's own metrics as the runtime's code does. So names, labels and first values are the
real ones, and a metric that appears only with the first failure is missing until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ccm.controllers.nodes import node, node_lifecycle_metrics, vouching
from ccm.controllers.routes import route_removal
from ccm.controllers.services import comparison, orphans, service_metrics, vanished_services
from ccm.engine import metrics
from ccm.gateway import gateway
from ccm.manager import cloud_reload, loop_lag, process

LEASE = "cloud-controller-manager"
QUEUE = "Nodes"
#: Minutes of normal work before the fault, of the fault itself, and of normal work after it.
START, LASTS, AFTER = 60, 90, 90
END = START + LASTS + AFTER

#: A function that is called in each minute of the fault, after `healthy`, with the minute's number from 0.
Fault = Callable[[int], object]
#: The labels of each alert.
Alerts = Mapping[str, Mapping[str, str]]

#: Problem -> a gauge that is more than 0 while the problem lasts, the alert for it, and the gauge's labels.
GAUGES = {
    "Nodes whose instances are gone stay": (node_lifecycle_metrics.MISSING, "CcmNodesMissing", {}),
    "Ready Nodes have no instance": (node.VANISHED, "CcmReadyNodesWithoutInstance", {}),
    "the cloud does not vouch for a Node": (vouching.NOT_VOUCHED, "CcmNodesNotVouched", {"reason": "OtherMachine"}),
    "a load balancer does not get ready": (service_metrics.WAITING, "CcmLoadBalancersPending", {}),
    "a load balancer has no Service": (orphans.ORPHANS, "CcmOrphanedLoadBalancers", {}),
    "Services vanished": (vanished_services.VANISHED, "CcmServicesVanished", {}),
    "a list is missing objects": (metrics.DOUBTED, "CcmObjectsDoubted", {"name": QUEUE}),
    "an object cannot be decoded": (metrics.NOT_UNDERSTOOD, "CcmObjectsNotUnderstood", {"name": QUEUE}),
    "a route has no Node": (route_removal.KEPT, "CcmRoutesUnclaimed", {}),
    "calls of a group are not made": (gateway.BREAKER_OPEN, "CcmCloudBreakerOpen", {"group": "load_balancers"}),
}


@dataclass(frozen=True)
class Situation:
    """A fault, and its alerts. `alerts`: all alerts that fire. `fires`: the minutes until all of them fire; 0 means one
    minute more than the rule waits. `lasts`: the fault's minutes. `cloud`: whether the cloud answers. `runs`: whether
    processes run. `elsewhere`: series of other programs that are 1 during the fault, else 0."""

    name: str
    fault: Fault = lambda minute: None
    alerts: Alerts = field(default_factory=dict)
    fires: int = 0
    lasts: int = LASTS
    cloud: bool = True
    runs: bool = True
    elsewhere: tuple[str, ...] = ()


def healthy(minute: int, *, leads: bool, cloud: bool) -> None:
    """Set the metrics for a minute of a healthy process. A standby calls the cloud only at its start."""
    process.BUILD_INFO.labels("1.0.0").set(1)
    metrics.LEADER.labels(LEASE).set(leads)
    if minute == 0:  # `increase` extrapolates: it gives a little more for a counter that did not just start
        DEVIATIONS.inc(10)
        for _ in range(10):
            LAG.observe(2)
    for _ in range(120):
        loop_lag.LAG.observe(0.002)
    if cloud and (leads or minute == 0):
        gateway.LAST_SUCCESS.set(minute * 60.0)
        gateway.BREAKER_OPEN.labels("instances").set(0)
        calls(success=9, NotFound=1)
    if leads:
        metrics.QUEUES.depth.labels(QUEUE).set(30 if minute % 10 != 9 else 0)  # long, but empty every ten minutes
        metrics.QUEUES.longest.labels(QUEUE).set(2.0)
        for gauge, _, labels in GAUGES.values():
            (gauge.labels(**labels) if labels else gauge).set(0)


def calls(seconds: float = 0.01, **results: int) -> None:
    """Count calls to the cloud with these results. Each call waited for `seconds`."""
    for result, count in results.items():
        gateway.REQUESTS.labels("instances.list", result).inc(count)
        for _ in range(count):
            gateway.WAITING.observe(seconds)


def away(minute: int) -> None:
    """Let the cloud not answer: calls fail until the breaker opens, and from then on probes fail."""
    calls(Transient=4 if minute else 8)
    gateway.BREAKER_OPEN.labels("instances").set(1)


def every(minutes: int, change: Callable[[], object]) -> Fault:
    return lambda minute: change() if minute % minutes == 0 else None


def once(change: Callable[[], object]) -> Fault:
    return lambda minute: change() if minute == 0 else None


def of_upgrades() -> list[Situation]:
    """Return a situation for each status of the condition that lint writes, as kube-state-metrics shows it."""
    found = []
    for status in ("true", "false", "unknown"):
        labels = f'namespace="kube-system",condition="UpgradeableToNextMinor",status="{status}"'
        alerts: Alerts = {} if status == "true" else {"CcmUpgradeBlocked": {"status": status}}
        series = f"kube_namespace_status_condition{{{labels}}}"
        found.append(Situation(f"upgradeable is {status}", alerts=alerts, elsewhere=(series,)))
    return found


def of_new_nodes() -> list[Situation]:
    """Return situations of a new Node, as kube-state-metrics shows it. A Node that waits for the controller has the
    taint."""
    node = 'kube_node_info{node="worker-9",provider_id=""}'
    taint = 'kube_node_spec_taint{node="worker-9",key="node.cloudprovider.kubernetes.io/uninitialized"}'
    alerts: Alerts = {"CcmNodeUnmanaged": {"node": "worker-9"}}
    return [
        Situation("a Node joins without the flag", alerts=alerts, elsewhere=(node,)),
        Situation("it joins, and is adopted at once", lasts=4, elsewhere=(node,)),
        Situation("it joins where no controller runs", alerts={"CcmNotRunning": {}}, runs=False, elsewhere=(node,)),
        Situation("a Node waits for the controller", elsewhere=(node, taint)),
        Situation("a Node has a providerID", elsewhere=('kube_node_info{node="worker-9",provider_id="sim://i-9"}',)),
    ]


def of_gauges() -> list[Situation]:
    found = []
    for name, (gauge, alert, labels) in GAUGES.items():
        one = gauge.labels(**labels) if labels else gauge
        found.append(Situation(name, lambda minute, one=one: one.set(1), {alert: labels}))
    return found


NOT_INITIALISED = node.NOT_INITIALISED.labels("InstanceNotFound")
DOUBTED, UNKNOWN, UNCONFIRMED = (
    node_lifecycle_metrics.HELD.labels(reason) for reason in ("ListingDoubted", "CloudUnknown", "Unconfirmed")
)
DEVIATIONS, LAG, RELOADS = comparison.DEVIATIONS, loop_lag.LAG, cloud_reload.RELOADS
NO_LEADER: Fault = lambda minute: metrics.LEADER.labels(LEASE).set(0)  # noqa: E731
STUCK: Fault = lambda minute: metrics.QUEUES.longest.labels(QUEUE).set(minute * 60.0)  # noqa: E731
SERVICE: Fault = every(5, lambda: service_metrics.FAILURES.labels("Forbidden").inc())
CLOUD_AWAY: Alerts = {"CcmCloudSilent": {}, "CcmCloudCallsFail": {}, "CcmCloudBreakerOpen": {"group": "instances"}}

SITUATIONS = [
    Situation("nothing"),
    Situation("no process runs", alerts={"CcmNotRunning": {}}, runs=False),
    Situation("the processes restart", lasts=4, runs=False),
    Situation("nobody leads", NO_LEADER, {"CcmNoLeader": {}}),
    Situation("another process takes the Lease", NO_LEADER, lasts=2),
    Situation("the cloud is away", away, CLOUD_AWAY, fires=20, cloud=False),
    Situation("nobody asks the cloud", cloud=False),
    Situation("the cloud is away for four minutes", away, lasts=4, cloud=False),
    Situation("a third of the calls fail", lambda minute: calls(Forbidden=5), {"CcmCloudCallsFail": {}}, fires=23),
    Situation("a tenth of the calls fail", lambda minute: calls(Transient=1)),
    Situation("most answers are that nothing is there", lambda minute: calls(NotFound=20, RetryAfter=20, cancelled=5)),
    Situation("calls wait long", lambda minute: calls(30, success=10), {"CcmCloudCallsWait": {}}, fires=20),
    Situation("calls wait for some seconds", lambda minute: calls(6, success=10)),
    Situation("work does not end", STUCK, {"CcmWorkStuck": {"name": QUEUE}}, fires=17),
    Situation("work takes nine minutes", STUCK, lasts=9),
    Situation(
        "a queue stays long",
        lambda minute: metrics.QUEUES.depth.labels(QUEUE).set(30),
        {"CcmWorkWaits": {"name": QUEUE}},
    ),
    Situation(
        "a Node stays tainted",
        every(5, NOT_INITIALISED.inc),
        {"CcmNodesNotInitialized": {"reason": "InstanceNotFound"}},
    ),
    Situation("a Node's instance appears a little later", once(NOT_INITIALISED.inc)),
    Situation("Ready Nodes contradict the listing", every(1, DOUBTED.inc), {"CcmNodeDeletionDoubted": {}}),
    Situation("they contradict one listing", once(DOUBTED.inc)),
    Situation("the cloud cannot say what exists", every(2, UNKNOWN.inc), {"CcmNodeDeletionUnknown": {}}),
    Situation("it could not say so once", once(UNKNOWN.inc)),
    Situation("a deletion waits for its confirmation", every(1, UNCONFIRMED.inc)),
    Situation("a Service cannot be served", SERVICE, {"CcmServicesFail": {"error": "Forbidden"}}, fires=23),
    Situation("a Service is served at the second attempt", SERVICE, lasts=1),
    Situation("somebody changes load balancers", every(15, DEVIATIONS.inc), {"CcmLoadBalancersDeviate": {}}, fires=40),
    Situation("somebody changed two in an hour", every(31, DEVIATIONS.inc), lasts=60),
    Situation(
        "a changed configuration is not valid",
        once(RELOADS.labels("invalid").inc),
        {"CcmCloudConfigRefused": {}},
        lasts=10,
    ),
    Situation("a changed configuration is used", once(RELOADS.labels("success").inc)),
    Situation("something blocks the process", every(1, lambda: LAG.observe(2)), {"CcmEventLoopBlocked": {}}, fires=20),
    Situation("something blocks it for a moment", every(1, lambda: LAG.observe(0.9))),
    Situation("something blocks it five times in ten minutes", every(2, lambda: LAG.observe(2))),
    *of_gauges(),
    *of_upgrades(),
    *of_new_nodes(),
]


def brief(situation: Situation, minutes: int) -> Situation:
    """Return the same situation, but for only `minutes`: too few for its alerts."""
    return replace(situation, name=f"{situation.name}, for {minutes} minutes", alerts={}, lasts=minutes)
