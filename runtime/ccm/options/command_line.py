# SPDX-License-Identifier: Apache-2.0
"""The options of a process: from the defaults, `--config FILE`, and the command line, each above the one before it.

Whatever is wrong is told at once (W31: upstream starts with 0 workers and stays "healthy").
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from ccm import __version__
from ccm.cloud import registry
from ccm.controllers import pod_network_rules
from ccm.controllers.node_lifecycle_rules import Safety

from . import config_file, feature_gates, leader_migration
from .flags import FLAGS, IGNORED, Flag, Ignored
from .leader_migration import Migration
from .tls_options import CIPHERS, VERSIONS, TlsOptions
from .values import BOOLEAN, GATES, SniPair


class OptionsError(Exception):
    """The options cannot be used; `problems` holds all that is wrong with them, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Options:
    """Validated options. Durations are seconds. Field names are the flags' with underscores; `flags.FLAGS` says what
    they mean."""

    cloud_provider: str
    cloud_config: str
    cluster_name: str
    cluster_cidr: str
    node_cidr_mask_size: int
    node_cidr_mask_size_ipv4: int
    node_cidr_mask_size_ipv6: int
    configure_cloud_routes: bool
    allow_untagged_cloud: bool
    controllers: tuple[str, ...]
    concurrent_node_syncs: int
    concurrent_service_syncs: int
    node_monitor_period: float
    node_status_update_frequency: float
    route_reconciliation_period: float
    legacy_node_labels: bool
    refresh_node_labels: bool
    load_balancer_ready_nodes_only: bool
    orphan_audit_period: float
    delete_orphaned_load_balancers: bool
    node_deletion_min_age: float
    node_deletion_confirmations: int
    node_deletion_cap: str
    node_deletion_window: float
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
    tls_sni_cert_key: tuple[SniPair, ...]
    tls_cipher_suites: tuple[str, ...]
    tls_min_version: str
    permit_port_sharing: bool
    authorization_always_allow_paths: tuple[str, ...]
    client_ca_file: str
    authentication_skip_lookup: bool
    authentication_tolerate_lookup_failure: bool
    authentication_kubeconfig: str
    authorization_kubeconfig: str
    authentication_token_webhook_cache_ttl: float
    authorization_webhook_cache_authorized_ttl: float
    authorization_webhook_cache_unauthorized_ttl: float
    webhooks: tuple[str, ...]
    webhook_bind_address: str
    webhook_secure_port: int
    webhook_cert_dir: str
    webhook_client_ca_file: str
    webhook_tls_cert_file: str
    webhook_tls_private_key_file: str
    webhook_tls_sni_cert_key: tuple[SniPair, ...]
    webhook_tls_cipher_suites: tuple[str, ...]
    webhook_tls_min_version: str
    leader_elect: bool
    leader_elect_lease_duration: float
    leader_elect_renew_deadline: float
    leader_elect_retry_period: float
    leader_elect_resource_name: str
    leader_elect_resource_namespace: str
    enable_leader_migration: bool
    leader_migration_config: str
    feature_gates: Mapping[str, bool]
    logging_format: str
    v: int
    #: What `--leader-migration-config`, or `--config`, says.
    leader_migration: Migration = field(default_factory=Migration)
    #: What `--config` says to controllers of other packages: name -> an instance of `ControllerSpec.section`.
    sections: Mapping[str, Any] = field(default_factory=dict)

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

    def pod_network(self) -> pod_network_rules.PodNetwork:
        """Where pod CIDRs may lie. Raises ValueError."""
        cluster = pod_network_rules.parse_cluster_cidrs(self.cluster_cidr)
        sizes = self.node_cidr_mask_size, self.node_cidr_mask_size_ipv4, self.node_cidr_mask_size_ipv6
        return pod_network_rules.PodNetwork(cluster, pod_network_rules.parse_node_prefixes(cluster, *sizes))

    def migration(self) -> Migration | None:
        """None when no controllers are migrated."""
        return self.leader_migration if self.enable_leader_migration else None

    def tls(self, prefix: str = "") -> TlsOptions:
        """How to serve; with the prefix "webhook_" the webhooks."""
        stem = "cloud-controller-manager" + ("-webhook" if prefix else "")
        certificate, key = getattr(self, f"{prefix}tls_cert_file"), getattr(self, f"{prefix}tls_private_key_file")
        directory = getattr(self, f"{prefix}cert_dir")
        if not certificate and directory:
            certificate, key = (str(Path(directory, f"{stem}.{ending}")) for ending in ("crt", "key"))
        return TlsOptions(
            certificate,
            key,
            getattr(self, f"{prefix}tls_sni_cert_key"),
            getattr(self, f"{prefix}tls_cipher_suites"),
            getattr(self, f"{prefix}tls_min_version"),
        )

    def configz(self) -> dict[str, Any]:
        """All of them, in upstream's shape."""
        return config_file.dump({item.name: getattr(self, item.name) for item in fields(self)}, self.leader_migration)


def parse_cap(text: str) -> tuple[float, int]:
    """`--node-deletion-cap`: "10%" is a share of the Nodes (but 2 at least), "5" is a number."""
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text):
        if float(match[1]) <= 100:
            return float(match[1]) / 100, Safety.cap_min
    elif re.fullmatch(r"[0-9]+", text):
        return 0.0, int(text)
    raise ValueError(f"{text!r} is neither a share such as 10% nor a number of Nodes")


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


class _Add(argparse.Action):
    """Lists of several flags add up, and so do gates."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest, None)
        joined = values if before is None else before | values if isinstance(values, dict) else (*before, *values)
        setattr(namespace, self.dest, joined)


class _Version(argparse.Action):
    """`--version` for people, `--version=raw` for programs."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values is None:
            print(f"outoftree-ccm {__version__}")
        elif values == "raw":
            print(
                json.dumps(
                    {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
                )
            )
        else:
            parser.error(f"--version: expected nothing or raw, not {values!r}")
        parser.exit(0)


def _others() -> str:
    """How to learn about the subcommands. The simulated cloud is a package of its own, and seldom installed."""
    names = ["check-provider", *(["sim"] if importlib.util.find_spec("ccm_simcloud") else [])]
    return "; ".join(f"ccm {name} --help" for name in names)


def parser() -> _Parser:
    """The parser. Flags that are not given are absent from its result."""
    p = _Parser(
        prog="ccm",
        usage="ccm [FLAG ...]",
        description=f"External cloud-controller-manager for Kubernetes. Also: {_others()}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    groups: dict[str, Any] = {}
    for flag in FLAGS:
        group = groups.get(flag.group) or groups.setdefault(flag.group, p.add_argument_group(flag.group))
        _add(p, group, flag)
    general = groups["general"]
    general.add_argument(
        "--config", help="file with a CloudControllerManagerConfiguration; flags are above it", metavar="FILE"
    )
    general.add_argument(
        "--version", action=_Version, nargs="?", help="tell the version (raw: as JSON) and end", metavar="raw"
    )
    useless = p.add_argument_group("accepted and ignored")
    for name, entry in IGNORED.items():
        useless.add_argument(f"--{name}", nargs="?", help=entry.why, metavar="", type=_ignoring(p, name, entry))
    return p


def _add(p: _Parser, group: Any, flag: Flag) -> None:
    shown = flag.kind.dump(flag.default)
    default = " ".join(shown) if isinstance(shown, list) else "" if shown == {} else shown
    more: dict[str, Any] = {"nargs": "?", "const": True} if flag.kind is BOOLEAN else {}
    if flag.kind.lists or flag.kind is GATES:
        more["action"] = _Add
    group.add_argument(
        *(["-v"] if flag.name == "v" else []),
        f"--{flag.name}",
        type=p.gathering(f"--{flag.name}" if flag.name != "v" else "-v", flag.default, flag.kind.parse),
        help=flag.help.replace("%", "%%") + (f" (default: {str(default).replace('%', '%%')})" if default != "" else ""),
        metavar=flag.kind.name.upper() if " " not in flag.kind.name else "X",
        **more,
    )


def _ignoring(p: _Parser, name: str, entry: Ignored) -> Callable[[str], Any]:
    return p.gathering(f"--{name}", None, entry.check)


def parse(argv: Sequence[str]) -> Options:
    """Options from a command line, and from the files that it names. Raises OptionsError with all problems."""
    p = parser()
    namespace, surplus = p.parse_known_args(list(argv))
    given = vars(namespace)
    problems = [*p.problems, *(f"unknown argument {text!r}" for text in surplus)]
    values: dict[str, Any] = {flag.field: flag.default for flag in FLAGS}
    if "config" in given:
        text = _read("--config", given["config"], problems)
        if text is not None:
            from_file, wrong = config_file.load(text, given["config"])
            values |= from_file
            problems += wrong
    values |= {name: value for name, value in given.items() if name in values}
    if values["enable_leader_migration"] and values["leader_migration_config"]:
        text = _read("--leader-migration-config", values["leader_migration_config"], problems)
        if text is not None:
            values["leader_migration"], wrong = leader_migration.parse(text, values["leader_migration_config"])
            problems += wrong
    options = Options(**values)
    problems += _problems(options)
    if problems:
        raise OptionsError(problems)
    return options


def _read(flag: str, path: str, problems: list[str]) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{flag} {path} cannot be read: {reason}")
        return None


def _problems(o: Options) -> list[str]:
    """Everything that is wrong with the values."""
    found = _provider_problems(o)
    for name in ("concurrent_node_syncs", "concurrent_service_syncs", "node_deletion_confirmations"):
        if getattr(o, name) < 1:
            found.append(f"--{name.replace('_', '-')} must be 1 or more, not {getattr(o, name)}")
    for name in ("node_monitor_period", "node_status_update_frequency", "route_reconciliation_period"):
        if getattr(o, name) <= 0:
            found.append(f"--{name.replace('_', '-')} must be more than 0, not {getattr(o, name):g}s")
    for name in (
        "node_deletion_min_age",
        "node_deletion_window",
        "orphan_audit_period",
        "kube_api_wait",
        "authentication_token_webhook_cache_ttl",
        "authorization_webhook_cache_authorized_ttl",
        "authorization_webhook_cache_unauthorized_ttl",
    ):
        if getattr(o, name) < 0:
            found.append(f"--{name.replace('_', '-')} must be 0 or more, not {getattr(o, name):g}s")
    if o.logging_format not in ("text", "json"):
        found.append(f"--logging-format must be text or json, not {o.logging_format!r}")
    try:
        parse_cap(o.node_deletion_cap)
    except ValueError as error:
        found.append(f"--node-deletion-cap: {error}")
    if o.configure_cloud_routes and o.cluster_cidr:
        try:
            o.pod_network()
        except ValueError as error:
            found.append(str(error))
    return found + _serving_problems(o) + _election_problems(o)


def _provider_problems(o: Options) -> list[str]:
    installed = registry.names()
    if not o.cloud_provider:
        return [f"--cloud-provider is required: installed providers are {', '.join(installed) or 'none'}"]
    if o.cloud_provider == "external":
        return ["--cloud-provider=external is for the kubelet; here name a provider: " + ", ".join(installed)]
    return [] if o.cloud_provider in installed else [registry.unknown(o.cloud_provider)]


def _serving_problems(o: Options) -> list[str]:
    found = []
    for prefix in ("", "webhook_"):
        flag = "--" + prefix.replace("_", "-")
        port, certificate = getattr(o, f"{prefix}secure_port"), getattr(o, f"{prefix}tls_cert_file")
        if not 0 <= port <= 65535:
            found.append(f"{flag}secure-port must be between 0 and 65535, not {port}")
        if bool(certificate) != bool(getattr(o, f"{prefix}tls_private_key_file")):
            found.append(f"{flag}tls-cert-file and {flag}tls-private-key-file go together")
        version = getattr(o, f"{prefix}tls_min_version")
        if version not in ("", *VERSIONS):
            found.append(f"{flag}tls-min-version must be one of {', '.join(VERSIONS)}, not {version!r}")
        unknown = [name for name in getattr(o, f"{prefix}tls_cipher_suites") if name not in CIPHERS]
        if unknown:
            found.append(f"{flag}tls-cipher-suites: unknown {', '.join(unknown)}: known are {', '.join(CIPHERS)}")
    if o.webhooks and not feature_gates.enabled(o.feature_gates, feature_gates.WEBHOOK):
        found.append(f"--webhooks needs --feature-gates={feature_gates.WEBHOOK}=true")
    elif o.webhooks and o.webhook_secure_port and o.webhook_secure_port == o.secure_port:
        found.append(f"--webhook-secure-port must differ from --secure-port, which is {o.secure_port}, too")
    return found


def _election_problems(o: Options) -> list[str]:
    found = []
    if o.leader_elect and not (
        o.leader_elect_lease_duration > o.leader_elect_renew_deadline > 1.2 * o.leader_elect_retry_period > 0
    ):
        found.append(
            "leader election needs lease-duration > renew-deadline > 1.2 x retry-period > 0, not "
            f"{o.leader_elect_lease_duration:g}s, {o.leader_elect_renew_deadline:g}s, {o.leader_elect_retry_period:g}s"
        )
    if o.enable_leader_migration and not o.leader_elect:
        found.append(
            "--enable-leader-migration needs --leader-elect: without a Lease two managers run the same controller"
        )
    if o.enable_leader_migration and o.leader_migration.leader_name == o.leader_elect_resource_name:
        found.append(
            f"the migration Lease and --leader-elect-resource-name are both {o.leader_elect_resource_name!r}: "
            "the process would wait for itself"
        )
    return found
