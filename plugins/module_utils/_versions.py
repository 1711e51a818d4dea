# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Kubernetes release accepts which cloud flag: the one table of version facts.

Preflight, planner, verification and documentation read it. Pure and stdlib-only.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Tuple

Version = Tuple[int, int]

#: The releases this collection has facts for, first and last.
SUPPORTED: Tuple[Version, Version] = ((1, 29), (1, 36))

#: Every in-tree provider is gone from this release on, so there is nothing left to migrate *from*.
IN_TREE_GONE: Version = (1, 31)


class Fact(NamedTuple):
    """What becomes of one flag of one component; C(value) narrows it to a list item. None: does not happen."""

    component: str
    flag: str
    value: Optional[str]
    deprecated_in: Optional[Version]
    fatal_in: Optional[Version]
    reason: str


FACTS: Tuple[Fact, ...] = (
    Fact("kube-apiserver", "cloud-provider", None, (1, 29), (1, 33),
         "kube-apiserver lost its cloud code (kubernetes/kubernetes#130162)"),
    Fact("kube-apiserver", "cloud-config", None, (1, 29), (1, 33),
         "kube-apiserver lost its cloud code (kubernetes/kubernetes#130162)"),
    Fact("kube-apiserver", "enable-admission-plugins", "PersistentVolumeLabel", (1, 29), (1, 31),
         "the PersistentVolumeLabel plugin needs an in-tree provider (kubernetes/kubernetes#124505)"),
    Fact("kube-apiserver", "disable-admission-plugins", "PersistentVolumeLabel", (1, 29), (1, 31),
         "the name of the removed PersistentVolumeLabel plugin is unknown (kubernetes/kubernetes#124505)"),
    Fact("kube-controller-manager", "cloud-provider", "in-tree", (1, 29), (1, 31),
         "only '' and 'external' are accepted, in-tree providers are gone (KEP-2395)"),
    Fact("kube-controller-manager", "cloud-config", None, (1, 31), None,
         "nothing reads it any more, in-tree providers are gone (KEP-2395)"),
    Fact("kube-controller-manager", "external-cloud-volume-plugin", None, (1, 31), None,
         "nothing reads it any more, in-tree providers are gone (KEP-2395)"),
    Fact("kubelet", "cloud-provider", "in-tree", (1, 29), (1, 31),
         "only '' and 'external' are accepted, in-tree providers are gone (KEP-2395)"),
    Fact("kubelet", "cloud-config", None, (1, 29), (1, 34),
         "kubelet lost the flag (kubernetes/kubernetes#130161)"),
)


def parse(text: str) -> Optional[Version]:
    """Return (major, minor) of 'v1.36.3', '1.36' or an image tag; None when there is no version in it."""
    match = re.search(r"(?:^|[^0-9.])v?(\d+)\.(\d+)(?:\.|[^0-9.]|$)", text or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


def show(version: Version) -> str:
    return "{0}.{1}".format(*version)


def supported(version: Version) -> bool:
    return SUPPORTED[0] <= version <= SUPPORTED[1]


def facts(component: str, flag: str, value: Optional[str] = None) -> List[Fact]:
    """Return the facts about a flag; without C(value) only those about the flag as a whole."""
    return [fact for fact in FACTS if (fact.component, fact.flag, fact.value) == (component, flag, value)]


def risk_of_keeping(component: str, flag: str, version: Version, value: Optional[str] = None) -> str:
    """Say since or from when the flag keeps the component from starting; '' when it never does."""
    for fact in facts(component, flag, value):
        if fact.fatal_in is None:
            continue
        if version >= fact.fatal_in:
            return "{0} {1} does not start with it".format(component, show(version))
        return "{0} does not start with it from {1} on".format(component, show(fact.fatal_in))
    return ""


def reason(component: str, flag: str, value: Optional[str] = None) -> str:
    for fact in facts(component, flag, value):
        return fact.reason
    return ""
