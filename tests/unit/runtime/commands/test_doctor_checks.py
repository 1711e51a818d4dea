# SPDX-License-Identifier: Apache-2.0
"""What `ccm doctor` concludes from what it read."""

import base64
import datetime
import ipaddress
import json
from typing import ClassVar

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ccm.cloud import Forbidden, Instance, KeptLoadBalancer, Quota, QuotaExceeded, RateLimited, Transient, Unauthorized
from ccm.commands.asking.answers import Action, Outlook
from ccm.commands.asking.cluster_objects import Container, NodeLease, Pod, SigningRequest, Workload, WrittenNode
from ccm.commands.asking.explanation import Event
from ccm.commands.doctor import (
    check_cloud,
    check_components,
    check_others,
    check_rights,
    check_times,
    check_webhook,
    doctor,
)
from ccm.commands.doctor.diagnosis import Diagnosis, State, render
from ccm.commands.outlooks.service_outlook import kept_outlooks
from ccm.controllers.controller_spec import Right
from ccm.controllers.services.class_rules import UNDECLARED
from ccm.controllers.shared.pod_network_rules import PodNetwork
from ccm.engine.objects import Lease

from .looks import NOW, TAINT, before, node, service

OURS = "localhost/outoftree-ccm:0.1.0"


def states(checks):
    return [each.state for each in checks]


def pod(name, image="x", *arguments, static=True, account=""):
    annotations = {"kubernetes.io/config.mirror": "x"} if static else {}
    container = {"name": name, "image": image, "command": [name, *arguments]}
    spec = {"containers": [container], "serviceAccountName": account}
    meta = {"name": f"{name}-cp1", "namespace": "kube-system", "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


# Rights.


def test_rights_are_told_verb_by_verb():
    needed = [Right("nodes", "get"), Right("nodes", "patch"), Right("nodes", "delete"), Right("events", "create")]
    lost, kept = check_rights.results(needed, needed[1:3], "ServiceAccount a/b")
    assert (lost.state, lost.said) == (State.PROBLEM, "ServiceAccount a/b may not patch, delete nodes")
    assert (kept.state, kept.said) == (State.OK, "ServiceAccount a/b may do everything else that the controller needs")
    (whole,) = check_rights.results(needed, [], "ServiceAccount a/b")
    assert (whole.state, whole.said) == (State.OK, "ServiceAccount a/b may do everything that the controller needs")
    assert State.OK not in states(check_rights.results(needed, needed, "ServiceAccount a/b"))


def test_the_account_is_that_of_the_controllers_pods():
    others = pod("openstack-cloud-controller-manager", "x/openstack-cloud-controller-manager:v1", account="theirs")
    assert check_rights.account_of([others]) is None
    assert check_rights.account_of([others, pod("ccm", OURS, account="ours")]) == ("kube-system", "ours")


# Flags and versions.

NETWORK = PodNetwork([ipaddress.ip_network("10.244.0.0/16")])


@pytest.mark.parametrize(
    ("flags", "state", "words"),
    [
        (["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16"], State.OK, "agree"),
        (["--allocate-node-cidrs", "--cluster-cidr", "10.244.0.0/16", "--cloud-provider=external"], State.OK, "agree"),
        (["--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/16"], State.PROBLEM, "--cluster-cidr=10.0.0.0/16"),
        (["--cluster-cidr=10.244.0.0/16"], State.WARNING, "assigns no pod CIDRs"),
        (
            ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size=20"],
            State.PROBLEM,
            "assigns pod CIDRs of /20",
        ),
        (
            ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--cloud-provider=aws"],
            State.PROBLEM,
            "--cloud-provider=aws",
        ),
        (
            ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--cluster-name=prod"],
            State.NOTE,
            "--cluster-name=prod",
        ),
    ],
)
def test_flags_of_kube_controller_manager(flags, state, words):
    (said,) = check_components.flags([pod("kube-controller-manager", "x", *flags)], NETWORK, "kubernetes")
    assert said.state is state and words in said.said


def test_flags_that_nobody_can_see_and_routes_that_nobody_wants():
    (said,) = check_components.flags([pod("kube-controller-manager", static=False)], NETWORK, "kubernetes")
    assert said.state is State.NOTE and "no static Pod" in said.said
    (said,) = check_components.flags([pod("kube-controller-manager")], None, "kubernetes")
    assert said.state is State.OK


def written(name, version="v1.33.1", *fields):
    body = {"metadata": {"name": name, "managedFields": fields}, "status": {"nodeInfo": {"kubeletVersion": version}}}
    return msgspec.convert(body, WrittenNode)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.33.1", [State.OK]),
        ("v1.30.0", [State.OK]),
        ("v1.29.9", [State.OK, State.WARNING]),
        ("v1.34.0", [State.OK, State.WARNING]),
        ("", [State.OK]),
    ],
)
def test_versions(version, expected):
    assert states(check_components.versions("v1.33.4", [written("w1", version)], [pod("ccm", OURS)])) == expected


# Other controllers.


def lease(name="cloud-controller-manager", holder="a", renewed=1, acquired=600, **notes):
    told = {f"ccm.outoftree.dev/{key.replace('_', '-')}": value for key, value in notes.items()}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": before(renewed)}
    spec["acquireTime"] = before(acquired).replace("Z", ".000000Z")
    return msgspec.convert({"metadata": {"name": name, "annotations": told}, "spec": spec}, NodeLease)


def led(**more):
    found = lease(cloud_provider="sim", **more)
    return Lease(found.metadata, found.spec)


def by(manager, seconds, field):
    section, key = {"id": ("f:spec", "f:providerID"), "addresses": ("f:status", "f:addresses")}[field]
    return {"manager": manager, "time": before(seconds), "fieldsV1": {section: {key: {}}}}


@pytest.mark.parametrize(
    ("entry", "lease", "expected"),
    [
        (by("aws-cloud-controller-manager", 10, "addresses"), led(), [State.PROBLEM]),
        (by("aws-cloud-controller-manager", 700, "addresses"), led(), [State.NOTE]),
        (by("aws-cloud-controller-manager", 10, "id"), None, [State.NOTE]),
        (by("aws-cloud-controller-manager", 10, "id"), led(renewed=60), [State.NOTE]),
        (by("kubelet", 10, "addresses"), led(), []),
        (by("outoftree-ccm", 10, "id"), led(), []),
    ],
)
def test_who_writes_nodes(entry, lease, expected):
    assert states(check_others.writers([written("w1", "v1", entry)], lease, NOW)) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lease(cloud_provider="sim"), []),
        (lease(), [State.WARNING]),
        (lease("aws-cloud-controller-manager"), [State.PROBLEM]),
        (lease("aws-cloud-controller-manager", renewed=60), []),
        (lease("kube-scheduler"), []),
        (lease("cloud-provider-extraction-migration"), []),
    ],
)
def test_leases_of_others(other, expected):
    ours = ["cloud-controller-manager", "cloud-provider-extraction-migration"]
    assert states(check_others.leases([other], ours, NOW)) == expected


@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        ("registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.33.0", [], True),
        ("example.com:5000/hcloud-cloud-controller-manager@sha256:0", [], True),
        ("example.com/mirror:v1", ["/bin/aws-cloud-controller-manager"], True),
        (OURS, [], False),
        ("docker.io/library/nginx:1", ["nginx"], False),
        ("registry.k8s.io/sig-storage/csi-provisioner:v5", [], False),
    ],
)
def test_workloads_of_others(image, command, expected):
    container = {"name": "c", "image": image, "command": command}
    body = {"metadata": {"name": "d", "namespace": "n"}, "spec": {"template": {"spec": {"containers": [container]}}}}
    said = check_others.workloads([("DaemonSet", msgspec.convert(body, Workload))], [])
    assert states(said) == [State.WARNING] * expected


def test_a_flag_of_a_container():
    container = Container(command=["x", "--a=1", "--b", "2", "--c", "--a=3"])
    assert [container.flag(name) for name in "abcd"] == ["3", "2", "true", None]


# Clocks and certificates.


def renewed(name, seconds):
    return msgspec.convert({"metadata": {"name": name}, "spec": {"renewTime": before(seconds)}}, NodeLease)


@pytest.mark.parametrize(
    ("ahead", "leases", "expected"),
    [
        (0, [renewed("w1", 8)], [State.OK]),
        (30, [], [State.WARNING]),
        (-30, [], [State.WARNING]),
        (0, [renewed("w1", -20)], [State.OK, State.WARNING]),
        (0, [renewed("w1", 300)], [State.OK, State.WARNING]),
        (0, [renewed("w2", 300)], [State.OK]),  # w2 is not a Ready Node, so its kubelet may be gone
    ],
)
def test_clocks(ahead, leases, expected):
    here = NOW + datetime.timedelta(seconds=ahead)
    assert states(check_times.clocks(NOW, here, leases, ["w1"])) == expected


def certificate(days):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW - datetime.timedelta(days=400))
    return builder.not_valid_after(NOW + datetime.timedelta(days=days)).sign(key, hashes.SHA256())


@pytest.mark.parametrize(
    ("days", "state", "word"),
    [(300, State.OK, "valid until"), (20, State.WARNING, "expires at"), (-1, State.PROBLEM, "expired at")],
)
def test_certificates(days, state, word):
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        (said,) = check_times.certificates({"it": certificate(days).public_bytes(encoding)}, NOW)
        assert said.state is state and word in said.said


def test_of_several_certificates_the_first_to_expire_counts_and_garbage_is_noted():
    both = b"".join(certificate(days).public_bytes(serialization.Encoding.PEM) for days in (300, -1))
    assert states(check_times.certificates({"a": both, "b": b"garbage"}, NOW)) == [State.PROBLEM, State.NOTE]


@pytest.mark.parametrize(("seconds", "expected"), [(60, [State.OK]), (-60, [State.PROBLEM])])
def test_tokens(seconds, expected):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": NOW.timestamp() + seconds}).encode()).decode().rstrip("=")
    said = check_times.token(f"a.{claims}.c", NOW, "this Pod")
    assert states(said) == expected and said[0].said.startswith("the token of this Pod ")


@pytest.mark.parametrize("text", ["", "opaque", "a.b.c", "a.e30.c", "a.W10.c"])
def test_tokens_that_do_not_say(text):
    assert check_times.token(text, NOW, "this kubeconfig") == []


def test_kubelets_that_wait_for_certificates():
    spec = {"signerName": "kubernetes.io/kubelet-serving", "username": "system:node:w1"}
    waiting = msgspec.convert({"spec": spec}, SigningRequest)
    done = msgspec.convert({"spec": spec, "status": {"conditions": [{"type": "Approved"}]}}, SigningRequest)
    (said,) = check_times.requests([waiting, waiting, done])
    assert "the kubelets of w1 wait" in said.said and check_times.requests([done]) == []


# Webhooks.


def configuration(*days, name="volumes.ccm.outoftree.dev", **more):
    pem = b"".join(certificate(each).public_bytes(serialization.Encoding.PEM) for each in days)
    bundle = {"caBundle": base64.b64encode(pem).decode()} if days else {}
    webhook = {"name": name, "clientConfig": bundle | more, "failurePolicy": "Ignore"}
    return msgspec.convert({"metadata": {"name": "c"}, "webhooks": [webhook]}, check_webhook.Configuration)


@pytest.mark.parametrize(
    ("configurations", "expected"),
    [
        ([], [State.NOTE]),
        ([configuration(300, name="sidecars.example.com")], [State.NOTE]),
        ([configuration(300)], [State.OK, State.OK]),
        ([configuration(20)], [State.OK, State.WARNING]),
        ([configuration(-1)], [State.OK, State.PROBLEM]),
        ([configuration(-1, 300)], [State.OK, State.OK]),  # renewed; the expired certificate is still in the bundle
        ([configuration()], [State.OK]),
        ([configuration(caBundle="???")], [State.OK, State.NOTE]),
        ([configuration(caBundle="QUJD")], [State.OK, State.NOTE]),
    ],
)
def test_the_webhook_of_volumes(configurations, expected):
    said = check_webhook.configured(configurations, NOW)
    assert states(said) == expected
    assert ("without an answer: Ignore" in said[0].said) == (said[0].state is State.OK)


@pytest.mark.parametrize(
    ("image", "arguments", "served"),
    [
        ("localhost/outoftree-ccm:1", ["--webhooks=persistentvolume-label"], True),
        ("localhost/outoftree-ccm:1", ["--webhooks="], False),
        ("localhost/outoftree-ccm:1", [], False),
        ("registry/other-ccm:1", ["--webhooks=*"], False),
    ],
)
def test_whether_webhooks_are_served(image, arguments, served):
    pod = msgspec.convert({"spec": {"containers": [{"image": image, "args": arguments}]}}, Pod)
    assert check_webhook.are_served([pod]) is served


# The cloud.


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (Unauthorized("401"), State.PROBLEM, "refuses: list instances: 401"),
        (Forbidden("403"), State.PROBLEM, "refuses"),
        (QuotaExceeded("10 of 10"), State.PROBLEM, "a quota is used up"),
        (RateLimited("429", retry_after=20.0), State.WARNING, "throttles for 20 s"),
        (Transient("504"), State.UNKNOWN, "gives no answer"),
    ],
)
def test_what_the_cloud_answers(error, state, words):
    first, second = check_cloud.answered({"list instances": error, "list routes": None}, "sim")
    assert first.state is state and words in first.said
    assert second.state is State.OK and "list routes" in second.said


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (None, [(State.NOTE, "this provider cannot read quotas")]),
        ([], [(State.OK, "the cloud names no quota")]),
        ([Quota("ports", 89, 100), Quota("routes", 0, 5)], [(State.OK, "ports: 89 of 100; routes: 0 of 5")]),
        ([Quota("ports", 90, 100)], [(State.WARNING, "a quota is nearly used up: ports: 90 of 100")]),
        ([Quota("ports", 9, 9), Quota("routes", 0, 5)], [(State.WARNING, "a quota is used up: ports: 9 of 9"),
                                                         (State.OK, "routes: 0 of 5")]),
        ([Quota("ports", 0, 0)], [(State.WARNING, "a quota is used up: ports: 0 of 0")]),
        (Forbidden("403"), [(State.NOTE, "the cloud does not show them")]),
        (Transient("504"), [(State.UNKNOWN, "list quotas: 504")]),
    ],
)  # fmt: skip
def test_quotas(listed, expected):
    said = check_cloud.quotas(listed)
    assert [each.state for each in said] == [state for state, _ in expected]
    assert all(words in each.said for each, (_, words) in zip(said, expected, strict=True))


def outlook(name="w1", action=Action.BLOCKED, reason="InstanceNotFound", kind="Node", **more):
    return Outlook(kind=kind, name=name, action=action, reason=reason, because="why", **more)


def test_nodes_by_state():
    every = [node("w1", "", TAINT), node("w2", "sim://w2"), node("w3", "sim://w3", ready="Unknown")]
    said = check_cloud.nodes(every, [outlook(), outlook("w3", Action.WAIT, "TooYoung")])
    assert said[0].said == "3 Nodes: 1 Ready, 1 not Ready, 1 waiting for initialisation"
    assert {(each.state, each.said) for each in said[1:]} == {
        (State.PROBLEM, "InstanceNotFound: w1: why"),
        (State.WARNING, "TooYoung: w3: why"),
    }
    alone = check_cloud.nodes(every, [])
    assert "w1 wait for their initialisation" in alone[1].said


def test_services_that_wait_and_why():
    about = {"source": {"component": "service-controller"}, "involvedObject": {"uid": "uid-web"}}
    events = [
        msgspec.convert({**about, "message": text, "lastTimestamp": before(seconds)}, Event)
        for text, seconds in (("quota", 5), ("an older reason", 50))
    ]
    said = check_cloud.services([service(), service("b"), service("c", addresses=["1"])], events, [], UNDECLARED)
    assert [(each.state, each.said) for each in said] == [
        (State.WARNING, "default/b waits for a load balancer"),
        (State.PROBLEM, "default/web waits for a load balancer: quota"),
        (State.OK, "1 of 3 Services of type LoadBalancer have an address"),
    ]


def test_what_nobody_owns():
    lost = [
        outlook("lb", reason="Orphan", kind="LoadBalancer"),
        outlook("10.0.0.0/24", reason="Unclaimed", kind="Route"),
    ]
    said = check_cloud.owners([outlook(), *lost], asked=True)
    assert [each.said for each in said] == ["load balancer lb: why", "route 10.0.0.0/24: why"]
    assert states(check_cloud.owners([outlook()], asked=True)) == [State.OK]
    assert check_cloud.owners([], asked=False) == []


def test_what_is_kept_is_no_warning():
    kept = kept_outlooks([KeptLoadBalancer("lb", "shop"), KeptLoadBalancer("other", "shop")])
    (check,) = check_cloud.owners(kept, asked=True)
    assert check.state is State.OK and "kept without a Service: lb, other" in check.said


@pytest.mark.parametrize(
    ("checks", "status"),
    [([State.OK, State.NOTE], 0), ([State.WARNING], 1), ([State.PROBLEM], 1), ([State.PROBLEM, State.UNKNOWN], 2)],
)
def test_exit_status_and_lines(checks, status):
    every = [check_cloud.Check("x", state, f"is {state}\x1b[2J", "something") for state in checks]
    found = Diagnosis("https://api", every, [])
    assert found.status == status
    lines = render(found, NOW)
    assert all(line.isprintable() for line in lines) and lines[0].endswith("https://api")


@pytest.mark.parametrize(("unanswered", "expected"), [(False, []), (True, None)])
async def test_without_the_right_to_list_them_nobody_says_that_there_are_no_webhooks(unanswered, expected):
    class Asked:
        unasked: ClassVar = []

        async def list(self, what, path, kind):
            if unanswered:
                self.unasked.append(what)
            return []

    arguments = {"image": "outoftree-ccm", "args": ["--webhooks=*"]}
    pod = msgspec.convert({"spec": {"containers": [arguments]}}, Pod)
    assert await doctor._webhooks(Asked(), [pod]) == expected
    assert await doctor._webhooks(Asked(), []) is None


def test_clouds_that_reach_one_project_are_a_problem():
    machine, other = Instance("fake://i-1", "a"), Instance("metal://i-2", "a")
    (good,) = check_cloud.overlaps({"fake": [machine], "metal": [other], "third": []})
    assert (good.state, good.said) == (State.OK, "fake and metal and third have no machine in common")
    (bad,) = check_cloud.overlaps({"fake": [machine], "third": [], "metal": [other, Instance("metal://i-1", "a")]})
    assert bad.state == State.PROBLEM
    assert "clouds fake and metal overlap: fake://i-1 and metal://i-1 are one machine, a" in bad.said
    assert bad.to_do == "Leave one of them out, or correct its configuration: one is not served"
    assert check_cloud.overlaps({"fake": [machine]}) == []
