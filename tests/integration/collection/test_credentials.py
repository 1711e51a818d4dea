# SPDX-License-Identifier: Apache-2.0
"""A rollout removes credentials of earlier rollouts from the Secret, and keeps keys that somebody else added."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ..cluster import ApiServer
from .ansible import playbook

NAME = "credentials-ccm"
TASK = "outoftree.ccm.ccm_runtime : Apply the controller's credentials"


class Secret:
    """The Secret, and the part of a rollout that changes it."""

    def __init__(self, apiserver: ApiServer) -> None:
        self.apiserver = apiserver

    async def roll_out(self, *rounds: dict[str, str]) -> list[tuple[bool, dict[str, Any]]]:
        """Roll out these credentials one after the other. Return (whether the Secret changed, the Secret) for each."""
        config = str(self.apiserver.kubeconfig())
        look = {"kubeconfig": config, "kind": "Secret", "namespace": "kube-system", "name": f"{NAME}-cloud-config"}
        tasks = []
        for credentials in rounds:
            part = {"name": "outoftree.ccm.ccm_runtime", "tasks_from": "rollout/secret"}
            tasks.append({"ansible.builtin.include_role": part, "vars": {"ccm_runtime_credentials": credentials}})
            tasks.append({"name": "Look", "kubernetes.core.k8s_info": look})
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
        variables = {
            "ccm_runtime_name": NAME,
            "ccm_runtime_cloud_provider": "sim",
            "ccm_runtime_cloud_config": "endpoint: http://x\n",
            "ccm_runtime_kubernetes_version": "1.36",
            "ccm_install_kubeconfig": config,
        }
        run = await playbook("/dev/stdin", "--diff", "-e", json.dumps(variables), stdin=json.dumps([play]))
        assert run.status == 0, run.output[-3000:]
        shown = json.dumps([result for name, result in run.tasks if name != "Look"])
        for value in (value for credentials in rounds for value in credentials.values()):
            assert value not in shown and base64.b64encode(value.encode()).decode() not in shown
        changes = [result["changed"] for name, result in run.tasks if name == TASK]
        found = [result["resources"][0] for name, result in run.tasks if name == "Look"]
        return list(zip(changes, found, strict=True))


@pytest.fixture
def secret(apiserver: ApiServer) -> Iterator[Secret]:
    yield Secret(apiserver)
    apiserver.kubectl(
        "-n", "kube-system", "delete", "--ignore-not-found", "--wait=false",
        "daemonset,secret,serviceaccount,role,rolebinding", "-l", f"app.kubernetes.io/name={NAME}",
    )  # fmt: skip
    apiserver.kubectl("delete", "clusterrole,clusterrolebinding", "-l", f"app.kubernetes.io/name={NAME}")


async def test_a_key_that_is_not_wanted_any_more_goes(secret: Secret) -> None:
    old, kept = {"old": "s3cr3t-of-old"}, {"kept": "s3cr3t-of-kept"}
    first, second, third = await secret.roll_out(old | kept, kept, kept)
    assert first[0] and set(first[1]["data"]) == {"cloud.conf", "old", "kept"}
    assert second[0] and set(second[1]["data"]) == {"cloud.conf", "kept"}
    assert not second[1]["metadata"].get("annotations")
    assert not third[0] and third[1]["data"] == second[1]["data"]


async def test_keys_of_a_secret_of_somebody_else_stay(secret: Secret) -> None:
    meta = {"name": f"{NAME}-cloud-config", "namespace": "kube-system"}
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"theirs": "x"}}
    secret.apiserver.kubectl("create", "-f", "-", input=json.dumps(theirs))
    ((changed, found),) = await secret.roll_out({})
    assert changed and set(found["data"]) == {"cloud.conf", "theirs"}
