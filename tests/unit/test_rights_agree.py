# SPDX-License-Identifier: Apache-2.0
"""The collection grants the runtime the rights that it checks at start and those that /metrics needs, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.controllers.controller_registry import BUILT_IN
from ccm.manager.rights_check import CHEAPER, IDENTITY, needed
from ccm.options.controller_names import OFF_BY_DEFAULT, ON_BY_DEFAULT
from ccm.options.leader_migration import Migration

from .ccm_runtime_role import rendered

NAME, NAMESPACE = "cloud-controller-manager", "kube-system"
LEASES = [(NAMESPACE, NAME), (NAMESPACE, Migration().leader_name)]
#: Rights that the runtime uses when somebody reads /metrics, and does not check at start.
REVIEWS = {
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
}


def documents(command: list[str], optional: bool = False) -> list[dict[str, Any]]:
    pools = [{"apiGroups": ["acme.example"], "resources": ["pools"], "verbs": ["get"]}] * bool(command)
    return rendered(
        "rbac.yaml.j2",
        ccm_runtime_command=command,
        ccm_runtime_controllers=["*", *OFF_BY_DEFAULT] if optional else ["*"],
        ccm_runtime_extra_rules=pools,
    )


def granted(command: list[str], kind: str, optional: bool = False) -> set[tuple[str, str, str]]:
    (role,) = [document for document in documents(command, optional) if document["kind"] == kind]
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("optional", [False, True], ids=["by-default", "with-all"])
def test_the_cluster_role_is_what_the_controllers_need(optional: bool):
    controllers = (*ON_BY_DEFAULT, *(OFF_BY_DEFAULT if optional else ()))
    asked = [IDENTITY, *CHEAPER, *needed((BUILT_IN[name] for name in controllers), LEASES)]
    wanted = {(right.group, right.resource, right.verb) for right in asked if not right.namespace}
    assert granted([], "ClusterRole", optional) == wanted | REVIEWS


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("ccm_runtime_label_volumes", "persistentvolume-label-controller"),
        ("ccm_runtime_kubelet_serving_csr", "kubelet-serving-csr-controller"),
    ],
)
@pytest.mark.parametrize("former", [False, True], ids=["by-the-list", "by-the-former-variable"])
def test_a_controller_gets_its_rights_and_no_others(variable: str, name: str, former: bool):
    asked: dict[str, Any] = {variable: True} if former else {"ccm_runtime_controllers": ["*", name]}
    (role,) = [each for each in rendered("rbac.yaml.j2", **asked) if each["kind"] == "ClusterRole"]
    (without,) = [each for each in rendered("rbac.yaml.j2") if each["kind"] == "ClusterRole"]
    more = [rule for rule in role["rules"] if rule not in without["rules"]]
    granted = {(rule["resources"][0], verb) for rule in more for verb in rule["verbs"]}
    assert granted == {(right.resource, right.verb) for right in set(needed([BUILT_IN[name]])) - set(needed([]))}


def test_only_the_signer_of_kubelets_may_be_approved_for():
    (role,) = [each for each in documents([], True) if each["kind"] == "ClusterRole"]
    (rule,) = [rule for rule in role["rules"] if "signers" in rule["resources"]]
    assert (rule["resourceNames"], rule["verbs"]) == (["kubernetes.io/kubelet-serving"], ["approve"])


def test_one_namespace_may_be_read():
    """The UID of that namespace is the cluster's identity."""
    (role,) = [document for document in documents([]) if document["kind"] == "ClusterRole"]
    (rule,) = [rule for rule in role["rules"] if "namespaces" in rule["resources"]]
    assert (rule["resourceNames"], rule["verbs"]) == ([IDENTITY.name], [IDENTITY.verb])


def test_the_role_is_what_the_election_needs():
    wanted = {(r.group, r.resource, r.verb) for r in needed((), LEASES) if r.namespace}
    assert granted([], "Role") == wanted


def test_only_our_own_leases_may_be_written():
    (role,) = [document for document in documents([]) if document["kind"] == "Role"]
    for rule in role["rules"]:
        assert rule["verbs"] == ["create"] or set(rule["resourceNames"]) == {name for _, name in LEASES}


@pytest.mark.parametrize("command", [[], ["/other-ccm"]])
def test_the_published_client_ca_may_be_read(command: list[str]):
    """Kubernetes creates the Role `extension-apiserver-authentication-reader` in every cluster. It allows reading the
    ConfigMap with the client CA, which the runtime and upstream's controllers need."""
    [right] = set(needed((), LEASES, client_ca=True)) - set(needed((), LEASES))
    assert (right.resource, right.namespace, right.name) == (
        "configmaps",
        NAMESPACE,
        "extension-apiserver-authentication",
    )
    bound = {document["roleRef"]["name"] for document in documents(command) if document["kind"] == "RoleBinding"}
    assert bound == {NAME, "extension-apiserver-authentication-reader"}


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_another_controller_gets_what_the_go_framework_needs_on_top(kind: str):
    assert granted([], kind) < granted(["/other-ccm"], kind)


def test_a_vendors_own_rules_are_added():
    assert ("acme.example", "pools", "get") in granted(["/other-ccm"], "ClusterRole")
