# SPDX-License-Identifier: Apache-2.0
"""A restart must not give a Node another name, and RKE2 must keep the CSI driver that it deployed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import rancher
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import registration
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

ENV = "/var/lib/kubelet/kubeadm-flags.env"
CONFIG = "/etc/rancher/rke2/config.yaml"
METADATA = registration.FROM_METADATA


def of_rke2(text: str, server: bool = True, **more: Any) -> tuple[str, list[tuple[str, str | None, str | None]]]:
    """Return the new text and the changes of RKE2's configuration."""
    edit = rancher.plan("rke2", server, [(CONFIG, text)], [], (1, 33), **more)
    return edit.texts.get(CONFIG, text), [(change.key, change.now, change.then) for change in edit.changes]


def kubelet_facts(host_facts: Any, node_name: str, override: str = "", host: str = "w-1") -> dict[str, Any]:
    flags = "--cloud-provider=vsphere" + (" --hostname-override=" + override if override else "")
    facts: dict[str, Any] = host_facts(node_name, {ENV: 'KUBELET_KUBEADM_ARGS="{0}"\n'.format(flags)}, ["--cloud-provider=vsphere"])
    facts["registers"] = registration.of_kubelet(override, host)
    facts["kubelet"]["version"] = "v1.29.9"
    return facts


def problems(facts: dict[str, Any], cluster: dict[str, Any]) -> list[str]:
    found: list[str] = make_plan({"w": facts}, cluster, [], names={"w": ["w-1", "vm-1"]})["problems"]
    return found


def test_a_kubelet_that_would_get_another_name_is_not_restarted(host_facts: Any, cluster_facts: Any) -> None:
    """The in-tree vSphere provider ignored --hostname-override, but a kubelet with an external cloud uses it."""
    cluster = cluster_facts(("w-1", "unmanaged"), version="v1.29.9", kubeadm="")
    (problem,) = problems(kubelet_facts(host_facts, "w-1", "vm-1"), cluster)
    assert problem == ("w: its Node is w-1, but its kubelet would register a second Node as vm-1 when it restarts with an external cloud "
                       "(--hostname-override). Set --hostname-override=w-1, then run again")
    assert problems(kubelet_facts(host_facts, "w-1", "W-1"), cluster) == []
    assert problems(kubelet_facts(host_facts, "w-1"), cluster) == []


def test_the_advice_for_an_unknown_name_renames_nothing(host_facts: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("w-1", "unmanaged"), version="v1.29.9", kubeadm="")
    (problem,) = problems(kubelet_facts(host_facts, "vm-1", "vm-1"), cluster)
    assert "ccm_install_node_name" not in problem and problem.endswith(
        "If its Node has another name, write that name into --hostname-override, because the kubelet takes its name from --hostname-override "
        "when it restarts, and would register a second Node")


def test_a_kubelet_that_has_nothing_to_change_is_left_alone(host_facts: Any, cluster_facts: Any) -> None:
    facts = host_facts("w-1", {ENV: 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'}, ["--cloud-provider=external"])
    facts["registers"] = registration.of_kubelet("vm-1", "w-1")
    assert problems(facts, cluster_facts(("w-1", "initialized"), kubeadm="")) == []


def test_rke2_keeps_the_name_that_aws_implied() -> None:
    text = "cloud-provider-name: aws\ntoken: x\n"
    registers = registration.of_rancher({"cloud-provider-name": ("aws", "cloud-provider-name")}, "ip-10-0-0-5", "")
    for server in (True, False):
        after, changes = of_rke2(text, server, node_name="ip-10-0-0-5.eu-west-2.compute.internal", registers=registers)
        assert after == f"cloud-provider-name: external\ntoken: x\n{METADATA}: true\n"
        assert changes == [(METADATA, None, "true"), ("cloud-provider-name", "aws", "external")]
        settled = registration.of_rancher({METADATA: ("true", METADATA)}, "ip-10-0-0-5", "")
        assert of_rke2(after, server, node_name="ip-10-0-0-5.eu-west-2.compute.internal", registers=settled)[1] == []


def test_a_provider_of_the_environment_is_overridden_in_the_file() -> None:
    after, changes = of_rke2("token: x\n", False, environment={"cloud-provider-name": "aws"})
    assert after == f"token: x\n{METADATA}: true\ncloud-provider-name: external\n"
    assert changes[1] == ("cloud-provider-name", "aws", "external")
    assert of_rke2(after, False, environment={"cloud-provider-name": "aws"})[1] == []
    with pytest.raises(rancher.RancherRefused, match="RKE2_CLOUD_PROVIDER_CONFIG"):
        of_rke2("token: x\n", environment={"cloud-provider-config": "/c"})


@pytest.mark.parametrize("kind", ["k3s", "rke2"])
def test_the_name_of_a_node_is_written_where_it_would_change(kind: str) -> None:
    registers = registration.of_rancher({}, "renamed", "")
    edit = rancher.plan(kind, False, [("/f", "token: x\n")], ["agent"], (1, 33), node_name="w-1", registers=registers)
    assert edit.texts["/f"].endswith("node-name: w-1\n")
    assert edit.changes[-1].why == f"the Node keeps its name. Otherwise {kind} would register a second Node as renamed (the host's name)"
    with pytest.raises(rancher.RancherRefused, match="its unit passes --node-name"):
        rancher.plan(kind, False, [("/f", "token: x\n")], ["agent", "--node-name=renamed"], (1, 33), node_name="w-1", registers=registers)
    registers = registration.of_rancher({"with-node-id": ("true", "")}, "w", "1f")
    edit = rancher.plan(kind, False, [("/f", "")], ["agent"], (1, 33), node_name="w-1f", registers=registers)
    assert "node-name" not in edit.texts["/f"]
    with pytest.raises(rancher.RancherRefused, match="with-node-id"):
        rancher.plan(kind, False, [("/f", "")], ["agent"], (1, 33), node_name="other", registers=registers)


@pytest.mark.parametrize(("provider", "controller"), [("rancher-vsphere", "rancher-vsphere-cpi"), ("harvester", "harvester-cloud-provider")])
def test_rke2_keeps_its_csi_driver(provider: str, controller: str) -> None:
    """With any other `cloud-provider-name`, RKE2 adds the CSI driver's chart to those that it deletes."""
    text = f"cloud-provider-name: {provider}\n"
    after, changes = of_rke2(text)
    assert after == f"cloud-provider-name: {provider}\ndisable:\n- {controller}\n"
    assert changes == [("disable", None, controller)] and of_rke2(after)[1] == []
    assert of_rke2(text, server=False) == (text, []), "an agent's kubelet is external with this name"
    assert of_rke2("", environment={"cloud-provider-name": provider})[1] == [("disable", None, controller)]
    assert rancher.is_external("rke2", [(CONFIG, text)], [])
