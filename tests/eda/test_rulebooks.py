# SPDX-License-Identifier: Apache-2.0
"""Each alert or drift starts the right playbook once with the right limit, and nothing else starts a playbook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ccm.engine.client import KubeClient

from ..integration.cluster import ApiServer
from ..integration.runtime.support import NODES, node_body
from .conftest import Rulebook

WORKER = "localhost,kube_control_plane,w-1 cp-1,localhost,w-1"
EVERYTHING = "localhost,all cp-1,localhost,w-1,w-2"
STRANGE = "w-1;touch${IFS}/tmp/x"


def message(*labels: Any, status: str = "firing") -> dict[str, Any]:
    """Return what Alertmanager posts to a webhook: version 4, as documented."""
    alerts = [
        {
            "status": status,
            "labels": each,
            "annotations": {"summary": "{{ lookup('pipe', 'touch /tmp/x') }}"},
            "startsAt": "2026-11-26T10:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-26T10:20:00Z",
            "generatorURL": "http://prometheus.example.com/graph?g0.expr=up",
            "fingerprint": f"{number:016x}",
        }
        for number, each in enumerate(labels)
    ]
    return {
        "version": "4",
        "groupKey": '{}:{alertname="Ccm"}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "ansible",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.com",
        "alerts": alerts,
    }


def unmanaged(**labels: Any) -> dict[str, Any]:
    return {"alertname": "CcmNodeUnmanaged", "severity": "warning", **labels}


#: Messages that start nothing, with the status of the answer, and what the log says.
NOTHING: list[tuple[Any, int, str]] = [
    (message({"alertname": "CcmNoLeader"}, unmanaged(node="w-2"), status="resolved"), 200, ""),
    (b"{", 400, "failed to decode JSON payload"),
    ([], 200, "a message without a list of alerts was dropped"),
    ({"alerts": ["none", {"status": "firing"}]}, 200, "an alert without labels was dropped"),
    (message({"alertname": "HostDown"}), 200, "the alert 'HostDown' was dropped: the rulebook has no answer to it"),
    (message({"severity": "warning"}), 200, "the alert None was dropped"),
    (message(unmanaged()), 200, "CcmNodeUnmanaged was dropped: it has no label node"),
    (message(unmanaged(node=STRANGE)), 200, f"its label node is {STRANGE!r}, which is no name of a Node"),
    (message(unmanaged(node="all")), 200, "its label node is 'all', which is no name of a Node"),
]


@pytest.mark.parametrize(("heal", "book"), [("true", "site"), ("false", "verify")])
def test_each_alert_starts_its_playbook_once(start: Callable[..., Rulebook], heal: str, book: str):
    """`heal` is a string, as in an environment variable. Playbooks run one after another, so the test ends with the
    last expected one."""
    rulebook = start("alerts", ccm_eda_heal=heal)
    rulebook.wait(rulebook.listens)
    for body, status, words in NOTHING:
        assert rulebook.send(body) == status
        rulebook.wait(lambda words=words: words in rulebook.said)
    assert rulebook.send(message({"alertname": "CcmNoLeader"}), token="another") == 401
    both = message(unmanaged(node="w-1"), {"alertname": "CcmNoLeader"})
    assert [rulebook.send(both), rulebook.send(both)] == [200, 200]
    rulebook.wait(lambda: len(rulebook.runs) >= 2)
    many = [unmanaged(node=f"w-{number}") for number in range(2, 9)]
    last = message(unmanaged(node="w-1"), {"alertname": "CcmNoLeader"}, {"alertname": "CcmNotRunning"})
    assert [rulebook.send(last), rulebook.send(message(*many))] == [200, 200]
    rulebook.wait(lambda: len(rulebook.runs) >= 4)
    assert rulebook.runs == [
        f"{book} {WORKER}",
        f"{book} {EVERYTHING}",
        f"verify {EVERYTHING}",
        f"verify {EVERYTHING}",
    ]
    assert "7 Nodes at once (w-2, ...): none of them is healed, and one report is made" in rulebook.said


async def test_what_differs_in_a_cluster_is_seen_without_prometheus(
    start: Callable[..., Rulebook], apiserver: ApiServer, kube: KubeClient
):
    """The event source reports a Node that waits for the running controller, and a Node that joined without the
    flag."""
    sets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    labels = {"app": "ccm"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "ccm", "image": "example.com/ccm:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pods}
    await kube.create(sets, {"metadata": {"name": "cloud-controller-manager"}, "spec": spec})
    counts = dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"), 1)
    await kube.patch(f"{sets}/cloud-controller-manager/status", {"status": counts})
    await kube.create(NODES, node_body("w-1", tainted=False))
    await kube.create(NODES, node_body("w-2"))
    await kube.create(NODES, node_body("cp-1", tainted=False, providerID="sim://north/i-1"))
    rulebook = start("drift", ccm_eda_kubeconfig=str(apiserver.kubeconfig()), ccm_eda_interval=1, ccm_eda_heal=True)
    rulebook.wait(lambda: len(rulebook.runs) >= 1)
    await kube.patch(f"{sets}/cloud-controller-manager/status", {"status": {"numberReady": 0}})
    rulebook.wait(lambda: len(rulebook.runs) >= 2)
    await kube.delete(f"{sets}/cloud-controller-manager")
    rulebook.wait(lambda: len(rulebook.runs) >= 3)
    assert rulebook.runs == [f"site {WORKER}", f"site {EVERYTHING}", f"verify {EVERYTHING}"]
    assert "WARNING" not in rulebook.said and "ERROR" not in rulebook.said
