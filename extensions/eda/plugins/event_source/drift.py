# Copyright: The outoftree.ccm authors
# SPDX-License-Identifier: Apache-2.0
"""An event source for ansible-rulebook: reports what in the cluster differs from the state that site.yml left."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

DOCUMENTATION = r"""
---
short_description: Look at Nodes, their Events, static Pods and the controller's DaemonSet every few seconds.
description:
  - Sends what the filter outoftree.ccm.alerts reads. The alerts are CcmNodeUnmanaged (a Node without providerID and without the taint of the
    controllers), CcmControlPlaneReverted (a static Pod of a control plane names an in-tree cloud provider), CcmNotRunning (the DaemonSet
    has no Ready Pod), CcmNodeDeletionHeld (a Node is not Ready, and an Event says that the controller does not delete it) and
    CcmControllerRemoved (there is no DaemonSet).
  - Without the DaemonSet, nothing else is reported, because a cluster that was rolled back looks like this.
  - Only drift that two reads in a row show is sent. It is sent again after each further read that shows it, so a rule needs a throttle.
  - Only reads the cluster. It needs the right to list nodes, events of the namespace default, pods in kube-system, and to get the DaemonSet.
  - Needs the Python library kubernetes.
options:
  kubeconfig:
    description: The path of a kubeconfig. Without it, the client's own rules apply.
    type: str
  context:
    description: A context of the kubeconfig.
    type: str
  interval:
    description: Seconds between two reads.
    type: float
    default: 10
  name:
    description: The name of the controller's DaemonSet in kube-system.
    type: str
    default: cloud-controller-manager
"""

EXAMPLES = r"""
- outoftree.ccm.drift:
    kubeconfig: /etc/outoftree/reader.kubeconfig
  filters:
    - outoftree.ccm.alerts:
        worker: [CcmNodeUnmanaged]
        cluster: [CcmNotRunning, CcmControlPlaneReverted]
"""

LOGGER = logging.getLogger("outoftree.ccm.drift")

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
#: What the controller writes about a Node that it does not delete. Events of Nodes are in the namespace default.
HELD = "reason=DeletionHeld,involvedObject.kind=Node"
COMPONENTS = "component in (kube-apiserver,kube-controller-manager)"
#: Seconds until a request counts as failed.
PATIENCE = 30
#: The name of an alert, and the Node that it is about; "" if it is about no Node.
Drift = Tuple[str, str]
Objects = List[Dict[str, Any]]


async def main(queue: asyncio.Queue, args: Dict[str, Any]) -> None:
    """Read the cluster until the rulebook stops. Send drifts that two reads in a row show. A failed read shows none."""
    look = await asyncio.to_thread(_reader, args)
    before: Set[Drift] = set()
    while True:
        try:
            seen = drifts(*await asyncio.to_thread(look))
        except Exception as error:  # pylint: disable=broad-exception-caught
            LOGGER.warning("the cluster could not be read, so nothing is reported: %s", _short(error))
            seen = set()
        if seen & before:
            await queue.put(message(seen & before))
        before = seen
        await asyncio.sleep(float(args.get("interval") or 10))


def message(seen: Iterable[Drift]) -> Dict[str, Any]:
    """Return a message about these drifts, in the form in which Alertmanager sends alerts."""
    labels = [dict(alertname=name, **({"node": node} if node else {})) for name, node in sorted(seen)]
    return {"payload": {"alerts": [{"status": "firing", "labels": each} for each in labels]}}


def drifts(nodes: Objects, pods: Objects, events: Objects, daemonset: Optional[Dict[str, Any]]) -> Set[Drift]:
    """Return the drifts: what differs from the state that site.yml left. The arguments are objects of the API server;
    `events` are those of held deletions, `daemonset` is None if the controller's DaemonSet is gone."""
    if daemonset is None:
        return {("CcmControllerRemoved", "")}
    seen = {("CcmNodeUnmanaged", node["metadata"]["name"]) for node in nodes if _unmanaged(node)}
    if any(_reverted(pod) for pod in pods):
        seen.add(("CcmControlPlaneReverted", ""))
    if not (daemonset.get("status") or {}).get("numberReady"):
        seen.add(("CcmNotRunning", ""))
    # An Event remains for an hour. A Node that is Ready again, or was created again, is not held any more.
    held = {(event.get("involvedObject") or {}).get("uid") for event in events}
    if any(node["metadata"].get("uid") in held and not _ready(node) for node in nodes):
        seen.add(("CcmNodeDeletionHeld", ""))
    return seen


def _ready(node: Dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _unmanaged(node: Dict[str, Any]) -> bool:
    spec, metadata = node.get("spec") or {}, node["metadata"]
    tainted = any(taint.get("key") == TAINT for taint in spec.get("taints") or [])
    return not spec.get("providerID") and not tainted and not metadata.get("deletionTimestamp")


def _reverted(pod: Dict[str, Any]) -> bool:
    """Return whether a static Pod runs with an in-tree `--cloud-provider`. A Pod without the flag does not count as drift,
    because only verify.yml knows whether the Pod's version needs the flag."""
    words = [word for container in pod["spec"]["containers"] for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    named = re.findall(r"(?m)^--cloud-provider=(.*)$", "\n".join(words))
    return bool(named) and named[-1] not in ("", "external")


def _reader(args: Dict[str, Any]) -> Any:
    """Return a function that reads nodes, pods, events and the DaemonSet."""
    from kubernetes import client, config  # pylint: disable=import-outside-toplevel

    made = config.new_client_from_config(config_file=args.get("kubeconfig"), context=args.get("context"))
    core, apps = client.CoreV1Api(made), client.AppsV1Api(made)
    name = args.get("name") or "cloud-controller-manager"
    raw = {"_preload_content": False, "_request_timeout": PATIENCE}

    def read() -> Tuple[Objects, Objects, Objects, Optional[Dict[str, Any]]]:
        nodes = json.loads(core.list_node(resource_version="0", **raw).data)["items"]
        pods = json.loads(core.list_namespaced_pod("kube-system", label_selector=COMPONENTS, **raw).data)["items"]
        events = json.loads(core.list_namespaced_event("default", field_selector=HELD, **raw).data)["items"]
        try:
            return nodes, pods, events, json.loads(apps.read_namespaced_daemon_set(name, "kube-system", **raw).data)
        except client.ApiException as error:
            if error.status != 404:
                raise
            return nodes, pods, events, None

    return read


def _short(error: Exception) -> str:
    return ascii(f"{type(error).__name__}: {error}")[1:200]
