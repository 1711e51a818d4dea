# SPDX-License-Identifier: Apache-2.0
"""Behaviours about the rights in the cluster that the vendor's files give the controller (--roles)."""

from __future__ import annotations

import contextlib

from ..behaviour import Level, behaviour
from ..errors import Failed, Unsupported
from ..rights import Rights
from ..trial import Trial

LEAST = "https://kubernetes.io/docs/concepts/security/rbac-good-practices/#least-privilege"
ESCALATION = "https://kubernetes.io/docs/concepts/security/rbac-good-practices/#privilege-escalation-risks"
RBAC = "rbac.authorization.k8s.io"
#: Rights (group, resource, verb) with which a controller could act as somebody else, or give itself more rights.
ESCALATING = (
    ("", "pods", "create"),
    ("", "pods/exec", "create"),
    ("", "nodes/proxy", "get"),
    ("", "users", "impersonate"),
    ("apps", "daemonsets", "create"),
    (RBAC, "clusterroles", "escalate"),
    (RBAC, "clusterroles", "bind"),
    (RBAC, "clusterrolebindings", "create"),
    ("*", "*", "*"),
)


def _rights(trial: Trial) -> Rights:
    if trial.world.rights is None:
        raise Unsupported("the vendor's roles (--roles)")
    return trial.world.rights


@behaviour(
    "rights.enough",
    Level.MUST,
    "The vendor's roles allow every request of the controller.",
    "https://github.com/kubernetes/cloud-provider-openstack/issues/3225",
)
def enough(trial: Trial) -> None:
    rights = _rights(trial)
    if rights.audit is None:
        raise Unsupported("an API server of its own, whose audit log it may read")
    try:
        _work(trial)
    except Failed:
        if not rights.refusals():
            raise
    trial.equal("what the API server has refused so far", sorted(rights.refusals()), [])


def _work(trial: Trial) -> None:
    """Let the controller make its usual requests."""
    machine = trial.member()
    with contextlib.suppress(Unsupported):
        trial.service()
        trial.served()
        trial.change_port(81)
        trial.change(type="ClusterIP")
        trial.until("the finalizer is gone", lambda: not trial.has_finalizer(), 90)
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.gone(machine.name, 120)


@behaviour("rights.no-secrets", Level.SHOULD, "The controller may not read the Secrets of all namespaces.", LEAST)
def no_secrets(trial: Trial) -> None:
    rights = _rights(trial)
    allowed = [verb for verb in ("get", "list", "watch") if rights.allow(trial.kube, "", "secrets", verb)]
    trial.equal("what it may do with all Secrets", allowed, [])


@behaviour(
    "rights.no-escalation", Level.SHOULD, "The controller may not give itself or others more rights.", ESCALATION
)
def no_escalation(trial: Trial) -> None:
    rights = _rights(trial)
    allowed = [
        f"{verb} {resource}" for group, resource, verb in ESCALATING if rights.allow(trial.kube, group, resource, verb)
    ]
    trial.equal("what it may do", allowed, [])
