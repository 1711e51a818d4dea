# SPDX-License-Identifier: Apache-2.0
"""The controller's flags: upstream's with upstream's names and meanings, and our own. `command_line` adds a few.

To add a flag, add a field (`declaration.option` describes its parts). The parser and `--help`, the keys of
`--config`, `/configz`, the validation of its value, and docs/reference/flags.md (`make docs`) follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ccm.engine.encodings import JSON, PROTOBUF

from .controller_names import CONTROLLERS as NAMES_OF_CONTROLLERS
from .controller_names import OFF_BY_DEFAULT, ON_BY_DEFAULT
from .declaration import flags_of, option
from .restrictions import (
    at_least,
    cipher_suites,
    encoding,
    log_format,
    not_negative,
    parse_cap,
    port,
    positive,
    tls_version,
)
from .values import BOOLEAN, CONTROLLERS, DRAIN, DURATION, GATES, NAMES, NUMBER, REFRESH, SNI, TEXT, WHOLE, SniPair

_SHARED, _ELECTION, _CLIENT = "KubeCloudShared", "Generic.LeaderElection", "Generic.ClientConnection"
_CLOUD, _RUN, _SAFE, _KUBE = "cloud", "controllers", "safety of Nodes", "Kubernetes API"
_SERVE, _AUTH, _HOOK, _LEAD, _GENERAL = "serving", "access to what is served", "webhooks", "leader election", "general"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Flags:
    """The values of all flags. Durations are in seconds. `command_line.Options` extends this class."""

    cloud_provider: str = option(
        _CLOUD, TEXT, "", "use this installed provider, or several (required)", f"{_SHARED}.CloudProvider.Name"
    )
    cloud_nodes: tuple[str, ...] = option(
        _CLOUD,
        NAMES,
        (),
        "serve Nodes whose names match PATTERN with PROVIDER, as PROVIDER=PATTERN,...; decides only if several "
        "providers may have a Node's machine",
    )
    cloud_config: str = option(
        _CLOUD,
        TEXT,
        "",
        "read the provider's configuration from this file, as PROVIDER=FILE,... for several providers; changes apply "
        "without a restart",
        f"{_SHARED}.CloudProvider.CloudConfigFile",
    )
    cluster_name: str = option(
        _CLOUD,
        TEXT,
        "kubernetes",
        "mark this cluster's resources in the cloud with this name",
        f"{_SHARED}.ClusterName",
    )
    cluster_cidr: str = option(
        _CLOUD,
        TEXT,
        "",
        "create and delete routes only within this pod CIDR, or within an IPv4 and an IPv6 one, comma-separated; "
        "node-ipam-controller assigns pod CIDRs from it",
        f"{_SHARED}.ClusterCIDR",
    )
    cloud_cluster_cidr: tuple[str, ...] = option(
        _CLOUD,
        NAMES,
        (),
        "assign pod CIDRs within this part of --cluster-cidr to the Nodes of one of several providers, and to no "
        "others, as PROVIDER=CIDR,...; all other Nodes get the rest; requires node-ipam-controller",
    )
    node_cidr_mask_size: int = option(
        _CLOUD,
        WHOLE,
        0,
        "set the prefix length of a Node's pod CIDR, as in kube-controller-manager, if --cluster-cidr has one family",
    )
    node_cidr_mask_size_ipv4: int = option(
        _CLOUD,
        WHOLE,
        0,
        "use this prefix length for IPv4 pod CIDRs: node-ipam-controller assigns it, and a shorter prefix gets no "
        "route (0: --node-cidr-mask-size, or 24)",
    )
    node_cidr_mask_size_ipv6: int = option(
        _CLOUD,
        WHOLE,
        0,
        "use this prefix length for IPv6 pod CIDRs: node-ipam-controller assigns it, and a shorter prefix gets no "
        "route (0: --node-cidr-mask-size, or 64)",
    )
    allocate_node_cidrs: bool = option(
        _CLOUD,
        BOOLEAN,
        False,
        "assign pod CIDRs to Nodes, if --controllers names node-ipam-controller",
        f"{_SHARED}.AllocateNodeCIDRs",
    )
    cidr_allocator_type: str = option(
        _CLOUD,
        TEXT,
        "RangeAllocator",
        "take pod CIDRs from --cluster-cidr (RangeAllocator), or those that the cloud assigned to the instance "
        "(CloudAllocator)",
        f"{_SHARED}.CIDRAllocatorType",
    )
    service_cluster_ip_range: str = option(
        _CLOUD,
        TEXT,
        "",
        "assign no pod CIDR that overlaps this range of Services, or an IPv4 and an IPv6 one, comma-separated",
    )
    instance_tags: tuple[str, ...] = option(
        _CLOUD,
        NAMES,
        (),
        "add these tags, as KEY=VALUE,..., to the instances of Nodes, if --controllers names instance-tags-controller",
    )
    configure_cloud_routes: bool = option(
        _CLOUD, BOOLEAN, True, "run the route controller", f"{_SHARED}.ConfigureCloudRoutes"
    )
    allow_untagged_cloud: bool = option(
        _CLOUD, BOOLEAN, False, "run even if the provider cannot tell clusters apart", f"{_SHARED}.AllowUntaggedCloud"
    )
    controllers: tuple[str, ...] = option(
        _RUN,
        CONTROLLERS,
        ON_BY_DEFAULT,
        "run these controllers: '*' for all that are on by default, 'name' for one more, '-name' for one less; "
        + ", ".join(f"{name} ({alias})" for name, alias in NAMES_OF_CONTROLLERS.items())
        + "; off by default: "
        + ", ".join(sorted(OFF_BY_DEFAULT)),
        "Generic.Controllers",
    )
    concurrent_node_syncs: int = option(
        _RUN,
        WHOLE,
        30,
        "write this many Nodes at a time",
        "NodeController.ConcurrentNodeSyncs",
        upstream="1: one slow Node delays all others",
        check=at_least(1),
    )
    concurrent_service_syncs: int = option(
        _RUN,
        WHOLE,
        20,
        "write this many load balancers at a time, within the provider's limits",
        "ServiceController.ConcurrentServiceSyncs",
        upstream="1: one slow load balancer delays all others",
        check=at_least(1),
    )
    node_monitor_period: float = option(
        _RUN,
        DURATION,
        5.0,
        "check Nodes that are not Ready this often",
        "NodeLifecycleController.NodeMonitorPeriod",
        check=positive,
    )
    node_status_update_frequency: float = option(
        _RUN,
        DURATION,
        300.0,
        "refresh addresses and missing labels of all Nodes this often",
        "NodeStatusUpdateFrequency",
        check=positive,
    )
    legacy_node_labels: bool = option(
        _RUN,
        BOOLEAN,
        True,
        "also write zone, region and instance type under their deprecated names (beta.kubernetes.io), as upstream does",
    )
    refresh_node_labels: str = option(
        _RUN,
        REFRESH,
        "missing",
        "add missing labels of initialised Nodes at each refresh (missing, or false), or also overwrite zone, region, "
        "instance type and those of the provider's labels that the controller wrote (always, or true), or do neither "
        "(never)",
    )
    route_reconciliation_period: float = option(
        _RUN,
        DURATION,
        60.0,
        "audit all routes this often; changes of Nodes apply at once",
        f"{_SHARED}.RouteReconciliationPeriod",
        upstream="10s: upstream notices changes only at that interval",
        check=positive,
    )
    load_balancer_ready_nodes_only: bool = option(
        _RUN,
        BOOLEAN,
        False,
        "use only Ready Nodes as backends of load balancers, unless none is Ready; false: health checks decide",
    )
    load_balancer_drain_nodes: str = option(
        _RUN,
        DRAIN,
        "leaving",
        "let Nodes keep the connections of load balancers and get no new ones, where the cloud can do that: Nodes with "
        "a sign of removal or shutdown (leaving), these and cordoned Nodes (cordoned), or none (never)",
        upstream="never: Nodes go when they are deleted or excluded, or when health checks fail; with the autoscaler's "
        "taint, when another Node changes",
    )
    load_balancer_class: tuple[str, ...] = option(
        _RUN,
        NAMES,
        (),
        "serve Services of these classes (spec.loadBalancerClass), too, as NAME or NAME=PROVIDER",
    )
    default_load_balancer_provider: str = option(
        _RUN,
        TEXT,
        "",
        "serve Services without a class with this provider; none: leave them to another controller; empty: serve them "
        "with the only provider that has load balancers",
    )
    orphan_audit_period: float = option(
        _RUN,
        DURATION,
        600.0,
        "look for load balancers whose Service does not exist this often; 0 never looks",
        check=not_negative,
    )
    delete_orphaned_load_balancers: bool = option(
        _RUN,
        BOOLEAN,
        False,
        "delete load balancers whose Service does not exist; use it only if no other cluster of the cloud project "
        "has the same --cluster-name",
    )
    node_deletion_min_age: float = option(
        _SAFE, DURATION, 300.0, "keep Nodes that are younger than this", check=not_negative
    )
    node_deletion_confirmations: int = option(
        _SAFE, WHOLE, 2, "delete a Node after this many fresh reads report its instance gone", check=at_least(1)
    )
    node_deletion_cap: str = option(
        _SAFE,
        TEXT,
        "10%",
        "delete at most this many Nodes within the window, the others later: a share of the Nodes whose instances are "
        "known (at least 2), or a number; 0 or 0% deletes none",
        check=parse_cap,
    )
    node_deletion_window: float = option(
        _SAFE,
        DURATION,
        180.0,
        "count deletions over this period; the defaults delete 10 missing Nodes of 30 within 15 minutes",
        check=not_negative,
    )
    fence_dead_nodes: bool = option(
        _SAFE,
        BOOLEAN,
        False,
        "add the taint node.kubernetes.io/out-of-service to Nodes whose machines are shut down or gone, so that Pods "
        "with volumes move at once; the rules, the cap and the window of deletion apply",
    )
    kubeconfig: str = option(
        _KUBE,
        TEXT,
        "",
        "read this kubeconfig; without it and --master: use the Pod's ServiceAccount",
        f"{_CLIENT}.kubeconfig",
    )
    master: str = option(_KUBE, TEXT, "", "connect to this API server instead of the kubeconfig's")
    kube_api_content_type: str = option(
        _KUBE,
        TEXT,
        PROTOBUF,
        f"read objects of the API server in this encoding: {PROTOBUF}, or {JSON}, which people can read",
        f"{_CLIENT}.contentType",
        check=encoding,
    )
    kube_api_qps: float = option(
        _KUBE,
        NUMBER,
        400.0,
        "send at most this many requests per second",
        f"{_CLIENT}.qps",
        upstream="20; the API server's priority and fairness is the better limit",
    )
    kube_api_burst: int = option(
        _KUBE, WHOLE, 800, "send at most this many requests at once", f"{_CLIENT}.burst", upstream="30, as for the rate"
    )
    kube_api_wait: float = option(
        _KUBE, DURATION, 30.0, "wait this long at start for an API server that does not answer", check=not_negative
    )
    bind_address: str = option(
        _SERVE,
        TEXT,
        "127.0.0.1",
        "serve health and metrics on this address; Prometheus needs an address of the node",
        "Generic.Address",
        upstream="0.0.0.0: every host and Pod that reaches the node can connect, and probes do not need that",
    )
    secure_port: int = option(
        _SERVE,
        WHOLE,
        10258,
        "serve health and metrics on this port (HTTPS); 0 serves neither",
        "Generic.Port",
        check=port,
    )
    cert_dir: str = option(
        _SERVE,
        TEXT,
        "",
        "read cloud-controller-manager.crt and .key from this directory, unless --tls-cert-file is set; empty: use a "
        "self-signed certificate",
    )
    tls_cert_file: str = option(_SERVE, TEXT, "", "serve with this certificate; a changed file applies at once")
    tls_private_key_file: str = option(_SERVE, TEXT, "", "use this key for --tls-cert-file")
    tls_sni_cert_key: tuple[SniPair, ...] = option(
        _SERVE, SNI, (), "serve with this certificate and key for the names in it, or for the names given"
    )
    tls_cipher_suites: tuple[str, ...] = option(
        _SERVE,
        NAMES,
        (),
        "offer these cipher suites of TLS 1.2, by Go's names; empty: all safe ones",
        check=cipher_suites,
    )
    tls_min_version: str = option(
        _SERVE, TEXT, "", "require VersionTLS12 (the default) or VersionTLS13", check=tls_version
    )
    permit_port_sharing: bool = option(
        _SERVE, BOOLEAN, False, "set SO_REUSEPORT, so that several processes can serve the port"
    )
    authorization_always_allow_paths: tuple[str, ...] = option(
        _AUTH, NAMES, ("/healthz", "/livez", "/readyz"), "serve these paths without authorisation"
    )
    client_ca_file: str = option(
        _AUTH, TEXT, "", "accept client certificates of this CA; CN is the user, O are the groups"
    )
    authentication_skip_lookup: bool = option(
        _AUTH,
        BOOLEAN,
        False,
        "do not read the cluster's client CA from the ConfigMap kube-system/extension-apiserver-authentication",
    )
    authentication_tolerate_lookup_failure: bool = option(
        _AUTH, BOOLEAN, False, "run even if the cluster's client CA cannot be read"
    )
    authentication_kubeconfig: str = option(
        _AUTH, TEXT, "", "use this kubeconfig for TokenReviews and the cluster's client CA; empty: --kubeconfig"
    )
    authorization_kubeconfig: str = option(
        _AUTH, TEXT, "", "use this kubeconfig for SubjectAccessReviews; empty: --kubeconfig"
    )
    authentication_token_webhook_cache_ttl: float = option(
        _AUTH, DURATION, 10.0, "cache the answer to a token for this long; 0 caches none", check=not_negative
    )
    authorization_webhook_cache_authorized_ttl: float = option(
        _AUTH, DURATION, 10.0, "cache a permission for this long", check=not_negative
    )
    authorization_webhook_cache_unauthorized_ttl: float = option(
        _AUTH, DURATION, 10.0, "cache a refusal for this long", check=not_negative
    )
    webhooks: tuple[str, ...] = option(
        _HOOK,
        NAMES,
        (),
        "serve these webhooks, as in --controllers: persistentvolume-label, if the provider has volumes, and those of "
        "the provider; requires the gate CloudControllerManagerWebhook",
        "Webhook.Webhooks",
    )
    webhook_bind_address: str = option(
        _HOOK,
        TEXT,
        "127.0.0.1",
        "serve webhooks on this address; API servers on other hosts, and a Service, need an address of the node",
        upstream="0.0.0.0, as --bind-address",
    )
    webhook_secure_port: int = option(
        _HOOK, WHOLE, 10260, "serve webhooks on this port (HTTPS); 0 serves none", check=port
    )
    webhook_cert_dir: str = option(
        _HOOK, TEXT, "", "do for webhooks what --cert-dir does, with cloud-controller-manager-webhook.crt and .key"
    )
    webhook_client_ca_file: str = option(
        _HOOK,
        TEXT,
        "",
        "accept webhook requests only from clients with a certificate of this CA; empty: from all clients",
    )
    webhook_tls_cert_file: str = option(
        _HOOK, TEXT, "", "serve webhooks with this certificate; a changed file applies at once"
    )
    webhook_tls_private_key_file: str = option(_HOOK, TEXT, "", "use this key for --webhook-tls-cert-file")
    webhook_tls_sni_cert_key: tuple[SniPair, ...] = option(
        _HOOK, SNI, (), "do for webhooks what --tls-sni-cert-key does"
    )
    webhook_tls_cipher_suites: tuple[str, ...] = option(
        _HOOK, NAMES, (), "do for webhooks what --tls-cipher-suites does", check=cipher_suites
    )
    webhook_tls_min_version: str = option(
        _HOOK, TEXT, "", "do for webhooks what --tls-min-version does", check=tls_version
    )
    leader_elect: bool = option(_LEAD, BOOLEAN, True, "run only while holding the Lease", f"{_ELECTION}.leaderElect")
    leader_elect_lease_duration: float = option(
        _LEAD,
        DURATION,
        15.0,
        "let others acquire a Lease that was not renewed for this long",
        f"{_ELECTION}.leaseDuration",
    )
    leader_elect_renew_deadline: float = option(
        _LEAD, DURATION, 10.0, "stop a leader that cannot renew its Lease for this long", f"{_ELECTION}.renewDeadline"
    )
    leader_elect_retry_period: float = option(
        _LEAD, DURATION, 2.0, "renew the Lease, or try to acquire it, this often", f"{_ELECTION}.retryPeriod"
    )
    leader_elect_resource_name: str = option(
        _LEAD, TEXT, "cloud-controller-manager", "use the Lease of this name", f"{_ELECTION}.resourceName"
    )
    leader_elect_resource_namespace: str = option(
        _LEAD, TEXT, "kube-system", "use the Lease in this namespace", f"{_ELECTION}.resourceNamespace"
    )
    enable_leader_migration: bool = option(
        _LEAD,
        BOOLEAN,
        False,
        "take over controllers from another manager: they run only while this process also holds the migration Lease",
        "Generic.LeaderMigrationEnabled",
    )
    leader_migration_config: str = option(
        _LEAD,
        TEXT,
        "",
        "read this LeaderMigrationConfiguration; empty: migrate the route, service and node lifecycle controllers",
    )
    feature_gates: Mapping[str, bool] = option(_GENERAL, GATES, {}, "switch these feature gates on or off")
    logging_format: str = option(_GENERAL, TEXT, "text", "write the log as text or as json", check=log_format)
    v: int = option(_GENERAL, WHOLE, 0, "log at this verbosity; 4 and more log every decision")


FLAGS = flags_of(Flags)
