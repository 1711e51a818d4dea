# SPDX-License-Identifier: Apache-2.0
"""Two runs on one cluster: the second run is refused, unless the first one has ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ccm.engine.client import KubeClient, NotFoundError

from .ansible import call, task

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/outoftree-ccm-run"


@pytest.fixture
async def free(kube: KubeClient) -> AsyncIterator[None]:
    yield
    with contextlib.suppress(NotFoundError):
        await kube.delete(LEASE)


def others(**process: Any) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "bob@laptop", "acquireTime": now, "renewTime": now, "leaseDurationSeconds": 900}
    annotations = {"ccm.outoftree.dev/run": json.dumps(process)}
    metadata = {"name": "outoftree-ccm-run", "annotations": annotations}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


async def test_a_run_holds_renews_and_releases_it_and_the_next_takes_over_what_it_left(
    kubeconfig: str, kube: KubeClient, free: None
) -> None:
    foretold, held, renewed, released, again, left = await call(
        kubeconfig,
        task("ccm_run_lease", check=True),
        task("ccm_run_lease", duration=1800),
        task("ccm_run_lease"),
        task("ccm_run_lease", state="released"),
        task("ccm_run_lease", state="released"),
        task("ccm_run_lease"),
    )
    assert foretold["changed"] and held["changed"] and not renewed["changed"], held
    assert held["holder"] == renewed["holder"] and released["changed"] and not again["changed"] and left["changed"]
    now = await kube.get(LEASE, dict)
    assert now["spec"]["holderIdentity"] == held["holder"] and now["spec"]["leaseDurationSeconds"] == 900
    # The playbook that took the Lease ended without releasing it, as when it is killed: the next one need not wait.
    (taken,) = await call(kubeconfig, task("ccm_run_lease"))
    assert taken["changed"] and taken["holder"] != held["holder"]
    now = await kube.get(LEASE, dict)
    assert now["spec"]["holderIdentity"] == taken["holder"] and now["spec"]["leaseTransitions"] == 1


async def test_another_run_is_named_and_not_touched(kubeconfig: str, kube: KubeClient, free: None) -> None:
    await kube.create(LEASES, others(machine="another", pid=1, start="1"))
    before = await kube.get(LEASE, dict)
    foretold, refused, released = await call(
        kubeconfig,
        task("ccm_run_lease", check=True),
        task("ccm_run_lease"),
        task("ccm_run_lease", state="released"),
    )
    for told in (foretold, refused):
        assert told["failed"] and "another run, bob@laptop" in told["msg"], told
        assert "kubectl -n kube-system delete lease outoftree-ccm-run" in told["msg"]
    assert not released["changed"] and await kube.get(LEASE, dict) == before
