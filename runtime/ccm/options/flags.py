# SPDX-License-Identifier: Apache-2.0
"""The flags: upstream's with upstream's names and meanings, and ours. This is the only place where one is declared.

A new flag is one more field (`declaration.option` says what its parts are). The parser and `--help`, the keys of
`--config`, `/configz`, the check of its value, and docs/reference/flags.md (`make docs`) follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .controller_names import CONTROLLERS as NAMES_OF_CONTROLLERS
from .controller_names import OFF_BY_DEFAULT, ON_BY_DEFAULT
from .declaration import flags_of, option
from .restrictions import at_least, cipher_suites, log_format, not_negative, parse_cap, port, positive, tls_version
from .values import BOOLEAN, CONTROLLERS, DURATION, GATES, NAMES, NUMBER, SNI, TEXT, WHOLE, SniPair

_SHARED, _ELECTION, _CLIENT = "KubeCloudShared", "Generic.LeaderElection", "Generic.ClientConnection"
_CLOUD, _RUN, _SAFE, _KUBE = "cloud", "controllers", "safety of Nodes", "Kubernetes API"
_SERVE, _AUTH, _HOOK, _LEAD, _GENERAL = "serving", "access to what is served", "webhooks", "leader election", "general"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Flags:
    """The values of all flags. Durations are seconds. `command_line.Options` is what is made of them."""

    cloud_provider: str = option(
        _CLOUD, TEXT, "", "name of an installed provider (required)", f"{_SHARED}.CloudProvider.Name"
    )
    cloud_config: str = option(
        _CLOUD,
        TEXT,
        "",
        "file with the provider's configuration; a changed one is taken into use without a restart",
        f"{_SHARED}.CloudProvider.CloudConfigFile",
    )
    cluster_name: str = option(
        _CLOUD, TEXT, "kubernetes", "tells this cluster's things in the cloud from others'", f"{_SHARED}.ClusterName"
    )
    cluster_cidr: str = option(
        _CLOUD,
        TEXT,
        "",
        "the pods' CIDR, or an IPv4 and an IPv6 one; routes within it are ours",
        f"{_SHARED}.ClusterCIDR",
    )
    node_cidr_mask_size: int = option(
        _CLOUD,
        WHOLE,
        0,
        "prefix length of a Node's pod CIDR, as kube-controller-manager has it; for a --cluster-cidr of one family",
    )
    node_cidr_mask_size_ipv4: int = option(
        _CLOUD,
        WHOLE,
        0,
        "prefix length of a Node's IPv4 pod CIDR: no route is created to a wider one (0: --node-cidr-mask-size, or 24)",
    )
    node_cidr_mask_size_ipv6: int = option(
        _CLOUD,
        WHOLE,
        0,
        "prefix length of a Node's IPv6 pod CIDR: no route is created to a wider one (0: --node-cidr-mask-size, or 64)",
    )
    configure_cloud_routes: bool = option(
        _CLOUD, BOOLEAN, True, "run the route controller", f"{_SHARED}.ConfigureCloudRoutes"
    )
    allow_untagged_cloud: bool = option(
        _CLOUD, BOOLEAN, False, "run although the provider cannot tell clusters apart", f"{_SHARED}.AllowUntaggedCloud"
    )
    controllers: tuple[str, ...] = option(
        _RUN,
        CONTROLLERS,
        ON_BY_DEFAULT,
        "comma list: '*' all that are on by default, 'name' on, '-name' off; "
        + ", ".join(f"{name} ({alias})" for name, alias in NAMES_OF_CONTROLLERS.items())
        + "; off by default: "
        + ", ".join(sorted(OFF_BY_DEFAULT)),
        "Generic.Controllers",
    )
    concurrent_node_syncs: int = option(
        _RUN,
        WHOLE,
        30,
        "Nodes written at a time",
        "NodeController.ConcurrentNodeSyncs",
        upstream="1: one slow Node holds up all others",
        check=at_least(1),
    )
    concurrent_service_syncs: int = option(
        _RUN,
        WHOLE,
        20,
        "load balancers written at a time, as far as the provider's limits allow",
        "ServiceController.ConcurrentServiceSyncs",
        upstream="1: one slow load balancer holds up all others",
        check=at_least(1),
    )
    node_monitor_period: float = option(
        _RUN, DURATION, 5.0, "between looks at Nodes that are not Ready", f"{_SHARED}.NodeMonitorPeriod", check=positive
    )
    node_status_update_frequency: float = option(
        _RUN,
        DURATION,
        300.0,
        "between refreshes of all Nodes' addresses, and labels that they lack",
        "NodeStatusUpdateFrequency",
        check=positive,
    )
    legacy_node_labels: bool = option(
        _RUN,
        BOOLEAN,
        True,
        "write zone, region and instance type under their deprecated names, too (beta.kubernetes.io), as upstream does",
    )
    refresh_node_labels: bool = option(
        _RUN,
        BOOLEAN,
        False,
        "overwrite zone, region and instance type of initialised Nodes with what the cloud says, at each refresh; "
        "false: labels that a Node has stay, as upstream",
    )
    route_reconciliation_period: float = option(
        _RUN,
        DURATION,
        60.0,
        "between audits of routes; changes are seen at once",
        f"{_SHARED}.RouteReconciliationPeriod",
        upstream="10s: upstream sees changes only then",
        check=positive,
    )
    load_balancer_ready_nodes_only: bool = option(
        _RUN,
        BOOLEAN,
        False,
        "only Ready Nodes are backends of load balancers, unless none is Ready; false: health checks decide",
    )
    orphan_audit_period: float = option(
        _RUN,
        DURATION,
        600.0,
        "between looks for load balancers whose Service does not exist; 0 turns them off",
        check=not_negative,
    )
    delete_orphaned_load_balancers: bool = option(
        _RUN,
        BOOLEAN,
        False,
        "delete those that are found; only where no other cluster of the cloud project has the same --cluster-name",
    )
    node_deletion_min_age: float = option(_SAFE, DURATION, 300.0, "younger Nodes are never deleted", check=not_negative)
    node_deletion_confirmations: int = option(
        _SAFE, WHOLE, 2, "fresh reads that must report the instance gone", check=at_least(1)
    )
    node_deletion_cap: str = option(
        _SAFE,
        TEXT,
        "10%",
        "delete at most so many Nodes within the window, others wait for their turn: a share of the Nodes whose "
        "instances are known (2 at least), or a number; 0 turns deletion off",
        check=parse_cap,
    )
    node_deletion_window: float = option(
        _SAFE,
        DURATION,
        180.0,
        "period over which the cap counts deletions; the defaults delete 10 missing Nodes of 30 within 15 minutes",
        check=not_negative,
    )
    kubeconfig: str = option(
        _KUBE, TEXT, "", "kubeconfig file; without it and --master: in-cluster", f"{_CLIENT}.kubeconfig"
    )
    master: str = option(_KUBE, TEXT, "", "address of the API server; overrides the kubeconfig's")
    kube_api_qps: float = option(
        _KUBE,
        NUMBER,
        400.0,
        "requests per second",
        f"{_CLIENT}.qps",
        upstream="20: the API server's priority and fairness limits better",
    )
    kube_api_burst: int = option(_KUBE, WHOLE, 800, "requests at once", f"{_CLIENT}.burst", upstream="30, as above")
    kube_api_wait: float = option(
        _KUBE, DURATION, 30.0, "how long to wait at start for an API server that does not answer", check=not_negative
    )
    bind_address: str = option(
        _SERVE,
        TEXT,
        "127.0.0.1",
        "address of health and metrics; one of the node's lets Prometheus scrape them",
        "Generic.Address",
        upstream="0.0.0.0: every host and Pod that reaches the node could connect, and probes do not need that",
    )
    secure_port: int = option(
        _SERVE, WHOLE, 10258, "port of health and metrics (HTTPS); 0 turns them off", "Generic.Port", check=port
    )
    cert_dir: str = option(_SERVE, TEXT, "", "directory with cloud-controller-manager.crt and .key; empty: self-signed")
    tls_cert_file: str = option(_SERVE, TEXT, "", "serving certificate; read again when it changes")
    tls_private_key_file: str = option(_SERVE, TEXT, "", "its key")
    tls_sni_cert_key: tuple[SniPair, ...] = option(
        _SERVE, SNI, (), "certificate and key for the names of the certificate, or for those named"
    )
    tls_cipher_suites: tuple[str, ...] = option(
        _SERVE, NAMES, (), "Go's names of the cipher suites of TLS 1.2; empty: those that are safe", check=cipher_suites
    )
    tls_min_version: str = option(_SERVE, TEXT, "", "VersionTLS12 (also when empty) or VersionTLS13", check=tls_version)
    permit_port_sharing: bool = option(_SERVE, BOOLEAN, False, "set SO_REUSEPORT: several processes may serve the port")
    authorization_always_allow_paths: tuple[str, ...] = option(
        _AUTH, NAMES, ("/healthz", "/livez", "/readyz"), "paths that need no authorisation"
    )
    client_ca_file: str = option(
        _AUTH, TEXT, "", "who has a client certificate of this CA is its common name and organisations"
    )
    authentication_skip_lookup: bool = option(
        _AUTH,
        BOOLEAN,
        False,
        "do not read the cluster's client CA from the ConfigMap kube-system/extension-apiserver-authentication",
    )
    authentication_tolerate_lookup_failure: bool = option(
        _AUTH, BOOLEAN, False, "run although that ConfigMap cannot be read"
    )
    authentication_kubeconfig: str = option(
        _AUTH, TEXT, "", "kubeconfig for TokenReviews and that ConfigMap; empty: as --kubeconfig"
    )
    authorization_kubeconfig: str = option(
        _AUTH, TEXT, "", "kubeconfig for SubjectAccessReviews; empty: as --kubeconfig"
    )
    authentication_token_webhook_cache_ttl: float = option(
        _AUTH, DURATION, 10.0, "how long a token is known; 0 does not keep it", check=not_negative
    )
    authorization_webhook_cache_authorized_ttl: float = option(
        _AUTH, DURATION, 10.0, "how long a permission is known", check=not_negative
    )
    authorization_webhook_cache_unauthorized_ttl: float = option(
        _AUTH, DURATION, 10.0, "how long a refusal is known", check=not_negative
    )
    webhooks: tuple[str, ...] = option(
        _HOOK,
        NAMES,
        (),
        "comma list as of --controllers, of the provider's webhooks; needs the gate CloudControllerManagerWebhook",
        "Webhook.Webhooks",
    )
    webhook_bind_address: str = option(
        _HOOK,
        TEXT,
        "127.0.0.1",
        "address of the webhooks; API servers on other hosts, and a Service, need one of the node's",
        upstream="0.0.0.0, as --bind-address",
    )
    webhook_secure_port: int = option(_HOOK, WHOLE, 10260, "port of the webhooks (HTTPS); 0 turns them off", check=port)
    webhook_cert_dir: str = option(_HOOK, TEXT, "", "directory with cloud-controller-manager-webhook.crt and .key")
    webhook_client_ca_file: str = option(
        _HOOK,
        TEXT,
        "",
        "accept webhook requests only from clients with a certificate of this CA; empty: from whoever can connect",
    )
    webhook_tls_cert_file: str = option(
        _HOOK, TEXT, "", "the webhooks' serving certificate; read again when it changes"
    )
    webhook_tls_private_key_file: str = option(_HOOK, TEXT, "", "its key")
    webhook_tls_sni_cert_key: tuple[SniPair, ...] = option(_HOOK, SNI, (), "as --tls-sni-cert-key")
    webhook_tls_cipher_suites: tuple[str, ...] = option(_HOOK, NAMES, (), "as --tls-cipher-suites", check=cipher_suites)
    webhook_tls_min_version: str = option(_HOOK, TEXT, "", "as --tls-min-version", check=tls_version)
    leader_elect: bool = option(_LEAD, BOOLEAN, True, "run only while holding the Lease", f"{_ELECTION}.leaderElect")
    leader_elect_lease_duration: float = option(
        _LEAD, DURATION, 15.0, "a Lease not renewed for this long may be taken", f"{_ELECTION}.leaseDuration"
    )
    leader_elect_renew_deadline: float = option(
        _LEAD, DURATION, 10.0, "a leader that cannot renew for this long stops", f"{_ELECTION}.renewDeadline"
    )
    leader_elect_retry_period: float = option(
        _LEAD, DURATION, 2.0, "between renewals and attempts", f"{_ELECTION}.retryPeriod"
    )
    leader_elect_resource_name: str = option(
        _LEAD, TEXT, "cloud-controller-manager", "the Lease's name", f"{_ELECTION}.resourceName"
    )
    leader_elect_resource_namespace: str = option(
        _LEAD, TEXT, "kube-system", "the Lease's namespace", f"{_ELECTION}.resourceNamespace"
    )
    enable_leader_migration: bool = option(
        _LEAD,
        BOOLEAN,
        False,
        "take over controllers from another manager: they run only while the migration Lease is held, too",
        "Generic.LeaderMigrationEnabled",
    )
    leader_migration_config: str = option(
        _LEAD,
        TEXT,
        "",
        "file with a LeaderMigrationConfiguration; empty: route, service and node lifecycle are migrated",
    )
    feature_gates: Mapping[str, bool] = option(_GENERAL, GATES, {}, "feature gates to switch on or off")
    logging_format: str = option(_GENERAL, TEXT, "text", "text or json", check=log_format)
    v: int = option(_GENERAL, WHOLE, 0, "verbosity of the log; 4 and more show every decision")


FLAGS = flags_of(Flags)
