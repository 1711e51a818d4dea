# SPDX-License-Identifier: Apache-2.0
"""The flags, as a table: upstream's with upstream's names and meanings (reference 7.2-7.4), and ours.

Everything else is made from it: the parser and `--help`, the keys of `--config`, `/configz`, and the tables in
docs/reference. Flags that upstream accepts and that have no meaning here are accepted and ignored, so that existing
manifests start; `IGNORED` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .controller_names import CONTROLLERS as NAMES_OF_CONTROLLERS
from .controller_names import OFF_BY_DEFAULT, ON_BY_DEFAULT
from .values import BOOLEAN, CONTROLLERS, DURATION, GATES, NAMES, NUMBER, SNI, TEXT, WHOLE, Kind


@dataclass(frozen=True)
class Flag:
    """`place`: the path in a CloudControllerManagerConfiguration; without one it stands below `OutOfTree`, by name."""

    group: str
    name: str
    kind: Kind
    default: Any
    help: str
    place: str = ""
    #: Upstream's default where ours is another one, with the reason.
    upstream: str = ""

    @property
    def field(self) -> str:
        """Its name in `Options`."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Ignored:
    """`check` raises ValueError for what upstream refuses, too. `shown`: what `/configz` tells, upstream's default."""

    why: str
    place: str = ""
    shown: Any = ""
    check: Callable[[str], object] = str


_SHARED, _ELECTION, _CLIENT = "KubeCloudShared", "Generic.LeaderElection", "Generic.ClientConnection"
_CLOUD, _RUN, _SAFE, _KUBE = "cloud", "controllers", "safety of Nodes", "Kubernetes API"
_SERVE, _AUTH, _HOOK, _LEAD, _GENERAL = "serving", "access to what is served", "webhooks", "leader election", "general"

FLAGS: tuple[Flag, ...] = (
    Flag(
        _CLOUD, "cloud-provider", TEXT, "", "name of an installed provider (required)", f"{_SHARED}.CloudProvider.Name"
    ),
    Flag(
        _CLOUD,
        "cloud-config",
        TEXT,
        "",
        "file with the provider's configuration; a changed one is taken into use without a restart",
        f"{_SHARED}.CloudProvider.CloudConfigFile",
    ),
    Flag(
        _CLOUD,
        "cluster-name",
        TEXT,
        "kubernetes",
        "tells this cluster's things in the cloud from others'",
        f"{_SHARED}.ClusterName",
    ),
    Flag(
        _CLOUD,
        "cluster-cidr",
        TEXT,
        "",
        "the pods' CIDR, or an IPv4 and an IPv6 one; routes within it are ours",
        f"{_SHARED}.ClusterCIDR",
    ),
    Flag(
        _CLOUD,
        "node-cidr-mask-size",
        WHOLE,
        0,
        "prefix length of a Node's pod CIDR, as kube-controller-manager has it; for a --cluster-cidr of one family",
    ),
    Flag(
        _CLOUD,
        "node-cidr-mask-size-ipv4",
        WHOLE,
        0,
        "prefix length of a Node's IPv4 pod CIDR: no route is created to a wider one (0: --node-cidr-mask-size, or 24)",
    ),
    Flag(
        _CLOUD,
        "node-cidr-mask-size-ipv6",
        WHOLE,
        0,
        "prefix length of a Node's IPv6 pod CIDR: no route is created to a wider one (0: --node-cidr-mask-size, or 64)",
    ),
    Flag(
        _CLOUD, "configure-cloud-routes", BOOLEAN, True, "run the route controller", f"{_SHARED}.ConfigureCloudRoutes"
    ),
    Flag(
        _CLOUD,
        "allow-untagged-cloud",
        BOOLEAN,
        False,
        "run although the provider cannot tell clusters apart",
        f"{_SHARED}.AllowUntaggedCloud",
    ),
    Flag(
        _RUN,
        "controllers",
        CONTROLLERS,
        ON_BY_DEFAULT,
        "comma list: '*' all that are on by default, 'name' on, '-name' off; "
        + ", ".join(f"{name} ({alias})" for name, alias in NAMES_OF_CONTROLLERS.items())
        + "; off by default: "
        + ", ".join(sorted(OFF_BY_DEFAULT)),
        "Generic.Controllers",
    ),
    Flag(
        _RUN,
        "concurrent-node-syncs",
        WHOLE,
        30,
        "Nodes written at a time",
        "NodeController.ConcurrentNodeSyncs",
        "1: one slow Node holds up all others",
    ),
    Flag(
        _RUN,
        "concurrent-service-syncs",
        WHOLE,
        20,
        "load balancers written at a time, as far as the provider's limits allow",
        "ServiceController.ConcurrentServiceSyncs",
        "1: one slow load balancer holds up all others",
    ),
    Flag(
        _RUN,
        "node-monitor-period",
        DURATION,
        5.0,
        "between looks at Nodes that are not Ready",
        f"{_SHARED}.NodeMonitorPeriod",
    ),
    Flag(
        _RUN,
        "node-status-update-frequency",
        DURATION,
        300.0,
        "between refreshes of all Nodes' addresses, and labels that they lack",
        "NodeStatusUpdateFrequency",
    ),
    Flag(
        _RUN,
        "legacy-node-labels",
        BOOLEAN,
        True,
        "write zone, region and instance type under their deprecated names, too (beta.kubernetes.io), as upstream does",
    ),
    Flag(
        _RUN,
        "refresh-node-labels",
        BOOLEAN,
        False,
        "overwrite zone, region and instance type of initialised Nodes with what the cloud says, at each refresh; "
        "false: labels that a Node has stay, as upstream",
    ),
    Flag(
        _RUN,
        "route-reconciliation-period",
        DURATION,
        60.0,
        "between audits of routes; changes are seen at once",
        f"{_SHARED}.RouteReconciliationPeriod",
        "10s: upstream sees changes only then",
    ),
    Flag(
        _RUN,
        "load-balancer-ready-nodes-only",
        BOOLEAN,
        False,
        "only Ready Nodes are backends of load balancers, unless none is Ready; false: health checks decide",
    ),
    Flag(
        _RUN,
        "orphan-audit-period",
        DURATION,
        600.0,
        "between looks for load balancers whose Service does not exist; 0 turns them off",
    ),
    Flag(
        _RUN,
        "delete-orphaned-load-balancers",
        BOOLEAN,
        False,
        "delete those that are found; only where no other cluster of the cloud project has the same --cluster-name",
    ),
    Flag(_SAFE, "node-deletion-min-age", DURATION, 300.0, "younger Nodes are never deleted"),
    Flag(_SAFE, "node-deletion-confirmations", WHOLE, 2, "fresh reads that must report the instance gone"),
    Flag(
        _SAFE,
        "node-deletion-cap",
        TEXT,
        "10%",
        "delete at most so many Nodes within the window, others wait for their turn: a share of the Nodes whose "
        "instances are known (2 at least), or a number; 0 turns deletion off",
    ),
    Flag(
        _SAFE,
        "node-deletion-window",
        DURATION,
        180.0,
        "period over which the cap counts deletions; the defaults delete 10 missing Nodes of 30 within 15 minutes",
    ),
    Flag(
        _KUBE, "kubeconfig", TEXT, "", "kubeconfig file; without it and --master: in-cluster", f"{_CLIENT}.kubeconfig"
    ),
    Flag(_KUBE, "master", TEXT, "", "address of the API server; overrides the kubeconfig's"),
    Flag(
        _KUBE,
        "kube-api-qps",
        NUMBER,
        400.0,
        "requests per second",
        f"{_CLIENT}.qps",
        "20: the API server's priority and fairness limits better",
    ),
    Flag(_KUBE, "kube-api-burst", WHOLE, 800, "requests at once", f"{_CLIENT}.burst", "30, as above"),
    Flag(_KUBE, "kube-api-wait", DURATION, 30.0, "how long to wait at start for an API server that does not answer"),
    Flag(
        _SERVE,
        "bind-address",
        TEXT,
        "127.0.0.1",
        "address of health and metrics; one of the node's lets Prometheus scrape them",
        "Generic.Address",
        "0.0.0.0: every host and Pod that reaches the node could connect, and probes do not need that",
    ),
    Flag(_SERVE, "secure-port", WHOLE, 10258, "port of health and metrics (HTTPS); 0 turns them off", "Generic.Port"),
    Flag(_SERVE, "cert-dir", TEXT, "", "directory with cloud-controller-manager.crt and .key; empty: self-signed"),
    Flag(_SERVE, "tls-cert-file", TEXT, "", "serving certificate; read again when it changes"),
    Flag(_SERVE, "tls-private-key-file", TEXT, "", "its key"),
    Flag(
        _SERVE, "tls-sni-cert-key", SNI, (), "certificate and key for the names of the certificate, or for those named"
    ),
    Flag(
        _SERVE, "tls-cipher-suites", NAMES, (), "Go's names of the cipher suites of TLS 1.2; empty: those that are safe"
    ),
    Flag(_SERVE, "tls-min-version", TEXT, "", "VersionTLS12 (also when empty) or VersionTLS13"),
    Flag(_SERVE, "permit-port-sharing", BOOLEAN, False, "set SO_REUSEPORT: several processes may serve the port"),
    Flag(
        _AUTH,
        "authorization-always-allow-paths",
        NAMES,
        ("/healthz", "/livez", "/readyz"),
        "paths that need no authorisation",
    ),
    Flag(
        _AUTH,
        "client-ca-file",
        TEXT,
        "",
        "who has a client certificate of this CA is its common name and organisations",
    ),
    Flag(
        _AUTH,
        "authentication-skip-lookup",
        BOOLEAN,
        False,
        "do not read the cluster's client CA from the ConfigMap kube-system/extension-apiserver-authentication",
    ),
    Flag(_AUTH, "authentication-tolerate-lookup-failure", BOOLEAN, False, "run although that ConfigMap cannot be read"),
    Flag(
        _AUTH,
        "authentication-kubeconfig",
        TEXT,
        "",
        "kubeconfig for TokenReviews and that ConfigMap; empty: as --kubeconfig",
    ),
    Flag(_AUTH, "authorization-kubeconfig", TEXT, "", "kubeconfig for SubjectAccessReviews; empty: as --kubeconfig"),
    Flag(
        _AUTH, "authentication-token-webhook-cache-ttl", DURATION, 10.0, "how long a token is known; 0 does not keep it"
    ),
    Flag(_AUTH, "authorization-webhook-cache-authorized-ttl", DURATION, 10.0, "how long a permission is known"),
    Flag(_AUTH, "authorization-webhook-cache-unauthorized-ttl", DURATION, 10.0, "how long a refusal is known"),
    Flag(
        _HOOK,
        "webhooks",
        NAMES,
        (),
        "comma list as of --controllers, of the provider's webhooks; needs the gate CloudControllerManagerWebhook",
        "Webhook.Webhooks",
    ),
    Flag(
        _HOOK,
        "webhook-bind-address",
        TEXT,
        "127.0.0.1",
        "address of the webhooks; API servers on other hosts, and a Service, need one of the node's",
        upstream="0.0.0.0, as --bind-address",
    ),
    Flag(_HOOK, "webhook-secure-port", WHOLE, 10260, "port of the webhooks (HTTPS); 0 turns them off"),
    Flag(_HOOK, "webhook-cert-dir", TEXT, "", "directory with cloud-controller-manager-webhook.crt and .key"),
    Flag(
        _HOOK,
        "webhook-client-ca-file",
        TEXT,
        "",
        "accept webhook requests only from clients with a certificate of this CA; empty: from whoever can connect",
    ),
    Flag(_HOOK, "webhook-tls-cert-file", TEXT, "", "the webhooks' serving certificate; read again when it changes"),
    Flag(_HOOK, "webhook-tls-private-key-file", TEXT, "", "its key"),
    Flag(_HOOK, "webhook-tls-sni-cert-key", SNI, (), "as --tls-sni-cert-key"),
    Flag(_HOOK, "webhook-tls-cipher-suites", NAMES, (), "as --tls-cipher-suites"),
    Flag(_HOOK, "webhook-tls-min-version", TEXT, "", "as --tls-min-version"),
    Flag(_LEAD, "leader-elect", BOOLEAN, True, "run only while holding the Lease", f"{_ELECTION}.leaderElect"),
    Flag(
        _LEAD,
        "leader-elect-lease-duration",
        DURATION,
        15.0,
        "a Lease not renewed for this long may be taken",
        f"{_ELECTION}.leaseDuration",
    ),
    Flag(
        _LEAD,
        "leader-elect-renew-deadline",
        DURATION,
        10.0,
        "a leader that cannot renew for this long stops",
        f"{_ELECTION}.renewDeadline",
    ),
    Flag(
        _LEAD,
        "leader-elect-retry-period",
        DURATION,
        2.0,
        "between renewals and attempts",
        f"{_ELECTION}.retryPeriod",
    ),
    Flag(
        _LEAD,
        "leader-elect-resource-name",
        TEXT,
        "cloud-controller-manager",
        "the Lease's name",
        f"{_ELECTION}.resourceName",
    ),
    Flag(
        _LEAD,
        "leader-elect-resource-namespace",
        TEXT,
        "kube-system",
        "the Lease's namespace",
        f"{_ELECTION}.resourceNamespace",
    ),
    Flag(
        _LEAD,
        "enable-leader-migration",
        BOOLEAN,
        False,
        "take over controllers from another manager: they run only while the migration Lease is held, too",
        "Generic.LeaderMigrationEnabled",
    ),
    Flag(
        _LEAD,
        "leader-migration-config",
        TEXT,
        "",
        "file with a LeaderMigrationConfiguration; empty: route, service and node lifecycle are migrated",
    ),
    Flag(_GENERAL, "feature-gates", GATES, {}, "feature gates to switch on or off"),
    Flag(_GENERAL, "logging-format", TEXT, "text", "text or json"),
    Flag(_GENERAL, "v", WHOLE, 0, "verbosity of the log; 4 and more show every decision"),
)


def _only_leases(text: str) -> None:
    if text != "leases":
        raise ValueError(f"{text!r} is no lock that this program takes: only leases")


def _not_negative(text: str) -> None:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"must be 0 or more, not {text}")


_LOGS, _FRONT = "logs go to standard error, unbuffered", "no aggregation layer in front"
_HTTP1, _CURVES = "HTTP/1.1 is served", "OpenSSL's safe curves are offered"

#: Upstream flags without a meaning here.
IGNORED: Mapping[str, Ignored] = {
    "allocate-node-cidrs": Ignored(
        "kube-controller-manager allocates pod CIDRs", f"{_SHARED}.AllocateNodeCIDRs", False
    ),
    "cidr-allocator-type": Ignored("kube-controller-manager allocates pod CIDRs", f"{_SHARED}.CIDRAllocatorType"),
    "external-cloud-volume-plugin": Ignored("unused upstream, too", f"{_SHARED}.ExternalCloudVolumePlugin"),
    "node-sync-period": Ignored("deprecated upstream", f"{_SHARED}.NodeSyncPeriod", "0s"),
    "min-resync-period": Ignored("informers here have no resync", "Generic.MinResyncPeriod", "12h0m0s"),
    "kube-api-content-type": Ignored("the API is spoken in JSON", f"{_CLIENT}.contentType", "application/json"),
    "contention-profiling": Ignored("a Go profile", "Generic.Debugging.enableContentionProfiling", False),
    "profiling": Ignored("a Go profile", "Generic.Debugging.enableProfiling", False),
    "controller-start-interval": Ignored("controllers start together", "Generic.ControllerStartInterval", "0s"),
    "use-service-account-credentials": Ignored(
        "one ServiceAccount with the union of the rights", f"{_SHARED}.UseServiceAccountCredentials", False
    ),
    "leader-elect-resource-lock": Ignored("always leases", f"{_ELECTION}.resourceLock", "leases", _only_leases),
    "concurrent-node-status-updates": Ignored(
        "addresses are refreshed from one listing", "NodeController.ConcurrentNodeStatusUpdates", 0, _not_negative
    ),
    "requestheader-client-ca-file": Ignored(_FRONT),
    "requestheader-allowed-names": Ignored(_FRONT),
    "requestheader-username-headers": Ignored(_FRONT),
    "requestheader-group-headers": Ignored(_FRONT),
    "requestheader-extra-headers-prefix": Ignored(_FRONT),
    "requestheader-uid-headers": Ignored(_FRONT),
    "disable-http2-serving": Ignored(_HTTP1),
    "http2-max-streams-per-connection": Ignored(_HTTP1),
    "webhook-disable-http2-serving": Ignored(_HTTP1),
    "tls-curve-preferences": Ignored(_CURVES),
    "webhook-tls-curve-preferences": Ignored(_CURVES),
    "permit-address-sharing": Ignored("SO_REUSEADDR is always set"),
    "log-flush-frequency": Ignored(_LOGS),
    "log-text-split-stream": Ignored(_LOGS),
    "log-text-info-buffer-size": Ignored(_LOGS),
    "log-json-split-stream": Ignored(_LOGS),
    "log-json-info-buffer-size": Ignored(_LOGS),
    "vmodule": Ignored("a Go logging option"),
}
#: Keys of a CloudControllerManagerConfiguration that no flag sets, and that mean nothing here -> what is shown.
IGNORED_KEYS: Mapping[str, Any] = {f"{_CLIENT}.acceptContentTypes": ""}
