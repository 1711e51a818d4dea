# SPDX-License-Identifier: Apache-2.0
"""cloud.conf of cloud-provider-openstack, as it is. Pure.

Each key is one field below: its name, default, kind and meaning in one place, from which the documentation is made,
too. What cannot be honoured is refused by name; everything that is wrong is told at once, with its line.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ccm.cloud import ConfigError, Invalid, ProviderConfig

from . import gcfg, name_patterns
from .annotations import BY_NAME, selector

T = TypeVar("T")

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"(?:(?:\d+(?:\.\d+)?)(?:ns|us|µs|ms|s|m|h))+|0")
#: Nothing that is waited for takes longer, in seconds; what counts time takes no number without end.
LONGEST = 86400.0
METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
INTERFACES = {
    **dict.fromkeys(("public", "publicURL"), "public"),
    **dict.fromkeys(("internal", "internalURL"), "internal"),
    **dict.fromkeys(("admin", "adminURL"), "admin"),
}

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

#: In `allowed-annotations`: each annotation there is, and those that are allowed where the key is left out.
EVERY, DEFAULT = "*", "default"
#: In `allowed-load-balancer-ips`.
ANY, NONE = "any", "none"
EVERYWHERE: tuple[IPNetwork, ...] = (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))
#: Whose load balancers `load-balancer-id` may name.
SHARING = ("never", "namespace", "cluster", "project")


# Kinds of values. Each makes a value of its text or raises ValueError with what was expected; never with the text,
# since that may be a secret in the wrong place.


def text(raw: str) -> str:
    return raw


def boolean(raw: str) -> bool:
    if raw.lower() in TRUE + FALSE:
        return raw.lower() in TRUE
    raise ValueError("expected true or false")


def number(raw: str) -> float:
    try:
        if (value := float(raw)) > 0 and value < float("inf"):
            return value
    except ValueError:
        pass
    raise ValueError("expected a number greater than 0")


def count(raw: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", raw):
        raise ValueError("expected a whole number greater than 0")
    return int(raw)


def attempts(raw: str) -> int:
    """What Octavia takes for the times that a check is made."""
    if not re.fullmatch(r"[1-9]|10", raw):
        raise ValueError("expected a whole number from 1 to 10")
    return int(raw)


def duration(raw: str) -> float:
    if not DURATION.fullmatch(raw):
        raise ValueError("expected a duration with its unit, such as 5s or 1m30s")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", raw)
    value = round(sum(float(amount) * SECONDS[unit] for amount, unit in parts), 9)
    if not 0 < value <= LONGEST:
        raise ValueError("expected more than no time at all, and a day at most")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def choice(raw: str) -> str:
        if raw not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return raw

    choice.__name__ = " | ".join(f"`{each}`" for each in choices)
    return choice


def networks(raw: str) -> tuple[IPNetwork, ...]:
    try:
        return tuple(ipaddress.ip_network(each.strip(), strict=False) for each in raw.split(",") if each.strip())
    except ValueError:
        raise ValueError("expected CIDRs separated by commas") from None


def names(raw: str) -> tuple[str, ...]:
    """Of a key that may be repeated: one name."""
    return (raw,) if raw else ()


def node_labels(raw: str) -> str:
    try:
        selector(raw)
    except ValueError as error:
        raise ValueError(f"expected {error}") from None
    return raw


def subnet_names(raw: str) -> str:
    try:
        name_patterns.check(raw)
    except Invalid:  # what RE2 says of a pattern quotes it
        raise ValueError("expected a glob, or a regular expression of RE2 after ~") from None
    return raw


def annotation_names(raw: str) -> tuple[str, ...]:
    """Names of annotations without their prefix, `*` or `default`; none of an empty text."""
    found = tuple(each.strip() for each in raw.split(",") if each.strip())
    if not all(each in (EVERY, DEFAULT) or each in BY_NAME for each in found):
        raise ValueError(f"expected names of annotations, {DEFAULT} or {EVERY}; known are {', '.join(BY_NAME)}")
    return found


def addresses(raw: str) -> tuple[IPNetwork, ...]:
    """`any`, `none`, or CIDRs."""
    if raw in (ANY, NONE):
        return EVERYWHERE if raw == ANY else ()
    try:
        return networks(raw)
    except ValueError:
        raise ValueError(f"expected {ANY}, {NONE}, or CIDRs separated by commas") from None


def interface(raw: str) -> str:
    if raw not in INTERFACES:
        raise ValueError("expected public, internal or admin")
    return INTERFACES[raw]


KINDS = {
    text: "text",
    boolean: "true or false",
    number: "number",
    count: "whole number",
    attempts: "whole number from 1 to 10",
    duration: "duration",
    networks: "CIDRs, separated by commas",
    names: "text; may be repeated",
    node_labels: "labels, separated by commas",
    subnet_names: "pattern",
    annotation_names: "names of annotations, separated by commas; may be repeated",
    addresses: "`any` | `none` | CIDRs, separated by commas",
    interface: "`public` | `internal` | `admin`",
}


def key(default: T, help: str, kind: Callable[[str], Any] = text, *, secret: bool = False, ours: bool = False) -> T:
    """A field that is a key of cloud.conf, spelt with dashes there. `ours`: upstream does not know it."""
    metadata = {"kind": kind, "help": help, "secret": secret, "ours": ours}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True)
class Global:
    """Who we are, and where keystone is."""

    auth_url: str = key("", "keystone's address, such as `https://keystone.example.com:5000/v3`")
    username: str = key("", "the user's name; needs a domain")
    user_id: str = key("", "the user, instead of `username` and its domain")
    password: str = key("", "the user's password", secret=True)
    tenant_id: str = key("", "the project's ID")
    tenant_name: str = key("", "the project's name, instead of `tenant-id`; needs a domain")
    domain_id: str = key("", "the domain of user and project, where the keys below do not say otherwise")
    domain_name: str = key("", "the same by name")
    user_domain_id: str = key("", "the user's domain")
    user_domain_name: str = key("", "the same by name")
    tenant_domain_id: str = key("", "the project's domain")
    tenant_domain_name: str = key("", "the same by name")
    application_credential_id: str = key("", "an application credential, instead of user and project")
    application_credential_name: str = key("", "the same by name; needs `user-id`, or `username` and its domain")
    application_credential_secret: str = key("", "its secret", secret=True)
    trust_id: str = key("", "a trust, which says user and project; needs `trustee-id` and `trustee-password`")
    trustee_id: str = key("", "the user whom the trust trusts")
    trustee_password: str = key("", "that user's password", secret=True)
    token: str = key("", "a token; it cannot be renewed, so it is of use for a try only", secret=True)
    region: str = key("", "the region; the first one of the catalogue if left out")
    os_endpoint_type: str = key(
        "", "which of the catalogue's endpoints are used; `public` where clouds.yaml does not say either", interface
    )
    ca_file: str = key("", "certificates that the cloud's are checked with, instead of the system's")
    cert_file: str = key("", "our own certificate, for clouds that ask for one")
    key_file: str = key("", "its key")
    tls_insecure: bool | None = key(
        None, "do not check the cloud's certificates; `false` where clouds.yaml does not say either", boolean
    )
    use_clouds: bool = key(False, "take what is not said here from a clouds.yaml", boolean)
    clouds_file: str = key("", "which; if left out, `~/.config/openstack` and `/etc/openstack` are searched")
    cloud: str = key("", "the cloud's name in it")


@dataclass(frozen=True)
class Networking:
    ipv6_support_disabled: bool = key(False, "leave IPv6 addresses out", boolean)
    public_network_name: tuple[str, ...] = key((), "networks whose addresses are ExternalIP", names)
    internal_network_name: tuple[str, ...] = key((), "networks whose addresses are InternalIP, and no others", names)
    address_sort_order: tuple[IPNetwork, ...] = key(
        (), "addresses in the first of these CIDRs come first, and so on; the others stay as they are", networks
    )


@dataclass(frozen=True)
class RouteSection:
    router_id: str = key("", "the router that gets the routes to Pods; without it there is no route controller")


@dataclass(frozen=True)
class Metadata:
    request_timeout: float = key(60.0, "how long one request to any of the services may take", duration)


@dataclass(frozen=True)
class LoadBalancerClass:
    """`[LoadBalancerClass "name"]`, chosen by the annotation `loadbalancer.openstack.org/class`."""

    floating_network_id: str = key("", "as in [LoadBalancer], for this class")
    floating_subnet_id: str = key("", "as in [LoadBalancer], for this class")
    floating_subnet: str = key("", "as in [LoadBalancer], for this class", subnet_names)
    floating_subnet_tags: str = key("", "as in [LoadBalancer], for this class")
    network_id: str = key("", "as in [LoadBalancer], for this class")
    subnet_id: str = key("", "as in [LoadBalancer], for this class")
    member_subnet_id: str = key("", "as in [LoadBalancer], for this class")


@dataclass(frozen=True)
class LoadBalancerSection:
    enabled: bool = key(True, "serve Services of type LoadBalancer", boolean)
    lb_version: str = key("v2", "there is but one", one_of("v2"))
    use_octavia: bool = key(True, "of former releases; there is nothing but Octavia", boolean)
    lb_provider: str = key("amphora", "Octavia's provider: `amphora`, `ovn`, or another that the cloud has")
    lb_method: str = key("ROUND_ROBIN", "how connections are spread; `ovn` takes SOURCE_IP_PORT only", one_of(*METHODS))
    subnet_id: str = key("", "the subnet of the load balancers' addresses; that of the nodes if left out")
    member_subnet_id: str = key("", "the subnet of the nodes' addresses, if another")
    network_id: str = key("", "the network of the load balancers' addresses, instead of `subnet-id`")
    floating_network_id: str = key(
        "", "the network of floating IPs; if left out, the first external one by ID, and of several an Event tells"
    )
    floating_subnet_id: str = key("", "the subnet that floating IPs are taken from")
    floating_subnet: str = key("", "the same by name: a glob, `~` a regular expression, `!` all others", subnet_names)
    floating_subnet_tags: str = key("", "the same by tags: any of them, `&` all of them, `!` none of them")
    create_monitor: bool = key(False, "health monitors", boolean)
    monitor_delay: float = key(5.0, "the time between two checks, in whole seconds", duration)
    monitor_timeout: float = key(3.0, "how long a check may take, in whole seconds", duration)
    monitor_max_retries: int = key(1, "successes until a member is up", attempts)
    monitor_max_retries_down: int = key(3, "failures until a member is down", attempts)
    manage_security_groups: bool = key(False, "a security group for each Service, on the nodes' ports", boolean)
    internal_lb: bool = key(False, "no load balancer gets a floating IP", boolean)
    node_selector: str = key("", "labels of the nodes that become members: `key=value` or `key`", node_labels)
    cascade_delete: bool = key(True, "delete a load balancer with all its parts in one call", boolean)
    flavor_id: str = key("", "Octavia's flavour")
    availability_zone: str = key("", "the load balancers' zone")
    enable_ingress_hostname: bool = key(False, "with the proxy protocol a host name instead of the address", boolean)
    ingress_hostname_suffix: str = key("nip.io", "what is put behind the address to make a name of it")
    max_shared_lb: int = key(2, "how many Services may share a load balancer", count)
    allowed_annotations: tuple[str, ...] = key(
        (DEFAULT,),
        "annotations that Services may have, by their names without the prefix; `default`: those that the table below "
        "marks with a yes; `*`: all of them; an empty value: none",
        annotation_names,
        ours=True,
    )
    allowed_load_balancer_ips: tuple[IPNetwork, ...] = key(
        (),
        "addresses that `loadBalancerIP` may ask for; `none` if left out. A Service always keeps the address that it "
        "has, and may ask for the floating IP that was made for a Service of its name",
        addresses,
        ours=True,
    )
    sharing: str = key(
        "namespace",
        "whose load balancers the annotation `load-balancer-id` may name, beside the Service's own: nobody's, those of "
        "Services in its namespace, those of Services in this cluster, or any one in the project",
        one_of(*SHARING),
        ours=True,
    )
    default_tls_container_ref: str = key("", "the certificate of Services that name none")
    provider_requires_serial_api_calls: bool = key(False, "make the parts of a load balancer one by one", boolean)


@dataclass(frozen=True)
class BlockStorage:
    ignore_volume_az: bool = key(False, "PersistentVolumes get no label of a zone", boolean)


@dataclass(frozen=True)
class Runtime:
    """Ours. cloud-provider-openstack logs a warning about the section, and goes on."""

    regional: bool = key(
        False, "providerIDs name the region; the environment's `OS_CCM_REGIONAL=true` says the same", boolean, ours=True
    )
    calls_per_second: float = key(
        20.0,
        "operations begun in a second, on average: to read a page of Nodes, to write a load balancer. Each makes as "
        "many requests as it has things to read and write, with managed security groups one for each node's port",
        number,
        ours=True,
    )
    burst: int = key(40, "operations begun at once after a pause", count, ours=True)
    concurrency: int = key(
        10, "operations under way; at most twice as many requests are waited for at a time", count, ours=True
    )
    page_size: int = key(1000, "entries of a page; nova gives 1,000 at most, unless it is configured", count, ours=True)


#: Section, as it is spelt in documents -> its keys.
SECTIONS: dict[str, type] = {
    "Global": Global,
    "Networking": Networking,
    "Route": RouteSection,
    "Metadata": Metadata,
    "LoadBalancer": LoadBalancerSection,
    "LoadBalancerClass": LoadBalancerClass,
    "BlockStorage": BlockStorage,
    "Runtime": Runtime,
}

#: Keys that are taken and have no effect: section, key -> why.
IGNORED: dict[tuple[str, str], str] = {
    ("Metadata", "search-order"): "the node's own metadata is not read: all nodes are known from the cloud's API",
    (
        "LoadBalancer",
        "container-store",
    ): "Octavia gets a certificate's reference as it stands; no store is asked before",
    ("BlockStorage", "bs-version"): "read by the CSI driver",
    ("BlockStorage", "trust-device-path"): "read by the CSI driver",
    ("BlockStorage", "node-volume-attach-limit"): "read by the CSI driver",
    ("BlockStorage", "rescan-on-resize"): "read by the CSI driver",
}
#: Keys that are known and refused: section, key -> why, and what to do.
REFUSED: dict[tuple[str, str], str] = {
    ("Global", "secret-name"): "credentials are not read from a Secret by name: put them into this file",
    ("Global", "secret-namespace"): "credentials are not read from a Secret by name: put them into this file",
    ("Global", "kubeconfig-path"): "of no use without secret-name: remove it",
    ("LoadBalancer", "monitor"): "is not a key; did you mean create-monitor?",
}


@dataclass(frozen=True)
class Settings:
    """cloud.conf, read. `ignored`: sentences about keys that have no effect. `lines`: those of the keys of [Global]."""

    source: str
    auth: Global
    networking: Networking
    route: RouteSection
    metadata: Metadata
    load_balancer: LoadBalancerSection
    load_balancer_classes: Mapping[str, LoadBalancerClass]
    block_storage: BlockStorage
    runtime: Runtime
    ignored: tuple[str, ...] = ()
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, config: ProviderConfig, environ: Mapping[str, str]) -> Settings:
        """Raises ConfigError with all problems, each with file and line. Of `environ` OS_CCM_REGIONAL alone is read."""
        reader = _Reader(config.text)
        found = {name: reader.section(name) for name in SECTIONS if name != "LoadBalancerClass"}
        classes = {
            entry: reader.section("LoadBalancerClass", entry)
            for entry in dict.fromkeys(sub for name, sub, _ in reader.document.sections if name == "loadbalancerclass")
        }
        reader.contradictions(found, classes)
        if reader.problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in reader.told()])
        runtime = found["Runtime"]
        if environ.get("OS_CCM_REGIONAL", "").lower() in TRUE:
            runtime = dataclasses.replace(runtime, regional=True)
        return cls(
            config.source,
            found["Global"],
            found["Networking"],
            found["Route"],
            found["Metadata"],
            found["LoadBalancer"],
            classes,
            found["BlockStorage"],
            runtime,
            tuple(reader.ignored),
            reader.lines("Global"),
        )


class _Reader:
    """Makes sections of entries, and gathers what is wrong. Line 0: nowhere in particular."""

    def __init__(self, text: str) -> None:
        self.document = gcfg.read(text)
        self.problems: list[tuple[int, str]] = list(self.document.problems)
        self.ignored: list[str] = []
        self._lines: dict[tuple[str, str, str], int] = {}
        known = {name.lower(): name for name in SECTIONS}
        for section, sub, line in self.document.sections:
            if section not in known:
                self.problems.append((line, f"[{section}]: unknown section; known are {', '.join(SECTIONS)}"))
            elif (section == "loadbalancerclass") != bool(sub):
                shape = '[LoadBalancerClass "name"]' if section == "loadbalancerclass" else f"[{known[section]}]"
                self.problems.append((line, f"[{known[section]}]: is written {shape}"))

    def told(self) -> Iterator[str]:
        for line, problem in sorted(set(self.problems)):
            yield f"line {line}: {problem}" if line else problem

    def lines(self, section: str) -> dict[str, int]:
        return {spelt: line for (name, _, spelt), line in self._lines.items() if name == section}

    def section(self, name: str, sub: str = "") -> Any:
        """The section's dataclass, with defaults where a value is wrong."""
        cls = SECTIONS[name]
        fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for entry in self.document.entries:
            if (entry.section, entry.subsection) != (name.lower(), sub):
                continue
            where = f"{_header(name, sub)} {entry.name}"
            if (name, entry.name) in IGNORED:
                self.ignored.append(f"line {entry.line}: {where} has no effect: {IGNORED[name, entry.name]}")
            elif (name, entry.name) in REFUSED:
                self.problems.append((entry.line, f"{where}: {REFUSED[name, entry.name]}"))
            elif entry.name not in fields:
                similar = difflib.get_close_matches(entry.name, fields, 1)
                hint = f"did you mean {similar[0]}?" if similar else f"known are {', '.join(fields)}"
                self.problems.append((entry.line, f"{where}: unknown key; {hint}"))
            else:
                self._take(where, fields[entry.name], entry, values)
                self._lines[name, sub, entry.name] = entry.line
        return cls(**values)

    def _take(self, where: str, field: dataclasses.Field[Any], entry: gcfg.Entry, values: dict[str, Any]) -> None:
        kind = field.metadata["kind"]
        raw = "true" if entry.value is None and kind is boolean else entry.value
        if raw is None:
            self.problems.append((entry.line, f"{where}: has no value"))
            return
        try:
            value = kind(raw) if raw or kind in (text, names, annotation_names) else field.default
        except ValueError as error:
            self.problems.append((entry.line, f"{where}: {error}"))
            return
        repeatable = isinstance(field.default, tuple)
        if field.name in values and repeatable:
            value = values[field.name] + value if raw else ()  # empty: as in git, what stood before is forgotten
        elif field.name in values and values[field.name] != value:
            self.problems.append((entry.line, f"{where}: stands here twice, with different values"))
        values[field.name] = value

    def contradictions(self, found: Mapping[str, Any], classes: Mapping[str, LoadBalancerClass]) -> None:
        auth: Global = found["Global"]
        for line_of, problem in _auth_problems(auth):
            self._problem("Global", line_of, problem)
        balancer: LoadBalancerSection = found["LoadBalancer"]
        if not balancer.use_octavia:
            self._problem(
                "LoadBalancer", "use-octavia", "use-octavia=false: there is nothing but Octavia; remove the key"
            )
        if balancer.lb_provider == "ovn" and balancer.lb_method != "SOURCE_IP_PORT":
            problem = "lb-provider ovn spreads connections by SOURCE_IP_PORT only: set lb-method to it"
            self._problem("LoadBalancer", "lb-method", problem, "lb-provider")
        for spelt in ("monitor-delay", "monitor-timeout"):
            if not getattr(balancer, spelt.replace("-", "_")).is_integer():
                self._problem("LoadBalancer", spelt, f"{spelt}: Octavia counts whole seconds, such as 5s or 1m30s")
        if balancer.monitor_timeout > balancer.monitor_delay:
            problem = "monitor-timeout must not be longer than monitor-delay"
            self._problem("LoadBalancer", "monitor-timeout", problem, "monitor-delay")
        for name, section in (("", balancer), *classes.items()):
            where = "LoadBalancerClass" if name else "LoadBalancer"
            chosen = [
                spelt
                for spelt in ("floating-subnet-id", "floating-subnet", "floating-subnet-tags")
                if getattr(section, spelt.replace("-", "_"))
            ]
            if len(chosen) > 1:
                self._problem(where, chosen[1], f"{', '.join(chosen)}: one of them is enough", sub=name)

    def _problem(self, section: str, at: str, problem: str, or_at: str = "", sub: str = "") -> None:
        line = self._lines.get((section, sub, at), self._lines.get((section, sub, or_at), 0))
        self.problems.append((line, f"{_header(section, sub)} {problem}"))


def _header(section: str, sub: str) -> str:
    return f'[{section} "{sub}"]' if sub else f"[{section}]"


def _auth_problems(auth: Global) -> Iterator[tuple[str, str]]:
    """What is wrong with the credentials: the key whose line to name, and the sentence."""
    ways = {
        "application-credential-secret": auth.application_credential_id or auth.application_credential_name,
        "trust-id": auth.trust_id,
        "password": auth.password,
        "token": auth.token,
    }
    chosen = [way for way, given in ways.items() if given]
    if len(chosen) > 1:
        yield chosen[1], f"{', '.join(chosen)}: these are {len(chosen)} ways to log in; keep one"
    for one, other in (
        ("username", "user-id"),
        ("tenant-name", "tenant-id"),
        ("domain-name", "domain-id"),
        ("user-domain-name", "user-domain-id"),
        ("tenant-domain-name", "tenant-domain-id"),
        ("application-credential-name", "application-credential-id"),
    ):
        if _of(auth, one) and _of(auth, other):
            yield one, f"{one}, {other}: one of them is enough"
    if bool(auth.cert_file) != bool(auth.key_file):
        yield ("cert-file" if auth.cert_file else "key-file"), "cert-file, key-file: one is of no use without the other"
    if auth.tls_insecure and auth.ca_file:
        yield "tls-insecure", "tls-insecure, ca-file: certificates are either checked or not"
    if auth.auth_url and not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", auth.auth_url):
        yield "auth-url", "auth-url: expected http://HOST:PORT/v3 or https://HOST:PORT/v3, without credentials"
    elif re.search(r"/v2\.0/?$", auth.auth_url):
        yield "auth-url", "auth-url: keystone's API 2.0 is gone from clouds since 2018: end it with /v3"
    if auth.use_clouds:
        if not auth.cloud:
            yield "use-clouds", "use-clouds: cloud is missing, the cloud's name in clouds.yaml"
        return
    for other in ("clouds-file", "cloud"):
        if _of(auth, other):
            yield other, f"{other}: is of use with use-clouds=true only"
    if not auth.auth_url:
        yield "auth-url", "auth-url: is missing"
    if not chosen:
        ways_told = "username and password, an application credential, or a trust"
        yield "username", f"nothing to log in with: it takes {ways_told}"
        return
    if len(chosen) == 1:
        yield from _missing(auth, chosen[0])


def _missing(auth: Global, way: str) -> Iterator[tuple[str, str]]:
    """What this way to log in lacks."""
    user_domain = auth.user_domain_id or auth.user_domain_name or auth.domain_id or auth.domain_name
    named_user = not auth.user_id and (way == "password" or auth.application_credential_name)
    if named_user and not auth.username:
        yield way, "username: is missing (or user-id)"
    elif named_user and not user_domain:
        yield "username", "username: names are unique in a domain only: user-domain-name is missing (or domain-name)"
    if way == "application-credential-secret" and not auth.application_credential_secret:
        yield "application-credential-id", "application-credential-secret: is missing"
    if way == "trust-id":
        for each in ("trustee-id", "trustee-password"):
            if not _of(auth, each):
                yield "trust-id", f"{each}: is missing"
    if way == "password":
        project_domain = auth.tenant_domain_id or auth.tenant_domain_name or auth.domain_id or auth.domain_name
        if not auth.tenant_id and not auth.tenant_name:
            yield way, "tenant-id: is missing (or tenant-name)"
        elif auth.tenant_name and not project_domain:
            problem = "names are unique in a domain only: tenant-domain-name is missing (or domain-name)"
            yield "tenant-name", f"tenant-name: {problem}"


def _of(auth: Global, spelt: str) -> Any:
    return getattr(auth, spelt.replace("-", "_"))
