# SPDX-License-Identifier: Apache-2.0
"""render.yml writes what site.yml applies, kubeadm and kustomize can read the files, and files of others stay."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..cluster import ApiServer, binaries
from .ansible import Run, playbook

PASSWORD = "n0b0dy-may-see-this"
NAME = "rendered-ccm"
VARIABLES: dict[str, Any] = {
    "ccm_runtime_name": NAME,
    "ccm_runtime_cloud_provider": "sim",
    "ccm_runtime_cloud_config": f"password: {PASSWORD}\n",
    "ccm_runtime_cluster_cidr": "10.244.0.0/16",
    "ccm_runtime_kubernetes_version": "1.36",
}


async def render(folder: Path, *arguments: str, **changed: Any) -> Run:
    variables = VARIABLES | {"ccm_runtime_render_directory": str(folder)} | changed
    run = await playbook("playbooks/render.yml", "-e", json.dumps(variables), *arguments, seconds=120)
    assert PASSWORD not in run.output
    return run


def results(run: Run) -> dict[str, Any]:
    return run.named["outoftree.ccm.ccm_runtime : Write the files"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def differences(run: Run) -> list[dict[str, Any]]:
    """Return the differences that a rollout reports, for each object that it applies; {} for an unchanged one."""
    objects = [item for result in run for item in (result.get("result") or {}).get("results", [result])]
    differing = [item.get("diff") or {} for item in objects if "method" in item]
    return [{side: value for side, value in diff.items() if value} for diff in differing]


@pytest.fixture
def left(apiserver: ApiServer) -> Iterator[None]:
    """Remove the applied objects after the test."""
    yield
    apiserver.kubectl(
        "-n", "kube-system", "delete", "--ignore-not-found", "--wait=false",
        "daemonset,secret,serviceaccount,role,rolebinding", "-l", f"app.kubernetes.io/name={NAME}",
    )  # fmt: skip
    apiserver.kubectl("delete", "clusterrole,clusterrolebinding", "-l", f"app.kubernetes.io/name={NAME}")


async def test_a_rollout_after_the_files_were_applied_finds_nothing_to_change(
    apiserver: ApiServer, tmp_path: Path, left: None
) -> None:
    folder = tmp_path / "ccm"
    assert (await render(folder)).status == 0
    example = yaml.safe_load((folder / "controller" / "secret.example.yaml").read_text())
    assert example.pop("stringData") == {"cloud.conf": "REPLACE"}
    secret = example | {"stringData": {"cloud.conf": VARIABLES["ccm_runtime_cloud_config"]}}
    apiserver.kubectl("create", "-f", "-", input=yaml.safe_dump(secret))
    apiserver.kubectl("apply", "--validate=strict", "-k", str(folder / "controller"))

    step = {"name": "outoftree.ccm.ccm_runtime", "tasks_from": "rollout/controller"}
    rollout = {"ansible.builtin.include_role": step}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [rollout]}
    variables = VARIABLES | {"ccm_install_kubeconfig": str(apiserver.kubeconfig())}
    again = await playbook(
        "/dev/stdin", "--check", "--diff", "-e", json.dumps(variables), stdin=json.dumps([play]), seconds=120
    )
    assert again.status == 0, again.output[-3000:]
    # The nine belong to RBAC, the DaemonSet, and the webhook with its certificate. The rollout would remove these last
    # two, but they do not exist.
    assert len(differences(again)) == 9 and not any(differences(again))
    assert again.named["outoftree.ccm.ccm_runtime : Apply the controller's credentials"]["changed"] is False
    other = variables | {"ccm_runtime_extra_args": ["-v=4"]}
    differs = await playbook(
        "/dev/stdin", "--check", "--diff", "-e", json.dumps(other), stdin=json.dumps([play]), seconds=120
    )
    (difference,) = filter(None, differences(differs))
    assert difference["after"]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "-v=4"


async def test_a_second_run_changes_nothing_and_other_variables_remove_what_is_not_wanted_any_more(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "ccm"
    checked = await render(folder, "--check", "--diff", ccm_runtime_kubernetes_version="1.30")
    assert checked.status == 0 and not folder.exists()
    first = await render(folder, ccm_runtime_kubernetes_version="1.30")
    written = results(first)["written"]
    assert "kubeadm/patches/kube-controller-manager0+json.yaml" in written and PASSWORD.encode() not in b"".join(
        contents(folder).values()
    )
    assert results(checked)["written"] == written
    before = contents(folder)
    again = await render(folder, ccm_runtime_kubernetes_version="1.30")
    assert results(again)["changed"] is False and contents(folder) == before

    newer = await render(folder)
    assert results(newer)["removed"] == [
        "kubeadm/cluster-configuration.yaml",
        "kubeadm/patches/kube-controller-manager0+json.yaml",
    ]
    assert not (folder / "kubeadm" / "patches").exists()


async def test_files_of_somebody_else_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "ccm"
    assert (await render(folder)).status == 0
    (folder / "controller" / "daemonset.yaml").write_text("kind: Mine\n")
    (folder / "kubelet" / "20-outoftree-ccm.conf").unlink()
    (folder / "notes.txt").write_text("stays\n")
    before = contents(folder)
    refused = await render(folder, ccm_runtime_extra_args=["-v=4"])
    (message,) = refused.failures
    assert refused.status != 0 and "controller/daemonset.yaml (changed since it was rendered)" in message
    assert "notes.txt" not in message and contents(folder) == before

    other = tmp_path / "other"
    (other / "controller").mkdir(parents=True)
    (other / "controller" / "rbac.yaml").write_text("kind: Mine\n")
    (other / "kubeadm").symlink_to(tmp_path / "ccm")
    (message,) = (await render(other)).failures
    assert "controller/rbac.yaml (not rendered by this playbook)" in message and "kubeadm (a symbolic link)" in message
    assert contents(other) == {"controller/rbac.yaml": b"kind: Mine\n"} and contents(folder) == before

    (folder / ".outoftree-ccm.json").write_text("{")
    (message,) = (await render(folder)).failures
    assert "its file .outoftree-ccm.json cannot be read" in message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ccm_runtime_render_directory": ""}, "Set ccm_runtime_render_directory"),
        ({"ccm_runtime_cloud_provider": ""}, "ccm_runtime_cloud_provider is not set"),
        ({"ccm_runtime_kubernetes_version": "newest"}, "'newest' is not a version of Kubernetes such as 1.36"),
        (
            {"ccm_runtime_fence_dead_nodes": True, "ccm_runtime_command": ["/vendor"]},
            "ccm_runtime_fence_dead_nodes requires the runtime of this project",
        ),
        (
            {"ccm_runtime_load_balancer_classes": ["example.com/fast"], "ccm_runtime_command": ["/vendor"]},
            "ccm_runtime_load_balancer_classes requires the runtime of this project",
        ),
        ({"ccm_runtime_render_directory": "/dev/null/x"}, "cannot keep rendered files in /dev/null/x"),
    ],
    ids=["no-folder", "no-provider", "no-version", "fencing-by-a-vendor", "classes-of-a-vendor", "no-directory"],
)
async def test_what_is_wrong_is_said_before_anything_is_written(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    run = await render(tmp_path / "ccm", **changed)
    assert run.status != 0 and message in run.failures[0] and not (tmp_path / "ccm").exists()


async def test_the_webhook_is_rendered_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "ccm"
    refused = await render(folder, ccm_runtime_volume_webhook=True)
    assert refused.status != 0 and "Rendered files have no keys" in refused.failures[0] and not folder.exists()
    bundle = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    own = {"ccm_runtime_volume_webhook_ca_bundle": bundle, "ccm_runtime_volume_webhook_failure_policy": "Fail"}
    assert (await render(folder, ccm_runtime_volume_webhook=True, **own)).status == 0
    configuration = yaml.safe_load((folder / "controller" / "webhook.yaml").read_text())
    (hook,) = configuration["webhooks"]
    assert base64.b64decode(hook["clientConfig"]["caBundle"]).decode() == bundle
    assert (configuration["kind"], hook["failurePolicy"]) == ("MutatingWebhookConfiguration", "Fail")
    assert "webhook.yaml" in (folder / "controller" / "kustomization.yaml").read_text()
    assert "controller/webhook.yaml" in (folder / "README.md").read_text()


async def test_kubeadm_reads_what_is_for_it(tmp_path: Path) -> None:
    assert (await render(tmp_path)).status == 0
    (registered,) = yaml.safe_load_all((tmp_path / "kubeadm" / "init-configuration.yaml").read_text())
    (joined,) = yaml.safe_load_all((tmp_path / "kubeadm" / "join-configuration.yaml").read_text())
    joined["discovery"] = {
        "bootstrapToken": {
            "apiServerEndpoint": "127.0.0.1:6443",
            "token": "abcdef.0123456789abcdef",
            "unsafeSkipCAVerification": True,
        }
    }
    config = tmp_path / "kubeadm.yaml"
    config.write_text(yaml.safe_dump_all([registered, joined]))
    command = [binaries() / "kubeadm", "config", "validate", "--config", config]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
