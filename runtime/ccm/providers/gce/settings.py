# SPDX-License-Identifier: Apache-2.0
"""Parses the unchanged gce.conf of cloud-provider-gcp, which may also be empty. No I/O.

All problems are reported at once, each with its line. The documentation is generated from these tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit import limit_settings as limits
from ccm.cloud.toolkit.gcfg_sections import GcfgSections
from ccm.cloud.toolkit.setting_kinds import KINDS as COMMON_KINDS
from ccm.cloud.toolkit.setting_kinds import boolean, key, matching, one_of

#: The key that sets `request_timeout`, for messages.
TIMEOUT = "request-timeout of [Runtime]"
COMPUTE = "https://compute.googleapis.com/compute/v1"
#: The address of the metadata server, as Google's own libraries use it.
METADATA = "169.254.169.254"
#: The largest page that the API returns.
LARGEST_PAGE = 500


#: The number of a project, or its ID, which in old projects begins with an organisation's domain.
project = matching(r"([a-z0-9.-]+:)?[a-z0-9][a-z0-9-]{0,62}", "the ID or the number of a project")
zone = matching(r"[a-z0-9]+(-[a-z0-9]+)+", "the name of a zone, such as europe-west1-b")


def endpoint(raw: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", raw):
        raise ValueError("expected https://HOST/PATH, without credentials")
    return raw.rstrip("/").removesuffix("/projects")


def token_url(raw: str) -> str:
    if raw != "nil":
        raise ValueError("only nil is supported: other URLs are those of GKE's control planes")
    return raw


KINDS = {
    **COMMON_KINDS,
    project: "ID or number of a project",
    zone: "zone",
    endpoint: "URL",
    token_url: "`nil`",
}


@dataclass(frozen=True)
class Global:
    """The project, and the zones of its Nodes."""

    project_id: str = key(
        "", "the project of the Nodes; by default, that of the service account's key or of this machine", project
    )
    local_zone: str = key(
        "", "the zone of the Nodes; by default, that of this machine, or all zones with a file of credentials", zone
    )
    multizone: bool = key(False, "whether Nodes are in all zones of the region of `local-zone`", boolean)
    regional: bool = key(False, "the same as `multizone`", boolean)
    stack_type: str = key(
        "IPV4", "with `IPV6`, a Node's IPv6 addresses come first", one_of("IPV4", "IPV6", "IPV4_IPV6")
    )
    api_endpoint: str = key(COMPUTE, "the URL of the Compute Engine API", endpoint)
    token_url: str = key("", "only the value `nil` is accepted, and it changes nothing", token_url)


@dataclass(frozen=True)
class Runtime:
    """Keys of this project. cloud-provider-gcp warns about this section and continues."""

    credentials_file: str = key(
        "",
        "file with a service account's JSON key or a workload identity federation configuration; if empty, "
        "`GOOGLE_APPLICATION_CREDENTIALS` is used, and without that the metadata server",
        ours=True,
    )
    request_timeout: float = limits.request_timeout(10.0)
    calls_per_second: float = limits.calls_per_second(10.0)
    burst: int = limits.burst(100, former="calls-burst")
    page_size: int = limits.page_size(LARGEST_PAGE, 1, LARGEST_PAGE)


SECTIONS: dict[str, type] = {"global": Global, "Runtime": Runtime}
_NODES_ONLY = "load balancers and routes are left to cloud-provider-gcp"
IGNORED = {
    ("global", "token-body"): "no token is fetched from GKE's control plane",
    ("global", "network-project-id"): _NODES_ONLY,
    ("global", "network-name"): _NODES_ONLY,
    ("global", "subnetwork-name"): _NODES_ONLY,
    ("global", "secondary-range-name"): _NODES_ONLY,
    ("global", "node-tags"): _NODES_ONLY,
    ("global", "node-instance-prefix"): _NODES_ONLY,
    ("global", "container-api-endpoint"): "GKE's API is never called",
    ("global", "alpha-features"): "only version 1 of the API is called",
}


@dataclass(frozen=True)
class Settings:
    """gce.conf, parsed. `credentials_file`: "" to use the metadata server. `metadata`: host and port of that server.
    `ignored`: warnings, such as about keys without effect."""

    source: str
    common: Global
    runtime: Runtime
    credentials_file: str = ""
    metadata: str = METADATA
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Parse gce.conf. Raises ConfigError with all problems, each with file and line."""
        reader = GcfgSections(config.text, SECTIONS, ignored=IGNORED)
        common, runtime = reader.section("global"), reader.section("Runtime")
        if reader.problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in reader.report()])
        named = config.environment.get("GOOGLE_APPLICATION_CREDENTIALS", "")
        metadata = config.environment.get("GCE_METADATA_HOST", "") or METADATA
        return cls(config.source, common, runtime, runtime.credentials_file or named, metadata, tuple(reader.ignored))
