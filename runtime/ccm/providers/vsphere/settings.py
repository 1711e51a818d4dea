# SPDX-License-Identifier: Apache-2.0
"""Parses the vsphere.conf of cloud-provider-vsphere, in INI or YAML. No I/O.

Files written for cloud-provider-vsphere work unchanged, unless they have sections for NSX-T, which are refused. All
problems are reported at once, each with its line. No problem quotes a value, because it may be a password.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit import gcfg
from ccm.cloud.toolkit.gcfg_sections import GcfgSections

from .settings_sections import (
    FOREIGN,
    IGNORED,
    REFUSED,
    SECTIONS,
    VARIABLES,
    Global,
    Labels,
    Nodes,
    Runtime,
    VirtualCenter,
)
from .settings_yaml import YamlSections

#: Where Secrets are mounted: the files of the only Secret, or NAMESPACE/NAME/ for each Secret that the file names.
SECRETS = "/etc/cloud/secrets"
_SECRET_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class VCenter:
    """One vCenter with all defaults applied.

    `name`: its name in the file. `secrets`: the folder with its credentials, "" if `user` and `password` are used.
    """

    name: str
    server: str
    port: int = 443
    user: str = ""
    password: str = field(default="", repr=False)
    secrets: str = ""
    insecure: bool = False
    ca_file: str = ""
    thumbprint: str = ""
    datacenters: tuple[str, ...] = ()
    families: tuple[str, ...] = ("ipv4",)


@dataclass(frozen=True)
class Settings:
    """vsphere.conf, parsed. `ignored`: warnings, such as about keys without effect."""

    source: str
    vcenters: tuple[VCenter, ...]
    labels: Labels
    nodes: Nodes
    runtime: Runtime
    ignored: tuple[str, ...] = ()

    @property
    def has_zones(self) -> bool:
        """Whether Nodes get zones and regions: only with both categories, as in cloud-provider-vsphere."""
        return bool(self.labels.zone and self.labels.region)

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Parse vsphere.conf, and environment variables that override it. Raises ConfigError with all problems, each
        with file and line."""
        if not config.text.strip():
            raise ConfigError([f"{config.source}: is empty: the provider vsphere needs a vsphere.conf"])
        reader = _reader(config.text)
        common: Global = reader.section("Global")
        labels, nodes, runtime = (reader.section(name) for name in ("Labels", "Nodes", "Runtime"))
        named = {name: reader.section("VirtualCenter", name) for name in reader.names_of("VirtualCenter")}
        sections = {"Global": common, "Labels": labels, "Nodes": nodes}
        for variable, (section, name) in VARIABLES.items():
            if raw := config.environment.get(variable, ""):
                kind = {each.name: each for each in dataclasses.fields(sections[section])}[name].metadata["kind"]
                try:
                    sections[section] = dataclasses.replace(sections[section], **{name: kind(raw)})
                except ValueError as error:
                    reader.problems.append((0, f"variable {variable}: {error}"))
        common, labels, nodes = sections["Global"], sections["Labels"], sections["Nodes"]
        if common.server and common.server not in named:
            named[common.server] = VirtualCenter()
        if not named:
            reader.missing("", "", "no vCenter: add a section VirtualCenter, or set server in Global")
        vcenters = tuple(_vcenter(reader, name, sub_section, common) for name, sub_section in named.items())
        ignored = list(dict.fromkeys(reader.ignored))
        if bool(labels.zone) != bool(labels.region):
            ignored.append("[Labels]: zone and region have an effect only together")
        if reader.problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in reader.report()])
        return cls(config.source, vcenters, labels, nodes, runtime, tuple(ignored))


def _reader(text: str) -> GcfgSections:
    first = next((line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "#;"), "")
    if not first.startswith("["):
        return YamlSections(text)
    reader = GcfgSections(text, SECTIONS, named=("VirtualCenter",), ignored=IGNORED, foreign=FOREIGN, defaults="Global")
    refused = {line: name for name, _, line in gcfg.read(text).sections if name in REFUSED}
    reader.problems = [problem for problem in reader.problems if problem[0] not in refused]
    reader.problems += [(line, f"[{name}]: {REFUSED[name]}") for line, name in refused.items()]
    return reader


def _vcenter(reader: GcfgSections, name: str, own: VirtualCenter, common: Global) -> VCenter:
    is_yaml, named = isinstance(reader, YamlSections), own.server
    if is_yaml and not named and name != common.server:
        reader.missing("VirtualCenter", "server", "server: is missing", sub=name)
    server = named or name
    if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", server):
        reader.problem("VirtualCenter", "server", "server: expected an address or a DNS name", sub=name)

    if re.fullmatch(r"[^:\[\]]+:\d+", server):
        reader.problem("VirtualCenter", "server", "server: set the port with the key port", sub=name)

    def of(key: str) -> Any:
        return getattr(own, key) or getattr(common, key)

    secrets = _secrets(reader, name, own, common)
    if not secrets:
        for key in ("user", "password"):
            if not of(key):
                reader.missing("VirtualCenter", key, f"{key}: is missing, and no Secret is named", "server", sub=name)
    return VCenter(
        name=name,
        server=server.strip("[]"),
        port=of("port") or 443,
        user=of("user"),
        password=of("password"),
        secrets=secrets,
        insecure=own.insecure_flag or common.insecure_flag,
        ca_file=of("ca_file"),
        thumbprint=of("thumbprint"),
        datacenters=of("datacenters"),
        families=of("ip_family") or ("ipv4",),
    )


def _secrets(reader: GcfgSections, name: str, own: VirtualCenter, common: Global) -> str:
    """Return the folder with the credentials of a vCenter: its own Secret's, the common Secret's, the common folder, or
    the default one; "" if a user is set instead."""
    for section, sub, values in (("VirtualCenter", name, own), ("Global", "", common)):
        if bool(values.secret_name) != bool(values.secret_namespace):
            if all(getattr(own, key) or getattr(common, key) for key in ("user", "password")):
                has, lacks = ("secret-name", "secret-namespace")[:: 1 if values.secret_name else -1]
                reader.no_effect(section, has, f"{lacks} is not set", sub)
            else:
                problem = "secret-name, secret-namespace: set both"
                reader.missing(section, "secret-name", problem, "secret-namespace", sub)
        elif values.secret_name and not all(map(_SECRET_NAME.fullmatch, (values.secret_name, values.secret_namespace))):
            reader.problem(section, "secret-name", "secret-name, secret-namespace: expected names of objects", sub=sub)
        elif values.secret_name:
            return f"{SECRETS}/{values.secret_namespace}/{values.secret_name}"
        if isinstance(values, Global) and values.secrets_directory:
            return values.secrets_directory
    has_login = (own.user or common.user) and (own.password or common.password)
    return "" if has_login or own.user or common.user else SECRETS


def named_files(settings: Settings) -> list[str]:
    """Return the files that the configuration names, and the usual files of each folder with credentials."""
    paths = [vcenter.ca_file for vcenter in settings.vcenters if vcenter.ca_file]
    for vcenter in settings.vcenters:
        if vcenter.secrets:
            paths += [f"{vcenter.secrets}/{vcenter.server}.{part}" for part in ("username", "password")]
    return list(dict.fromkeys(paths))
