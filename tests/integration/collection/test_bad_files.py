# SPDX-License-Identifier: Apache-2.0
"""Files that people wrote by hand keep their comments, anchors, Windows line ends and symbolic links."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .machine import Machine
from .test_layouts import FIXTURES, HOSTS, MANIFESTS, Cluster, all_diffs, cluster, edited, play

__all__ = ["cluster"]

MANIFEST = f"{MANIFESTS}kube-controller-manager.yaml"
DEFAULT, FLAGS_ENV = "/etc/default/kubelet", "/var/lib/kubelet/kubeadm-flags.env"


def by_hand() -> str:
    text = (FIXTURES / "kubeadm-1.36" / "kube-controller-manager.yaml").read_text()
    text = text.replace(
        "  labels:\n    component: kube-controller-manager\n    tier: control-plane\n",
        "  labels: &labels   # also the annotations\n    component: kube-controller-manager\n"
        "    'tier': \"control-plane\"\n  annotations: *labels\n",
    )
    text = text.replace("    - --leader-elect=true\n", "    # three of us\n    - --leader-elect=true   # always\n\n")
    assert "&labels" in text and "three of us" in text
    return text.replace("\n", "\r\n")


def link(machine: Machine, path: str, to: str) -> None:
    real = machine.folder / to.lstrip("/")
    real.parent.mkdir(parents=True, exist_ok=True)
    (machine.folder / path.lstrip("/")).rename(real)
    (machine.folder / path.lstrip("/")).symlink_to(os.path.relpath(to, Path(path).parent))


def links(machine: Machine) -> dict[str, str]:
    places = (Path(path) for path in (MANIFEST, DEFAULT, FLAGS_ENV))
    return {
        str(path): str((machine.folder / path.relative_to("/")).readlink())
        for path in places
        if (machine.folder / path.relative_to("/")).is_symlink()
    }


@pytest.mark.timeout(600)
async def test_files_that_people_wrote_are_changed_in_place_and_come_back(cluster: Cluster):
    control_plane = cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"] | {MANIFEST: by_hand()})
    link(control_plane, MANIFEST, "/etc/kubernetes/ours/controller-manager.yaml")
    kubelet = {
        DEFAULT: "# of the operators\r\nKUBELET_EXTRA_ARGS=--cloud-provider= --v=2\r\n",
        FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\r\n# last line without an end',
    }
    worker = cluster.add("kubeadm-worker", HOSTS["kubeadm-worker"] | kubelet)
    link(worker, DEFAULT, "/etc/kubernetes/ours/kubelet.env")
    before = {machine: (machine.files(), links(machine)) for machine in (control_plane, worker)}
    look = [*play("all", "detect/host"), *play("kubeadm-cp", "plan/migration")]

    # Check mode predicts the control plane: two lines go, and with them the volume that only these lines needed.
    foretold = await cluster.play(
        "/dev/stdin", "--check", "--diff", stdin=json.dumps([*look, *play("kubeadm-cp", "apply/control_plane")])
    )
    assert foretold.status == 0, foretold.output[-4000:]
    (diff,) = [
        each for each in (d for result in foretold for d in all_diffs(result)) if each["after_header"] == MANIFEST
    ]
    old, new = diff["before"].split("\n"), diff["after"].split("\n")
    assert [line for line in new if line not in old] == [] and {line for line in old if "--cloud-" in line} <= set(
        old
    ) - set(new)
    assert all(line.endswith("\r") for line in new[:-1])
    for kept in (
        "labels: &labels   # also the annotations",
        "annotations: *labels",
        "# three of us",
        "=true   # always",
    ):
        assert any(kept in line for line in new), kept

    # The worker is changed, and then rolled back.
    done = await cluster.play("/dev/stdin", stdin=json.dumps([*look, *play("kube_node", "apply/kubelet")]))
    assert done.status == 0, done.output[-4000:]
    assert {(host, path) for host, path in edited(cluster.report) if host == "kubeadm-worker"} == {
        ("kubeadm-worker", DEFAULT),
        ("kubeadm-worker", FLAGS_ENV),
    }
    assert worker.text(DEFAULT) == "# of the operators\r\nKUBELET_EXTRA_ARGS=--v=2\r\n"
    assert worker.text(FLAGS_ENV) == (
        'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1 --cloud-provider=external"\r\n# last line without an end'
    )
    assert links(worker) == {DEFAULT: "../kubernetes/ours/kubelet.env"}
    way = [*play("all", "detect/host"), *play("kubeadm-cp", "rollback/plan"), *play("kube_node", "rollback/host")]
    back = await cluster.play("/dev/stdin", stdin=json.dumps(way))
    assert back.status == 0, back.output[-4000:]
    assert {machine: (machine.files(), links(machine)) for machine in (control_plane, worker)} == before
