# SPDX-License-Identifier: Apache-2.0
"""kubeadm's configuration is changed only if it is still the one of the plan, and is restored byte for byte."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.engine.client import KubeClient, NotFoundError

from .ansible import REPOSITORY, call, task
from .conftest import Interloper

CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
PATH = f"{CONFIGMAPS}/kubeadm-config"
FIXTURE = REPOSITORY / "tests/unit/plugins/fixtures/kubeadm-1.36/cluster-configuration.yaml"
# As people leave it: comments, blanks at line ends, letters beyond ASCII, no line feed at the end.
BEFORE = "# größer als nötig \n" + FIXTURE.read_text() + "# \t\n\n# end"
AFTER = BEFORE.replace('  - name: cloud-provider\n    value: ""\n', "")
UPGRADE = "kind: ClusterStatus\n"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write(text: str, made_from: str, **more: Any) -> dict[str, Any]:
    return task(
        "ccm_kubeadm_config",
        diff=True,
        content=base64.b64encode(text.encode()).decode(),
        sha256=digest(made_from),
        **more,
    )


async def data(kube: KubeClient) -> dict[str, str]:
    found: dict[str, str] = (await kube.get(PATH, dict))["data"]
    return found


@pytest.fixture
async def kubeadm_config(kube: KubeClient) -> AsyncIterator[None]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config"}}
    await kube.create(CONFIGMAPS, body | {"data": {"ClusterConfiguration": BEFORE, "ClusterStatus": UPGRADE}})
    yield
    with contextlib.suppress(NotFoundError):
        await kube.delete(PATH)


async def test_it_is_changed_once_and_restored_byte_for_byte(kube: KubeClient, kubeadm_config: None, kubeconfig: str):
    assert AFTER != BEFORE
    read, foretold, changed, again, late, restored = await call(
        kubeconfig,
        task("ccm_cluster_info"),
        write(AFTER, BEFORE, check=True),
        write(AFTER, BEFORE),  # it would change nothing if the task in check mode had written
        write(AFTER, BEFORE),
        write("kind: Late\n", BEFORE),
        write(BEFORE, AFTER),
    )
    assert read["kubeadm_config"] == {"exists": True, "content": BEFORE, "sha256": digest(BEFORE)}
    assert foretold["changed"] and foretold["diff"]["before"] == BEFORE and foretold["diff"]["after"] == AFTER
    assert changed["changed"] and not changed.get("failed")
    assert changed["diff"] == foretold["diff"]
    assert changed["sha256"] == digest(AFTER)
    assert not again["changed"] and not again.get("failed") and again["sha256"] == digest(AFTER)
    assert late["failed"] and "was changed by someone else" in late["msg"]
    assert restored["changed"] and restored["diff"]["before"] == AFTER
    assert await data(kube) == {"ClusterConfiguration": BEFORE, "ClusterStatus": UPGRADE}


async def test_what_someone_else_writes_meanwhile_is_not_lost(
    kube: KubeClient, kubeadm_config: None, interloper: Interloper
):
    async def someone_else() -> None:
        await kube.patch(PATH, {"data": {"ClusterConfiguration": "kind: Theirs\n"}})

    interloper.strikes[PATH] = someone_else
    (refused,) = await call(interloper.kubeconfig, write(AFTER, BEFORE))
    assert interloper.statuses[PATH] == [409]
    assert (await data(kube))["ClusterConfiguration"] == "kind: Theirs\n"
    assert refused["failed"] and not refused["changed"]
    assert "was changed by someone else" in refused["msg"] and "Run again" in refused["msg"]
