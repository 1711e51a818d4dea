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
  - Reads in one call everything on a host that decides how kube-apiserver, kube-controller-manager and kubelet start. This includes
    the loaded systemd units with their drop-ins and environment files, the static Pod manifests, the configuration files of k3s and
    RKE2, kubeadm's patches, the argument lists of the running processes, and the journal of earlier changes by
    M(outoftree.ccm.ccm_component_config).
  - The module relies on the running unit, not on a variable. It reports a file that the unit does not read, but does not treat it as a source of flags.
  - The module identifies processes by systemd's main process of a unit, or by the control group of a static Pod. Any other process with
    a component's name, such as a program in a Pod, is only listed in RV(notices). The module never trusts, opens or runs anything of it.
  - The module opens files only if root alone controls their paths. A link of another user, a FIFO, a device, or a file of more than
    1 MiB is a problem.
  - The module runs the same health check as M(outoftree.ccm.ccm_component_config) after a change. C(health) in RV(kubelet),
    RV(service) and RV(components) has the result. It is empty if the component is healthy.
  - The filter P(outoftree.ccm.migration_plan#filter) makes a plan from the results of all hosts.
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
      - Name of this host's Node.
      - Defaults to the name in the kubelet's client certificate, or else to the name with which the kubelet registers.
    type: str
  state_directory:
    description: Directory with the journal and backups of M(outoftree.ccm.ccm_component_config).
    type: path
    default: /var/lib/outoftree-ccm
  wait_timeout:
    description:
      - Seconds to wait for another run that changes this host. If a run's controller was killed, its module still runs to its end and
        may restore files.
    type: int
    default: 0
  patches_directory:
    description: Directory with the patches that kubeadm applies to the manifests that it creates.
    type: path
    default: /etc/kubernetes/patches
  hide_result:
    description:
      - Whether Ansible hides the result, because it has the contents of files. A message about a failure stays visible. This is an option of
        the action plugin.
    type: bool
    default: false
  journal_copy:
    description:
      - A copy of this host's journal, as M(outoftree.ccm.ccm_journal_copy) returns it. The module reads it if the journal is missing,
        rolled back, unreadable or damaged, and ignores it otherwise. Use C(no_log) for the task.
    type: str
seealso:
  - module: outoftree.ccm.ccm_component_config
"""

EXAMPLES = r"""
- name: Find what sets the cloud flags on this host
  outoftree.ccm.ccm_component_flags_info:
  register: flags

- name: Show the flags of the running kubelet
  ansible.builtin.debug:
    var: flags.kubelet.flags
"""

RETURN = r"""
node_name:
  description: O(node_name), or its default. Empty if it is unknown, or not a valid name.
  returned: always
  type: str
  sample: worker-1
registers:
  description:
    - The name with which the kubelet registers its Node after its next start with an external cloud, and the setting that it comes from.
    - C(metadata) is the setting of RKE2 with which the name comes from the cloud instead. Empty without such a setting.
  returned: if the kubelet, k3s or RKE2 was identified
  type: dict
  sample: {name: worker-1, setting: "--hostname-override", metadata: ""}
other_units:
  description: Active units that run a cloud-controller-manager on this host.
  returned: always
  type: list
  elements: str
  sample: [cloud-controller-manager.service]
layout:
  description:
    - Installer of the kubelet, according to its unit - V(kubeadm), V(kubespray), V(systemd), V(k3s), V(rke2), or V(unknown) if there
      is no such unit.
  returned: always
  type: str
  sample: kubeadm
kubelet:
  description:
    - The kubelet's unit files and environment files in the order in which systemd reads them, its version and its process.
    - C(difference) is the first difference between all arguments of the process and those in its files. It is empty if they are the same or
      cannot be compared.
  returned: always
  type: dict
  sample:
    unit_files: [/usr/lib/systemd/system/kubelet.service, /etc/systemd/system/kubelet.service.d/10-kubeadm.conf]
    environment_files: [/var/lib/kubelet/kubeadm-flags.env, /etc/default/kubelet]
    unread_files: []
    version: v1.36.3
    pid: 812
    flags: ["--cloud-provider=external"]
    difference: ""
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
    environment: {}
units:
  description: Control-plane components that run as systemd units, with their unit files and environment files.
  returned: always
  type: dict
  sample:
    kube-apiserver:
      unit: kube-apiserver.service
      unit_files: [/etc/systemd/system/kube-apiserver.service]
      environment_files: [/etc/kubernetes/apiserver]
components:
  description:
    - The running control-plane components, their managed flags and all their C(arguments).
    - C(difference) of a unit's process is as in RV(kubelet).
  returned: always
  type: dict
  sample:
    kube-controller-manager: {pid: 1201, flags: ["--cloud-config=/etc/kubernetes/cloud.conf"], version: "", started: 1795337105.5, health: ""}
unrecognised:
  description: >-
    Processes of root with the name of a control-plane component that neither a unit nor a static Pod's container of that name starts,
    with their managed flags.
  returned: always
  type: list
  elements: dict
  sample:
    - component: kube-controller-manager
      pid: 811
      flags: [--cloud-provider=aws]
      place: is in the control group /system.slice/kcm.service, which belongs to no unit of this component
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
    - The files that M(outoftree.ccm.ccm_component_config) changed and did not restore, and their current state.
    - C(baselines), the newest first, have the original and the written content of a file in base64. C(problem) says what is missing
      from the journal or was altered.
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
  description: Why the journal cannot be read. Empty if it can be read, or if there is none. RV(problems) also has it.
  returned: always
  type: str
  sample: ""
journal_found:
  description:
    - State of the journal on this host, as M(outoftree.ccm.ccm_journal_info) returns it. O(journal_copy) does not affect it.
  returned: always
  type: dict
  sample: {state: readable, id: 3f0c2a7b9d4e41f0a1b2c3d4e5f60718, serial: 3, machine: 5b1f...}
admin_conf:
  description: Path of a kubeconfig with cluster-admin rights on this host, empty if there is none.
  returned: always
  type: str
  sample: /etc/kubernetes/admin.conf
api_server:
  description: URL of the API server in RV(admin_conf), empty without one.
  returned: always
  type: str
  sample: https://10.89.77.11:6443
notices:
  description: Things on this host that were ignored, such as a process of a Pod that calls itself C(kubelet).
  returned: always
  type: list
  elements: str
  sample: ["process 4242 calls itself kubelet but belongs to Pod team-a/web-0. It is ignored"]
cloud_configs:
  description: Existing files that C(--cloud-config) names, or that it named before M(outoftree.ccm.ccm_component_config) removed it.
  returned: always
  type: list
  elements: str
  sample: [/etc/kubernetes/cloud.conf]
problems:
  description: Reasons why this host cannot be changed safely.
  returned: always
  type: list
  elements: str
  sample: []
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, journal, journal_copy
from ansible_collections.outoftree.ccm.plugins.module_utils.host.detect import check_writable, detect, detect_journal, find_cloud_configs


def main():
    module = AnsibleModule(
        argument_spec=dict(
            node_name=dict(type="str"),
            state_directory=dict(type="path", default="/var/lib/outoftree-ccm"),
            wait_timeout=dict(type="int", default=0),
            hide_result=dict(type="bool", default=False),
            journal_copy=dict(type="str", no_log=True),
            patches_directory=dict(type="path", default="/etc/kubernetes/patches"),
        ),
        supports_check_mode=True,
    )
    result = dict(node_name=module.params["node_name"] or "", layout="unknown", kubelet={}, service={}, units={},
                  components={}, unrecognised=[], manifests=[], patches=[], files={}, journal={}, admin_conf="", api_server="", notices=[],
                  cloud_configs=[], other_units=[], problems=[], journal_problem="", journal_found={})
    if os.geteuid() != 0:
        result["problems"].append("only root can read the files and processes of the components: run with --become, or set ansible_become "
                                  "for the hosts in the inventory")
        module.exit_json(changed=False, **result)
    try:
        directory = files.resolve(module.params["state_directory"])
        with journal.alone(directory, module.params["wait_timeout"]):
            detect(result, module.params["patches_directory"])
            copy = module.params["journal_copy"]
            detect_journal(result, directory, journal_copy.decode(copy) if copy else None)
        find_cloud_configs(result)
        check_writable(result, directory)
    except journal.JournalRefused as exc:
        result["journal_problem"] = str(exc)
        result["problems"].append(str(exc))
    except journal_copy.BadCopy as exc:
        module.fail_json(msg="the option journal_copy is not a copy of a journal: {0}".format(exc))
    except OSError as exc:  # files.Untrusted, or a file that was removed in between
        result["problems"].append("cannot use {0}: {1}".format(exc.filename or module.params["state_directory"], exc.strerror))
    result["problems"] += [entry["problem"] for entry in result["files"].values() if entry["problem"]]
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
