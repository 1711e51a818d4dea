# SPDX-License-Identifier: Apache-2.0
"""What a Node that joins later needs, for each layout of the cluster."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.new_nodes import instructions


@pytest.mark.parametrize(("version", "expected", "other"), [
    ("v1.30.4", "v1beta3", "v1beta4"), ("v1.31.0", "v1beta4", "v1beta3"), ("v1.36.3", "v1beta4", "v1beta3"), ("", "v1beta4", "v1beta3"),
])
def test_kubeadm_gets_the_form_of_its_release(version: str, expected: str, other: str) -> None:
    told = "\n".join(instructions(["kubeadm"], {"version": version}))
    assert f"kubeadm.k8s.io/{expected}\n" in told and other not in told


WORDS = {
    "kubeadm": "kubeadm join", "kubespray": "group_vars/all", "systemd": "--cloud-provider=external",
    "k3s": "/etc/rancher/k3s/config.yaml", "rke2": "/etc/rancher/rke2/config.yaml",
}


@pytest.mark.parametrize("layout", WORDS)
def test_each_layout_has_its_own_words(layout: str) -> None:
    told = "\n".join(instructions([layout], {"version": "v1.36.3"}))
    assert [name for name, word in WORDS.items() if word in told] == [layout]


def test_a_cluster_of_two_layouts_has_the_words_of_both() -> None:
    told = "\n".join(instructions(["k3s", "kubeadm"], {"version": "v1.36.3"}))
    assert all(WORDS[name] in told for name in ("k3s", "kubeadm"))
    assert instructions([], {"version": "v1.36.3"}) == []
