# SPDX-License-Identifier: Apache-2.0
"""ClusterConfiguration, in both of its stored shapes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils import _kubeadm
from ansible_collections.outoftree.ccm.plugins.module_utils._yamltext import EditRefused

HEAD_3 = "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\n"


def test_v1beta4_leftovers_go_and_the_section_stays_empty_as_kubeadm_writes_it(fixture_text: Any) -> None:
    before = fixture_text("kubeadm-1.36/cluster-configuration.yaml")
    after, changes = _kubeadm.edit(before, (1, 36))
    start, end = before.index("controllerManager:"), before.index("dns: {}")
    assert after == before[:start] + "controllerManager: {}\n" + before[end:]
    assert [(c.component, c.change.name) for c in changes] == [
        ("kube-controller-manager", "cloud-config"), ("kube-controller-manager", "cloud-provider")]
    assert _kubeadm.edit(after, (1, 36)) == (after, [])


def test_v1beta4_other_arguments_and_duplicates_stay() -> None:
    before = ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n  - name: cloud-provider\n"
              "    value: external\n  - name: audit-policy-file\n    value: /a\n  - name: enable-admission-plugins\n"
              "    value: NodeRestriction,PersistentVolumeLabel\n  - name: cloud-provider\n    value: aws\n")
    after, changes = _kubeadm.edit(before, (1, 36))
    assert after == ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n"
                     "  - name: audit-policy-file\n    value: /a\n  - name: enable-admission-plugins\n    value: NodeRestriction\n")
    assert len(changes) == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("controllerManager: {}\n", "controllerManager:\n  extraArgs:\n    cloud-provider: external\n"),
        ("dns: {}\n", "dns: {}\ncontrollerManager:\n  extraArgs:\n    cloud-provider: external\n"),
        ("controllerManager:\n  extraArgs:\n    cloud-config: /c\n    v: \"2\"\n",
         "controllerManager:\n  extraArgs:\n    v: \"2\"\n    cloud-provider: external\n"),
        ("controllerManager:\n  extraArgs:\n    cloud-provider: openstack\n", "controllerManager:\n  extraArgs:\n    cloud-provider: external\n"),
        ("controllerManager:\n  extraArgs:\n    cloud_provider: openstack\n    cloud_config: /c\n",
         "controllerManager:\n  extraArgs:\n    cloud_provider: external\n"),
    ],
)
def test_v1beta3_gets_external_before_1_31(before: str, after: str) -> None:
    assert _kubeadm.edit(HEAD_3 + before, (1, 30))[0] == HEAD_3 + after


def test_a_text_of_another_kind_is_refused() -> None:
    with pytest.raises(_kubeadm.BadClusterConfiguration, match="kind"):
        _kubeadm.edit("kind: InitConfiguration\n", (1, 36))
    with pytest.raises(_kubeadm.BadClusterConfiguration, match="extraArgs"):
        _kubeadm.edit("kind: ClusterConfiguration\napiServer: {extraArgs: text}\n", (1, 36))


def test_an_edit_that_an_alias_would_repeat_elsewhere_is_refused() -> None:
    text = HEAD_3 + "apiServer:\n  extraArgs: &shared\n    cloud-provider: aws\n    v: \"2\"\nscheduler:\n  extraArgs: *shared\n"
    with pytest.raises(EditRefused, match="anchor"):
        _kubeadm.edit(text, (1, 36))
