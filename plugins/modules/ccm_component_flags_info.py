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
    started - the kubelet's unit as systemd has loaded it with its drop-ins and environment files, the static Pod
    manifests, the argument lists of the running processes - and the journal of earlier changes by
    M(outoftree.ccm.ccm_component_config).
  - It trusts the running unit, not a variable. A file that the unit does not read is reported, but not as a source.
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
  description: Who laid out the kubelet, by its unit. V(unknown) when there is no kubelet unit.
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
    needs_reload: false
    static_pod_path: /etc/kubernetes/manifests
components:
  description: The running control-plane components and their managed flags.
  returned: always
  type: dict
  sample:
    kube-controller-manager: {pid: 1201, flags: ["--cloud-config=/etc/kubernetes/cloud.conf"]}
manifests:
  description: The files that the kubelet reads as static Pod manifests.
  returned: always
  type: list
  elements: str
  sample: [/etc/kubernetes/manifests/kube-apiserver.yaml]
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
journal:
  description: The files that M(outoftree.ccm.ccm_component_config) changed and has not restored, and their state now.
  returned: always
  type: dict
  sample:
    /etc/default/kubelet: {component: kubelet, state: written}
api_server:
  description: The API server's URL as this control plane's admin.conf has it, empty elsewhere.
  returned: always
  type: str
  sample: https://10.89.77.11:6443
problems:
  description: What keeps this host from being changed safely.
  returned: always
  type: list
  elements: str
  sample: []
"""

import base64
import glob
import os
import re
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils import _flags, _host, _journal, _unit

#: Files that other layouts read: reported when they carry one of our flags and this unit does not read them.
WELL_KNOWN = ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet",
              "/etc/kubernetes/kubelet.env")
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
KUBEADM_CONFIG = "configmap:kube-system/kubeadm-config"


def read_file(path):
    """Return what the planner needs of a file; a file that is not there is a fact, one that cannot be read a problem."""
    real = os.path.realpath(path)
    result = {"exists": False, "content": "", "sha256": "", "mode": "", "real_path": real, "problem": ""}
    try:
        with open(real, "rb") as handle:
            content = handle.read()
        info = os.stat(real)
    except FileNotFoundError:
        return result
    except OSError as exc:
        result["problem"] = "cannot read {0}: {1}".format(path, exc.strerror)
        return result
    result.update(exists=True, content=base64.b64encode(content).decode("ascii"), sha256=_journal.digest(content),
                  mode="{0:04o}".format(info.st_mode & 0o7777))
    return result


def text_of(entry):
    return base64.b64decode(entry["content"]).decode("utf-8", "replace") if entry["exists"] else None


def manifests_in(directory):
    """Return what the kubelet reads there: every regular file whose name does not start with a dot."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    paths = [os.path.join(directory, name) for name in names if not name.startswith(".")]
    return [path for path in paths if os.path.isfile(path)]


def detect_kubelet(result):
    unit = _host.unit_properties("kubelet", ["LoadState", "FragmentPath", "DropInPaths", "NeedDaemonReload"])
    running = _host.processes("kubelet")
    argv = running[0].argv if running else []
    kubelet = dict(unit_files=[], environment_files=[], unread_files=[], version="", pid=0, flags=[],
                   needs_reload=unit.get("NeedDaemonReload") == "yes", **_host.kubelet_settings(argv))
    result["kubelet"] = kubelet
    for other in ("k3s", "k3s-agent", "rke2-server", "rke2-agent"):
        if _host.unit_properties(other, ["LoadState"]).get("LoadState") == "loaded":
            result["layout"] = other.partition("-")[0]
            result["problems"].append("its kubelet is part of {0} ({1}.service), which this release does not edit"
                                      .format(result["layout"], other))
            return
    if unit.get("LoadState") != "loaded":
        result["problems"].append("systemd has no kubelet.service loaded ({0}): the kubelet's layout is unknown. Only kubelets "
                                  "run by systemd can be changed".format(unit.get("LoadState") or "systemctl failed"))
        return
    kubelet["unit_files"] = [unit["FragmentPath"]] + unit.get("DropInPaths", "").split()
    for path in kubelet["unit_files"]:
        result["files"][path] = read_file(path)
    parsed = _unit.parse_unit([(path, text_of(result["files"][path]) or "") for path in kubelet["unit_files"]])
    for pattern in parsed.environment_files:
        kubelet["environment_files"] += sorted(glob.glob(pattern)) if re.search(r"[*?\[]", pattern) else [pattern]
    for path in kubelet["environment_files"]:
        result["files"][path] = read_file(path)
    names = [os.path.basename(path) for path in kubelet["environment_files"]]
    result["layout"] = ("kubeadm" if "kubeadm-flags.env" in names else
                        "kubespray" if "/etc/kubernetes/kubelet.env" in kubelet["environment_files"] else "systemd")
    for path in WELL_KNOWN:
        if path not in kubelet["environment_files"] and os.path.exists(path):
            for value in _unit.parse_environment_file(path, text_of(read_file(path)) or "").values():
                words = [word.value for word in _flags.split_words(value.chars)]
                kubelet["unread_files"] += [{"path": path, "flag": _flags.render(flag.name, flag.value)}
                                            for flag in _flags.find_flags(words)]
    if not running:
        result["problems"].append("the kubelet does not run: see 'systemctl status kubelet' on this host")
        return
    kubelet["pid"] = running[0].pid
    kubelet["flags"] = [_flags.render(name, value) for name, value in _unit.managed_flags(argv)]
    version = _host.run(["/proc/{0}/exe".format(running[0].pid), "--version"], timeout=20).stdout
    match = re.search(r"v\d+\.\d+\.\S+", version)
    kubelet["version"] = match.group(0) if match else ""
    result["node_name"] = result["node_name"] or _host.option(argv, "hostname-override") or socket.gethostname().lower()


def detect_control_plane(result):
    for path in manifests_in(result["kubelet"]["static_pod_path"]):
        result["manifests"].append(path)
        result["files"][path] = read_file(path)
    for name in COMPONENTS:
        for process in _host.processes(name):
            flags = [_flags.render(flag.name, flag.value) for flag in _flags.find_flags(process.argv)]
            result["components"][name] = {"pid": process.pid, "flags": flags}
    try:
        with open("/etc/kubernetes/admin.conf", encoding="utf-8") as handle:
            match = re.search(r"^\s+server:\s*[\"']?(https://[^\s\"']+)", handle.read(), re.MULTILINE)
        result["api_server"] = match.group(1) if match else ""
    except OSError:
        pass


def detect_journal(result, directory):
    try:
        journal = _journal.Journal(directory)
    except _journal.JournalRefused as exc:
        result["problems"].append(str(exc))
        return
    for name, entry in sorted(journal.files.items()):
        written = entry["written"][-1]["sha256"]
        item = {"component": entry["component"], "flags": entry["original"]["flags"], "written": written,
                "original_sha256": entry["original"]["sha256"]}
        if name == KUBEADM_CONFIG:
            content = journal.original(name) or b""
            item.update(state="unknown", original=base64.b64encode(content).decode("ascii"))
        else:
            now = read_file(name)["sha256"]
            item["state"] = "written" if now == written else "original" if now == entry["original"]["sha256"] else "altered"
        result["journal"][name] = item


def check_writable(result, directory):
    """Say now what would stop a change half-way: no room for backups, or a read-only place."""
    parent = directory
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    space = os.statvfs(parent)
    if space.f_bavail * space.f_frsize < 16 * 1024 * 1024:
        result["problems"].append("less than 16 MiB are free for backups in {0}".format(directory))
    places = {parent} | {os.path.dirname(entry["real_path"]) for path, entry in result["files"].items()
                         if entry["exists"] and not path.startswith(_unit.PACKAGE_DIRECTORIES)}
    for place in sorted(places):
        if os.statvfs(place).f_flag & os.ST_RDONLY or not os.access(place, os.W_OK):
            result["problems"].append("cannot write to {0}: the file system is read-only".format(place))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            node_name=dict(type="str"),
            state_directory=dict(type="path", default="/var/lib/outoftree-ccm"),
        ),
        supports_check_mode=True,
    )
    result = dict(node_name=module.params["node_name"] or "", layout="unknown", kubelet={}, components={}, manifests=[],
                  files={}, journal={}, api_server="", problems=[])
    if os.geteuid() != 0:
        result["problems"].append("files and processes of the components need root: run with --become, or set ansible_become for "
                                  "the hosts in the inventory")
        module.exit_json(changed=False, **result)
    detect_kubelet(result)
    detect_control_plane(result)
    detect_journal(result, module.params["state_directory"])
    check_writable(result, module.params["state_directory"])
    result["problems"] += [entry["problem"] for entry in result["files"].values() if entry["problem"]]
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
