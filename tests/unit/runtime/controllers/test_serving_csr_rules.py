# SPDX-License-Identifier: Apache-2.0
"""Which requests for serving certificates are approved: those of kubelets, for names that the cloud has."""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import AttributeOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, Instance, InstanceState
from ccm.controllers.serving_certificates import serving_csr_rules as rules
from ccm.controllers.serving_certificates.serving_csr_rules import Reason, RequestedNames, WaitError
from ccm.controllers.serving_certificates.signing_requests import (
    REQUEST_BYTES,
    SIGNER,
    USAGES,
    RequestCondition,
    SigningRequest,
    SigningRequestStatus,
    is_waiting,
    kept_request,
)
from ccm.engine.objects import Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta

from ..fuzzing import bounded
from .signing_request_bodies import pem, request

INSTANCE = Instance(
    "fake://1",
    "n1",
    addresses=(
        Address(AddressType.INTERNAL_IP, "10.0.0.1"),
        Address(AddressType.EXTERNAL_IP, "2001:DB8::1"),
        Address(AddressType.INTERNAL_DNS, "n1.internal"),
    ),
    aliases=("Machine-1",),
)
IP = ipaddress.ip_address


#: A fixed request, because each new one has another signature.
ORDINARY = pem()


def problem_of(call: Any) -> WaitError:
    with pytest.raises(WaitError) as caught:
        call()
    return caught.value


def test_what_a_kubelet_sends_is_read():
    assert rules.read(request()) == RequestedNames(("n1",), (IP("10.0.0.1"),))
    assert rules.read(request(usages=["key encipherment", "digital signature", "server auth"])).dns_names == ("n1",)
    assert rules.read(request(pem(names=["N1", "2001:db8::1"]))) == RequestedNames(("n1",), (IP("2001:db8::1"),))
    assert rules.read(request(pem(names=["10.0.0.1"]))).dns_names == ()


@pytest.mark.parametrize(
    ("who", "says"),
    [
        ({"username": "system:serviceaccount:default:x"}, "not a kubelet"),
        ({"username": "system:node:"}, "not a kubelet"),
        ({"username": "kubernetes-admin"}, "not a kubelet"),
        ({"groups": ["system:authenticated"]}, "not a kubelet"),
        ({"username": "system:node:n2"}, "common name 'system:node:n1' is not its requester 'system:node:n2'"),
        ({"username": "system:node:N1"}, "is not its requester"),
    ],
)
def test_only_the_node_itself_may_ask(who, says):
    found = problem_of(lambda: rules.read(request(**who)))
    assert found.reason is Reason.REQUESTER and says in str(found)


@pytest.mark.parametrize(
    "usages",
    [
        [],
        ["server auth"],
        ["digital signature"],
        ["digital signature", "client auth"],
        ["digital signature", "server auth", "client auth"],
        ["digital signature", "server auth", "cert sign"],
        ["digital signature", "server auth", "server auth"],
        ["any"],
    ],
)
def test_only_the_usages_of_a_serving_certificate(usages):
    assert problem_of(lambda: rules.read(request(usages=usages))).reason is Reason.USAGES


def rsa_request(bits: int) -> bytes:
    key = rsa.generate_private_key(65537, bits)
    names = x509.SubjectAlternativeName([x509.DNSName("n1")])
    parts = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n1"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts)).add_extension(names, False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_an_rsa_key_is_read_too_unless_it_is_huge(monkeypatch):
    assert rules.read(request(rsa_request(2048))).dns_names == ("n1",)
    monkeypatch.setattr(rules, "RSA_BITS", 2047)
    assert "2048 bits, more than 2047" in str(problem_of(lambda: rules.read(request(rsa_request(2048)))))


def forged_signature() -> bytes:
    der = bytearray(base64.b64decode(b"".join(pem().splitlines()[1:-1])))
    der[der.index(b"n1")] = ord("m")
    return armour(bytes(der))


def armour(der: bytes, label: str = "CERTIFICATE REQUEST") -> bytes:
    lines = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{lines}-----END {label}-----\n".encode()


def der() -> bytes:
    return base64.b64decode(b"".join(ORDINARY.splitlines()[1:-1]))


MALFORMED = {
    "empty": (b"", "exactly one PEM block"),
    "text": (b"not a request", "exactly one PEM block"),
    "garbled": (pem().replace(b"M", b"N"), "cannot be read"),
    "huge": (pem() + b"\n" * REQUEST_BYTES, f"larger than {REQUEST_BYTES} bytes"),
    "two blocks": (pem() + pem(), "exactly one PEM block"),
    "text before": (b"hello\n" + pem(), "exactly one PEM block"),
    "text after": (pem() + b"hello\n", "exactly one PEM block"),
    "headers": (pem().replace(b"REQUEST-----\n", b"REQUEST-----\nProc-Type: 4\n\n", 1), "exactly one PEM block"),
    "another block": (armour(der(), "NEW CERTIFICATE REQUEST"), "exactly one PEM block"),
    "a certificate": (armour(der(), "CERTIFICATE"), "exactly one PEM block"),
    "bytes after": (armour(der() + b"\0\0"), "cannot be read"),
    "short": (armour(der()[:-5]), "cannot be read"),
    "padding inside": (b"-----BEGIN CERTIFICATE REQUEST-----\nAA==AA==\n-----END CERTIFICATE REQUEST-----\n", "read"),
    "wrong signature": (forged_signature(), "its signature is wrong"),
    "no names": (pem(names=()), "no name and no address"),
    "e-mail": (pem(names=[x509.RFC822Name("a@n1")]), "RFC822Name"),
    "uri": (pem(names=["n1", x509.UniformResourceIdentifier("https://n1")]), "UniformResourceIdentifier"),
    "another name": (pem(names=[x509.OtherName(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")]), "OtherName"),
    "a network": (pem(names=[x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))]), "IPAddress"),
    "twice": (pem(names=["n1", "N1"]), "names something twice"),
    "an address twice": (pem(names=["10.0.0.1", "10.0.0.1"]), "names something twice"),
    "many": (pem(names=[f"n{number}" for number in range(101)]), "has 101 names and addresses, more than 100"),
    "thousands": (pem(names=[f"n{number}" for number in range(5000)]), f"larger than {REQUEST_BYTES} bytes"),
    "ca": (pem(extensions=[x509.BasicConstraints(True, None)]), "more than names and addresses: BasicConstraints"),
    "no ca": (pem(extensions=[x509.BasicConstraints(False, None)]), "BasicConstraints (2.5.29.19)"),
    "usage": (pem(extensions=[x509.ExtendedKeyUsage([x509.ObjectIdentifier("2.5.29.37.0")])]), "ExtendedKeyUsage"),
    "password": (pem(attributes=[(AttributeOID.CHALLENGE_PASSWORD, b"x")]), "1.2.840.113549.1.9.7"),
    "extensions twice": (
        pem(attributes=[(x509.ObjectIdentifier("1.2.840.113549.1.9.14"), b"x")]),
        "more than one list of extensions",
    ),
    "another organisation": (pem(organisations=["system:masters"]), "its subject is not O=system:nodes"),
    "two organisations": (pem(organisations=["system:nodes", "system:masters"]), "its subject is not"),
    "no organisation": (pem(organisations=[]), "its subject is not"),
    "the same organisation twice": (pem(organisations=["system:nodes"] * 2), "its subject is not"),
    "a country": (pem(subject=[x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")]), "its subject is not"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_no_kubelet_sends_waits(case):
    content, says = MALFORMED[case]
    found = problem_of(lambda: rules.read(request(content)))
    assert found.reason is Reason.MALFORMED
    assert says in str(found)


@pytest.mark.parametrize("common", ["", "n1", "system:node:n1.evil", "system:node:N1"])
def test_the_common_name_is_the_requester(common):
    assert problem_of(lambda: rules.read(request(pem(common)))).reason is Reason.REQUESTER


def test_two_common_names():
    more = [x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n2")]
    assert problem_of(lambda: rules.read(request(pem(subject=more)))).reason is Reason.REQUESTER


@pytest.mark.parametrize(
    "names",
    [
        ["n1"],
        ["10.0.0.1"],
        ["2001:db8:0::1"],
        ["N1.Internal", "machine-1", "n1", "10.0.0.1", "2001:db8::1"],
    ],
)
def test_what_the_cloud_says_is_approved(names):
    rules.check_names(rules.read(request(pem(names=names))), INSTANCE)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ["n2"],
            "asks for 'n2', and the cloud says that instance fake://1 has machine-1, n1, n1.internal, 10.0.0.1, 2001",
        ),
        (["n1", "10.0.0.2"], "asks for 10.0.0.2, and"),
        (["*.internal"], "asks for '*.internal', and"),
        (["n1.internal."], "asks for 'n1.internal.'"),
        (["n1", "kubernetes.default.svc", "127.0.0.1"], "asks for 'kubernetes.default.svc', 127.0.0.1, and"),
        (["::ffff:10.0.0.1"], "asks for ::ffff:"),
        ([x509.DNSName("10.0.0.1")], "asks for '10.0.0.1'"),
        ([x509.DNSName("n1\0.evil")], "asks for 'n1\\x00.evil'"),
    ],
)
def test_everything_else_waits_and_the_difference_is_named(names, says):
    found = problem_of(lambda: rules.check_names(rules.read(request(pem(names=names))), INSTANCE))
    assert found.reason is Reason.NAMES and says in str(found)


def test_addresses_of_a_cloud_that_names_none_or_nonsense():
    odd = dataclasses.replace(INSTANCE, addresses=(Address(AddressType.INTERNAL_IP, "not an address"),))
    rules.check_names(RequestedNames(("n1",), ()), odd)
    assert "10.0.0.1" in str(problem_of(lambda: rules.check_names(RequestedNames((), (IP("10.0.0.1"),)), odd)))


def test_an_ip_in_a_dns_address_counts_only_as_a_name():
    odd = dataclasses.replace(INSTANCE, addresses=(Address(AddressType.HOSTNAME, "10.0.0.9"),))
    assert problem_of(lambda: rules.check_names(RequestedNames((), (IP("10.0.0.9"),)), odd)).reason is Reason.NAMES


def node(name: str = "n1", provider_id: str = "fake://1", **meta: Any) -> Node:
    return Node(ObjectMeta(name, **meta), NodeSpec(provider_id))


@pytest.mark.parametrize(
    ("registered", "owned", "says"),
    [
        (None, False, "there is no Node 'n1'"),
        (node(deletion_timestamp="2026-01-01T00:00:00Z"), True, "is being deleted"),
        (node(provider_id=""), False, "not initialised"),
        (node(provider_id="other://1"), False, "'other://1' is not of this cloud"),
    ],
)
def test_the_node_must_be_there_and_initialised(registered, owned, says):
    problem = problem_of(lambda: rules.check_node(registered, "n1", owned=owned))
    assert problem.reason is Reason.NODE and says in str(problem)
    assert rules.check_node(node(), "n1", owned=True) == node()


def check(by_id: Instance = INSTANCE, by_name: Instance = INSTANCE, of: Node | None = None, **how: Any) -> None:
    given: dict[str, Any] = {"same": True, "claimants": [node()], "gone_for": None} | how
    rules.check_instance(of or node(), by_id, by_name, **given)


NEW = Instance("fake://2", "n1", addresses=INSTANCE.addresses)


def test_the_machine_of_the_node_passes():
    check()
    check(gone_for=121.0)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"by_name": NEW, "same": False}, "instance fake://2 has the Node's name"),
        ({"of": node("n9"), "claimants": [node("n9")]}, "if the machine was replaced"),
        ({"of": node("Machine-1"), "claimants": [node("Machine-1"), node()]}, "also belongs to node n1"),
        ({"gone_for": 3.0}, "reported gone 3 s ago"),
        (
            {"by_id": dataclasses.replace(INSTANCE, incomplete="no agent")},
            "cannot describe instance fake://1: no agent",
        ),
        ({"by_id": dataclasses.replace(INSTANCE, state=InstanceState.SHUTDOWN)}, "fake://1 is shutdown"),
    ],
)
def test_another_machine_does_not(how, says):
    problem = problem_of(lambda: check(**how))
    assert problem.reason is Reason.INSTANCE and says in str(problem)


def test_the_newest_are_read():
    many = [request(b"", name=f"csr-{n}", created=f"2026-01-01T00:00:{n % 20:02}Z") for n in range(rules.READ + 2)]
    chosen, others = rules.newest(many)
    assert [each.metadata.name for each in chosen][:2] == ["csr-11", "csr-10"] and len(chosen) == rules.READ
    assert [each.metadata.name for each in others] == ["csr-1", "csr-0"]


def test_which_node_a_request_is_about():
    assert rules.concerned(request(b"", username="system:node:n7")) == "n7"
    assert rules.concerned(request(username="mallory")) == "n1"
    assert rules.concerned(request(b"", username="mallory")) == ""
    assert rules.concerned(request(pem("mallory"), username="mallory")) == ""
    assert rules.concerned(request(pem(""), username="mallory")) == ""


def test_the_patch_is_for_what_was_judged():
    patch = rules.approval(request(), INSTANCE, "2026-01-01T00:00:00Z")
    assert patch["metadata"] == {"uid": "uid-1", "resourceVersion": "7"}
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["lastUpdateTime"]) == (
        "Approved",
        "True",
        "2026-01-01T00:00:00Z",
    )
    assert "fake://1" in condition["message"]
    assert rules.message(request(), WaitError(Reason.NODE, "why")).endswith(
        "csr-1 for the kubelet's serving certificate is not approved: why"
    )


def test_which_changes_of_a_node_matter():
    before = node(uid="u")
    moved = Node(before.metadata, before.spec, NodeStatus(addresses=[NodeAddress("InternalIP", "10.0.0.2")]))
    assert rules.addresses_changed(None, before)
    assert rules.addresses_changed(before, moved)
    assert rules.addresses_changed(before, node(uid="v"))
    assert rules.addresses_changed(node(uid="u", provider_id=""), before)
    assert not rules.addresses_changed(before, node(uid="u", labels={"a": "b"}))


def test_which_requests_wait():
    assert is_waiting(request())
    answered = SigningRequestStatus([RequestCondition("Denied")])
    assert not is_waiting(request(status=answered))
    assert not is_waiting(
        msgspec.structs.replace(request(), spec=msgspec.structs.replace(request().spec, signer_name="x"))
    )
    gone = ObjectMeta("csr", deletion_timestamp="2026-01-01T00:00:00Z")
    assert not is_waiting(msgspec.structs.replace(request(), metadata=gone))


def test_the_cache_keeps_little():
    big = request(b"x" * 10**6, groups=["a"] * 9 + ["system:nodes"], usages=["any"] * 99)
    kept = kept_request(big)
    assert (len(kept.spec.request), len(kept.spec.usages), kept.spec.groups) == (
        REQUEST_BYTES + 1,
        USAGES + 1,
        ["system:nodes"],
    )
    assert kept_request(request(ORDINARY)).spec == msgspec.structs.replace(
        request(ORDINARY).spec, groups=["system:nodes"]
    )
    assert kept_request(request(groups=["x"])).spec.groups == []
    answered = request(status=SigningRequestStatus([RequestCondition("Approved"), RequestCondition("Failed")]))
    assert kept_request(answered).spec.request == b"" and not is_waiting(kept_request(answered))
    assert kept_request(answered).metadata.resource_version == "7"


def test_a_request_in_wire_form():
    raw = {
        "metadata": {
            "name": "csr-1",
            "uid": "uid-1",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "signerName": SIGNER,
            "username": "system:node:n1",
            "groups": ["system:nodes"],
            "usages": ["digital signature", "server auth"],
            "request": base64.b64encode(pem()).decode(),
        },
    }
    found = msgspec.json.decode(msgspec.json.encode(raw), type=SigningRequest)
    assert rules.read(kept_request(found)) == RequestedNames(("n1",), (IP("10.0.0.1"),))


NAMES = st.sampled_from(
    ["n1", "n1.internal", "machine-1", "10.0.0.1", "2001:db8::1", "n2", "*", "10.0.0.2", "n1.evil", "::"]
)
OWN = {"n1", "n1.internal", "machine-1", "10.0.0.1", "2001:db8::1"}


@bounded(300)
@given(
    names=st.lists(NAMES, max_size=6),
    common=st.sampled_from(["system:node:n1", "system:node:n2", "n1"]),
    username=st.sampled_from(["system:node:n1", "system:node:n2", "admin"]),
    usages=st.lists(
        st.sampled_from(["digital signature", "server auth", "key encipherment", "client auth"]), max_size=4
    ),
    extensions=st.lists(st.sampled_from([x509.BasicConstraints(True, None)]), max_size=1),
)
def test_fuzz_nothing_else_is_approved(names, common, username, usages, extensions):
    """Approved requests are the Node's own, with names of its instance only, each once, and usages for serving only."""
    try:
        wanted = rules.read(request(pem(common, names, extensions=extensions), username=username, usages=usages))
        rules.check_names(wanted, INSTANCE)
    except WaitError:
        return
    assert common == username and not extensions and "client auth" not in usages and "server auth" in usages
    assert names and set(names) <= OWN and len(set(names)) == len(names)


@bounded(500)
@given(st.data())
def test_fuzz_any_bytes_are_read_or_refused(data):
    """Damaged bytes raise WaitError or still have their original meaning."""
    content = bytearray(der())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    try:
        wanted = rules.read(request(armour(bytes(content))))
    except WaitError:
        return
    assert wanted == RequestedNames(("n1",), (IP("10.0.0.1"),))


@bounded(200)
@given(st.binary(max_size=3000))
def test_fuzz_no_bytes_raise_anything_else(content):
    for each in (content, armour(content)):
        assert problem_of(lambda each=each: rules.read(request(each))).reason is Reason.MALFORMED
        assert rules.concerned(request(each, username="x")) == ""
