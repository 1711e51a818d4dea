# SPDX-License-Identifier: Apache-2.0
"""The files that render.yml writes for each release. On a host with them, a migration has nothing to do."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import render
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

OBJECTS = [{"kind": "ServiceAccount"}, {"kind": "DaemonSet"}]
SECRET = {"kind": "Secret", "data": {"cloud.conf": "c2VjcmV0"}}


@pytest.mark.parametrize(("version", "api", "arguments", "patched"), [
    ("1.29", "v1beta3", {"cloud-provider": "external"}, True),
    ("v1.30.4", "v1beta3", {"cloud-provider": "external"}, True),
    ("1.31", "v1beta4", [{"name": "cloud-provider", "value": "external"}], False),
    ("1.36", "v1beta4", [{"name": "cloud-provider", "value": "external"}], False),
])
def test_the_form_is_that_of_the_release(version: str, api: str, arguments: Any, patched: bool) -> None:
    files = render.files(version, OBJECTS, SECRET)
    for kind in ("init", "join"):
        document = yaml.safe_load(files["kubeadm/{0}-configuration.yaml".format(kind)])
        assert document["apiVersion"] == "kubeadm.k8s.io/" + api and document["nodeRegistration"] == {"kubeletExtraArgs": arguments}
    cluster = {"kubeadm/cluster-configuration.yaml", "kubeadm/patches/kube-controller-manager0+json.yaml"}
    assert cluster & set(files) == (cluster if patched else set())
    control = yaml.safe_load(files["cluster-api/kubeadm-control-plane.yaml"])["spec"]["kubeadmConfigSpec"]
    extra = [{"name": "cloud-provider", "value": "external"}]  # the list that every release gets
    assert control.get("clusterConfiguration") == ({"controllerManager": {"extraArgs": extra}} if patched else None)
    assert control["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"] == [{"name": "cloud-provider", "value": "external"}]
    assert all("`{0}`".format(path) in files["README.md"] for path in files if not path.startswith(("controller/", "README")))


def test_without_a_version_it_is_the_newest_and_what_is_none_is_refused() -> None:
    assert "Kubernetes {0}.{1}.".format(*versions.SUPPORTED[1]) in render.files("", OBJECTS, SECRET)["README.md"]
    with pytest.raises(ValueError, match="'latest' is not a version"):
        render.files("latest", OBJECTS, SECRET)


def test_no_value_of_the_secret_is_in_a_file_and_each_object_is_in_one() -> None:
    files = render.files("1.36", OBJECTS, SECRET)
    assert not any("c2VjcmV0" in text or "secret\n" in text for text in files.values())
    assert yaml.safe_load(files["controller/secret.example.yaml"]) == {"kind": "Secret", "stringData": {"cloud.conf": "REPLACE"}}
    assert yaml.safe_load(files["controller/rbac.yaml"]) == OBJECTS[0] and yaml.safe_load(files["controller/daemonset.yaml"]) == OBJECTS[1]
    assert yaml.safe_load(files["controller/kustomization.yaml"])["resources"] == ["daemonset.yaml", "rbac.yaml"]


class Tagged(str):
    """A subclass of str, as Ansible's strings are, which PyYAML cannot represent."""


def test_each_value_keeps_its_type_its_place_and_its_line() -> None:
    shared = {"b": 1, "a": [True, False, None, 1.5, Tagged("true"), "long " * 300]}
    (text,) = [render.files("1.36", [{"kind": "Role", "x": shared, "y": shared}, {"kind": "DaemonSet"}], SECRET)["controller/rbac.yaml"]]
    assert yaml.safe_load(text) == {"kind": "Role", "x": shared, "y": shared}
    lines = text.splitlines()
    assert lines[:4] == ["kind: Role", "x:", "  b: 1", "  a:"] and lines[4:9] == ["  - true", "  - false", "  - null", "  - 1.5", "  - 'true'"]
    assert "&" not in text and "*" not in text  # no anchors or aliases


def test_a_migration_leaves_a_kubelet_with_the_drop_in_as_it_is(host_facts: Any, cluster_facts: Any) -> None:
    path = "/etc/systemd/system/kubelet.service.d/20-outoftree-ccm.conf"
    with_it = host_facts("w-1", {path: render.DROP_IN}, running=["--cloud-provider=external"])
    plan = make_plan({"w-1": with_it}, cluster_facts(("w-1", "initialized")), [])
    assert [edit for edit in plan["edits"] if edit["component"] == "kubelet"] == [], plan["edits"]
    without = host_facts("w-1", {}, running=[])
    plan = make_plan({"w-1": without}, cluster_facts(("w-1", "initialized")), [])
    assert [edit["flag"] for edit in plan["edits"] if edit["component"] == "kubelet"] == ["--cloud-provider"]


def test_what_prometheus_needs_is_a_file_of_its_own():
    labels = {"app.kubernetes.io/component": "metrics"}
    monitor = {"kind": "PodMonitor", "metadata": {"name": "m", "labels": labels}}
    files = render.files("1.36", [*OBJECTS, monitor], SECRET)
    assert yaml.safe_load(files["controller/monitoring.yaml"]) == monitor
    assert "monitoring.yaml" in yaml.safe_load(files["controller/kustomization.yaml"])["resources"]
    assert "controller/monitoring.yaml" not in render.files("1.36", OBJECTS, SECRET)
