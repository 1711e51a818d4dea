# SPDX-License-Identifier: Apache-2.0
"""Parser for cloud.conf, as cloud-provider-aws reads it; the file may also be empty. No I/O.

All problems are reported at once, each with its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.gcfg_sections import GcfgSections

from .settings_sections import IGNORED, REFUSED, SECTIONS, SPELLINGS, Global, Runtime, ServiceOverride

#: The AWS services that the provider calls: name in a ServiceOverride, in lower case -> botocore's names.
#: cloud-provider-aws with version 2 of AWS's SDK knows the first two. With version 1, `elasticloadbalancing` meant
#: both.
SERVICES = {
    "elastic load balancing v2": ("elbv2",),
    "elastic load balancing": ("elb",),
    "elasticloadbalancing": ("elbv2", "elb"),
    "ec2": ("ec2",),
    "sts": ("sts",),
}
#: botocore's name of a service -> the environment variable with its endpoint, which all AWS SDKs read.
ENDPOINTS = {
    "ec2": "AWS_ENDPOINT_URL_EC2",
    "elb": "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING",
    "elbv2": "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2",
    "sts": "AWS_ENDPOINT_URL_STS",
}


@dataclass(frozen=True)
class Endpoint:
    """An endpoint that replaces AWS's own. `signing_region`: "" to sign for the region of the calls."""

    url: str
    signing_region: str = ""


@dataclass(frozen=True)
class Keys:
    """Credentials from `ProviderConfig.environment`. Without them, botocore looks for others."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Settings:
    """cloud.conf, parsed. `region`: "" if it must be read from instance metadata. `endpoints`: (region, botocore's name
    of a service) -> the endpoint; the region "" means any. `ignored`: warnings, such as about keys without effect."""

    source: str
    common: Global
    runtime: Runtime
    region: str = ""
    endpoints: Mapping[tuple[str, str], Endpoint] = field(default_factory=dict)
    keys: Keys | None = None
    metadata_endpoint: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def families(self) -> tuple[str, ...]:
        return self.common.nodeipfamilies or ("ipv4",)

    @property
    def cluster(self) -> str:
        """The cluster's name in tags, "" if the file has none."""
        return self.common.kubernetesclusterid or self.common.kubernetesclustertag

    def endpoint(self, service: str, region: str) -> Endpoint | None:
        """Return the configured endpoint of a service, None for AWS's own. `service`: botocore's name."""
        return self.endpoints.get((region, service)) or self.endpoints.get(("", service))

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Raises ConfigError with all problems, each with file and line."""
        reader = GcfgSections(
            config.text, SECTIONS, named=("ServiceOverride",), ignored=IGNORED, refused=REFUSED, separator=""
        )
        common, runtime = reader.section("Global"), reader.section("Runtime")
        endpoints = dict(_variables(config.environment))
        overrides = _overrides(reader)
        _check(reader, common)
        if reader.problems:
            raise ConfigError([f"{config.source}: {_spelt(problem)}" for problem in reader.report()])
        return cls(
            config.source,
            common,
            runtime,
            _region(common, config.environment),
            endpoints | overrides,
            _keys(config.environment),
            config.environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", ""),
            tuple(_spelt(each) for each in reader.ignored),
        )


def _region(common: Global, environment: Mapping[str, str]) -> str:
    if common.zone and (match := re.match(r"([a-zA-Z]+-)+\d+", common.zone)):
        return match[0]
    return common.region or environment.get("AWS_REGION", "") or environment.get("AWS_DEFAULT_REGION", "")


def _keys(environment: Mapping[str, str]) -> Keys | None:
    access, secret = (environment.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    return Keys(access, secret, environment.get("AWS_SESSION_TOKEN", "")) if access and secret else None


def _variables(environment: Mapping[str, str]) -> dict[tuple[str, str], Endpoint]:
    if environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return {}
    common = environment.get("AWS_ENDPOINT_URL", "")
    urls = {service: environment.get(name, "") or common for service, name in ENDPOINTS.items()}
    return {("", service): Endpoint(url) for service, url in urls.items() if url}


def _overrides(reader: GcfgSections) -> dict[tuple[str, str], Endpoint]:
    endpoints: dict[tuple[str, str], Endpoint] = {}
    for name in reader.names_of("ServiceOverride"):
        override: ServiceOverride = reader.section("ServiceOverride", name)
        for key in ("service", "region", "url", "signingregion"):
            if not getattr(override, key):
                reader.missing("ServiceOverride", key, f"{key}: is missing", "service", name)
        services = SERVICES.get(override.service.strip().lower(), ())
        if override.service and not services:
            reader.no_effect("ServiceOverride", "service", "the provider does not call this service", name)
        if any((override.region, service) in endpoints for service in services):
            reader.problem("ServiceOverride", "service", "service, region: another section has both", sub=name)
        signing = override.signingregion if override.signingregion != override.region else ""
        endpoints |= {(override.region, service): Endpoint(override.url, signing) for service in services}
    return endpoints


def _check(reader: GcfgSections, common: Global) -> None:
    if len(set(common.nodeipfamilies)) < len(common.nodeipfamilies):
        reader.problem("Global", "nodeipfamilies", "nodeipfamilies: repeats a family")
    if common.sourcearn and not common.rolearn:
        reader.missing("Global", "sourcearn", "sourcearn: it needs rolearn")
    tag, name = common.kubernetesclustertag, common.kubernetesclusterid
    if tag and name and tag != name:
        reader.problem("Global", "kubernetesclusterid", "kubernetesclusterid: kubernetesclustertag has another value")


def _spelt(sentence: str) -> str:
    """Return the sentence with its keys in upper and lower case, as people write them."""
    return re.sub(r"\b[a-z]{2,}\b", lambda match: _KEYS.get(match[0], match[0]), sentence)


#: The keys to replace: all but those that are also English words.
_KEYS = {key: name for key, name in SPELLINGS.items() if key not in ("zone", "region", "service", "url")}
