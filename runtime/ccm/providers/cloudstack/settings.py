# SPDX-License-Identifier: Apache-2.0
"""Parses the cloud-config of cloudstack-kubernetes-provider, unchanged or with keys of our own. Pure.

All problems are reported at once, each with file and line. No problem quotes a value, because it may be a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit import limit_settings as limits
from ccm.cloud.toolkit.gcfg_sections import GcfgSections
from ccm.cloud.toolkit.setting_kinds import KINDS as COMMON_KINDS
from ccm.cloud.toolkit.setting_kinds import boolean, count, duration, key, path

#: The key that sets `request_timeout`, for messages.
TIMEOUT = "request-timeout of [Runtime]"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def url(raw: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", raw):
        raise ValueError("expected https://HOST/client/api, without credentials")
    return raw


def uuid(raw: str) -> str:
    """Check the ID of an object. IDs of the first releases of CloudStack are numbers. Raises ValueError."""
    if not UUID.fullmatch(raw) and not re.fullmatch(r"[1-9][0-9]{0,15}", raw):
        raise ValueError("expected an ID, such as a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5")
    return raw


KINDS = {**COMMON_KINDS, url: "URL", uuid: "ID"}


@dataclass(frozen=True)
class Global:
    """Keys of cloudstack-kubernetes-provider, and two of ours: files with the secret key and with the authorities."""

    api_url: str = key("", "the URL of the API, such as `https://cloud.example/client/api`", url)
    api_key: str = key("", "the API key of the user", secret=True)
    secret_key: str = key("", "the user's secret key", secret=True)
    secret_key_file: str = key("", "the file with the secret key; changes of the file are noticed", path, ours=True)
    project_id: str = key("", "the project with the machines and load balancers; without it, those of the user", uuid)
    region: str = key("", "the region of all Nodes; by default, a Node's region is its zone")
    ssl_no_verify: bool = key(False, "whether to accept any certificate of the API", boolean)
    ca_file: str = key("", "the file with the CA certificates that verify the API's certificate", path, ours=True)


@dataclass(frozen=True)
class LoadBalancer:
    """The section [LoadBalancer], which cloudstack-kubernetes-provider does not have."""

    enabled: bool = key(True, "whether to serve Services of type LoadBalancer", boolean, ours=True)
    network_id: str = key(
        "", "the network of load balancers; if not set, the one that most Nodes have", uuid, ours=True
    )


@dataclass(frozen=True)
class Runtime:
    """The section [Runtime], which cloudstack-kubernetes-provider does not have."""

    request_timeout: float = limits.request_timeout(15.0)
    job_interval: float = key(1.0, "how long to wait before the cloud's job is read again", duration, ours=True)
    page_size: int = key(
        100,
        "rows in a page of a listing; the cloud's `default.page.size` (500 by default) is the maximum",
        count,
        ours=True,
    )
    calls_per_second: float = limits.calls_per_second(10.0)
    burst: int = limits.burst(25)


SECTIONS: dict[str, type] = {"Global": Global, "LoadBalancer": LoadBalancer, "Runtime": Runtime}
#: Section and key without effect here -> the reason.
IGNORED = {("Global", "zone"): "each Node has the zone of its machine"}


@dataclass(frozen=True)
class Settings:
    """The configuration, parsed. `ignored`: warnings, such as about keys without effect."""

    common: Global
    balancers: LoadBalancer
    runtime: Runtime
    source: str
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Raises ConfigError with all problems."""
        if not config.text.strip():
            raise ConfigError([f"{config.source}: it is empty: the provider cloudstack needs a cloud-config"])
        reader = GcfgSections(config.text, SECTIONS, ignored=IGNORED)
        common, balancers, runtime = (reader.section(name) for name in SECTIONS)
        _check(reader, common)
        if reader.problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in reader.report()])
        return cls(common, balancers, runtime, config.source, tuple(reader.ignored))

    @property
    def files(self) -> list[str]:
        return [each for each in (self.common.secret_key_file, self.common.ca_file) if each]


def _check(reader: GcfgSections, section: Global) -> None:
    for name in ("api-url", "api-key"):
        if not getattr(section, name.replace("-", "_")):
            reader.missing("Global", name, f"{name}: it is missing")
    if not section.secret_key and not section.secret_key_file:
        reader.missing("Global", "secret-key", "secret-key: it is missing, and so is secret-key-file")
    if section.secret_key and section.secret_key_file:
        reader.problem("Global", "secret-key-file", "secret-key-file: secret-key is set, too: remove one of them")
    for name in ("api-key", "secret-key"):
        if not re.fullmatch(r"[!-~]*", getattr(section, name.replace("-", "_"))):
            reader.problem("Global", name, f"{name}: a key has only letters, digits and signs")
    if section.ssl_no_verify and section.ca_file:
        reader.problem("Global", "ssl-no-verify", "ssl-no-verify: ca-file is set, too: remove one of them")
