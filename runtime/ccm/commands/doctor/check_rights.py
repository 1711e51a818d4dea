# SPDX-License-Identifier: Apache-2.0
"""Checks the rights of the controller, verb by verb, with access reviews, which the API server does not store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccm.controllers.controller_spec import Right
from ccm.engine.client import ApiError
from ccm.manager import rights_check

from ..asking.cluster_objects import Pod
from ..asking.reading import Cluster
from .diagnosis import Check, State

NAME = "rights"
#: Namespace, ServiceAccount.
Account = tuple[str, str]


def account_of(pods: Iterable[Pod]) -> Account | None:
    """Return the ServiceAccount of the controller's Pods; None if there are none."""
    return next(
        (
            (pod.metadata.namespace, pod.spec.service_account_name)
            for pod in pods
            if any(container.is_ours for container in pod.spec.containers) and pod.spec.service_account_name
        ),
        None,
    )


async def check(cluster: Cluster, needed: Sequence[Right], account: Account | None, *, own: bool) -> list[Check]:
    """Ask for the controller's rights. `account`: the controller's ServiceAccount, None if it is not known. `own`:
    whether this process has the controller's identity."""
    if account is None and not own:
        text = "not checked: no Pod of the controller is visible, so its ServiceAccount is not known"
        return [Check(NAME, State.NOTE, text, "give --service-account NAMESPACE/NAME")]
    who = f"ServiceAccount {account[0]}/{account[1]}" if account else "this Pod's ServiceAccount"
    subject = rights_check.subject(*account) if account else None
    try:
        missing = await rights_check.missing(cluster.client, list(needed), subject)
    except ApiError as error:
        cluster.miss(f"ask for the rights of {who}", error)
        return []
    return results(needed, missing, who)


def results(needed: Iterable[Right], missing: Iterable[Right], who: str) -> list[Check]:
    """Return one result for each resource with a missing right, and one for all others, unless every right is missing.
    Pure."""
    gone = set(missing)
    lost: dict[str, list[str]] = {}
    all_lost = True
    for right in needed:
        if right not in gone:
            all_lost = False
        elif right.verb not in lost.setdefault(_what(right), []):
            lost[_what(right)].append(right.verb)
    to_do = "grant it in the ClusterRole, or the Role of the namespace, that is bound to the ServiceAccount"
    checks = [
        Check(NAME, State.PROBLEM, f"{who} may not {', '.join(verbs)} {what}", to_do) for what, verbs in lost.items()
    ]
    others = "everything else" if checks else "everything"
    return checks if all_lost else [*checks, Check(NAME, State.OK, f"{who} may do {others} that the controller needs")]


def _what(right: Right) -> str:
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    named = f" {right.name}" if right.name else ""
    return f"{resource}{named} in {right.namespace}" if right.namespace else f"{resource}{named}"
