# SPDX-License-Identifier: Apache-2.0
"""Serving certificates of kubelets: who approves requests, which requests are pending, and which certificate a kubelet serves."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import probes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import serving as _serving
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import verify
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def role(name: str, verbs: list[str], resources: list[str], names: list[str] | None = None, groups: str = "certificates.k8s.io") -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": [{"apiGroups": [groups], "resources": resources, "verbs": verbs, "resourceNames": names or []}]}


def binding(name: str, *subjects: dict[str, str]) -> dict[str, Any]:
    return {"roleRef": {"name": name}, "subjects": list(subjects)}


APPROVER = {"kind": "ServiceAccount", "namespace": "kube-system", "name": "kubelet-csr-approver"}
ADMIN = {"kind": "User", "name": "alice"}


@pytest.mark.parametrize(
    ("able", "is_meant"),
    [
        (role("r", ["approve"], ["signers"], ["kubernetes.io/kubelet-serving"]), True),
        (role("r", ["approve"], ["signers"]), True),
        (role("r", ["*"], ["signers"], ["kubernetes.io/*"]), True),
        (role("r", ["approve"], ["signers"], ["kubernetes.io/kube-apiserver-client-kubelet"]), False),
        (role("r", ["sign"], ["signers"], ["kubernetes.io/kubelet-serving"]), False),
        (role("r", ["update"], ["certificatesigningrequests/approval"]), False),
        (role("r", ["approve"], ["signers"], groups="*"), True),
        (role("r", ["approve"], ["signers"], groups="other.example"), False),
        (role("cluster-admin", ["*"], ["*"], groups="*"), False),
        ({"metadata": {"name": "aggregated"}, "rules": None}, False),
    ],
)
def test_who_is_meant_to_approve(able: dict[str, Any], is_meant: bool) -> None:
    found = _serving.approvers([able], [binding(able["metadata"]["name"], ADMIN, APPROVER), binding("other", ADMIN)])
    assert [item["name"] for item in found] == (["kubelet-csr-approver", "alice"] if is_meant else [])


def request(name: str, created: str, conditions: list[dict[str, str]] | None = None, signer: str = _serving.SIGNER) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"signerName": signer, "username": "system:node:w-1"},
            "status": {"conditions": conditions} if conditions else {}}


def test_requests_that_nobody_answered() -> None:
    found = _serving.pending([request("new", "2"), request("old", "1"), request("done", "3", [{"type": "Approved"}]),
                              request("refused", "3", [{"type": "Denied"}]), request("client", "4", signer="kubernetes.io/kube-apiserver-client-kubelet")])
    assert [(item["name"], item["node"]) for item in found] == [("old", "w-1"), ("new", "w-1")]


@pytest.fixture
def facts(host_facts: Any) -> dict[str, Any]:
    """Return a migrated worker that requests its certificate from the cluster, and has one."""
    found = host_facts("w-1", {"/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'}, ["--cloud-provider=external"])
    found["kubelet"]["serving"] = {"bootstrap": True, "names": ["w-1", "10.0.0.1"], "not_after": "2027-11-21T00:00:00Z", "problem": ""}
    return {"w-1": found}


def serving(*approvers: dict[str, Any], pending: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"approvers": [dict(item, role="r") for item in approvers],
            "pending": [{"name": name, "node": "w-1", "created": name} for name in pending]}


@pytest.mark.parametrize(
    ("approvers", "notes", "warnings"),
    [
        (serving(dict(APPROVER, running=2)), ["ServiceAccount kube-system/kubelet-csr-approver (ClusterRole r) approves them"], []),
        (serving(dict(APPROVER, running=0)), [], ["kubelet-csr-approver (ClusterRole r) has the permission, but none of its Pods runs"]),
        (serving(dict(ADMIN, namespace="")), ["User alice (ClusterRole r) may approve them, but preflight"], []),
        (serving(), [], ["nothing approves them automatically: only cluster admins have the permission 'approve'"]),
        (serving(dict(APPROVER, running=1), pending=("csr-1", "csr-2")), ["approves them"], ["2 request(s)", "kubectl certificate approve csr-1 csr-2'"]),
    ],
)
def test_preflight_says_who_approves(facts: Any, cluster_facts: Any, approvers: Any, notes: list[str], warnings: list[str]) -> None:
    plan = make_plan(facts, dict(cluster_facts(("w-1", "initialized")), serving=approvers), [])
    text = "\n".join(plan["table"])
    assert plan["go"]
    for wanted, level in ((notes, "NOTE: "), (warnings, "WARNING: ")):
        lines = "\n".join(line for line in text.splitlines() if line.startswith(level))
        assert all(part in lines for part in wanted) and bool(wanted) == ("serving certificates" in lines)
    facts["w-1"]["kubelet"]["serving"]["bootstrap"] = False
    silent = make_plan(facts, dict(cluster_facts(("w-1", "initialized")), serving=serving()), [])
    assert "serving" not in "\n".join(silent["table"])


OURS = {"kind": "ServiceAccount", "namespace": "kube-system", "name": "cloud-controller-manager"}
NOBODY = "nothing approves them automatically"


@pytest.mark.parametrize(
    ("approvers", "approves", "notes", "warnings"),
    [
        (serving(), True, ["the runtime will approve those whose names"], []),
        (serving(dict(OURS, running=1)), True, ["the runtime will approve those whose names"], []),
        (serving(dict(APPROVER, running=1)), True, ["the runtime will approve"], ["kubelet-csr-approver (ClusterRole r) approves requests", "Remove it"]),
        (serving(dict(APPROVER, running=0)), True, ["the runtime will approve"], []),
        (serving(pending=("csr-1",)), True, ["the runtime will approve", "1 request(s)", "the runtime will check them"], []),
        # This run removes the runtime's present right to approve.
        (serving(dict(OURS, running=1)), False, [], [NOBODY, "Add kubelet-serving-csr-controller to ccm_runtime_controllers"]),
        (serving(dict(OURS, name="other", running=1)), False, ["ServiceAccount kube-system/other (ClusterRole r) approves them"], []),
        (serving(dict(OURS, namespace="default", running=1)), False, ["ServiceAccount default/cloud-controller-manager"], []),
    ],
)
def test_preflight_knows_what_the_runtime_will_approve(facts: Any, approvers: Any, approves: bool, notes: list[str], warnings: list[str]) -> None:
    said = _serving.predict(facts, approvers, "cloud-controller-manager", approves)
    for wanted, lines in zip((notes, warnings), said, strict=True):
        assert all(part in "\n".join(lines) for part in wanted) and bool(wanted) == bool(lines)


@pytest.mark.parametrize(("count", "named", "more"), [(1, 1, 0), (5, 5, 0), (6, 5, 1), (300, 5, 295)])
def test_of_many_requests_the_newest_are_named(count: int, named: int, more: int) -> None:
    names = [f"csr-{number:03}" for number in range(count)]
    told = _serving.approve([{"name": name, "node": "w-1", "created": name} for name in names])
    assert [name for name in names if name in told] == names[-named:]
    assert (f"({more} more" in told) is bool(more) and ("more" in told) is bool(more)


def test_each_kubelet_is_told_with_its_newest_request(facts: Any) -> None:
    signs_its_own = dict(facts["w-1"], kubelet=dict(facts["w-1"]["kubelet"], serving={"bootstrap": False}))
    nodes = [{"name": "w-1", "addresses": [{"type": "InternalIP", "address": "192.0.2.9"}, {"type": "Hostname", "address": "odd"}]}]
    waits = serving(pending=("csr-1", "csr-2", "csr-3"))
    (told,) = _serving.without_certificate({"a": signs_its_own, "w-1": facts["w-1"]}, nodes, waits)
    assert told.startswith("w-1: ") and "192.0.2.9" in told and "odd" not in told
    assert "csr-3" in told and "csr-2" not in told and "csr-1" not in told


HEALTH = {"reasons": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "x"}, "unjudged": []}


def served(facts: Any, cluster: Any) -> dict[str, Any] | None:
    return next((check for check in verify(facts, cluster, HEALTH, [])["checks"] if check["name"] == "serving-certs"), None)


def test_verify_wants_every_address_of_the_node_in_the_certificate(facts: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("w-1", "initialized"))
    assert served(facts, cluster)["ok"]
    cluster["nodes"][0]["addresses"].append({"type": "ExternalIP", "address": "192.0.2.1"})
    cluster["serving"] = serving(pending=("csr-1", "csr-2"))
    found = served(facts, cluster)
    assert not found["ok"]
    assert "w-1: its serving certificate does not have the Node's address 192.0.2.1" in found["detail"]
    assert "kubectl certificate approve csr-2'" in found["detail"]
    facts["w-1"]["kubelet"]["serving"].update(problem="it has no serving certificate yet", names=[])
    assert "w-1: it has no serving certificate yet" in served(facts, cluster)["detail"]
    cluster["serving"] = serving()
    assert "journalctl -u kubelet" in served(facts, cluster)["detail"]
    facts["w-1"]["kubelet"]["serving"]["bootstrap"] = False
    assert served(facts, cluster) is None


def certificate(folder: Path, name: str) -> str:
    """Write a self-signed certificate and its key to one file; return the path."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:w-1")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("w-1"), x509.IPAddress(ipaddress.ip_address("10.0.0.1"))])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(1)
            .not_valid_before(start).not_valid_after(start.replace(year=2046)).add_extension(names, False)
            .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))
    pem = made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / name
    path.write_bytes(pem)
    return str(path)


def serve_once(path: str | None) -> int:
    """Serve one TLS handshake; return the port. Without a certificate, the answer is an alert, as a kubelet's is."""
    listener = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if path:
        context.load_cert_chain(path)

    def answer() -> None:
        with listener, listener.accept()[0] as raw:
            try:
                context.wrap_socket(raw, server_side=True).close()
            except OSError:
                pass

    threading.Thread(target=answer, daemon=True).start()
    return int(listener.getsockname()[1])


def test_the_kubelet_itself_is_asked(tmp_path: Path) -> None:
    ours, other = certificate(tmp_path, "ours.pem"), certificate(tmp_path, "other.pem")
    texts = ["serverTLSBootstrap: true\nauthentication:\n  x509:\n    clientCAFile: /nowhere\n", f"authentication:\n  x509:\n    clientCAFile: {ours}\n"]

    def ask(path: str | None) -> dict[str, Any]:
        return probes.kubelet_serving(["kubelet"], [*texts, f"address: 127.0.0.1\nport: {serve_once(path)}\n"])

    good = ask(ours)
    assert (good["bootstrap"], good["problem"], sorted(good["names"])) == (True, "", ["10.0.0.1", "w-1"])
    assert good["not_after"] == "2046-01-01T00:00:00Z"
    assert "not signed by the cluster's CA" in ask(other)["problem"]
    assert "no serving certificate yet" in ask(None)["problem"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [(["kubelet"], ""), (["kubelet"], "serverTLSBootstrap: false\n"), (["kubelet"], "serverTLSBootstrap: true\ntlsCertFile: /x\n"),
     (["kubelet", "--rotate-server-certificates=false"], "serverTLSBootstrap: true\n")],
)
def test_a_kubelet_that_signs_its_own_is_not_asked(argv: list[str], text: str) -> None:
    assert not probes.kubelet_serving(argv, [text])["bootstrap"]


@pytest.mark.parametrize("argv", [["kubelet", "--rotate-server-certificates"], ["kubelet", "--rotate-server-certificates=true"]])
def test_the_flag_counts_as_the_setting_does(argv: list[str]) -> None:
    found = probes.kubelet_serving([*argv, "--port=1"], ["address: 127.0.0.1\nauthentication: {x509: {clientCAFile: /nowhere}}\n"])
    assert found["bootstrap"] and "does not answer" in found["problem"]
