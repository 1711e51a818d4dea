# SPDX-License-Identifier: Apache-2.0
"""Parses the unchanged azure.json of cloud-provider-azure, which is JSON or YAML. No I/O.

All problems are reported at once, each with its line. A key that cannot be read is not also reported as missing. No
message quotes a value. The documentation is generated from these tables.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit import limit_settings as limits
from ccm.cloud.toolkit.located_yaml import Located, Problems, read
from ccm.cloud.toolkit.setting_kinds import KINDS as COMMON_KINDS
from ccm.cloud.toolkit.setting_kinds import boolean, deprecated, key, matching, text

#: The key that sets `request_timeout`, for messages.
TIMEOUT = "requestTimeout of runtime"
#: The address of the instance metadata service, which hands out tokens of managed identities.
METADATA = "http://169.254.169.254"
VMSS, STANDARD, FLEX = "vmss", "standard", "vmssflex"


class CloudEndpoints(NamedTuple):
    """The addresses of one Azure cloud. `authority`: the address of Microsoft Entra ID. `audience`: the audience of
    tokens for Azure Resource Manager."""

    manager: str
    authority: str
    audience: str


CLOUDS = {
    "azurepubliccloud": CloudEndpoints(
        "https://management.azure.com", "https://login.microsoftonline.com", "https://management.azure.com"
    ),
    "azurechinacloud": CloudEndpoints(
        "https://management.chinacloudapi.cn",
        "https://login.chinacloudapi.cn",
        "https://management.core.chinacloudapi.cn",
    ),
    "azureusgovernmentcloud": CloudEndpoints(
        "https://management.usgovcloudapi.net",
        "https://login.microsoftonline.us",
        "https://management.core.usgovcloudapi.net",
    ),
}
ALIASES = {
    "": "azurepubliccloud",
    "azurecloud": "azurepubliccloud",
    "azurepublic": "azurepubliccloud",
    "azurechina": "azurechinacloud",
    "azureusgovernment": "azureusgovernmentcloud",
}


def cloud_kind(raw: str) -> str:
    name = ALIASES.get(raw.lower(), raw.lower())
    if name not in CLOUDS:
        raise ValueError("expected AzurePublicCloud, AzureChinaCloud or AzureUSGovernmentCloud")
    return name


def vm_kind(raw: str) -> str:
    if raw.lower() not in (VMSS, STANDARD, FLEX):
        raise ValueError("expected vmss, standard or vmssflex")
    return raw.lower()


def guid(raw: str) -> str:
    if not re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", raw):
        raise ValueError("expected a GUID")
    return raw.lower()


tenant = matching(r"[A-Za-z0-9.-]{1,128}", "a GUID, or a domain of the tenant")
group = matching(r"[\w.()-]{1,90}", "the name of a resource group")


def endpoint(raw: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+/?", raw):
        raise ValueError("expected https://HOST, without path and credentials")
    return raw.rstrip("/")


KINDS: dict[Callable[[str], Any], str] = {
    **COMMON_KINDS,
    cloud_kind: "name of a cloud",
    vm_kind: "`vmss`, `standard` or `vmssflex`",
    guid: "GUID",
    tenant: "GUID or domain",
    group: "name of a resource group",
    endpoint: "URL",
}


@dataclass(frozen=True)
class Common:
    """The keys of cloud-provider-azure that have an effect. Keys are not case-sensitive."""

    cloud: str = key("azurepubliccloud", "the cloud of the Nodes", cloud_kind)
    resource_manager_endpoint: str = key("", "the URL of Azure Resource Manager, if not the cloud's own", endpoint)
    tenant_id: str = key("", "the tenant of Microsoft Entra ID; `AZURE_TENANT_ID` overrides it", tenant)
    subscription_id: str = key("", "the subscription of the Nodes", guid)
    resource_group: str = key("", "the resource group of the Nodes", group)
    vm_type: str = key(VMSS, "the kind of machines; uniform scale sets are read only with `vmss`", vm_kind)
    aad_client_id: str = key("", "the application or service principal; `AZURE_CLIENT_ID` overrides it")
    aad_client_secret: str = key("", "the application's secret; `AZURE_CLIENT_SECRET` overrides it", secret=True)
    aad_client_cert_path: str = key("", "the file with the application's certificate and key, PEM or PKCS #12")
    aad_client_cert_password: str = key("", "the password of the certificate's file", secret=True)
    use_managed_identity_extension: bool = key(False, "whether a managed identity of the machine is used", boolean)
    user_assigned_identity_i_d: str = key("", "the client ID or resource ID of a user-assigned identity")
    aad_federated_token_file: str = key("", "the file with a token of another issuer; see the next key")
    use_federated_workload_identity_extension: bool = key(
        False, "whether that file is used; `AZURE_FEDERATED_TOKEN_FILE` overrides both keys", boolean
    )


@dataclass(frozen=True)
class Runtime:
    """Keys of this project, below `runtime`. cloud-provider-azure ignores them."""

    request_timeout: float = limits.request_timeout(15.0)
    calls_per_second: float = limits.calls_per_second(
        2.0, "how many calls start in a second; each makes several requests"
    )
    burst: int = limits.burst(50, former="callsBurst")


_ELSEWHERE = "load balancers, routes and disks are left to cloud-provider-azure"
#: Further keys of cloud-provider-azure -> why they have no effect. Unknown keys have no effect, either.
IGNORED = {
    "location": "each machine has its own",
    "useInstanceMetadata": "one listing describes all machines, including this one",
    "userAgent": "this project sends a user agent of its own",
    **dict.fromkeys(("cloudProviderBackoff", "cloudProviderRateLimit"), "the framework does this by itself"),
    **dict.fromkeys(
        (
            *("loadBalancerSku", "loadBalancerName", "loadBalancerResourceGroup", "excludeMasterFromStandardLB"),
            *("maximumLoadBalancerRuleCount", "disableOutboundSNAT", "tags", "tagsMap", "systemTags"),
            *("vnetName", "vnetResourceGroup", "subnetName", "securityGroupName", "securityGroupResourceGroup"),
            *("routeTableName", "routeTableResourceGroup", "primaryAvailabilitySetName", "primaryScaleSetName"),
            *("networkResourceTenantID", "networkResourceSubscriptionID"),
        ),
        _ELSEWHERE,
    ),
}
_IGNORED = {name.lower(): why for name, why in IGNORED.items()}


def spelt(name: str) -> str:
    """Return the key of a field: `aadClientId` for `aad_client_id`."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


@dataclass(frozen=True)
class Settings:
    """azure.json, parsed, with values of environment variables. `federated_file`: "" for none.
    `metadata`: the URL of the instance metadata service. `ignored`: warnings, such as about keys without effect."""

    source: str
    common: Common
    runtime: Runtime
    endpoints: CloudEndpoints
    tenant: str
    client: str
    secret: str = field(default="", repr=False)
    federated_file: str = ""
    metadata: str = METADATA
    ignored: tuple[str, ...] = ()

    @property
    def uses_identity(self) -> bool:
        """Whether the machine's managed identity is used."""
        return self.common.use_managed_identity_extension and not self.federated_file

    @property
    def certificate_file(self) -> str:
        """The file of the certificate, "" if other credentials are used."""
        others = self.common.use_managed_identity_extension or self.federated_file or self.secret
        return "" if others else self.common.aad_client_cert_path

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Parse azure.json. Raises ConfigError with all problems."""
        problems = Problems(config.source)
        top = read(config.text, problems)
        if not isinstance(top.value, dict):
            if not problems.reported:
                problems.add(top, "expected an object with tenantId, subscriptionId, resourceGroup and credentials")
            problems.raise_any()
            raise ConfigError([f"{config.source}: it cannot be read"])
        reader = _Reader(top.value, problems)
        common, runtime = reader.section(Common), Runtime()
        if (section := reader.take("runtime")) is not None:
            inner = _Reader(section.value if isinstance(section.value, dict) else {}, problems, "runtime.")
            runtime = inner.section(Runtime)
            if not isinstance(section.value, dict):
                problems.add(section, "runtime: expected an object")
            for name, value in inner.left():
                problems.add(value, f"runtime.{name}: unknown key")
            reader.warnings += inner.warnings
        variables = config.environment
        settings = cls(
            config.source,
            common,
            runtime,
            _endpoints(common, variables),
            variables.get("AZURE_TENANT_ID", "") or common.tenant_id,
            variables.get("AZURE_CLIENT_ID", "") or common.aad_client_id,
            variables.get("AZURE_CLIENT_SECRET", "") or common.aad_client_secret,
            variables.get("AZURE_FEDERATED_TOKEN_FILE", "")
            or (common.aad_federated_token_file if common.use_federated_workload_identity_extension else ""),
            variables.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "").rstrip("/") or METADATA,
            (*reader.warnings, *reader.ignored()),
        )
        for problem in _missing(settings, reader.unread):
            problems.add(top, problem)
        problems.raise_any()
        return settings


def _endpoints(common: Common, variables: Mapping[str, str]) -> CloudEndpoints:
    endpoints = CLOUDS[common.cloud]
    if url := common.resource_manager_endpoint:
        endpoints = endpoints._replace(manager=url, audience=url)
    authority = variables.get("AZURE_AUTHORITY_HOST", "").rstrip("/")
    return endpoints._replace(authority=authority) if authority else endpoints


#: The keys that say which credentials are used.
_CREDENTIALS = {
    "aad_client_secret",
    "aad_client_cert_path",
    "aad_federated_token_file",
    "use_managed_identity_extension",
    "use_federated_workload_identity_extension",
}


def _missing(settings: Settings, unread: Set[str]) -> Iterator[str]:
    """Yield what is missing. `unread`: the fields whose keys are set but cannot be read."""
    common = settings.common
    for name in ("subscription_id", "resource_group"):
        if not getattr(common, name) and name not in unread:
            yield f"{spelt(name)}: it is missing"
    if settings.secret and not settings.uses_identity and not _is_one_line(settings.secret):
        yield "aadClientSecret: expected one line of ASCII"
    if settings.uses_identity or "use_managed_identity_extension" in unread:
        return
    if not settings.tenant and "tenant_id" not in unread:
        yield "tenantId: it is missing"
    if not settings.client and "aad_client_id" not in unread:
        yield "aadClientId: it is missing"
    if unread & _CREDENTIALS:
        return
    if common.use_federated_workload_identity_extension and not settings.federated_file:
        yield "aadFederatedTokenFile: it is missing, and so is AZURE_FEDERATED_TOKEN_FILE"
    elif not (settings.federated_file or settings.secret or settings.certificate_file):
        yield (
            "there are no credentials: set aadClientSecret, aadClientCertPath, useFederatedWorkloadIdentityExtension "
            "or useManagedIdentityExtension"
        )


def _is_one_line(secret: str) -> bool:
    return secret.isascii() and secret.isprintable()


class _Reader:
    """Takes keys out of an object, whatever their case."""

    def __init__(self, values: Mapping[str, Located], problems: Problems, path: str = "") -> None:
        self._entries = {name.lower(): (name, value) for name, value in values.items()}
        self._problems, self._path = problems, path
        self.warnings: list[str] = []
        self.unread: set[str] = set()

    def take(self, name: str) -> Located | None:
        entry = self._entries.pop(name.lower(), None)
        return None if entry is None or entry[1].value is None else entry[1]

    def section(self, kind: type) -> Any:
        values: dict[str, Any] = {}
        for declared in dataclasses.fields(kind):
            name, former = spelt(declared.name), declared.metadata["former"]
            section = self.take(name)
            if former and (earlier := self.take(former)) is not None:
                self.warnings.append(f"line {earlier.line}: {self._path}{deprecated(former, name)}")
                if section is not None:
                    self._problems.add(earlier, f"{self._path}{former}: {name} is set, too: remove {former}")
                section = earlier
            if section is None or section.text == "":
                continue
            if (raw := section.text) is None:
                self._problems.add(section, f"{self._path}{name}: expected one value")
                self.unread.add(declared.name)
                continue
            try:
                values[declared.name] = declared.metadata["kind"](
                    raw if declared.metadata["kind"] is text else raw.strip()
                )
            except ValueError as error:
                self._problems.add(section, f"{self._path}{name}: {error}")
                self.unread.add(declared.name)
        return kind(**values)

    def left(self) -> list[tuple[str, Located]]:
        return list(self._entries.values())

    def ignored(self) -> list[str]:
        default = "this project does not know it" if not self._path else ""
        return [
            f"line {value.line}: {name} has no effect: {_IGNORED.get(name.lower(), default)}"
            for name, value in self._entries.values()
        ]
