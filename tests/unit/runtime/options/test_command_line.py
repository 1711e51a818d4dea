# SPDX-License-Identifier: Apache-2.0
"""The command line. C1, C2, C5-C8 and W31 of docs/reference/parity.md: invalid values are refused at start."""

import dataclasses
import json
import re
import subprocess
import sys
from typing import ClassVar

import pytest

from ccm import __version__
from ccm.cloud import registry
from ccm.controllers.nodes.node_label_rules import Refresh
from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.options import command_line
from ccm.options.command_line import Options, OptionsError, parse
from ccm.options.controller_names import CONTROLLERS, ON_BY_DEFAULT, select_controllers, spell_controllers
from ccm.options.flags import FLAGS as TABLE
from ccm.options.ignored_flags import IGNORED
from ccm.options.leader_migration import Migration
from ccm.options.restrictions import parse_cap
from ccm.options.values import SniPair

SIM = "--cloud-provider=sim"
INSTALLED = ", ".join(registry.names())
DEFAULTS = Options(
    cloud_provider="sim",
    cloud_config="",
    cluster_name="kubernetes",
    cluster_cidr="",
    node_cidr_mask_size=0,
    node_cidr_mask_size_ipv4=0,
    node_cidr_mask_size_ipv6=0,
    configure_cloud_routes=True,
    allow_untagged_cloud=False,
    controllers=ON_BY_DEFAULT,
    kubeconfig="",
    master="",
    kube_api_content_type="application/vnd.kubernetes.protobuf",
    kube_api_qps=400.0,
    kube_api_burst=800,
    kube_api_wait=30.0,
    bind_address="127.0.0.1",
    secure_port=10258,
    cert_dir="",
    tls_cert_file="",
    tls_private_key_file="",
    tls_sni_cert_key=(),
    tls_cipher_suites=(),
    tls_min_version="",
    permit_port_sharing=False,
    authorization_always_allow_paths=("/healthz", "/livez", "/readyz"),
    client_ca_file="",
    authentication_skip_lookup=False,
    authentication_tolerate_lookup_failure=False,
    authentication_kubeconfig="",
    authorization_kubeconfig="",
    authentication_token_webhook_cache_ttl=10.0,
    authorization_webhook_cache_authorized_ttl=10.0,
    authorization_webhook_cache_unauthorized_ttl=10.0,
    webhooks=(),
    webhook_bind_address="127.0.0.1",
    webhook_secure_port=10260,
    webhook_cert_dir="",
    webhook_client_ca_file="",
    webhook_tls_cert_file="",
    webhook_tls_private_key_file="",
    webhook_tls_sni_cert_key=(),
    webhook_tls_cipher_suites=(),
    webhook_tls_min_version="",
    leader_elect=True,
    leader_elect_lease_duration=15.0,
    leader_elect_renew_deadline=10.0,
    leader_elect_retry_period=2.0,
    leader_elect_resource_name="cloud-controller-manager",
    leader_elect_resource_namespace="kube-system",
    enable_leader_migration=False,
    leader_migration_config="",
    leader_migration=Migration(),
    feature_gates={},
    concurrent_node_syncs=30,
    concurrent_service_syncs=20,
    node_monitor_period=5.0,
    node_status_update_frequency=300.0,
    route_reconciliation_period=60.0,
    legacy_node_labels=True,
    refresh_node_labels="missing",
    load_balancer_ready_nodes_only=False,
    load_balancer_drain_nodes="leaving",
    load_balancer_class=(),
    default_load_balancer_provider="",
    orphan_audit_period=600.0,
    delete_orphaned_load_balancers=False,
    node_deletion_min_age=300.0,
    node_deletion_confirmations=2,
    node_deletion_cap="10%",
    node_deletion_window=180.0,
    fence_dead_nodes=False,
    logging_format="text",
    v=0,
)


def problems(*arguments):
    with pytest.raises(OptionsError) as caught:
        parse(arguments)
    return caught.value.problems


def test_C1_defaults():
    assert parse([SIM]) == DEFAULTS


#: (spelling, parsed value) by field. Flags that need one another are next to one another.
FLAGS = {
    "cloud_config": ("/etc/ccm/cloud.conf", "/etc/ccm/cloud.conf"),
    "cluster_name": ("prod", "prod"),
    "cluster_cidr": ("10.1.0.0/16", "10.1.0.0/16"),
    "node_cidr_mask_size": ("25", 25),
    "node_cidr_mask_size_ipv4": ("26", 26),
    "node_cidr_mask_size_ipv6": ("80", 80),
    "allocate_node_cidrs": ("true", True),
    "cidr_allocator_type": ("CloudAllocator", "CloudAllocator"),
    "service_cluster_ip_range": ("10.96.0.0/16", "10.96.0.0/16"),
    "instance_tags": ("a=1,b=", ("a=1", "b=")),
    "configure_cloud_routes": ("false", False),
    "allow_untagged_cloud": ("true", True),
    "controllers": ("service,-route", ("service-lb-controller",)),
    "kubeconfig": ("/etc/kubernetes/ccm.conf", "/etc/kubernetes/ccm.conf"),
    "master": ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
    "kube_api_content_type": ("application/json", "application/json"),
    "kube_api_qps": ("12.5", 12.5),
    "kube_api_burst": ("25", 25),
    "kube_api_wait": ("1m", 60.0),
    "bind_address": ("0.0.0.0", "0.0.0.0"),
    "secure_port": ("0", 0),
    "cert_dir": ("/certs", "/certs"),
    "authorization_always_allow_paths": ("/healthz, /metrics", ("/healthz", "/metrics")),
    "tls_sni_cert_key": ("/a.crt,/a.key:a.example.org,b", (SniPair("/a.crt", "/a.key", ("a.example.org", "b")),)),
    "tls_cipher_suites": ("TLS_AES_128_GCM_SHA256", ("TLS_AES_128_GCM_SHA256",)),
    "tls_min_version": ("VersionTLS13", "VersionTLS13"),
    "permit_port_sharing": ("true", True),
    "client_ca_file": ("/ca.crt", "/ca.crt"),
    "authentication_skip_lookup": ("true", True),
    "authentication_tolerate_lookup_failure": ("true", True),
    "authentication_kubeconfig": ("/a.conf", "/a.conf"),
    "authorization_kubeconfig": ("/b.conf", "/b.conf"),
    "authentication_token_webhook_cache_ttl": ("0s", 0.0),
    "authorization_webhook_cache_authorized_ttl": ("5m", 300.0),
    "authorization_webhook_cache_unauthorized_ttl": ("30s", 30.0),
    "webhook_bind_address": ("0.0.0.0", "0.0.0.0"),
    "webhook_secure_port": ("0", 0),
    "webhook_cert_dir": ("/hooks", "/hooks"),
    "webhook_client_ca_file": ("/ca", "/ca"),
    "webhook_tls_sni_cert_key": ("/a.crt,/a.key", (SniPair("/a.crt", "/a.key"),)),
    "webhook_tls_cipher_suites": ("TLS_AES_128_GCM_SHA256", ("TLS_AES_128_GCM_SHA256",)),
    "webhook_tls_min_version": ("VersionTLS12", "VersionTLS12"),
    "feature_gates": ("CloudControllerManagerWebhook=true", {"CloudControllerManagerWebhook": True}),
    "enable_leader_migration": ("true", True),
    "leader_migration_config": ("/migration.yaml", "/migration.yaml"),
    "leader_elect": ("false", False),
    "leader_elect_lease_duration": ("1m", 60.0),
    "leader_elect_renew_deadline": ("12s", 12.0),
    "leader_elect_retry_period": ("1s500ms", 1.5),
    "leader_elect_resource_name": ("my-ccm", "my-ccm"),
    "leader_elect_resource_namespace": ("cloud", "cloud"),
    "concurrent_node_syncs": ("7", 7),
    "concurrent_service_syncs": ("8", 8),
    "node_monitor_period": ("9s", 9.0),
    "node_status_update_frequency": ("11m", 660.0),
    "route_reconciliation_period": ("12s", 12.0),
    "legacy_node_labels": ("false", False),
    "refresh_node_labels": ("always", "always"),
    "load_balancer_ready_nodes_only": ("true", True),
    "load_balancer_drain_nodes": ("Cordoned", "cordoned"),
    "load_balancer_class": ("internal,example.com/fast=sim", ("internal", "example.com/fast=sim")),
    "default_load_balancer_provider": ("sim", "sim"),
    "orphan_audit_period": ("0s", 0.0),
    "delete_orphaned_load_balancers": ("true", True),
    "node_deletion_min_age": ("0", 0.0),
    "node_deletion_confirmations": ("4", 4),
    "node_deletion_cap": ("3", "3"),
    "node_deletion_window": ("1h", 3600.0),
    "fence_dead_nodes": ("true", True),
    "logging_format": ("json", "json"),
    "v": ("6", 6),
}


def spelt(field):
    return "--" + field.replace("_", "-")


@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("joined", [True, False], ids=["with =", "as two words"])
def test_C2_every_flag_sets_its_field_and_no_other(field, joined):
    text, value = FLAGS[field]
    arguments = [f"{spelt(field)}={text}"] if joined else [spelt(field), text]
    assert parse([SIM, *arguments]) == dataclasses.replace(DEFAULTS, **{field: value})


def test_C2_nothing_is_left_out():
    """Every flag is tested. Certificates need their keys, and webhooks their feature gate."""
    files = {"tls_cert_file": "/a.crt", "tls_private_key_file": "/a.key"}
    files |= {f"webhook_{name}": value for name, value in files.items()}
    arguments = [*(f"{spelt(k)}={v}" for k, v in files.items()), "--webhooks=a,-b"]
    gates = {"CloudControllerManagerWebhook": True}
    expected = dataclasses.replace(DEFAULTS, **files, webhooks=("a", "-b"), feature_gates=gates)
    assert parse([SIM, *arguments, "--feature-gates=CloudControllerManagerWebhook=true"]) == expected
    in_test_clouds = {"cloud_nodes", "cloud_cluster_cidr"}
    tested = {*FLAGS, *files, "webhooks", "cloud_provider", *in_test_clouds}
    assert tested == {flag.field for flag in TABLE}
    no_flags = {"leader_migration", "sections", "division"}
    assert tested | no_flags == {field.name for field in dataclasses.fields(Options)}


def test_lists_of_several_flags_add_up():
    found = parse(
        [
            SIM,
            "--tls-sni-cert-key=a,b:x",
            "--tls-sni-cert-key=c,d",
            "--feature-gates=" + GATE,
            "--feature-gates=" + RELEASE,
        ]
    )
    assert found.tls_sni_cert_key == (SniPair("a", "b", ("x",)), SniPair("c", "d"))
    assert found.feature_gates == {
        "CloudControllerManagerWebhook": True,
        "ControllerManagerReleaseLeaderElectionLockOnExit": False,
    }


GATE, RELEASE = "CloudControllerManagerWebhook=true", "ControllerManagerReleaseLeaderElectionLockOnExit=false"


def test_C2_empty_list_of_open_paths():
    assert parse([SIM, "--authorization-always-allow-paths="]).authorization_always_allow_paths == ()


@pytest.mark.parametrize("spelling", [["-v", "4"], ["-v=4"], ["-v4"], ["--v=4"], ["--v", "4"]])
def test_verbosity_as_manifests_spell_it(spelling):
    assert parse([SIM, *spelling]).v == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("=true", True), ("=True", True), ("=t", True), ("=1", True), ("", True), ("=false", False), ("=F", False)],
)
def test_booleans(text, value):
    assert parse([SIM, f"--allow-untagged-cloud{text}"]).allow_untagged_cloud is value


def test_a_boolean_takes_no_word_that_is_none():
    assert problems(SIM, "--leader-elect=maybe") == ["--leader-elect: 'maybe' is neither true nor false"]


#: Arguments of real manifests: kubeadm and RKE2 clusters, vendors' DaemonSets.
MANIFESTS = [
    ["--v=2", "--use-service-account-credentials=true", "--configure-cloud-routes=false"],
    [
        "--allocate-node-cidrs=true",
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
        "--profiling=false",
    ],
    [
        "--webhook-secure-port=0",
        "--requestheader-client-ca-file=/a",
        "--tls-curve-preferences=X25519",
        "--secure-port=10258",
    ],
    ["--node-sync-period", "1m", "--leader-elect-resource-lock", "leases", "--profiling", "--contention-profiling"],
]


@pytest.mark.parametrize("arguments", MANIFESTS)
def test_existing_manifests_start(arguments):
    found = parse([SIM, *arguments])
    changed = {"v": 2, "configure_cloud_routes": False} if "--v=2" in arguments else {}
    if "--webhook-secure-port=0" in arguments:
        changed = {"webhook_secure_port": 0}
    if any("feature-gates" in argument for argument in arguments):
        gates = {"CloudControllerManagerWatchBasedRoutesReconciliation": True}
        changed = {"feature_gates": gates, "allocate_node_cidrs": True}
    assert found == dataclasses.replace(DEFAULTS, **changed)


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_flags_change_nothing(name):
    values = {"leader-elect-resource-lock": "leases"} | dict.fromkeys(
        ("concurrent-node-status-updates", "concurrent-node-lifecycle-syncs"), "3"
    )
    value = values.get(name, "x")
    assert parse([SIM, f"--{name}={value}"]) == parse([SIM, f"--{name}", value]) == DEFAULTS


def test_all_problems_at_once():
    found = problems(
        "--concurrent-node-syncs=0",
        "--concurrent-service-syncs=many",
        "--secure-port=70000",
        "--kube-api-qps=fast",
        "--node-monitor-period=5",
        "--node-deletion-cap=most",
        "--leader-elect-retry-period=20s",
        "--tls-cert-file=/a.crt",
        "--logging-format=xml",
        "--cluster-cidr=pods",
        "--controllers=*,nodes",
        "-v=x",
        "--nope=1",
        "extra",
    )
    assert len(found) == 15
    for expected in (
        "--concurrent-service-syncs: 'many' is not a whole number",
        "--kube-api-qps: 'fast' is not a number",
        "--node-monitor-period: '5' is not a duration such as 10s, 5m or 1h30m",
        "-v: 'x' is not a whole number",
        "unknown argument '--nope=1'",
        "unknown argument 'extra'",
        "--concurrent-node-syncs must be 1 or more, not 0",
        "--secure-port must be between 0 and 65535, not 70000",
        "--node-deletion-cap: 'most' is neither a share such as 10% nor a number of Nodes",
        "leader election requires lease-duration > renew-deadline > 1.2 x retry-period > 0, not 15s, 10s, 20s",
        "--tls-cert-file and --tls-private-key-file must be set together",
        "--logging-format must be text or json, not 'xml'",
        "--cluster-cidr: 'pods' does not appear to be an IPv4 or IPv6 network",
    ):
        assert expected in found
    assert any(
        problem.startswith(f"--cloud-provider is required: installed providers are {INSTALLED}") for problem in found
    )
    assert any(problem.startswith("--controllers: unknown controller 'nodes': known controllers") for problem in found)


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        pytest.param("--concurrent-node-syncs=0", "must be 1 or more, not 0", id="C6-W31"),
        pytest.param("--concurrent-node-syncs=-1", "must be 1 or more, not -1", id="C6-negative"),
        pytest.param("--concurrent-service-syncs=0", "must be 1 or more, not 0", id="W31"),
        ("--node-deletion-confirmations=0", "must be 1 or more, not 0"),
        ("--node-monitor-period=0", "must be more than 0, not 0s"),
        ("--node-status-update-frequency=0s", "must be more than 0, not 0s"),
        ("--route-reconciliation-period=-1s", "must be more than 0, not -1s"),
        ("--node-deletion-min-age=-5m", "must be 0 or more, not -300s"),
        ("--node-deletion-window=-1s", "must be 0 or more, not -1s"),
        ("--kube-api-wait=-1s", "must be 0 or more, not -1s"),
        ("--secure-port=-1", "must be between 0 and 65535, not -1"),
        ("--secure-port=65536", "must be between 0 and 65535, not 65536"),
        ("--tls-private-key-file=/a.key", "--tls-cert-file and --tls-private-key-file must be set together"),
        ("--kube-api-qps=nan", "'nan' is not a number"),
        ("--kube-api-burst=1.5", "'1.5' is not a whole number"),
        ("--node-deletion-cap=101%", "'101%' is neither a share such as 10% nor a number of Nodes"),
        ("--leader-elect-renew-deadline=15s", "leader election requires lease-duration > renew-deadline"),
        ("--leader-elect-renew-deadline=2.4s", "not 15s, 2.4s, 2s"),
        ("--leader-elect-retry-period=0", "> 0, not 15s, 10s, 0s"),
        ("--cluster-cidr=10.0.0.0/16,10.1.0.0/16", "at most one IPv4 and one IPv6 CIDR"),
        pytest.param("--concurrent-node-status-updates=-1", "must be 0 or more, not -1", id="C6-status-updates"),
        ("--leader-elect-resource-lock=endpoints", "'endpoints' is not a supported lock: only leases is"),
        pytest.param("--concurrent-node-lifecycle-syncs=0", "must be at least 1, not 0", id="C21-none"),
        pytest.param("--concurrent-node-lifecycle-syncs=-5", "must be at least 1, not -5", id="C21-negative"),
        ("--feature-gates=Nope=true", "unknown gate 'Nope': known gates are CloudControllerManagerWatchBasedRoutes"),
        (f"--feature-gates={GATE[:-4]}yes", "=yes: is neither true nor false"),
        ("--webhooks=*", "requires --feature-gates=CloudControllerManagerWebhook=true"),
        ("--webhook-secure-port=65536", "must be between 0 and 65535, not 65536"),
        ("--webhook-tls-cert-file=/a", "--webhook-tls-cert-file and --webhook-tls-private-key-file must be set"),
        ("--tls-min-version=VersionTLS10", "must be one of VersionTLS12, VersionTLS13, not 'VersionTLS10'"),
        ("--tls-cipher-suites=TLS_NULL", "unknown TLS_NULL: known cipher suites are TLS_AES_128_GCM_SHA256, "),
        ("--tls-sni-cert-key=/a.crt", "'/a.crt' is not CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME"),
        ("--authorization-webhook-cache-unauthorized-ttl=-1s", "must be 0 or more, not -1s"),
        ("--config=/no/such/file", "--config /no/such/file cannot be read: No such file or directory"),
        ("--version=2", "expected nothing or raw, not '2'"),
    ],
)
def test_one_problem(argument, problem):
    [found] = problems(SIM, argument)
    assert problem in found
    if "must be set together" not in found and "leader election" not in found:
        assert found.startswith(argument.partition("=")[0])


def test_two_managers_must_not_wait_for_one_another_nor_one_for_itself():
    [found] = problems(SIM, "--enable-leader-migration", "--leader-elect=false")
    assert found.startswith("--enable-leader-migration requires --leader-elect")
    name = "--leader-elect-resource-name=cloud-provider-extraction-migration"
    [found] = problems(SIM, "--enable-leader-migration", name)
    assert "the process would wait for itself" in found
    parse([SIM, name])


def test_webhooks_need_a_port_of_their_own():
    arguments = [SIM, f"--feature-gates={GATE}", "--secure-port=10260"]
    assert problems(*arguments, "--webhooks=*") == [
        "--webhook-secure-port and --secure-port must differ, but both are 10260"
    ]
    parse(arguments)


def test_limits_that_are_just_allowed():
    assert parse([SIM, "--secure-port=65535"]).secure_port == 65535
    assert parse([SIM, "--leader-elect-renew-deadline=2.41s"]).leader_elect_renew_deadline == 2.41
    # Election times do not matter without election, nor the CIDR without routes.
    assert parse([SIM, "--leader-elect=false", "--leader-elect-retry-period=0"]).leader_elect is False
    assert parse([SIM, "--configure-cloud-routes=false", "--cluster-cidr=x"]).cluster_cidr == "x"


def test_a_flag_without_its_value():
    assert problems(SIM, "--secure-port=x", "--cloud-config") == [
        "--secure-port: 'x' is not a whole number",
        "argument --cloud-config: expected one argument",
    ]


def test_no_abbreviations():
    assert problems(SIM, "--cluster=x") == ["unknown argument '--cluster=x'"]


def test_cloud_provider_external_is_the_kubelets():
    [found] = problems("--cloud-provider=external")
    assert found == f"--cloud-provider=external is only for the kubelet; set an installed provider: {INSTALLED}"


class Point:
    name: ClassVar[str] = "vendor"
    value: ClassVar[str] = "vendor_sdk:Cloud"

    def load(self):
        raise ImportError("no vendor_sdk")


def test_required_lists_what_is_installed_also_what_does_not_import(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [Point()])
    assert problems() == ["--cloud-provider is required: installed providers are vendor"]
    assert parse(["--cloud-provider=vendor"]).cloud_provider == "vendor"
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [])
    assert problems() == ["--cloud-provider is required: installed providers are none"]


NODE, LIFECYCLE, SERVICE, ROUTE, VOLUME, *OPTIONAL = CONTROLLERS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("*", (NODE, LIFECYCLE, SERVICE, ROUTE), id="all"),
        pytest.param(NODE, (NODE,), id="only-named"),
        pytest.param(f"{ROUTE},{NODE}", (NODE, ROUTE), id="order-is-ours"),
        pytest.param(f"*,-{ROUTE}", (NODE, LIFECYCLE, SERVICE), id="all-but"),
        pytest.param(f"-{ROUTE},*", (NODE, LIFECYCLE, SERVICE), id="all-but-in-any-order"),
        pytest.param(f"-{NODE}", (), id="only-off"),
        pytest.param("service,route", (SERVICE, ROUTE), id="C5-aliases"),
        pytest.param("*,-cloud-node-lifecycle", (NODE, SERVICE, ROUTE), id="C5-alias-off"),
        pytest.param(f"cloud-node,-{NODE}", (NODE,), id="first-mention-wins-on"),
        pytest.param(f"-cloud-node,{NODE}", (), id="first-mention-wins-off"),
        pytest.param("*,route,-route", (NODE, LIFECYCLE, SERVICE, ROUTE), id="first-mention-wins-with-all"),
        pytest.param(" cloud-node , service ", (NODE, SERVICE), id="blanks"),
        pytest.param("*,pvlabel", (NODE, LIFECYCLE, SERVICE, ROUTE, VOLUME), id="off-by-default-but-named"),
        pytest.param("-route,*,persistentvolume-label-controller", (NODE, LIFECYCLE, SERVICE, VOLUME), id="all-named"),
        pytest.param("*,-pvlabel", (NODE, LIFECYCLE, SERVICE, ROUTE), id="off-anyway"),
    ],
)
def test_controllers(text, expected):
    assert select_controllers(part.strip() for part in text.split(",")) == expected
    assert parse([SIM, f"--controllers={text}"]).controllers == expected


@pytest.mark.parametrize(
    ("selected", "spelt"),
    [
        ((NODE, LIFECYCLE, SERVICE, ROUTE), ["*"]),
        (tuple(CONTROLLERS), ["*", VOLUME, *OPTIONAL]),
        ((NODE, VOLUME), [NODE, VOLUME]),
        ((), [f"-{name}" for name in CONTROLLERS]),
    ],
)
def test_what_is_spelt_selects_the_same(selected, spelt):
    assert spell_controllers(selected) == spelt
    assert select_controllers(spelt) == selected


@pytest.mark.parametrize("text", ["", "*,", "-*", "nodes", "Service", "--route"])
def test_unknown_controllers(text):
    with pytest.raises(ValueError, match=r"unknown controller '.*': known controllers are"):
        select_controllers(text.split(","))


def test_every_unknown_controller_is_named():
    with pytest.raises(
        ValueError, match=r"unknown controller 'a', '-b': known controllers are cloud-node-controller \(cloud-node\),"
    ):
        select_controllers(["a", "service", "-b"])


def test_C7_C8_names():
    for name, alias in CONTROLLERS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*-controller", name)
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", alias)
    names = {"cloud-node-controller", "cloud-node-lifecycle-controller", "service-lb-controller"}
    assert set(ON_BY_DEFAULT) == names | {"node-route-controller"}
    assert {CONTROLLERS[name] for name in ON_BY_DEFAULT} == {"cloud-node", "cloud-node-lifecycle", "service", "route"}


@pytest.mark.parametrize(
    ("text", "share", "minimum"),
    [
        ("10%", 0.10, 2),
        ("0%", 0.0, 0),
        ("0.0%", 0.0, 0),
        ("100%", 1.0, 2),
        ("2.5%", 0.025, 2),
        ("0", 0.0, 0),
        ("1", 0.0, 1),
        ("50", 0.0, 50),
    ],
)
def test_cap(text, share, minimum):
    assert parse_cap(text) == (share, minimum)
    assert parse([SIM, f"--node-deletion-cap={text}"]).safety() == Safety(cap_share=share, cap_min=minimum)


@pytest.mark.parametrize("text", ["", "%", "-1", "-10%", "1.5", "10 %", "101%", "ten", "10%%", "²"])
def test_bad_cap(text):
    with pytest.raises(ValueError, match=re.escape(repr(text)) + " is neither a share such as 10% nor a number"):
        parse_cap(text)


def test_safety_is_what_the_flags_say():
    arguments = ["--node-deletion-min-age=1m", "--node-deletion-confirmations=3", "--node-monitor-period=7s"]
    found = parse([SIM, *arguments, "--node-deletion-cap=25%", "--node-deletion-window=2m"]).safety()
    assert found == Safety(min_age=60, confirmations=3, interval=7, cap_share=0.25, cap_min=2, window=120)


@pytest.mark.parametrize(
    ("arguments", "prefixes"),
    [
        (["--cluster-cidr=10.1.0.0/16,fd00::/48"], {4: 24, 6: 64}),
        (["--cluster-cidr=10.1.0.0/16", "--node-cidr-mask-size=26"], {4: 26, 6: 26}),
        (["--cluster-cidr=fd00::/48", "--node-cidr-mask-size=112"], {4: 112, 6: 112}),
        (
            ["--cluster-cidr=10.1.0.0/16,fd00::/48", "--node-cidr-mask-size-ipv4=22", "--node-cidr-mask-size-ipv6=72"],
            {4: 22, 6: 72},
        ),
    ],
)
def test_pod_network(arguments, prefixes):
    found = parse([SIM, *arguments]).pod_network()
    assert f"--cluster-cidr={','.join(map(str, found.cluster))}" == arguments[0]
    assert found.node_prefix == prefixes


@pytest.mark.parametrize(
    ("cidr", "argument", "problem"),
    [
        ("10.0.0.0/16", "--node-cidr-mask-size-ipv4=33", "must be between 1 and 32, not 33"),
        ("10.0.0.0/16", "--node-cidr-mask-size-ipv6=-1", "must be between 1 and 128, not -1"),
        ("10.0.0.0/16,fd00::/48", "--node-cidr-mask-size=24", "applies to one family"),
    ],
)
def test_a_bad_prefix_length_of_nodes(cidr, argument, problem):
    [found] = problems(SIM, f"--cluster-cidr={cidr}", argument)
    assert found.startswith(argument.partition("=")[0]) and problem in found


def test_help_and_version(capsys):
    with pytest.raises(SystemExit) as caught:
        parse(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for name in (*(spelt(field) for field in FLAGS), *(f"--{name}" for name in IGNORED)):
        assert name in text
    with pytest.raises(SystemExit):
        parse(["--version"])
    assert capsys.readouterr().out == f"outoftree-ccm {__version__}\n"
    with pytest.raises(SystemExit) as caught:
        parse(["--version=raw"])
    assert caught.value.code == 0 and json.loads(capsys.readouterr().out)["version"] == __version__


def test_an_unknown_provider_is_told_with_the_rest():
    found = problems("--cloud-provider=nimbus", "--concurrent-node-syncs=0")
    assert len(found) == 2
    assert found[0].startswith(f"unknown cloud provider 'nimbus': installed providers are {INSTALLED}")


def test_the_parser_is_made_anew_each_time():
    problems(SIM, "--secure-port=x")
    assert parse([SIM]) == DEFAULTS
    assert command_line.parser().problems == []


def test_python_m_ccm_is_ccm():
    run = subprocess.run([sys.executable, "-m", "ccm", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"outoftree-ccm {__version__}\n"


@pytest.mark.parametrize(
    ("text", "refresh"),
    [
        ("", Refresh.ALWAYS),
        ("=true", Refresh.ALWAYS),
        ("=1", Refresh.ALWAYS),
        ("=Always", Refresh.ALWAYS),
        ("=false", Refresh.MISSING),
        ("=missing", Refresh.MISSING),
        ("=never", Refresh.NEVER),
    ],
)
def test_the_flag_of_labels_takes_what_it_took_before(text, refresh):
    assert parse([SIM, f"--refresh-node-labels{text}"]).refresh_node_labels == refresh


def test_another_word_is_refused():
    assert problems(SIM, "--refresh-node-labels=off") == [
        "--refresh-node-labels: 'off' is neither never, missing nor always"
    ]
    assert problems(SIM, "--load-balancer-drain-nodes=always") == [
        "--load-balancer-drain-nodes: 'always' is neither never, leaving nor cordoned"
    ]
