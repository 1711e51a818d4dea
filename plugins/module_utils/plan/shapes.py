# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of a plan, of its report and of a run's results, which planners create, and roles, summaries and reports read.

A plan passes through Ansible, which returns plain dictionaries only. Therefore no class of a plan has methods.
The filters P(outoftree.ccm.migration_plan#filter) and P(outoftree.ccm.rollback_plan#filter) describe its keys. Pure.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, TypedDict

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import OtherController, StorageClass
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostSteps


class Choices(NamedTuple):
    """What the operator decided for this run.

    C(adopt): whether Nodes without a providerID are tainted. C(takeover): whether another controller may be paused. C(reregister): whether agents of
    k3s and RKE2 register again. C(excluded_hosts): hosts that C(--limit) excludes. C(volumes_ignore): CSI drivers that may be missing.
    """

    adopt: bool = True
    takeover: bool = False
    reregister: bool = False
    excluded_hosts: Sequence[str] = ()
    volumes_ignore: Sequence[str] = ()


class NewController(NamedTuple):
    """What the plan must know about the new controller.

    C(port): its secure port. C(account): the name of its ServiceAccount, None if there is no controller. C(approves): whether it approves requests for serving
    certificates. C(cluster_cidr): None if it is unknown, and '' if the controller creates no routes. C(clouds): the clouds that it serves, each a
    C(clouds.Cloud); empty if they are not known.
    """

    cluster_name: str = ""
    port: int = 10258
    account: Optional[str] = None
    approves: bool = False
    cluster_cidr: Optional[str] = None
    clouds: Sequence[Any] = ()


class Edit(TypedDict):
    """A row of the plan's table: one flag in one file. C(now) and C(then) are None if it is not set."""

    host: str
    component: str
    file: str
    flag: str
    now: Optional[str]
    then: Optional[str]
    why: str
    risk: str


class _KubeadmConfigStep(TypedDict):
    path: str
    content: str
    sha256: str


class KubeadmConfigStep(_KubeadmConfigStep, total=False):
    """The change of kubeadm's ConfigMap: the options of M(outoftree.ccm.ccm_kubeadm_config), and what the journal records. A rollback has no C(before)."""

    before: str


class _PausedWorkload(TypedDict):
    kind: str
    namespace: str
    name: str


class PausedWorkload(_PausedWorkload, total=False):
    """Another cloud-controller-manager. C(handover): whether the new one starts beside it and waits for their common Lease; missing if an earlier run paused
    the workload."""

    handover: bool


class WayBack(TypedDict):
    """What to do if the new controller does not become healthy."""

    remove: bool
    resume: List[PausedWorkload]
    paused: List[PausedWorkload]


class VolumeRow(TypedDict):
    """An in-tree plug-in whose volumes the cluster uses; volumes.rows describes the keys."""

    source: str
    driver: str
    persistent_volumes: List[str]
    storage_classes: List[StorageClass]
    inline: List[str]
    pods: List[str]
    installed: Optional[bool]
    nodes: List[str]
    idle_without: List[str]
    restarted_without: List[str]
    restarted_pods: List[str]
    others_without: List[str]
    others_pods: List[str]


class RestoredFile(TypedDict):
    """A file in a journal, and how it is restored."""

    host: str
    file: str
    component: str
    mode: str


class Unrestored(TypedDict):
    """What a rollback with force skips."""

    host: str
    file: str
    reason: str


class _Report(TypedDict):
    go: bool
    problems: List[str]
    warnings: List[str]
    notes: List[str]
    edits: List[Edit]
    adopt: List[str]
    reregister: List[str]
    takeover: List[PausedWorkload]
    volumes: List[VolumeRow]
    new_nodes: List[str]


class Report(_Report, total=False):
    """The parts of a plan without the contents of files. Only a rollback has the last three keys."""

    files: List[RestoredFile]
    unrestored: List[Unrestored]
    copies: Dict[str, str]


class _Plan(_Report):
    hosts: Dict[str, HostSteps]
    nodes: Dict[str, str]
    kubeadm_config: Optional[KubeadmConfigStep]
    node_only: bool
    way_back: WayBack


class Plan(_Plan, total=False):
    """Every edit before the first one is made. draft.finish adds C(message), C(table) and C(report).

    C(unseen), C(apart) and C(left_out) have a reason for each host, C(copies) the Secret of each journal that a rollback takes from the
    cluster. C(nothing): what the table says without an edit.
    """

    message: List[str]
    table: List[str]
    report: Report
    unseen: Dict[str, str]
    apart: Dict[str, str]
    left_out: Dict[str, str]
    node_ips: List[str]
    copies: Dict[str, str]
    nothing: str


class RollbackPlan(Plan):
    """A plan of what to restore."""

    files: List[RestoredFile]
    unrestored: List[Unrestored]
    kept: List[str]
    forget: List[str]
    controller: bool
    serving: List[str]
    paused: List[OtherController]
    tainted: List[str]
    held: List[str]


class JournalCopy(TypedDict):
    """Which journal of a host is used: the host's own, its copy at C(place), or none. C(problem): what a person must decide first."""

    source: str
    problem: str
    note: str
    place: str


class JournalCopies(TypedDict, total=False):
    """The result of M(outoftree.ccm.ccm_journal_copy) with C(state=read): the parts that a plan reads."""

    hosts: Dict[str, JournalCopy]
    said: List[str]


class HostOutcome(TypedDict):
    """What a run did on a host; summary.summarise has the states."""

    host: str
    state: str
    edits: int
    planned: int
    seconds: float
    detail: str


class Check(TypedDict):
    """A check of a verification."""

    name: str
    ok: bool
    detail: str
