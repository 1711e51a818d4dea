# SPDX-License-Identifier: Apache-2.0
"""vsphere.conf of cloud-provider-vsphere: both forms give the same settings, and all problems are reported at once."""

from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.vsphere.settings import Settings, VCenter, named_files
from ccm.providers.vsphere.settings_sections import SECTIONS

INI = """
[Global]
user = "ccm@vsphere.local"
password = "hidden"
port = "8443"
insecure-flag = "1"
datacenters = "DC0, DC1"
soap-roundtrip-count = 3
ip-family = ipv4

[VirtualCenter "10.0.0.1"]
user = other@vsphere.local

[VirtualCenter "second"]
server = vc2.example.com
port = 443
datacenters = DC2
thumbprint = AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD
ip-family = "ipv6,ipv4"

[Labels]
zone = k8s-zone
region = k8s-region

[Nodes]
internal-network-subnet-cidr = 192.0.2.0/24
exclude-internal-network-subnet-cidr = "192.0.2.128/25,fe80::1/128"
external-vm-network-name = "VM Network"

[Runtime]
request-timeout = 9s
"""
YAML = """
global:
  user: ccm@vsphere.local
  password: hidden
  port: 8443
  insecureFlag: true
  datacenters: [DC0, DC1]
  soapRoundtripCount: 3
  ipFamily: [ipv4]
vcenter:
  10.0.0.1:
    server: 10.0.0.1
    user: other@vsphere.local
  second:
    server: vc2.example.com
    port: 443
    datacenters: [DC2]
    thumbprint: AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD
    ipFamily: [ipv6, ipv4]
labels: {zone: k8s-zone, region: k8s-region}
nodes:
  internalNetworkSubnetCidr: 192.0.2.0/24
  excludeInternalNetworkSubnetCidr: 192.0.2.128/25,fe80::1/128
  externalVmNetworkName: VM Network
runtime:
  requestTimeout: 9s
"""


def read(text: str, **environment: str) -> Settings:
    return Settings.parse(ProviderConfig(text, "vsphere.conf", environment))


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(text, **environment)
    return [problem.removeprefix("vsphere.conf: ") for problem in raised.value.problems]


@pytest.mark.parametrize("text", [INI, YAML], ids=["INI", "YAML"])
def test_both_forms(text):
    found = read(text)
    first, second = found.vcenters
    assert first == VCenter(
        "10.0.0.1",
        "10.0.0.1",
        8443,
        "other@vsphere.local",
        "hidden",
        insecure=True,
        datacenters=("DC0", "DC1"),
    )
    assert (second.name, second.server, second.port, second.user) == (
        "second",
        "vc2.example.com",
        443,
        "ccm@vsphere.local",
    )
    assert (second.families, second.datacenters) == (("ipv6", "ipv4"), ("DC2",))
    assert second.thumbprint == "aabbccddeeff00112233445566778899aabbccdd"
    assert found.has_zones and (found.labels.zone, found.labels.region) == ("k8s-zone", "k8s-region")
    assert found.nodes.internal_network_subnet_cidr == (ipaddress.ip_network("192.0.2.0/24"),)
    assert [str(each) for each in found.nodes.exclude_internal_network_subnet_cidr] == [
        "192.0.2.128/25",
        "fe80::1/128",
    ]
    assert found.nodes.external_vm_network_name == "VM Network"
    assert found.runtime.request_timeout == 9
    assert len(found.ignored) == 1 and "has no effect" in found.ignored[0]
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    "text", ["[Global]\nserver = vc\nuser = u\npassword = p", "global: {server: vc, user: u, password: p}"]
)
def test_a_vcenter_in_global_with_the_defaults(text):
    [found] = read(text).vcenters
    assert found == VCenter("vc", "vc", 443, "u", "p", families=("ipv4",))


def test_all_problems_of_ini_with_their_lines():
    found = problems(
        "[Global]\nuser = u\nport = 70000\nuesr = x\n"
        '[VirtualCenter "vc"]\nthumbprint = zz\n[NSXT]\nhost = h\n[Nodes]\ninternal-network-subnet-cidr = x\n'
    )
    assert [each.partition(":")[0] for each in found] == ["line 3", "line 4", "line 6", "line 7", "line 10"]
    text = "\n".join(found)
    for part in ("1 to 65535", "did you mean user", "SHA-1 or SHA-256", "NSX-T is not supported", "expected CIDRs"):
        assert part in text
    assert "password: is missing" not in text
    assert any("password: is missing" in each for each in problems("[Global]\nserver = vc\nuser = u\n"))


def test_all_problems_of_yaml_with_their_lines():
    found = problems(
        "global:\n  user: u\n  password: p\n  port: 0\n  insecureflag: true\n"
        "vcenter:\n  one: {port: 443}\nloadBalancer: {}\nother: 1\nlabels: text\n"
    )
    text = "\n".join(found)
    for part in (
        "line 4: global.port: expected a port",
        "line 5: global.insecureflag: unknown key; did you mean insecureFlag?",
        "line 8: loadBalancer: NSX-T is not supported",
        "line 9: other: unknown section",
        "line 10: labels: expected keys and values",
    ):
        assert part in text
    assert "server: is missing" not in text
    assert problems("vcenter:\n  one: {user: u, password: p}\n") == ["line 2: vcenter.one: server: is missing"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("[Global]\nuser=u\npassword=p", "no vCenter"),
        ("- a list", "expected sections"),
        ("a: [", "not YAML"),
        ("[Global]\nserver = a b\nuser=u\npassword=p", "expected an address or a DNS name"),
        ("[Global]\nserver=v\nuser=u", "password: is missing"),
        ("[Global]\nserver=v\nsecret-name=s", "set both"),
        ("[Global]\nserver=v\nsecret-name=../s\nsecret-namespace=n", "expected names of objects"),
        ("[Global]\nserver=v\nuser=u\npassword=p\nip-family=ipv5", "expected ipv4, ipv6"),
        ("[Global]\nserver=v\nuser=u\npassword=p\n[Runtime]\npage-size=2000", "from 1 to 1000"),
    ],
)
def test_one_problem(text, expected):
    assert any(expected in each for each in problems(text))


@pytest.mark.parametrize("has", ["secret-name", "secret-namespace"])
@pytest.mark.parametrize("section", ["Global", 'VirtualCenter "v"'])
def test_half_of_a_secret_beside_user_and_password_has_no_effect(section, has):
    found = read(f"[Global]\nserver=v\nuser=u\npassword=p\n[{section}]\n{has}=s")
    assert (found.vcenters[0].user, found.vcenters[0].secrets) == ("u", "")
    lacks = ({"secret-name", "secret-namespace"} - {has}).pop()
    assert found.ignored == (f"line 6: [{section}] {has} has no effect: {lacks} is not set",)


def test_no_problem_quotes_a_value():
    assert "S3cret" not in "\n".join(problems("[Global]\nport = S3cret\nthumbprint = S3cret\nip-family = S3cret"))
    assert "S3cret" not in "\n".join(problems("global: {port: S3cret, password: [[S3cret]]}"))


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("[Global]\nserver=v", "/etc/cloud/secrets"),
        ("[Global]\nserver=v\nsecrets-directory=/run/s", "/run/s"),
        ("[Global]\nserver=v\nsecret-name=s\nsecret-namespace=n", "/etc/cloud/secrets/n/s"),
        (
            '[Global]\nsecrets-directory=/run/s\n[VirtualCenter "v"]\nsecret-name=s\nsecret-namespace=n',
            "/etc/cloud/secrets/n/s",
        ),
        ("[Global]\nserver=v\nuser=u\npassword=p", ""),
    ],
)
def test_where_credentials_are(text, folder):
    found = read(text)
    assert found.vcenters[0].secrets == folder
    assert named_files(found) == ([f"{folder}/v.username", f"{folder}/v.password"] if folder else [])


def test_authorities_are_watched():
    assert named_files(read("[Global]\nserver=v\nuser=u\npassword=p\nca-file=/ca.pem")) == ["/ca.pem"]


def test_variables_override_the_file():
    found = read(INI, VSPHERE_LABEL_ZONE="zone2", VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR="10.0.0.0/8")
    assert (found.labels.zone, found.labels.region) == ("zone2", "k8s-region")
    assert [str(each) for each in found.nodes.external_network_subnet_cidr] == ["10.0.0.0/8"]
    assert any(
        "VSPHERE_NODES_EXTERNAL" in each for each in problems(INI, VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR="x")
    )


def test_one_category_alone_has_no_effect():
    found = read("[Global]\nserver=v\nuser=u\npassword=p\n[Labels]\nzone=z")
    assert not found.has_zones and "only together" in found.ignored[0]


def test_the_page_has_every_key():
    page = (Path(__file__).parents[5] / "docs/providers/vsphere.md").read_text()
    for section, cls in SECTIONS.items():
        for field in dataclasses.fields(cls):
            row = f"| `{field.name.replace('_', '-')}` |"
            assert row in page and field.metadata["help"] in page, (section, field.name)


@pytest.mark.parametrize(
    "text",
    [
        '[VirtualCenter "vc.example.com:8443"]\nuser = u\npassword = p\n',
        "vcenter:\n  one: {server: 'vc.example.com:8443', user: u, password: p}\n",
    ],
)
def test_a_port_in_the_name_of_a_server_is_refused(text):
    [problem] = problems(text)
    assert "server: set the port with the key port" in problem


def test_files_of_the_in_tree_provider_and_the_csi_driver_are_read():
    found = read(
        '[Global]\ncluster-id = c\nvm-uuid = x\n[VirtualCenter "vc"]\nuser = u\npassword = p\n'
        "[Workspace]\nserver = vc\n[Disk]\nscsicontrollertype = pvscsi\n[Network]\npublic-network = VM Network\n"
    )
    assert len(found.ignored) == 5 and all("has no effect" in each for each in found.ignored)
