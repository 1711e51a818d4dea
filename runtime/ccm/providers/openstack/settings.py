# SPDX-License-Identifier: Apache-2.0
"""Parses the cloud.conf of cloud-provider-openstack. No I/O.

Files written for cloud-provider-openstack work unchanged, unless they have unsupported keys, which are refused by name.
All problems are reported at once, each with its line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.gcfg_sections import GcfgSections
from ccm.cloud.toolkit.setting_kinds import TRUE

from .settings_rules import check, first_of
from .settings_sections import (
    CLASS,
    FOREIGN,
    IGNORED,
    REFUSED,
    SECTIONS,
    BlockStorage,
    Global,
    LoadBalancerClass,
    LoadBalancerSection,
    Metadata,
    Networking,
    RouteSection,
    Runtime,
    annotation_names,
)


@dataclass(frozen=True)
class Settings:
    """cloud.conf, parsed. `ignored`: warnings, such as about keys without effect. `lines`: line numbers of keys in
    [Global]."""

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
        """Parse cloud.conf. Of `environ`, only OS_CCM_REGIONAL is read. Raises ConfigError with all problems, each with
        file and line."""
        reader = GcfgSections(
            config.text,
            SECTIONS,
            named=(CLASS,),
            ignored=IGNORED,
            refused=REFUSED,
            foreign=FOREIGN,
            may_be_empty=(annotation_names,),
        )
        sections = {name: first_of(reader, name, reader.section(name)) for name in SECTIONS if name != CLASS}
        classes = {name: first_of(reader, CLASS, reader.section(CLASS, name), name) for name in reader.names_of(CLASS)}
        check(reader, sections["Global"], sections["LoadBalancer"], classes)
        if reader.problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in reader.report()])
        runtime = sections["Runtime"]
        if environ.get("OS_CCM_REGIONAL", "").lower() in TRUE:
            runtime = dataclasses.replace(runtime, regional=True)
        return cls(
            config.source,
            sections["Global"],
            sections["Networking"],
            sections["Route"],
            sections["Metadata"],
            sections["LoadBalancer"],
            classes,
            sections["BlockStorage"],
            runtime,
            tuple(reader.ignored),
            reader.lines("Global"),
        )
