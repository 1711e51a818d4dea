# SPDX-License-Identifier: Apache-2.0
"""The copies of journals in the cluster: a host whose journal is lost is rolled back from its copy."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient

from .ansible import call, task
from .conftest import kubeconfig_for
from .test_layouts import HOSTS, Cluster, all_diffs, cluster, forget_copies, play
from .test_rollback import back, files, migrated, there

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

__all__ = ["cluster", "migrated"]

SECRETS = "/api/v1/namespaces/kube-system/secrets"
STATE = "var/lib/outoftree-ccm"


async def copies(kube: KubeClient) -> dict[str, dict[str, Any]]:
    """Return the Secrets with copies, by the name of their Node."""
    found = await kube.get(SECRETS, dict, params={"labelSelector": "ccm.outoftree.dev/journal-copy=true"})
    return {item["metadata"]["annotations"]["ccm.outoftree.dev/journal-node"]: item for item in found["items"]}


def state(cluster: Cluster, name: str) -> Path:
    return cluster.machines[name].folder / STATE


async def test_a_host_whose_journal_is_lost_is_rolled_back_from_its_copy(
    cluster: Cluster, kube: KubeClient, migrated: dict[str, dict[str, bytes]]
) -> None:
    kept = await copies(kube)
    # The control plane was planned but not changed, so it has no journal.
    assert set(kept) == {"w-1", "w-2"}
    after = files(cluster)

    # If the journal and its copy are lost, the run names the host and removes nothing.
    shutil.move(state(cluster, "w-2"), state(cluster, "w-2").with_name("elsewhere"))
    name = kept["w-2"]["metadata"]["name"]
    await kube.delete(f"{SECRETS}/{name}")
    lost = await back(cluster)
    assert lost.status != 0 and "the controller still runs" in lost.failures[-1]
    assert "w-2: its kubelet has --cloud-provider=external" in lost.failures[-1] and "w-1:" not in lost.failures[-1]
    assert files(cluster) == after and await there(kube)

    # With the copy, the preview names the Secret and what would change, and shows no content of the copy.
    metadata = {key: kept["w-2"]["metadata"][key] for key in ("name", "labels", "annotations")}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": kept["w-2"]["data"]}
    await kube.create(SECRETS, secret)
    shown = await back(cluster, "--check", "--diff")
    assert shown.status == 0, shown.failures
    content = kept["w-2"]["data"]["journal"]
    assert content not in shown.output and content[40:80] not in shown.output
    said = f"w-2: journal: copy in Secret kube-system/{name}, because the journal on the host is missing"
    assert any(said in str(result.get("msg")) for result in shown), shown.output[-3000:]
    headers = [diff["after_header"] for result in shown for diff in all_diffs(result) if "after_header" in diff]
    assert headers and all(headers.count(header) == 2 for header in headers), headers  # of both workers
    assert files(cluster) == after and not state(cluster, "w-2").exists() and set(await copies(kube)) == {"w-1", "w-2"}

    # An unreadable journal counts as lost, too.
    (state(cluster, "w-1") / "journal.json").write_text("")
    done = await back(cluster)
    assert done.status == 0, done.output[-4000:]
    assert files(cluster) == migrated and not await there(kube)
    assert f"w-2 (journal: copy in Secret kube-system/{name})" in done.output and "w-1 (journal: copy in" in done.output
    assert content not in done.output
    assert [path.read_text() for path in state(cluster, "w-1").glob("journal.json*")] == [""]  # moved aside
    # Only a complete rollback removes the copies.
    assert await copies(kube) == {}


async def test_a_person_decides_where_the_copy_is_newer_and_copies_of_others_are_not_used(
    cluster: Cluster, kube: KubeClient, migrated: dict[str, dict[str, bytes]]
) -> None:
    kept, after = await copies(kube), files(cluster)
    older = json.loads((state(cluster, "w-1") / "journal.json").read_text())
    (state(cluster, "w-1") / "journal.json").write_text(json.dumps(older | {"serial": older["serial"] - 1}))
    shutil.rmtree(state(cluster, "w-2"))
    (cluster.machines["w-2"].folder / "etc/machine-id").write_text("0123456789abcdef\n")
    path = f"{SECRETS}/{kept['w-2']['metadata']['name']}"
    altered = base64.b64encode(base64.b64decode(kept["w-2"]["data"]["journal"])[:-1] + b"x").decode()
    await kube.patch(path, {"data": {"journal": altered}})
    refused = await back(cluster)
    assert refused.status != 0 and files(cluster) == after and await there(kube)
    message = refused.failures[-1]
    assert (
        "w-1: the copy of its journal in Secret kube-system/outoftree-ccm-journal-w-1-" in message
        and "delete that Secret" in message
    )
    assert "w-2: its kubelet has --cloud-provider=external" in message
    assert "cannot be used: its checksum does not match its content" in refused.output
    assert set(await copies(kube)) == {"w-1", "w-2"}


async def test_a_part_of_a_rollback_leaves_the_copies_and_the_next_part_knows_who_is_restored(
    cluster: Cluster, kube: KubeClient, migrated: dict[str, dict[str, bytes]]
) -> None:
    part = await back(cluster, "--limit", "all:localhost:!w-2")
    assert part.status != 0 and files(cluster)["w-1"] == migrated["w-1"]
    kept = await copies(kube)
    restored = {
        name: item["metadata"]["annotations"]["ccm.outoftree.dev/journal-restored"] for name, item in kept.items()
    }
    assert restored == {"w-1": "true", "w-2": "false"}
    # After another migration, the host has a new journal and a copy of it.
    books = [*play("all", "detect/host"), *play("kubeadm-cp", "plan/migration"), *play("kube_node", "apply/kubelet")]
    again = await cluster.play("/dev/stdin", stdin=json.dumps(books))
    assert again.status == 0, again.output[-4000:]
    now = (await copies(kube))["w-1"]["metadata"]["annotations"]
    assert now["ccm.outoftree.dev/journal-restored"] == "false"
    assert now["ccm.outoftree.dev/journal-id"] != kept["w-1"]["metadata"]["annotations"]["ccm.outoftree.dev/journal-id"]
    assert now["ccm.outoftree.dev/journal-id"] == json.loads((state(cluster, "w-1") / "journal.json").read_text())["id"]


async def test_a_copy_that_cannot_be_written_is_a_warning_and_is_written_at_the_end(
    cluster: Cluster, kube: KubeClient, kubeconfig: str
) -> None:
    cluster.add("systemd-cp", HOSTS["systemd-cp"])
    nowhere = cluster.folder / "nowhere.json"
    nowhere.write_text(json.dumps(kubeconfig_for("http://127.0.0.1:9")))

    def using(path: str) -> dict[str, Any]:
        """Return a play that sets the kubeconfig which the run uses from then on."""
        settings = {"kubeconfig": path, "api_host": "localhost", "summary_file": "", "max_failed_workers": 0}
        fact = {"ansible.builtin.set_fact": {"__ccm_install_settings": settings}}
        return {"hosts": "systemd-cp", "gather_facts": False, "tasks": [fact]}

    plan = [*play("all", "detect/host"), *play("systemd-cp", "plan/migration")]
    books = [*plan, using(str(nowhere)), *play("systemd-cp", "apply/control_plane")]
    away = await cluster.play(
        "/dev/stdin", stdin=json.dumps([*books, using(kubeconfig), *play("systemd-cp", "lease/release")])
    )
    assert away.status == 0, away.output[-4000:]
    said = [
        str(result["msg"])
        for result in away
        if "WARNING: systemd-cp: the copy of its journal" in str(result.get("msg"))
    ]
    assert len(said) == 1 and "does not answer" in said[0], said
    now = (await copies(kube))["systemd-cp"]["metadata"]["annotations"]
    journal = json.loads((state(cluster, "systemd-cp") / "journal.json").read_text())
    assert (now["ccm.outoftree.dev/journal-id"], now["ccm.outoftree.dev/journal-serial"]) == (
        journal["id"],
        str(journal["serial"]),
    )


async def test_a_copy_that_is_too_large_is_named_with_its_size(kubeconfig: str, cluster: Cluster) -> None:
    junk = {"originals/x": base64.b64encode(os.urandom(1 << 20)).decode()}
    data = {"version": 1, "id": "a", "serial": 1, "node": "w-1", "machine": "", "files": {}, "contents": junk}
    content = base64.b64encode(gzip.compress(json.dumps(data).encode())).decode()
    journal = {"state": "readable", "id": "a", "serial": 1, "machine": ""}
    arguments = {"nodes": {"host-1": "w-1"}, "journals": {"host-1": journal}, "contents": {"host-1": content}}
    (told,) = await call(kubeconfig, task("ccm_journal_copy", **arguments))
    assert (
        not told["changed"] and not told.get("failed") and told["missed"] == [] and content[:60] not in json.dumps(told)
    )
    size = len(base64.b64decode(content))
    (said,) = told["said"][:1]
    assert said.startswith("host-1: ") and f"its compressed size is {size} bytes" in said, told["said"]
    forget_copies(cluster.apiserver)
