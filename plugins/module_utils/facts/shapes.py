# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that modules, filters and roles hand to each other: what a host returns, and what is to be done on it.

HostFacts is what M(outoftree.ccm.ccm_component_flags_info) returns; host_facts checks what came against it. Step is what
M(outoftree.ccm.ccm_component_config) is given. All of it passes through Ansible, so it is plain dictionaries.

Pure and stdlib-only (Python 3.8). There is no NotRequired there: a class without an underscore adds the keys that may be missing to those
that must be there.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

# -- what a host returns ----------------------------------------------------------------------------------------------


class _FileFacts(TypedDict):
    exists: bool
    content: str
    sha256: str
    problem: str


class FileFacts(_FileFacts, total=False):
    """A file: its content in base64, and the checksum of what is on the host. C(changed) is its ctime in epoch seconds."""

    changed: float
    mode: str
    real_path: str


class UnreadFlag(TypedDict):
    """A flag in a file that other layouts read, and this host's unit does not."""

    path: str
    flag: str


class Serving(TypedDict):
    """A kubelet's serving certificate: whether it asks the cluster for it (C(bootstrap)), its names and its end (RFC 3339)."""

    bootstrap: bool
    names: List[str]
    not_after: str
    problem: str


class UnitFacts(TypedDict):
    """A unit's name, and its files in the order in which systemd reads them."""

    unit: str
    unit_files: List[str]
    environment_files: List[str]


class KubeletFacts(TypedDict, total=False):
    """The kubelet; nothing but defaults where k3s or RKE2 runs it. C(started) is in epoch seconds, C(health) empty when it is healthy."""

    unit_files: List[str]
    environment_files: List[str]
    config_files: List[str]
    flags: List[str]
    version: str
    pid: int
    static_pod_path: str
    started: float
    health: str
    unread_files: List[UnreadFlag]
    serving: Serving


class ServiceFacts(TypedDict, total=False):
    """The service of k3s or RKE2, empty for other layouts. C(stale): a file was changed after it was started."""

    name: str
    unit: str
    server: bool
    arguments: List[str]
    config_files: List[str]
    data_directory: str
    stale: bool
    port: int
    health: str


class _ComponentFacts(TypedDict):
    pid: int
    flags: List[str]
    version: str


class ComponentFacts(_ComponentFacts, total=False):
    """A running component of the control plane."""

    started: float
    health: str


class StrayProcess(TypedDict):
    """A process with the name of a component that nothing identified starts; C(place) is where it was seen instead."""

    component: str
    pid: int
    flags: List[str]
    place: str


class BaselineFacts(TypedDict):
    """What a file was, and what we last made of it, in base64. C(copied): there is a copy of the latter."""

    existed: bool
    original: str
    sha256: str
    copied: bool
    written: str
    written_sha256: List[str]


class _JournalFacts(TypedDict):
    component: str
    state: str


class JournalFacts(_JournalFacts, total=False):
    """What the journal says of a file, the newest baseline first. C(state) is original, written, altered or unknown."""

    service: Dict[str, Any]
    problem: str
    baselines: List[BaselineFacts]


class _HostFacts(TypedDict):
    node_name: str
    layout: str
    admin_conf: str
    api_server: str
    manifests: List[str]
    patches: List[str]
    problems: List[str]
    kubelet: KubeletFacts
    service: ServiceFacts
    units: Dict[str, UnitFacts]
    components: Dict[str, ComponentFacts]
    files: Dict[str, FileFacts]
    journal: Dict[str, JournalFacts]


class HostFacts(_HostFacts, total=False):
    """All that decides how the components of a host are started. C(files) has every path that another part names."""

    notices: List[str]
    journal_problem: str
    journal_found: Dict[str, Any]
    unrecognised: List[StrayProcess]


# -- what is to be done on it -----------------------------------------------------------------------------------------


class _StepFile(TypedDict):
    path: str
    sha256: str


class StepFile(_StepFile, total=False):
    """A file of a step, with the checksum that it had when the plan was made. Without C(content), in base64, it is restored from the journal.

    C(keep): it is as it should be, and the journal forgets it.
    """

    content: str
    keep: bool


class _Step(TypedDict):
    component: str
    files: List[StepFile]
    flags: List[str]
    flags_before: List[str]
    restart: bool
    service: Dict[str, Any]


class Step(_Step, total=False):
    """The change of one component: the options of M(outoftree.ccm.ccm_component_config).

    Its process must show C(flags) afterwards, or C(flags_before) when the change is put back.
    """

    state: str


class HostSteps(TypedDict):
    """The steps of a host, in their order: the kubelet, k3s or RKE2 comes last."""

    control_plane: List[Step]
    kubelet: Optional[Step]
