# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that modules, filters and roles exchange: a host's facts, and the steps for it.

HostFacts is the result of M(outoftree.ccm.ccm_component_flags_info), which host_facts checks. Step has the options of
M(outoftree.ccm.ccm_component_config). All of it passes through Ansible, so it consists of plain dictionaries.

Pure and stdlib-only (Python 3.8, which has no NotRequired). If the base of a class has the same name with an underscore, the class adds
optional keys to the base.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

#: What a host returned, before host_facts checks it: its facts, or a failed result with C(msg).
HostAnswer = Dict[str, Any]

# -- what a host returns ----------------------------------------------------------------------------------------------


class _FileFacts(TypedDict):
    exists: bool
    content: str
    sha256: str
    problem: str


class FileFacts(_FileFacts, total=False):
    """A file: its content in base64, and the checksum of the file on the host. C(changed) is its ctime in epoch seconds.

    C(obstacle): why it cannot be replaced. C(volatile): why a reboot removes it.
    """

    changed: float
    obstacle: str
    volatile: str
    mode: str
    real_path: str


class UnreadFlag(TypedDict):
    """A flag in a file that other layouts read, but that this host's unit does not read."""

    path: str
    flag: str


class Serving(TypedDict):
    """A kubelet's serving certificate: whether the cluster signs it (C(bootstrap)), its names and its expiry time (RFC 3339)."""

    bootstrap: bool
    names: List[str]
    not_after: str
    problem: str


class Registration(TypedDict):
    """The name with which a kubelet registers after its next start, and what sets it.

    C(metadata): the setting of RKE2 that takes the name from the cloud instead, as long as it stays; '' for none.
    """

    name: str
    setting: str
    metadata: str


class UnitFacts(TypedDict):
    """A unit's name, and its files in the order in which systemd reads them."""

    unit: str
    unit_files: List[str]
    environment_files: List[str]


class KubeletFacts(TypedDict, total=False):
    """The kubelet. C(started) is in epoch seconds, C(health) is empty if it is healthy.

    If k3s or RKE2 runs it, all values but C(pid), C(version) and C(static_pod_path) are defaults.

    C(difference): the first difference between its arguments and those in its files.
    """

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
    difference: str
    serving: Serving


class ServiceFacts(TypedDict, total=False):
    """The service of k3s or RKE2, empty for other layouts. C(stale): a file was changed after the service was started.

    C(environment): settings that only environment variables of its unit set. C(before): configuration file -> the
    line of its unit with a command that names this file and runs before each start.
    """

    name: str
    unit: str
    server: bool
    arguments: List[str]
    config_files: List[str]
    data_directory: str
    stale: bool
    port: int
    health: str
    environment: Dict[str, str]
    before: Dict[str, str]


class _ComponentFacts(TypedDict):
    pid: int
    flags: List[str]
    version: str


class ComponentFacts(_ComponentFacts, total=False):
    """A running component of the control plane. C(difference): the first difference between its arguments and its unit's files."""

    arguments: List[str]
    difference: str
    started: float
    health: str


class StrayProcess(TypedDict):
    """A process with the name of a component that no known unit or Pod starts; C(place) is its location."""

    component: str
    pid: int
    flags: List[str]
    place: str


class BaselineFacts(TypedDict):
    """The original of a file, and what this collection last wrote, in base64. C(copied): there is a copy of what it wrote."""

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
    """The journal's entry of a file, with the newest baseline first. C(state) is original, written, altered or unknown."""

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
    """Everything that decides how the components of a host start. C(files) has the files of manifests, patches, units, configurations and the journal.

    C(cloud_configs) are the existing files that C(--cloud-config) names, or named before a run changed it. C(registers) is the name with
    which its kubelet will register. C(other_units) are active units that run a cloud-controller-manager.
    """

    cloud_configs: List[str]
    registers: Registration
    other_units: List[str]
    notices: List[str]
    journal_problem: str
    journal_found: Dict[str, Any]
    unrecognised: List[StrayProcess]


# -- the steps for a host ---------------------------------------------------------------------------------------------


class _StepFile(TypedDict):
    path: str
    sha256: str


class StepFile(_StepFile, total=False):
    """A file of a step, with its checksum when the plan was made. Without C(content) (base64), it is restored from the journal.

    C(keep): it is already restored, and only its journal entry is removed.
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

    Its process must have C(flags) afterwards, or C(flags_before) if the change is undone.
    """

    state: str


class HostSteps(TypedDict):
    """The steps of a host in order. The kubelet, k3s or RKE2 comes last."""

    control_plane: List[Step]
    kubelet: Optional[Step]
