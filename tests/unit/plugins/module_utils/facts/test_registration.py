# SPDX-License-Identifier: Apache-2.0
"""The name with which a kubelet registers, by the rules of the kubelet, of k3s and of RKE2, and in its certificate."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import registration
from ansible_collections.outoftree.ccm.plugins.module_utils.host import detect, files
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@pytest.mark.parametrize(("override", "host", "name", "setting"), [
    ("", "Node-1", "node-1", "the host's name"), (" W-1.example ", "node-1", "w-1.example", "--hostname-override"),
])
def test_the_kubelet_takes_its_override_in_lower_case(override: str, host: str, name: str, setting: str) -> None:
    assert registration.of_kubelet(override, host) == {"name": name, "setting": setting, "metadata": ""}


@pytest.mark.parametrize(("values", "name", "setting", "metadata"), [
    ({}, "host", "the host's name", ""),
    ({"node-name": ("A.example", "K3S_NODE_NAME")}, "a.example", "K3S_NODE_NAME", ""),
    ({"node-name": ("a", "node-name"), "with-node-id": ("true", "with-node-id")}, "a-1f2e", "with-node-id", ""),
    ({"with-node-id": ("false", "with-node-id")}, "host", "the host's name", ""),
    ({"cloud-provider-name": ("aws", "RKE2_CLOUD_PROVIDER_NAME")}, "host", "the host's name", "cloud-provider-name: aws"),
    ({"cloud-provider-name": ("external", "x"), registration.FROM_METADATA: ("true", "x")}, "host", "the host's name",
     "node-name-from-cloud-provider-metadata: true"),
])
def test_k3s_and_rke2(values: dict[str, Any], name: str, setting: str, metadata: str) -> None:
    assert registration.of_rancher(values, "host", "1f2e") == {"name": name, "setting": setting, "metadata": metadata}


def certificate(common_name: str, organisation: str = "system:nodes") -> tuple[bytes, str]:
    """Return a kubelet's certificate in DER, and the certificate with its key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
                         x509.NameAttribute(NameOID.COMMON_NAME, common_name, _validate=False)])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    day = datetime.datetime(2026, 1, 1)
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key()).serial_number(7) \
        .not_valid_before(day).not_valid_after(day + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    pem = built.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return built.public_bytes(serialization.Encoding.DER), pem.decode()


@pytest.mark.parametrize("name", ["a", "ip-10-0-0-5.eu-west-2.compute.internal", "n" * 63 + "." + "m" * 63, "a" * 115, "a" * 116])
def test_a_certificate_has_the_name_of_its_node(name: str) -> None:
    assert registration.of_certificate(certificate("system:node:" + name)[0]) == name


@pytest.mark.parametrize("name", ["kubernetes-admin", "system:nodes", "system:node"])
def test_a_certificate_of_somebody_else_has_none(name: str) -> None:
    assert registration.of_certificate(certificate(name)[0]) == ""


def test_the_running_kubelet_says_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: dict[str, str | None] = {"/pem": certificate("system:node:w-1.example")[1]}
    monkeypatch.setattr(files, "read_text", texts.get)
    assert detect.identity("/pem") == "w-1.example"
    texts["/conf"] = "users:\n- user:\n    client-certificate: /pem\n    client-key: /pem\n"
    assert detect.identity("/conf") == "w-1.example"
    texts["/inline"] = "    client-certificate-data: " + base64.b64encode((texts["/pem"] or "").encode()).decode() + "\n"
    assert detect.identity("/inline") == "w-1.example"
    texts["/bad"] = "    client-certificate-data: abc\n"
    assert detect.identity("/bad") == detect.identity("/missing") == ""
    texts["/pem"] = certificate("system:node:../../etc")[1]
    assert detect.identity("/pem") == ""


def settings(kind: str, arguments: list[str], files_of_it: list[str], environment: dict[str, str]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = detect.settings_of(kind, arguments, files_of_it, environment)
    return found


def test_the_command_line_counts_more_than_files_and_files_more_than_the_environment() -> None:
    environment = {"K3S_NODE_NAME": "c", "K3S_DATA_DIR": "/data", "K3S_CLOUD_PROVIDER_NAME": "aws", "RKE2_NODE_NAME": "d"}
    assert settings("k3s", ["server"], [], environment) == {"node-name": ("c", "K3S_NODE_NAME"), "data-dir": ("/data", "K3S_DATA_DIR")}
    assert settings("k3s", ["server"], ["node-name: b\n"], environment)["node-name"] == ("b", "node-name")
    assert settings("k3s", ["--node-name=a", "--with-node-id"], ["node-name: b\n"], environment) == {
        "node-name": ("a", "--node-name"), "with-node-id": ("true", "--with-node-id"), "data-dir": ("/data", "K3S_DATA_DIR")}
    variable = "RKE2_NODE_NAME_FROM_CLOUD_PROVIDER_METADATA"
    assert settings("rke2", [], [], {"RKE2_CLOUD_PROVIDER_NAME": "aws", variable: "true"}) == {
        "cloud-provider-name": ("aws", "RKE2_CLOUD_PROVIDER_NAME"), registration.FROM_METADATA: ("true", variable)}


@pytest.mark.parametrize("text", [
    "node-name: b\nwith-node-id: true\n",
    '"node-name": b\n\'with-node-id\': True\n',
    "node-name : 'b'\nwith-node-id:  true  # both\n",
    "node-name:\n  b\nwith-node-id: true\n---\nnode-name: c\n",
    '{"node-name": "b", "with-node-id": true, "tls-san": ["x"]}\n',
    "node-name: &name b\r\nwith-node-id: true\r\n",
    "node-name: a\nnode-name: >-\n  b\nwith-node-id: TRUE\n",
])
def test_a_setting_is_read_in_every_spelling_of_yaml(text: str) -> None:
    """If the reader missed the name, it would compute the host's name, and the plan would write a wrong name."""
    found = settings("rke2", ["agent"], ["node-name: a\n", text], {})
    assert found["node-name"] == ("b", "node-name")
    assert registration.of_rancher(found, "host", "1f")["name"] == "b-1f"


def test_the_environment_of_a_unit_is_its_own_and_then_that_of_its_files() -> None:
    parsed = unit.parse_unit([("/k3s.service", "[Service]\nEnvironment=K3S_NODE_NAME=a K3S_DATA_DIR=/x\nEnvironmentFile=-/k3s.env\nExecStart=/k3s agent\n")])
    read = {"files": {path: {"exists": text is not None, "content": base64.b64encode((text or "").encode()).decode()}
                      for path, text in {"/k3s.env": "K3S_NODE_NAME='b'\n", "/missing.env": None}.items()}}
    assert detect.environment_of(read, ["/k3s.env", "/missing.env"], parsed) == {"K3S_NODE_NAME": "b", "K3S_DATA_DIR": "/x"}
