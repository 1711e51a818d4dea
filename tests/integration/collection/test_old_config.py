# SPDX-License-Identifier: Apache-2.0
"""The cloud configuration on a migrated host, which nothing reads any more, is reported until it is deleted."""

from __future__ import annotations

import json

import pytest

from .test_layouts import HOSTS, Cluster, cluster, play

pytestmark = pytest.mark.timeout(600)  # several plays; each takes seconds on an idle machine

__all__ = ["cluster"]

CONF = "/etc/kubernetes/cloud.conf"


async def test_the_file_of_a_removed_flag_is_named_until_it_is_deleted(cluster: Cluster) -> None:
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    worker = cluster.add("systemd-worker", HOSTS["systemd-worker"] | {CONF: "[Global]\npassword = x\n"})
    books = [*play("all", "detect/host"), *play("kubeadm-cp", "plan/migration"), *play("kube_node", "apply/kubelet")]
    done = await cluster.play("/dev/stdin", stdin=json.dumps(books))
    assert done.status == 0, done.output[-4000:]
    assert not [text for text in cluster.report["notes"] if CONF in text], "not before the flag is removed"

    await cluster.play("playbooks/preflight.yml")
    (note,) = [text for text in cluster.report["notes"] if CONF in text]
    assert note.startswith(f"systemd-worker: the migration removed --cloud-config={CONF}"), note
    assert worker.text(CONF) == "[Global]\npassword = x\n"

    (worker.folder / CONF.lstrip("/")).unlink()
    await cluster.play("playbooks/preflight.yml")
    assert not [text for text in cluster.report["notes"] if CONF in text]
