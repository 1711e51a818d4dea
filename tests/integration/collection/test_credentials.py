# SPDX-License-Identifier: Apache-2.0
"""The Secret with the controller's credentials has what the variables say, and nothing of earlier ones."""

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
    """The Secret, and rollouts that change it; no Pod comes up, so they end after that."""

    def __init__(self, apiserver: ApiServer) -> None:
        self.apiserver = apiserver

    async def roll_out(self, **credentials: str) -> bool:
        """Return whether the Secret changed."""
        rollout = {"ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_runtime", "tasks_from": "rollout"}}
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [rollout]}
        variables = {
            "ccm_runtime_name": NAME,
            "ccm_runtime_cloud_provider": "sim",
            "ccm_runtime_cloud_config": "endpoint: http://x\n",
            "ccm_runtime_credentials": credentials,
            "ccm_runtime_kubernetes_version": "1.36",
            "ccm_runtime_kubeconfig": str(self.apiserver.kubeconfig()),
            "ccm_runtime_health_timeout": 1,
        }
        run = await playbook("/dev/stdin", "--diff", "-e", json.dumps(variables), given=json.dumps([play]), seconds=120)
        assert TASK in run.named, run.output[-3000:]
        for value in credentials.values():
            assert value not in run.output and base64.b64encode(value.encode()).decode() not in run.output
        changed: bool = run.named[TASK]["changed"]
        return changed

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.apiserver.kubectl("-n", "kube-system", "get", "secret", f"{NAME}-cloud-config", "-o", "json")
        )
        return found


@pytest.fixture
def secret(apiserver: ApiServer) -> Iterator[Secret]:
    yield Secret(apiserver)
    apiserver.kubectl(
        "-n", "kube-system", "delete", "--ignore-not-found", "--wait=false",
        "daemonset,secret,serviceaccount,role,rolebinding", "-l", f"app.kubernetes.io/name={NAME}",
    )  # fmt: skip
    apiserver.kubectl("delete", "clusterrole,clusterrolebinding", "-l", f"app.kubernetes.io/name={NAME}")


async def test_a_key_that_is_not_wanted_any_more_goes(secret: Secret) -> None:
    assert await secret.roll_out(old="s3cr3t-of-old", kept="s3cr3t-of-kept")
    assert set(secret.read()["data"]) == {"cloud.conf", "old", "kept"}
    assert await secret.roll_out(kept="s3cr3t-of-kept")
    found = secret.read()
    assert set(found["data"]) == {"cloud.conf", "kept"} and not found["metadata"].get("annotations")
    assert not await secret.roll_out(kept="s3cr3t-of-kept")


async def test_keys_of_a_secret_of_somebody_else_stay(secret: Secret) -> None:
    meta = {"name": f"{NAME}-cloud-config", "namespace": "kube-system"}
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"theirs": "x"}}
    secret.apiserver.kubectl("create", "-f", "-", input=json.dumps(theirs))
    assert await secret.roll_out()
    assert set(secret.read()["data"]) == {"cloud.conf", "theirs"}
