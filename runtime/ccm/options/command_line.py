# SPDX-License-Identifier: Apache-2.0
"""The options of a process, from the defaults, `--config FILE` and the command line; later sources override earlier.

All problems are reported at start. Upstream accepts 0 workers, for example, and then does nothing but stays "healthy".
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from ccm import __version__
from ccm.cloud import registry
from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.controllers.optional_controllers import CLOUD_ALLOCATOR, NODE_IPAM
from ccm.controllers.services.class_rules import ServedClasses, together
from ccm.controllers.services.service import ServiceController
from ccm.controllers.shared import pod_network_rules

from . import clouds, config_file, feature_gates, leader_migration
from .declaration import Flag, flags_of
from .flags import FLAGS, Flags
from .ignored_flags import IGNORED, Ignored
from .leader_migration import Migration
from .load_balancer_classes import served_classes
from .restrictions import parse_cap
from .tls_options import TlsOptions
from .values import GATES


class OptionsError(Exception):
    """The options are invalid; `problems` lists all problems, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Options(Flags):
    """Validated options: the values of the flags, and what is derived from them. Durations are in seconds."""

    #: Whether `--cloud-provider` must be set.
    requires_provider: ClassVar[bool] = True

    #: The leader migration that `--leader-migration-config` or `--config` describes.
    leader_migration: Migration = field(default_factory=Migration)
    #: The sections of `--config` for controllers of other packages: name -> an instance of `ControllerSpec.section`.
    sections: Mapping[str, Any] = field(default_factory=dict)
    #: The Services that this cloud serves, if these options are for one of several clouds; otherwise None.
    division: ServedClasses | None = None

    @property
    def are_of_several(self) -> bool:
        """Whether the process has several clouds."""
        return len(clouds.provider_names(self.cloud_provider)) > 1

    def clouds(self) -> list[clouds.CloudFlags]:
        """Return the clouds of the process, in the order in which they are named."""
        return clouds.clouds(self.cloud_provider, self.cloud_config, self.cloud_nodes)[0]

    def safety(self) -> Safety:
        """Return the limits for deleting and fencing Nodes that the flags set."""
        cap_share, cap_min = parse_cap(self.node_deletion_cap)
        return Safety(
            min_age=self.node_deletion_min_age,
            confirmations=self.node_deletion_confirmations,
            interval=self.node_monitor_period,
            cap_share=cap_share,
            cap_min=cap_min,
            window=self.node_deletion_window,
        )

    def served_classes(self) -> ServedClasses:
        """Return which Services the service controller serves, by their class. Raises ValueError if the flags about
        classes contradict each other."""
        if self.division is not None:
            return self.division
        if self.are_of_several:  # which of them have load balancers is known only once their configuration is read
            able = dict.fromkeys(clouds.provider_names(self.cloud_provider), True)
            default = self.default_load_balancer_provider or next(iter(able))
            return together(clouds.division(self.load_balancer_class, default, able)[0].values())
        return served_classes(self.load_balancer_class, self.default_load_balancer_provider, self.cloud_provider)

    def pod_network(self) -> pod_network_rules.PodNetwork:
        """Return the ranges in which pod CIDRs must lie. Raises ValueError if a flag has an unusable value."""
        cluster = pod_network_rules.parse_cluster_cidrs(self.cluster_cidr)
        sizes = self.node_cidr_mask_size, self.node_cidr_mask_size_ipv4, self.node_cidr_mask_size_ipv6
        return pod_network_rules.PodNetwork(cluster, pod_network_rules.parse_node_prefixes(cluster, *sizes))

    def cloud_ranges(self) -> Mapping[str, Sequence[pod_network_rules.Network]]:
        """Return provider -> the part of the cluster's pod CIDRs that its Nodes alone get. Raises ValueError if a flag
        has an unusable value."""
        if not self.cloud_cluster_cidr:
            return {}
        own, problems = clouds.ranges(self.cloud_cluster_cidr, None, self.pod_network().cluster)
        if problems:
            raise ValueError("; ".join(problems))
        return own

    def migration(self) -> Migration | None:
        """Return the leader migration, None if it is disabled."""
        return self.leader_migration if self.enable_leader_migration else None

    def tls(self, prefix: str = "") -> TlsOptions:
        """Return the TLS options of the secure port, or of the webhooks with the prefix "webhook_"."""
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
        """Return all options, in upstream's format."""
        return config_file.dump(vars(self), self.leader_migration, flags_of(type(self)))


AnyOptions = TypeVar("AnyOptions", bound="Options")


class Parser(argparse.ArgumentParser):
    """An argument parser that collects all invalid values, whereas argparse stops at the first one."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.problems: list[str] = []

    def error(self, message: str) -> NoReturn:
        raise OptionsError([*self.problems, message])

    def gathering(self, name: str, default: Any, convert: Callable[[str], Any]) -> Callable[[str], Any]:
        """Wrap `convert`: a value that it rejects becomes a problem, and the default replaces the value."""

        def converted(text: str) -> Any:
            try:
                return convert(text)
            except ValueError as error:
                self.problems.append(f"{name}: {error}")
                return default

        return converted


class _Add(argparse.Action):
    """Merges repeated list flags and feature gates."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest, None)
        joined = values if before is None else before | values if isinstance(values, dict) else (*before, *values)
        setattr(namespace, self.dest, joined)


class _Version(argparse.Action):
    """Prints the version: `--version` for people, `--version=raw` for programs."""

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


#: The group of flags that have no meaning here.
ACCEPTED = "accepted and ignored"
#: Metavars for kinds whose names are phrases.
_METAVARS = {
    "true or false": "true|false",
    "never, missing or always": "never|missing|always",
    "whole number": "N",
    "gate=true or false, ...": "GATE=true|false,...",
}


def parser(
    flags: Iterable[Flag] = FLAGS,
    *,
    prog: str = "ccm",
    usage: str = "ccm [FLAG ...]",
    description: str = "External cloud-controller-manager for Kubernetes.",
    epilog: str = "",
    hidden: Collection[str] = (),
) -> Parser:
    """Return the argument parser. Its result contains only flags that were set. `hidden`: groups that `--help` leaves
    out."""
    p = Parser(
        prog=prog,
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    groups: dict[str, Any] = {}
    for flag in flags:
        group = groups.get(flag.group) or groups.setdefault(flag.group, p.add_argument_group(flag.group))
        _add(p, group, flag, shown=flag.group not in hidden)
    general = groups["general"]
    general.add_argument(
        "--config", help="read options from this CloudControllerManagerConfiguration; flags override it", metavar="FILE"
    )
    general.add_argument(
        "--version", action=_Version, nargs="?", help="print the version (raw: as JSON) and exit", metavar="raw"
    )
    useless = p.add_argument_group(ACCEPTED)
    for name, entry in IGNORED.items():
        why = argparse.SUPPRESS if ACCEPTED in hidden else entry.why
        useless.add_argument(f"--{name}", nargs="?", help=why, metavar="", type=_ignoring(p, name, entry))
    return p


def _add(p: Parser, group: Any, flag: Flag, *, shown: bool) -> None:
    value = flag.kind.dump(flag.default)
    default = " ".join(value) if isinstance(value, list) else "" if value == {} else value
    help = flag.help.replace("%", "%%") + (f" (default: {str(default).replace('%', '%%')})" if default != "" else "")
    bare = flag.kind.bare
    more: dict[str, Any] = {"nargs": "?", "const": bare} if bare is not None else {}
    if flag.kind.lists or flag.kind is GATES:
        more["action"] = _Add
    group.add_argument(
        *(["-v"] if flag.name == "v" else []),
        f"--{flag.name}",
        type=p.gathering(f"--{flag.name}" if flag.name != "v" else "-v", flag.default, flag.kind.parse),
        help=help if shown else argparse.SUPPRESS,
        metavar=_METAVARS.get(flag.kind.name, flag.kind.name.upper()),
        **more,
    )


def _ignoring(p: Parser, name: str, entry: Ignored) -> Callable[[str], Any]:
    return p.gathering(f"--{name}", None, entry.check)


def parse(argv: Sequence[str], p: Parser | None = None) -> Options:
    """Parse a command line and the files that it names. Raises OptionsError with all problems."""
    return parse_as(Options, argv, p)


def parse_as(kind: type[AnyOptions], argv: Sequence[str], p: Parser | None = None) -> AnyOptions:
    """Like `parse`, for a subclass of Options that may declare more flags, and fields for positional arguments of `p`.
    Raises OptionsError with all problems."""
    flags = flags_of(kind)
    p = p or parser(flags)
    namespace, surplus = p.parse_known_args(list(argv))
    parsed = vars(namespace)
    problems = [*p.problems, *(f"unknown argument {text!r}" for text in surplus)]
    values: dict[str, Any] = {}
    if "config" in parsed:
        text = _read("--config", parsed["config"], problems)
        if text is not None:
            values, wrong = config_file.load(text, parsed["config"], flags)
            problems += wrong
    names = {item.name for item in fields(kind)}
    options = kind(**values | {name: value for name, value in parsed.items() if name in names})
    if options.enable_leader_migration and options.leader_migration_config:
        text = _read("--leader-migration-config", options.leader_migration_config, problems)
        if text is not None:
            moved, wrong = leader_migration.parse(text, options.leader_migration_config)
            options = replace(options, leader_migration=moved)
            problems += wrong
    problems += _problems(options, flags)
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


def _problems(o: Options, flags: Iterable[Flag]) -> list[str]:
    """Return all problems of the values: of each one alone, and of combinations."""
    problems = _provider_problems(o)
    for flag in flags:
        problems += flag.problems(getattr(o, flag.field))
    if o.configure_cloud_routes and o.cluster_cidr:
        try:
            o.pod_network()
        except ValueError as error:
            problems.append(str(error))
    return problems + _class_problems(o) + _serving_problems(o) + _election_problems(o)


def _class_problems(o: Options) -> list[str]:
    """Return the problems of classes. With several providers, each counts as having load balancers here, because
    whether it has them is known only once its configuration is read."""
    if o.are_of_several:
        able = dict.fromkeys(clouds.provider_names(o.cloud_provider), True)
        if ServiceController.name not in o.controllers:
            return []
        return clouds.division(o.load_balancer_class, o.default_load_balancer_provider or next(iter(able)), able)[1]
    try:
        o.served_classes()
    except ValueError as error:
        return [str(error)]
    return []


def _several_problems(o: Options) -> list[str]:
    """Return what is wrong with several providers, and what they do not support yet."""
    names = clouds.provider_names(o.cloud_provider)
    installed = registry.names()
    problems = [registry.unknown(name) for name in dict.fromkeys(names) if name not in installed]
    problems += clouds.clouds(o.cloud_provider, o.cloud_config, o.cloud_nodes)[1]
    problems += [
        f"--controllers: {name} does not support several providers yet. Leave it out, or run it in a process of its "
        "own with one provider and another Lease (--leader-elect-resource-name)"
        for name in o.controllers
        if name not in BUILT_IN or not (BUILT_IN[name].runs_beside_others or BUILT_IN[name].runs_once)
    ]
    if NODE_IPAM in o.controllers and o.cidr_allocator_type == CLOUD_ALLOCATOR:
        problems.append(
            f"--cidr-allocator-type={CLOUD_ALLOCATOR} does not support several providers: one controller assigns the "
            "pod CIDRs of all Nodes, and Nodes of a cloud that assigns none to its instances would get none. Leave it "
            "out, so that all Nodes get blocks of --cluster-cidr, or of their cloud's --cloud-cluster-cidr"
        )
    return problems + _range_problems(o, names)


def _range_problems(o: Options, providers: Collection[str]) -> list[str]:
    """Return what is wrong with the pod CIDRs of single providers."""
    if not o.cloud_cluster_cidr:
        return []
    if len(providers) < 2:
        return ["--cloud-cluster-cidr needs several providers in --cloud-provider: set --cluster-cidr alone"]
    if not o.allocate_node_cidrs:
        return [f"--cloud-cluster-cidr requires --allocate-node-cidrs: only {NODE_IPAM} assigns pod CIDRs by provider"]
    try:
        cluster = o.pod_network().cluster if o.cluster_cidr else []
    except ValueError as error:
        return [] if o.configure_cloud_routes else [str(error)]  # with routes, `_problems` reports it
    return clouds.ranges(o.cloud_cluster_cidr, providers, cluster)[1]


def _provider_problems(o: Options) -> list[str]:
    if o.are_of_several:
        return _several_problems(o)
    installed = registry.names()
    if not o.cloud_provider and not o.requires_provider:
        return []
    if not o.cloud_provider:
        return [f"--cloud-provider is required: installed providers are {', '.join(installed) or 'none'}"]
    if o.cloud_provider == "external":
        return ["--cloud-provider=external is only for the kubelet; set an installed provider: " + ", ".join(installed)]
    if o.cloud_provider not in installed:
        return [registry.unknown(o.cloud_provider)]
    return clouds.clouds(o.cloud_provider, o.cloud_config, o.cloud_nodes)[1] + _range_problems(o, [o.cloud_provider])


def _serving_problems(o: Options) -> list[str]:
    problems = []
    for prefix in ("", "webhook_"):
        if bool(getattr(o, f"{prefix}tls_cert_file")) != bool(getattr(o, f"{prefix}tls_private_key_file")):
            flag = "--" + prefix.replace("_", "-")
            problems.append(f"{flag}tls-cert-file and {flag}tls-private-key-file must be set together")
    if o.webhooks and not feature_gates.enabled(o.feature_gates, feature_gates.WEBHOOK):
        problems.append(f"--webhooks requires --feature-gates={feature_gates.WEBHOOK}=true")
    elif o.webhooks and o.webhook_secure_port and o.webhook_secure_port == o.secure_port:
        problems.append(f"--webhook-secure-port and --secure-port must differ, but both are {o.secure_port}")
    return problems


def _election_problems(o: Options) -> list[str]:
    problems = []
    if o.leader_elect and not (
        o.leader_elect_lease_duration > o.leader_elect_renew_deadline > 1.2 * o.leader_elect_retry_period > 0
    ):
        problems.append(
            "leader election requires lease-duration > renew-deadline > 1.2 x retry-period > 0, not "
            f"{o.leader_elect_lease_duration:g}s, {o.leader_elect_renew_deadline:g}s, {o.leader_elect_retry_period:g}s"
        )
    if o.enable_leader_migration and not o.leader_elect:
        problems.append(
            "--enable-leader-migration requires --leader-elect: without a Lease, two managers run the same controller"
        )
    if o.enable_leader_migration and o.leader_migration.leader_name == o.leader_elect_resource_name:
        problems.append(
            f"the migration Lease and --leader-elect-resource-name are both {o.leader_elect_resource_name!r}: "
            "the process would wait for itself; use two names"
        )
    return problems
