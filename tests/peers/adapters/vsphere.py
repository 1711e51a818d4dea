# SPDX-License-Identifier: Apache-2.0
"""Tables of cloud-provider-vsphere."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.setting_kinds import networks
from ccm.providers.vsphere import address_rules
from ccm.providers.vsphere.settings import Settings
from ccm.providers.vsphere.settings_sections import Nodes

from ..suite import ERROR, Row, Suite, outcome

SUITE = Suite("vsphere", "pkg/cloudprovider/vsphere")
_FIELDS = {
    "InternalNetworkSubnetCIDR": ("internal_network_subnet_cidr", networks),
    "ExternalNetworkSubnetCIDR": ("external_network_subnet_cidr", networks),
    "ExcludeInternalNetworkSubnetCIDR": ("exclude_internal_network_subnet_cidr", networks),
    "ExcludeExternalNetworkSubnetCIDR": ("exclude_external_network_subnet_cidr", networks),
    "InternalVMNetworkName": ("internal_vm_network_name", str),
    "ExternalVMNetworkName": ("external_vm_network_name", str),
}


@SUITE.table("nodemanager_test.go::TestDiscoverNodeIPs", rows=53, variable="testcases")
def addresses(row: Row) -> tuple[Any, Any]:
    setup = row["setup"]
    nics = [
        address_rules.Nic(nic.get("Network", ""), nic.get("DeviceConfigId", 0), tuple(nic.get("IpAddress") or ()))
        for nic in setup.get("networks") or ()
    ]
    settings = setup.at("cpiConfig", "Nodes", default={})
    nodes = Nodes(**{_FIELDS[name][0]: _FIELDS[name][1](settings[name]) for name in settings})
    metadata = base64.b64encode(_metadata(setup).encode()).decode()
    chosen = address_rules.choose(
        nics, setup.get("ipFamilyPriority") or ["ipv4"], nodes, metadata, "base64" if metadata else ""
    )
    ours = ERROR if chosen.problem else [(address.type.value, address.address) for address in chosen.addresses]
    if row.get("expectedErrorSubstring"):
        return ERROR, ours
    return [(address["Type"], address["Address"]) for address in row.get("expectedIPs") or ()], ours


def _metadata(setup: Row) -> str:
    """Return the metadata for cloud-init of a row, "" for none. The peer's helper encodes the network, with or without
    gzip."""
    name, arguments = setup.call("guestinfo") or ("", [])
    if not name:
        return setup.get("guestinfo") or ""
    if name == "guestInfoEncodedNetconfigWithAddresses":
        packing, addresses = arguments
        network = json.dumps(_network(addresses)).encode()
        packed = gzip.compress(network) if packing.startswith("gzip") else network
        return json.dumps({"network": base64.b64encode(packed).decode(), "network.encoding": packing})
    raise LookupError(f"the peer has a new helper: {name}")


def _network(addresses: str) -> dict[str, Any]:
    return {"version": 2, "ethernets": {"id0": {"addresses": addresses.split(",")}}}


@SUITE.table("nodemanager_test.go::TestExcludeLocalhostIPs", rows=11, variable="ipAddrNetworkNames")
def usable(row: Row) -> tuple[Any, Any]:
    """The peer's test says below its table that all addresses but the last two are excluded."""
    ours = address_rules.usable(row["ipAddr"])
    return (row["ipAddr"] if row["key"] in ("9", "10") else None), (str(ours) if ours else None)


def _settings(text: str) -> Any:
    config = ProviderConfig(text=text, source="vsphere.conf")
    return outcome(lambda: Settings.parse(config), ConfigError)


@SUITE.table("vsphere_test.go::TestSecretVSphereConfig", rows=15, variable="testcases")
def secrets(row: Row) -> tuple[Any, Any]:
    settings = _settings(row["conf"])
    if row.get("expectedError"):
        return ERROR, settings
    if settings == ERROR:
        return "settings", ERROR
    if row.get("expectedIsSecretProvided"):
        return True, all(vcenter.secrets for vcenter in settings.vcenters)
    expected = {(row.get("expectedUsername", ""), row.get("expectedPassword", ""))}
    thumbprints = row.get("expectedThumbprints") or {}
    return (expected, dict(thumbprints)), (
        {(vcenter.user, vcenter.password) for vcenter in settings.vcenters},
        {vcenter.name: vcenter.thumbprint for vcenter in settings.vcenters if vcenter.thumbprint},
    )


@SUITE.table("vsphere_test.go::TestAlphaDualStackConfig", rows=3, variable="testCases")
def dual_stack(row: Row) -> tuple[Any, Any]:
    return bool(row.get("expectedError")), _settings(row["conf"]) == ERROR


@SUITE.table("pkg/common/config/config_test.go::TestReadConfig", rows=7, variable="mockConfigTestCases")
def config(row: Row) -> tuple[Any, Any]:
    return "expectedError" in row, _settings(row["configData"]) == ERROR
