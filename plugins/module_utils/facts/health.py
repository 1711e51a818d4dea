# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether the cloud-controller-manager is healthy, from its DaemonSet, Pods and Lease, and which Services wait for it.

Pure and stdlib-only: it takes objects as dicts from the API, and the API server's time.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import others
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import (
    ApiObject, BalancedService, DaemonSetState, Health, LeaseState, PodState, ServedClasses,
)

ANNOTATION_PREFIX = "ccm.outoftree.dev/"

#: Annotations that only the runtime of this project writes to its Lease, and what cannot be checked without them.
NOTES = {"controllers": "which controllers the leader runs", "cloud-provider": "whether the cloud answers it"}


def parse_time(text: Optional[str]) -> Optional[datetime]:
    """Parse an RFC 3339 UTC time with or without fractions of a second; None for any other text."""
    if not text:
        return None
    for form in ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
    return None


def age(text: Optional[str], now: datetime) -> Optional[float]:
    """Return the seconds since an RFC 3339 time, at least 0; None if it is missing or has another form."""
    then = parse_time(text)
    return None if then is None else round(max(0.0, (now - then).total_seconds()), 1)


def lease_state(lease: Optional[ApiObject], now: datetime) -> LeaseState:
    """Return whether a Lease exists and is held, its holder, the time and age of its last renewal, and the runtime's annotations."""
    if not lease:
        return {"exists": False, "holder": "", "renewed": "", "age": None, "held": False, "annotations": {}}
    spec = lease.get("spec") or {}
    annotations = (lease.get("metadata") or {}).get("annotations") or {}
    renewed = age(spec.get("renewTime"), now)
    holder = spec.get("holderIdentity") or ""
    held = bool(holder) and renewed is not None and renewed <= (spec.get("leaseDurationSeconds") or 15)
    own = {key[len(ANNOTATION_PREFIX):]: value for key, value in annotations.items() if key.startswith(ANNOTATION_PREFIX)}
    return {"exists": True, "holder": holder, "renewed": spec.get("renewTime") or "", "age": renewed, "held": held,
            "annotations": own}


def daemonset_state(daemonset: Optional[ApiObject]) -> DaemonSetState:
    """Return the counts that show whether a rollout is complete, and the image; zeros and '' if the DaemonSet does not exist."""
    if not daemonset:
        return {"exists": False, "desired": 0, "ready": 0, "updated": 0, "observed": False, "image": ""}
    status = daemonset.get("status") or {}
    containers = daemonset["spec"]["template"]["spec"]["containers"]
    return {
        "exists": True,
        "desired": status.get("desiredNumberScheduled", 0),
        "ready": status.get("numberReady", 0),
        "updated": status.get("updatedNumberScheduled", 0),
        "observed": status.get("observedGeneration", 0) >= daemonset["metadata"].get("generation", 0),
        "image": containers[0].get("image", ""),
    }


def pod_state(pod: ApiObject) -> PodState:
    """Return a Pod's name, node, readiness and restarts, whether it is being deleted, and why it does not run: the kubelet's or scheduler's reason."""
    status = pod.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    reason = ""
    restarts = 0
    for container in status.get("containerStatuses") or []:
        restarts += container.get("restartCount", 0)
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        last = (container.get("lastState") or {}).get("terminated") or {}
        if waiting:
            reason = "{0}: {1}".format(waiting.get("reason", ""), waiting.get("message", "")).strip(": ")
        elif ended:
            reason = "exited with code {0}".format(ended.get("exitCode"))
        if (waiting or ended) and (last.get("message") or (ended or {}).get("message")):
            reason += "; its last message: {0}".format((last.get("message") or ended.get("message")).strip())
    if not reason and status.get("phase") == "Pending":
        scheduled = conditions.get("PodScheduled") or {}
        reason = scheduled.get("message") or "Pending"
    return {
        "name": pod["metadata"]["name"],
        "node": (pod.get("spec") or {}).get("nodeName", ""),
        "ready": (conditions.get("Ready") or {}).get("status") == "True",
        "leaving": bool(pod["metadata"].get("deletionTimestamp")),
        "restarts": restarts,
        "reason": reason,
    }


def judge(daemonset: DaemonSetState, pods: List[PodState], lease: LeaseState, now: datetime,
          controllers: Optional[List[str]] = None, max_cloud_age: float = 0, require_cloud: bool = True,
          notes_own: bool = True, leads: bool = True, if_offered: Optional[List[str]] = None) -> Health:
    """Return {healthy, reasons, unjudged, last_cloud_success_age}.

    C(controllers): canonical names that the leader must run (not checked if the Lease has no annotation with controllers). C(if_offered): names that it must
    also run, unless an annotation says that its provider does not support them. C(max_cloud_age): maximum age in seconds of the last successful cloud call, 0
    for no limit. C(require_cloud): whether a controller without a successful call is unhealthy. C(notes_own): whether the controller writes annotations to its
    Lease. If not, the Lease may have those of a former holder, which are ignored. C(leads): whether the controller must lead. If not, only its DaemonSet and
    its Pods are checked.
    """
    reasons = []
    if not daemonset["exists"]:
        reasons.append("there is no DaemonSet, so the controller is not installed")
    else:
        if not daemonset["observed"]:
            reasons.append("Kubernetes has not processed the DaemonSet's newest version yet")
        if daemonset["desired"] == 0:
            reasons.append("the DaemonSet has 0 Pods, because no node matches its nodeSelector")
        if daemonset["updated"] < daemonset["desired"]:
            reasons.append("{updated} of {desired} Pods run the newest version".format(**daemonset))
        if daemonset["ready"] < daemonset["desired"]:
            reasons.append("{ready} of {desired} Pods are Ready".format(**daemonset))
        reasons += ["Pod {name} on {node} is not Ready: {0}".format(pod["reason"] or "its readiness probe fails", **pod)
                    for pod in pods if not pod["ready"] and not pod["leaving"]]
    if not leads:
        notes_own = False
    elif not lease["exists"] or not lease["holder"]:
        reasons.append("no controller leads, because nobody holds the Lease")
    elif not lease["held"]:
        reasons.append("{0} holds the Lease, but has not renewed it for {1} s".format(lease["holder"], lease["age"]))
    elif daemonset["exists"] and pods and not any(_holds(pod, lease["holder"]) for pod in pods if not pod["leaving"]):
        reasons.append("{0} holds the Lease, but is none of the Pods".format(lease["holder"]))
    notes = lease["annotations"] if notes_own else {}
    if "controllers" in notes:
        running, not_offered = ({name.strip() for name in notes.get(note, "").split(",") if name.strip()}
                                for note in ("controllers", "not-offered"))
        absent = [name for name in controllers or [] if name not in running]
        absent += [name for name in if_offered or [] if name not in running | not_offered]
        if absent:
            reasons.append("the leader does not run {0}".format(", ".join(absent)))
    cloud_age = age(notes.get("last-cloud-success"), now)
    if "cloud-provider" in notes:
        if cloud_age is None and require_cloud:
            silent = [name for name in notes["cloud-provider"].split(",") if not notes.get("last-cloud-success." + name)]
            several = " {0}".format(" and ".join(silent)) if "," in notes["cloud-provider"] else ""
            reasons.append("no call to the cloud{0} has succeeded yet".format(several))
        elif cloud_age is not None and max_cloud_age and cloud_age > max_cloud_age:
            reasons.append("the last successful call to the cloud was {0} s ago".format(cloud_age))
    unjudged = [what for note, what in NOTES.items() if note not in notes]
    return {"healthy": not reasons, "reasons": reasons, "unjudged": unjudged, "last_cloud_success_age": cloud_age}


def without_address(services: List[BalancedService]) -> List[BalancedService]:
    """Return the Services of the controller that wait for a load balancer."""
    return [service for service in services if service["ours"] and not service["ingress"]]


def served_classes(daemonset: Optional[ApiObject], configuration: Optional[Mapping[str, Any]] = None) -> ServedClasses:
    """Return which Services the controller serves according to its options. An upstream controller serves only Services without a loadBalancerClass.

    C(configuration): the keys of C(OutOfTree) in its C(--config) file, named like flags. A flag overrides its key. The annotation of its Lease is
    not used, because it also has the classes of former leaders.
    """
    words = others.words_of(others.controller_container(daemonset)) if daemonset else []

    def values(flag: str) -> List[str]:
        written = (configuration or {}).get(flag)
        return others.flag_values(words, flag) or [str(value) for value in (written if isinstance(written, list) else [written or ""])]

    names = {text.partition("=")[0].strip() for value in values("load-balancer-class") for text in value.split(",")}
    return {"names": sorted(names - {""}), "without": values("default-load-balancer-provider")[-1:] != ["none"]}


def mounted_file(daemonset: Optional[ApiObject], flag: str) -> Optional[Tuple[str, str, str]]:
    """Return the API object that contains the file that a flag names: its resource (C(configmaps) or C(secrets)), its name and the key.

    None without a DaemonSet or the flag, and for a file of the host or of the image.
    """
    if not daemonset:
        return None
    container = others.controller_container(daemonset)
    path = (others.flag_values(others.words_of(container), flag) or [""])[-1]
    spec = daemonset["spec"]["template"]["spec"]
    for mount in sorted(container.get("volumeMounts") or [], key=lambda each: -len(each["mountPath"])):
        folder = mount["mountPath"].rstrip("/")
        if path != folder and not path.startswith(folder + "/"):
            continue
        inner = "/".join(part for part in (mount.get("subPath", ""), path[len(folder):]) if part).replace("//", "/").strip("/")
        volume = next(each for each in spec["volumes"] if each["name"] == mount["name"])
        for source, resource, name in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
            if volume.get(source):
                keys = {item["path"]: item["key"] for item in volume[source].get("items") or []}
                return resource, volume[source][name], keys.get(inner, inner)
        return None
    return None


def held_deletions(events: List[ApiObject]) -> Dict[str, str]:
    """Return the newest message of the Events about held deletions for each Node, by the UID of the Node."""
    newest = sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    return {(event.get("involvedObject") or {}).get("uid", ""): " ".join((event.get("message") or "").split()) for event in newest}


def serves(served: ServedClasses, name: str) -> bool:
    """Return whether a Service of this class is the controller's. C(name): '' without a class."""
    return name in served["names"] if name else served["without"]


def _holds(pod: PodState, holder: str) -> bool:
    """Return whether a Pod holds the Lease. Identities are '<host or pod name>_<uuid>'; a hostNetwork Pod has its node's host name, short or with a domain."""
    who = holder.rsplit("_", 1)[0]
    return who in (pod["name"], pod["node"]) or who.startswith((pod["name"], pod["node"])) or pod["node"].startswith(who)
