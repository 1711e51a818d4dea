# SPDX-License-Identifier: Apache-2.0
"""The command line: upstream's flags with upstream's names and meanings, and ours.

Reference "Upstream cloud-controller-manager", sections 7.2-7.4. Flags that upstream accepts and that have no meaning
here are accepted and ignored, so that existing manifests start; `IGNORED` lists them.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from ccm import __version__
from ccm.cloud import registry
from ccm.controllers import route_rules
from ccm.controllers.node_lifecycle_rules import Safety

from . import durations

#: Canonical controller names -> aliases (7.4). Their order is the order in which they start.
CONTROLLERS: Mapping[str, str] = {
    "cloud-node-controller": "cloud-node",
    "cloud-node-lifecycle-controller": "cloud-node-lifecycle",
    "service-lb-controller": "service",
    "node-route-controller": "route",
}

#: Upstream flags without a meaning here -> why.
IGNORED: Mapping[str, str] = {
    "allocate-node-cidrs": "kube-controller-manager allocates pod CIDRs",
    "cidr-allocator-type": "kube-controller-manager allocates pod CIDRs",
    "external-cloud-volume-plugin": "unused upstream, too",
    "node-sync-period": "deprecated upstream",
    "min-resync-period": "informers here have no resync",
    "kube-api-content-type": "the API is spoken in JSON",
    "contention-profiling": "a Go profile",
    "profiling": "a Go profile",
    "feature-gates": "no gated features",
    "log-flush-frequency": "logs are not buffered",
    "vmodule": "a Go logging option",
    "controller-start-interval": "controllers start together",
    "use-service-account-credentials": "one ServiceAccount with the union of the rights",
    "leader-elect-resource-lock": "always leases",
    "requestheader-client-ca-file": "no aggregation layer in front",
    "requestheader-allowed-names": "no aggregation layer in front",
    "authentication-tolerate-lookup-failure": "nothing is looked up at start",
    "authentication-skip-lookup": "nothing is looked up at start",
    "authentication-kubeconfig": "--kubeconfig serves for it",
    "authorization-kubeconfig": "--kubeconfig serves for it",
    "concurrent-node-status-updates": "addresses are refreshed from one listing",
    "webhook-bind-address": "no webhooks are served",
    "webhook-secure-port": "no webhooks are served",
    "disable-http2-serving": "HTTP/1.1 is served",
    "http2-max-streams-per-connection": "HTTP/1.1 is served",
    "requestheader-username-headers": "no aggregation layer in front",
    "requestheader-group-headers": "no aggregation layer in front",
    "requestheader-extra-headers-prefix": "no aggregation layer in front",
    "requestheader-uid-headers": "no aggregation layer in front",
    "authentication-token-webhook-cache-ttl": "answers are kept for 10 s",
    "authorization-webhook-cache-authorized-ttl": "answers are kept for 10 s",
    "authorization-webhook-cache-unauthorized-ttl": "answers are kept for 10 s",
    "log-text-split-stream": "logs go to standard error",
    "log-text-info-buffer-size": "logs are not buffered",
    "log-json-split-stream": "logs go to standard error",
    "log-json-info-buffer-size": "logs are not buffered",
}


class OptionsError(Exception):
    """The command line cannot be used; `problems` holds all that is wrong with it, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Options:
    """Validated options. Durations are seconds. Field names are the flags' with underscores."""

    cloud_provider: str
    cloud_config: str
    cluster_name: str
    cluster_cidr: str
    configure_cloud_routes: bool
    allow_untagged_cloud: bool
    controllers: tuple[str, ...]
    kubeconfig: str
    master: str
    kube_api_qps: float
    kube_api_burst: int
    kube_api_wait: float
    bind_address: str
    secure_port: int
    cert_dir: str
    tls_cert_file: str
    tls_private_key_file: str
    authorization_always_allow_paths: tuple[str, ...]
    leader_elect: bool
    leader_elect_lease_duration: float
    leader_elect_renew_deadline: float
    leader_elect_retry_period: float
    leader_elect_resource_name: str
    leader_elect_resource_namespace: str
    concurrent_node_syncs: int
    concurrent_service_syncs: int
    node_monitor_period: float
    node_status_update_frequency: float
    route_reconciliation_period: float
    node_deletion_min_age: float
    node_deletion_confirmations: int
    node_deletion_cap: str
    node_deletion_window: float
    logging_format: str
    v: int

    def safety(self) -> Safety:
        """The rules of Node deletion that the flags describe."""
        cap_share, cap_min = parse_cap(self.node_deletion_cap)
        return Safety(
            min_age=self.node_deletion_min_age,
            confirmations=self.node_deletion_confirmations,
            interval=self.node_monitor_period,
            cap_share=cap_share,
            cap_min=cap_min,
            window=self.node_deletion_window,
        )

    def cluster_networks(self) -> list[route_rules.Network]:
        return route_rules.parse_cluster_cidrs(self.cluster_cidr)


def parse_cap(text: str) -> tuple[float, int]:
    """`--node-deletion-cap`: "10%" is a share of all Nodes (but 2 at least), "5" is a number."""
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text):
        if float(match[1]) <= 100:
            return float(match[1]) / 100, Safety.cap_min
    elif re.fullmatch(r"[0-9]+", text):
        return 0.0, int(text)
    raise ValueError(f"{text!r} is neither a share such as 10% nor a number of Nodes")


def select_controllers(text: str) -> tuple[str, ...]:
    """`--controllers`: `*` for all, `name` on, `-name` off; the first mention of a name wins; aliases are understood.

    Raises ValueError naming every unknown one.
    """
    canonical = {alias: name for name, alias in CONTROLLERS.items()} | {name: name for name in CONTROLLERS}
    everything = False
    chosen: dict[str, bool] = {}
    unknown: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        bare = item.removeprefix("-")
        if item == "*":
            everything = True
        elif bare in canonical:
            chosen.setdefault(canonical[bare], not item.startswith("-"))
        else:
            unknown.append(repr(item))
    if unknown:
        known = ", ".join(f"{name} ({alias})" for name, alias in CONTROLLERS.items())
        raise ValueError(f"unknown controller {', '.join(unknown)}: known are {known}")
    return tuple(name for name in CONTROLLERS if chosen.get(name, everything))


class _Parser(argparse.ArgumentParser):
    """Gathers what is wrong with values, where argparse stops at the first one."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.problems: list[str] = []

    def error(self, message: str) -> NoReturn:
        raise OptionsError([*self.problems, message])

    def gathering(self, name: str, default: Any, convert: Callable[[str], Any]) -> Callable[[str], Any]:
        """As `convert`; a value that it refuses becomes a problem, and the default stands in for it."""

        def converted(text: str) -> Any:
            try:
                return convert(text)
            except ValueError as error:
                self.problems.append(f"{name}: {error}")
                return default

        return converted


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "t", "1"):
        return True
    if lowered in ("false", "f", "0"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number")
    return number


def parser() -> _Parser:
    """The parser; also what `--help` and the flags table of the documentation are made from."""
    p = _Parser(
        prog="ccm",
        description="External cloud-controller-manager for Kubernetes. Further commands: ccm sim --help.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )

    def flag(group: Any, name: str, default: Any, convert: Callable[[str], Any], help: str) -> None:
        extra: dict[str, Any] = {"nargs": "?", "const": True} if convert is _boolean else {}
        group.add_argument(
            f"--{name}", default=default, type=p.gathering(f"--{name}", default, convert), help=help, **extra
        )

    seconds = durations.parse
    cloud = p.add_argument_group("cloud")
    flag(cloud, "cloud-provider", "", str, "name of an installed provider (required)")
    flag(cloud, "cloud-config", "", str, "file with the provider's configuration")
    flag(cloud, "cluster-name", "kubernetes", str, "tells this cluster's things in the cloud from others'")
    flag(cloud, "cluster-cidr", "", str, "the pods' CIDR, or an IPv4 and an IPv6 one; routes within it are ours")
    flag(cloud, "configure-cloud-routes", True, _boolean, "run the route controller")
    flag(cloud, "allow-untagged-cloud", False, _boolean, "run although the provider cannot tell clusters apart")
    run = p.add_argument_group("controllers")
    flag(run, "controllers", "*", str, "comma list: '*' all, 'name' on, '-name' off; " + ", ".join(CONTROLLERS))
    flag(run, "concurrent-node-syncs", 30, _whole, "Nodes written at a time")
    flag(run, "concurrent-service-syncs", 10, _whole, "Services worked on at a time")
    flag(run, "node-monitor-period", 5.0, seconds, "between looks at Nodes that are not Ready")
    flag(run, "node-status-update-frequency", 300.0, seconds, "between refreshes of all Nodes' addresses")
    flag(run, "route-reconciliation-period", 60.0, seconds, "between audits of routes; changes are seen at once")
    safe = p.add_argument_group("safety of Nodes")
    flag(safe, "node-deletion-min-age", 300.0, seconds, "younger Nodes are never deleted")
    flag(safe, "node-deletion-confirmations", 2, _whole, "fresh reads that must report the instance gone")
    flag(safe, "node-deletion-cap", "10%", str, "Nodes that may go within the window: a share (2 at least) or a number")
    flag(safe, "node-deletion-window", 600.0, seconds, "the window of the cap")
    kube = p.add_argument_group("Kubernetes API")
    flag(kube, "kubeconfig", "", str, "kubeconfig file; without it and --master: in-cluster")
    flag(kube, "master", "", str, "address of the API server; overrides the kubeconfig's")
    flag(kube, "kube-api-qps", 400.0, _number, "requests per second")
    flag(kube, "kube-api-burst", 800, _whole, "requests at once")
    flag(kube, "kube-api-wait", 30.0, seconds, "how long to wait at start for an API server that does not answer")
    serve = p.add_argument_group("serving")
    flag(serve, "bind-address", "0.0.0.0", str, "address of health and metrics")
    flag(serve, "secure-port", 10258, _whole, "port of health and metrics (HTTPS); 0 turns them off")
    flag(serve, "cert-dir", "", str, "directory with cloud-controller-manager.crt and .key; empty: self-signed")
    flag(serve, "tls-cert-file", "", str, "serving certificate")
    flag(serve, "tls-private-key-file", "", str, "its key")
    flag(
        serve,
        "authorization-always-allow-paths",
        ("/healthz", "/livez", "/readyz"),
        _names,
        "paths that need no authorisation",
    )
    lead = p.add_argument_group("leader election")
    flag(lead, "leader-elect", True, _boolean, "run only while holding the Lease")
    flag(lead, "leader-elect-lease-duration", 15.0, seconds, "a Lease not renewed for this long may be taken")
    flag(lead, "leader-elect-renew-deadline", 10.0, seconds, "a leader that cannot renew for this long stops")
    flag(lead, "leader-elect-retry-period", 2.0, seconds, "between renewals and attempts")
    flag(lead, "leader-elect-resource-name", "cloud-controller-manager", str, "the Lease's name")
    flag(lead, "leader-elect-resource-namespace", "kube-system", str, "the Lease's namespace")
    logs = p.add_argument_group("logs")
    flag(logs, "logging-format", "text", str, "text or json")
    logs.add_argument(
        "-v", "--v", default=0, type=p.gathering("-v", 0, _whole), help="verbosity; 4 and more show every decision"
    )
    p.add_argument("--version", action="version", version=f"outoftree-ccm {__version__}")
    for name, why in IGNORED.items():
        p.add_argument(f"--{name}", nargs="?", default=None, help=f"accepted and ignored: {why}", metavar="")
    return p


def parse(argv: Sequence[str]) -> Options:
    """Options from a command line. Raises OptionsError with all problems."""
    p = parser()
    values, surplus = p.parse_known_args(list(argv))
    problems = [*p.problems, *(f"unknown argument {text!r}" for text in surplus)]
    try:
        values.controllers = select_controllers(values.controllers)
    except ValueError as error:
        problems.append(f"--controllers: {error}")
        values.controllers = ()
    options = Options(**{field.name: getattr(values, field.name) for field in fields(Options)})
    problems += _problems(options)
    if problems:
        raise OptionsError(problems)
    return options


def _problems(o: Options) -> list[str]:
    """Everything that is wrong with the values (W31: upstream starts with 0 workers and stays "healthy")."""
    found = []
    if not o.cloud_provider:
        found.append(f"--cloud-provider is required: installed providers are {', '.join(registry.names()) or 'none'}")
    elif o.cloud_provider == "external":
        found.append(
            "--cloud-provider=external is for the kubelet; here name a provider: " + ", ".join(registry.names())
        )
    for name in ("concurrent_node_syncs", "concurrent_service_syncs", "node_deletion_confirmations"):
        if getattr(o, name) < 1:
            found.append(f"--{name.replace('_', '-')} must be 1 or more, not {getattr(o, name)}")
    for name in ("node_monitor_period", "node_status_update_frequency", "route_reconciliation_period"):
        if getattr(o, name) <= 0:
            found.append(f"--{name.replace('_', '-')} must be more than 0, not {getattr(o, name):g}s")
    for name in ("node_deletion_min_age", "node_deletion_window", "kube_api_wait"):
        if getattr(o, name) < 0:
            found.append(f"--{name.replace('_', '-')} must be 0 or more, not {getattr(o, name):g}s")
    if not 0 <= o.secure_port <= 65535:
        found.append(f"--secure-port must be between 0 and 65535, not {o.secure_port}")
    if bool(o.tls_cert_file) != bool(o.tls_private_key_file):
        found.append("--tls-cert-file and --tls-private-key-file go together")
    if o.leader_elect and not (
        o.leader_elect_lease_duration > o.leader_elect_renew_deadline > 1.2 * o.leader_elect_retry_period > 0
    ):
        found.append(
            "leader election needs lease-duration > renew-deadline > 1.2 x retry-period > 0, not "
            f"{o.leader_elect_lease_duration:g}s, {o.leader_elect_renew_deadline:g}s, {o.leader_elect_retry_period:g}s"
        )
    if o.logging_format not in ("text", "json"):
        found.append(f"--logging-format must be text or json, not {o.logging_format!r}")
    try:
        parse_cap(o.node_deletion_cap)
    except ValueError as error:
        found.append(f"--node-deletion-cap: {error}")
    if o.configure_cloud_routes and o.cluster_cidr:
        try:
            o.cluster_networks()
        except ValueError as error:
            found.append(str(error))
    return found
