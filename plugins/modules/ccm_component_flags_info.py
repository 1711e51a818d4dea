#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_component_flags_info
short_description: Find which file sets which cloud flag of a Kubernetes component on a host
description:
  - Reads, in one call, everything on a host that decides how kube-apiserver, kube-controller-manager and kubelet are
    started - units as systemd has loaded them with their drop-ins and environment files, the static Pod manifests, the
    configuration files of k3s and RKE2, kubeadm's patches, the argument lists of the running processes - and the journal of
    earlier changes by M(outoftree.ccm.ccm_component_config).
  - It trusts the running unit, not a variable. A file that the unit does not read is reported, but not as a source.
  - Processes are identified by systemd's main process of a unit, or by the control group of a static Pod. What only calls itself like
    a component, such as a program in some Pod, is listed in RV(notices), and nothing of it is believed, opened or run.
  - Files are opened only by paths that root alone decides about. A link that somebody else made, a FIFO, a device and a file of more
    than 1 MiB are problems.
  - It asks each component what the gate of M(outoftree.ccm.ccm_component_config) asks after a change. RV(kubelet), RV(service) and
    RV(components) have the answer as C(health), empty when the component is healthy.
  - The filter P(outoftree.ccm.migration_plan#filter) turns the result of all hosts into a plan.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
options:
  node_name:
    description:
      - The name under which this host's kubelet registers.
      - Taken from the kubelet's C(--hostname-override), else the host name in lower case, when not given.
    type: str
  state_directory:
    description: Where M(outoftree.ccm.ccm_component_config) keeps its journal and backups.
    type: path
    default: /var/lib/outoftree-ccm
  wait_timeout:
    description:
      - Seconds to wait for another run that changes this host. A run whose controller was killed goes on until its module ends, and
        what is found before that may be put back.
    type: int
    default: 0
  patches_directory:
    description: Where the operator keeps the patches that kubeadm applies to the manifests it makes.
    type: path
    default: /etc/kubernetes/patches
  journal_copy:
    description:
      - A copy of this host's journal, as M(outoftree.ccm.ccm_journal_copy) returns it. It is read where the journal is missing, empty,
        unreadable or damaged, and ignored otherwise. Use C(no_log) for the task.
    type: str
seealso:
  - module: outoftree.ccm.ccm_component_config
"""

EXAMPLES = r"""
- name: See what sets the cloud flags on this host
  outoftree.ccm.ccm_component_flags_info:
  register: flags

- name: Show the flags the kubelet runs with
  ansible.builtin.debug:
    var: flags.kubelet.flags
"""

RETURN = r"""
node_name:
  description: The name under which the kubelet registers, by the running process.
  returned: always
  type: str
  sample: worker-1
layout:
  description:
    - Who laid out the kubelet, by the unit that runs it - V(kubeadm), V(kubespray), V(systemd), V(k3s), V(rke2), or V(unknown)
      when there is no such unit.
  returned: always
  type: str
  sample: kubeadm
kubelet:
  description: The kubelet's unit files and environment files in the order systemd reads them, its version and what runs.
  returned: always
  type: dict
  sample:
    unit_files: [/usr/lib/systemd/system/kubelet.service, /etc/systemd/system/kubelet.service.d/10-kubeadm.conf]
    environment_files: [/var/lib/kubelet/kubeadm-flags.env, /etc/default/kubelet]
    unread_files: []
    version: v1.36.3
    pid: 812
    flags: ["--cloud-provider=external"]
    started: 1795337102.25
    health: ""
    static_pod_path: /etc/kubernetes/manifests
    config_files: [/var/lib/kubelet/config.yaml]
service:
  description: The service of k3s or RKE2 that runs every component of this host, empty for other layouts.
  returned: always
  type: dict
  sample:
    name: k3s
    unit: k3s.service
    server: true
    arguments: [--disable=traefik]
    config_files: [/etc/rancher/k3s/config.yaml]
    data_directory: /var/lib/rancher/k3s
    port: 6443
    health: ""
    stale: false
units:
  description: Control-plane components that systemd runs, with their unit files and environment files.
  returned: always
  type: dict
  sample:
    kube-apiserver:
      unit: kube-apiserver.service
      unit_files: [/etc/systemd/system/kube-apiserver.service]
      environment_files: [/etc/kubernetes/apiserver]
components:
  description: The running control-plane components and their managed flags.
  returned: always
  type: dict
  sample:
    kube-controller-manager: {pid: 1201, flags: ["--cloud-config=/etc/kubernetes/cloud.conf"], version: "", started: 1795337105.5, health: ""}
unrecognised:
  description: >-
    Processes of root's that bear the name of a control-plane component and that neither a unit nor a static Pod's container of that name
    starts, with their managed flags.
  returned: always
  type: list
  elements: dict
  sample:
    - component: kube-controller-manager
      pid: 811
      flags: [--cloud-provider=aws]
      place: is in the control group /system.slice/kcm.service, of no unit that runs it
manifests:
  description: The files that the kubelet reads as static Pod manifests.
  returned: always
  type: list
  elements: str
  sample: [/etc/kubernetes/manifests/kube-apiserver.yaml]
patches:
  description: The files in O(patches_directory).
  returned: always
  type: list
  elements: str
  sample: [/etc/kubernetes/patches/kube-apiserver0+merge.yaml]
files:
  description: Every file above by path, with its content in base64.
  returned: always
  type: dict
  sample:
    /etc/default/kubelet:
      exists: true
      content: S1VCRUxFVF9FWFRSQV9BUkdTPQo=
      sha256: 3b7a...
      mode: "0644"
      real_path: /etc/default/kubelet
      problem: ""
      changed: 1795337000.0
journal:
  description:
    - The files that M(outoftree.ccm.ccm_component_config) changed and has not restored, and their state now.
    - C(baselines), the newest first, have what a file was and what it was made into, in base64. C(problem) says what of the journal
      is missing or was altered.
  returned: always
  type: dict
  sample:
    /etc/default/kubelet:
      component: kubelet
      service: {}
      state: written
      problem: ""
      baselines:
        - existed: true
          original: S1VCRUxFVF9FWFRSQV9BUkdTPQo=
          sha256: 3b7a...
          copied: true
          written: S1VCRUxFVF9FWFRSQV9BUkdTPS0tY2xvdWQtcHJvdmlkZXI9ZXh0ZXJuYWwK
          written_sha256: [91c2...]
journal_problem:
  description: Why the journal as a whole cannot be read, empty when it can or when there is none. It is among RV(problems), too.
  returned: always
  type: str
  sample: ""
journal_found:
  description:
    - What the journal on this host is found to be, as M(outoftree.ccm.ccm_journal_info) returns it. O(journal_copy) changes nothing about it.
  returned: always
  type: dict
  sample: {state: readable, id: 3f0c2a7b9d4e41f0a1b2c3d4e5f60718, serial: 3, machine: 5b1f...}
admin_conf:
  description: A kubeconfig with all rights that the installer left on this host, empty without one.
  returned: always
  type: str
  sample: /etc/kubernetes/admin.conf
api_server:
  description: The API server's URL as RV(admin_conf) has it, empty elsewhere.
  returned: always
  type: str
  sample: https://10.89.77.11:6443
notices:
  description: What was seen on this host and left out of account, such as a process of a Pod that calls itself C(kubelet).
  returned: always
  type: list
  elements: str
  sample: ["process 4242 calls itself kubelet but belongs to Pod team-a/web-0: it is ignored"]
problems:
  description: What keeps this host from being changed safely.
  returned: always
  type: list
  elements: str
  sample: []
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, journal, journal_copy
from ansible_collections.outoftree.ccm.plugins.module_utils.host.detect import check_writable, detect, detect_journal


def main():
    module = AnsibleModule(
        argument_spec=dict(
            node_name=dict(type="str"),
            state_directory=dict(type="path", default="/var/lib/outoftree-ccm"),
            wait_timeout=dict(type="int", default=0),
            journal_copy=dict(type="str", no_log=True),
            patches_directory=dict(type="path", default="/etc/kubernetes/patches"),
        ),
        supports_check_mode=True,
    )
    result = dict(node_name=module.params["node_name"] or "", layout="unknown", kubelet={}, service={}, units={},
                  components={}, unrecognised=[], manifests=[], patches=[], files={}, journal={}, admin_conf="", api_server="", notices=[],
                  problems=[], journal_problem="", journal_found={})
    if os.geteuid() != 0:
        result["problems"].append("files and processes of the components need root: run with --become, or set ansible_become for "
                                  "the hosts in the inventory")
        module.exit_json(changed=False, **result)
    try:
        directory = files.resolve(module.params["state_directory"])
        with journal.alone(directory, module.params["wait_timeout"]):
            detect(result, module.params["patches_directory"])
            copy = module.params["journal_copy"]
            detect_journal(result, directory, journal_copy.decode(copy) if copy else None)
        check_writable(result, directory)
    except journal.JournalRefused as exc:
        result["journal_problem"] = str(exc)
        result["problems"].append(str(exc))
    except journal_copy.BadCopy as exc:
        module.fail_json(msg="the option journal_copy is no copy of a journal: {0}".format(exc))
    except files.Untrusted as exc:
        result["problems"].append("cannot use {0}: {1}".format(exc.filename, exc.strerror))
    result["problems"] += [entry["problem"] for entry in result["files"].values() if entry["problem"]]
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
