#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_component_config
short_description: Write the planned configuration of one Kubernetes component behind a health gate
description:
  - Writes the files that P(outoftree.ccm.migration_plan#filter) planned for one component on this host, and waits until
    the component runs with them and is healthy. If it does not become healthy in time, the module restores the old files,
    waits for the old configuration, and fails with the component's last log lines.
  - A static Pod counts as updated when a I(new) process of the component runs with exactly the planned flags and its
    health endpoint on this host answers twice in a row. The endpoint alone is not enough, because the old process could answer.
  - A kube-controller-manager is healthy before it leads, and some errors stop it only when it leads. So it counts as updated when it or another
    instance leads and has renewed the Lease twice. If the Lease cannot be read, it must stay healthy for the Lease's duration plus 10 s.
  - The module backs up every file once per run below O(state_directory), outside of the folder that the kubelet reads. The
    journal in O(state_directory) records each file before its first change, so that O(state=restored) restores it byte for byte.
  - The module writes a file only if it did not change since the plan was made, and only if root alone controls its path.
  - It is safe to kill the module at any time. The next call removes half-written files and makes up for a missing restart. If an
    abandoned module still runs on the host, the next call waits for it.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  component:
    description:
      - The component to configure.
      - V(kubeadm-config) only records in the journal what M(outoftree.ccm.ccm_kubeadm_config) is about to change in the cluster, so
        that a rollback can undo it.
      - V(kubeadm-patches) are files that only the next C(kubeadm upgrade) reads, so the module waits for nothing.
      - V(k3s) and V(rke2) restart as a whole.
      - Either this or O(plan_of) is required.
    type: str
    choices: [kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubeadm-config, kubeadm-patches, k3s, rke2]
  plan_of:
    description:
      - Host of the inventory for which the role C(ccm_install) stored the plan of this run. The action plugin of the same name then takes
        the options of a step from the plan. Without such a step, it skips the host.
    type: str
  step:
    description: With O(plan_of), the number of the control plane's step, from 0. Defaults to the kubelet's step.
    type: int
  tolerant:
    description:
      - With O(plan_of), whether the task succeeds with a warning if the change fails. RV(tolerated) is then V(true).
    type: bool
    default: false
  service:
    description:
      - The systemd service to restart for the component. Without one, the component is a static Pod, whose changed manifest the kubelet
        applies by itself.
      - With O(state=restored), the module takes the service from the journal.
    type: dict
    default: {}
    suboptions:
      unit:
        description: Name of the unit. Optional for V(kubelet).
        type: str
      data_directory:
        description: Directory of k3s or RKE2 with its data and the certificates of its API server.
        type: path
      port:
        description: Port of the API server of k3s or RKE2 on this host. Defaults to V(6443).
        type: int
  state:
    description:
      - V(present) writes O(files).
      - V(restored) restores every file of the component that the journal lists, as O(files) says (the plan of
        P(outoftree.ccm.rollback_plan#filter)). A file that O(files) does not list gets its original bytes, if nobody else changed it
        after the migration. The module backs up what it overwrites or removes.
    type: str
    default: present
    choices: [present, restored]
  files:
    description: The files to write, from the plan.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path of the file. If it is a symbolic link, the module writes its target.
        type: path
        required: true
      content:
        description:
          - The new content in base64, which preserves every byte. Required with O(state=present).
          - With O(state=restored), only for files that were changed after the migration. The module restores the others from the journal.
          - For V(k3s) and V(rke2), it contains the placeholders that M(outoftree.ccm.ccm_component_flags_info) returns instead of
            secrets. The module takes the values from the current file.
        type: str
      keep:
        description: With O(state=restored), whether to leave the file as it is and remove it from the journal, because nothing is left to undo.
        type: bool
        default: false
      sha256:
        description: SHA-256 of the content from which the plan was made. Empty for a file that does not exist.
        type: str
        default: ''
      before:
        description: The content from which the plan was made, in base64. Only for O(component=kubeadm-config).
        type: str
  flags:
    description:
      - The managed flags that the new process must have, in order, as its new or restored files set them.
      - With O(state=restored) and without O(files), defaults to the flags that the journal recorded before the first run.
    type: list
    elements: str
    default: []
  flags_before:
    description: The managed flags before the change, which a restored process must have.
    type: list
    elements: str
    default: []
  restart:
    description: Whether to restart the service even if no file changes, because it runs with other flags than its files set.
    type: bool
    default: false
  run_id:
    description: Name of the folder for this run's backups.
    type: str
    default: manual
  state_directory:
    description: Directory of the journal and the backups.
    type: path
    default: /var/lib/outoftree-ccm
  timeout:
    description: Seconds to wait for another run on this host, then for the component, and then for the restored component.
    type: int
    default: 180
  force:
    description: With O(state=restored), whether to restore the original of files that somebody else changed and that O(files) does not list.
    type: bool
    default: false
  journal_copy:
    description:
      - A copy of this host's journal, as M(outoftree.ccm.ccm_journal_copy) returns it. It replaces a journal that is missing, rolled
        back, unreadable or damaged, and is ignored otherwise. The module moves an unreadable journal aside within O(state_directory).
    type: str
seealso:
  - module: outoftree.ccm.ccm_component_flags_info
"""

EXAMPLES = r"""
- name: Apply the plan to kube-controller-manager on this host
  outoftree.ccm.ccm_component_config:
    component: kube-controller-manager
    files: "{{ step.files }}"
    flags: "{{ step.flags }}"
    flags_before: "{{ step.flags_before }}"
    run_id: 20261121T091500Z

- name: Restore every file of the kubelet
  outoftree.ccm.ccm_component_config:
    component: kubelet
    state: restored
"""

RETURN = r"""
files:
  description:
    - The files that were (in check mode, would be) written or removed. If the change failed, C(action) is V(restored) for a file that has
      its old content again, and V(written) for one that could not be restored.
  returned: always
  type: list
  elements: dict
  sample:
    - path: /etc/default/kubelet
      backup: /var/lib/outoftree-ccm/backups/20261121T091500Z/etc__default__kubelet
      action: written
component:
  description: The component.
  returned: success
  type: str
  sample: kubelet
restarted_at:
  description: When the component's service was restarted, by this host's clock. Empty if it was not.
  returned: success
  type: str
  sample: "2026-11-21T09:15:03Z"
waited:
  description: Seconds until the component was healthy.
  returned: success
  type: float
  sample: 9.5
seconds:
  description: Seconds that the whole change took on this host.
  returned: always
  type: float
  sample: 11.2
tolerated:
  description: Whether the change failed and O(tolerant) let the task succeed.
  returned: when the change failed and O(tolerant) is V(true)
  type: bool
  sample: true
restored:
  description: Whether the old configuration was restored and is healthy.
  returned: failure
  type: bool
  sample: true
"""

import base64
import contextlib
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, journal as _journal, journal_copy, secrets
from ansible_collections.outoftree.ccm.plugins.module_utils.host.component import WHOLE, Component, Failed, read, remove, show, temporary
from ansible_collections.outoftree.ccm.plugins.module_utils.host.component_change import report, settle, unsettled


def planned(module, journal):
    """Return [(path, before, after, mode, owner)] of the files that are not yet as planned. Refuses files that changed after the plan."""
    work = []
    for item in module.params["files"]:
        path = item["path"]
        if item["content"] is None:
            module.fail_json(msg="{0}: 'content' is missing. Only 'state: restored' works without it".format(path))
        before = read(path)
        after = revealed(module.params["component"], item["content"], before)
        if before == after:
            continue
        if _journal.digest(before) != item["sha256"]:
            refuse(module, path)
        info = os.stat(files.resolve(path)) if before is not None else None
        mode = info.st_mode & 0o7777 if info else 0o644
        work.append((path, before, after, mode, (info.st_uid, info.st_gid) if info else (0, 0)))
    return work


def originals(module, journal, component):
    """Return what planned() returns, for the files that the journal lists for the component, and the names of files that are already restored.

    The plan says how to restore each file: to its original bytes, or to a content if the file was changed after the migration.
    """
    work, settled = [], []
    chosen = {item["path"]: item for item in module.params["files"]}
    for name, entry in sorted(journal.files.items()):
        if entry["component"] != module.params["component"]:
            continue
        component.use(entry.get("service") or {})
        if module.params["component"] == "kubeadm-config":
            settled.append(name)
            continue
        item, before, original = chosen.get(name), read(name), entry["original"]
        if item is not None and _journal.digest(before) != item["sha256"]:
            refuse(module, name)
        if item is not None and item["content"] is not None:
            info = os.stat(files.resolve(name))
            after = revealed(component.name, item["content"], before)
            mode, owner = info.st_mode & 0o7777, (info.st_uid, info.st_gid)
        else:
            after = before if item is not None and item["keep"] else journal.original(name)
            mode, owner = original["mode"], (original["uid"], original["gid"])
        if before == after:
            settled.append(name)
            continue
        if item is None and _journal.ours(entry, _journal.digest(before)) is None and not module.params["force"]:
            module.fail_json(msg="{0} was changed by someone else after the migration, so it was not restored. Its original is "
                             "{1}. Merge it by hand, or set 'force' to restore the original".format(
                                 name, os.path.join(journal.directory, original["copy"])))
        work.append((name, before, after, mode, owner))
    return work, settled


def noted_flags(journal, name):
    """Return the flags that a component had before the first recorded run, [] without a record. Restores without a plan need them."""
    entries = [entry for entry in journal.files.values() if entry["component"] == name]
    return min(entries, key=lambda entry: entry["written"][0]["run"])["original"]["flags"] if entries else []


def revealed(name, content, before):
    """Return a planned content in base64 as bytes, with the secrets of the current file."""
    after = base64.b64decode(content)
    return secrets.reveal(after.decode("utf-8"), (before or b"").decode("utf-8", "replace")).encode("utf-8") if name in WHOLE else after


def refuse(module, path):
    module.fail_json(msg="{0} was changed after the plan was made, so nothing was written on this host for {1}. Run again to plan with its "
                     "new content".format(path, module.params["component"]))


def fail(module, component, failure, result):
    """Fail with a message about the state of the change, and of each file."""
    outcome = failure.args[2]
    restored = outcome.healthy and not outcome.stuck
    message = report(component, failure, result["files"], module.params["state"])
    # People read all of this, so it has only what the summary of the run needs.
    needed = {name: result[name] for name in ("diff", "files", "seconds") if name in result}
    module.fail_json(msg=message, changed=not restored, restored=restored, **needed)


def forget_undone(module, journal, work):
    """Remove the records of files that have their old content again. Warns if the journal cannot be written."""
    try:
        for path, *_rest in work:
            journal.undo(path, read(path))
    except OSError as exc:
        module.warn("The journal still lists the change, because {0} cannot be written or read: {1}".format(
            exc.filename or module.params["state_directory"], exc.strerror))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            component=dict(type="str", choices=[
                "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm-config", "kubeadm-patches", "k3s",
                "rke2"]),
            plan_of=dict(type="str"),
            step=dict(type="int"),
            tolerant=dict(type="bool", default=False),
            service=dict(type="dict", default={}, options=dict(unit=dict(type="str"), data_directory=dict(type="path"),
                                                               port=dict(type="int"))),
            state=dict(type="str", default="present", choices=["present", "restored"]),
            files=dict(type="list", elements="dict", default=[], options=dict(
                path=dict(type="path", required=True),
                content=dict(type="str", no_log=True),
                keep=dict(type="bool", default=False),
                sha256=dict(type="str", default=""),
                before=dict(type="str", no_log=True),
            )),
            flags=dict(type="list", elements="str", default=[]),
            flags_before=dict(type="list", elements="str", default=[]),
            restart=dict(type="bool", default=False),
            run_id=dict(type="str", default="manual"),
            state_directory=dict(type="path", default="/var/lib/outoftree-ccm"),
            timeout=dict(type="int", default=180),
            force=dict(type="bool", default=False),
            journal_copy=dict(type="str", no_log=True),
        ),
        required_one_of=[("component", "plan_of")],
        mutually_exclusive=[("component", "plan_of")],
        supports_check_mode=True,
    )
    try:
        directory = files.resolve(module.params["state_directory"])
        if not module.check_mode and module.params["state"] == "present":
            os.makedirs(directory, mode=0o700, exist_ok=True)
        with _journal.alone(directory, 0 if module.check_mode else module.params["timeout"]):
            copy = module.params["journal_copy"]
            journal = _journal.opened(directory, journal_copy.decode(copy) if copy else None, adopt=not module.check_mode)
            if module.params["component"] == "kubeadm-config":
                record_cluster(module, journal)
            else:
                apply(module, journal)
    except _journal.JournalRefused as exc:
        module.fail_json(msg=str(exc))
    except journal_copy.BadCopy as exc:
        module.fail_json(msg="the option journal_copy is not a copy of a journal: {0}".format(exc))
    except OSError as exc:
        place = exc.filename or module.params["state_directory"]
        after = "nothing else was changed on this host"
        # In the state restored, the journal is written last, so an error about its new file means that the files are
        # restored. An error of write(2) names no file.
        if module.params["state"] == "restored" and (exc.filename or "journal.json" + _journal.UNFINISHED).endswith(_journal.UNFINISHED):
            after = "the files are restored, but the journal still lists them. Fix this, then run again"
        module.fail_json(msg="cannot write {0}: {1}; {2}".format(place, exc.strerror, after))


def record_cluster(module, journal):
    """Record the ConfigMap's content, or remove its record. The ConfigMap is in the cluster and not on this host, so the
    result reports no change."""
    params = module.params
    if not module.check_mode:
        if params["state"] == "restored":
            for name in originals(module, journal, Component(module))[1]:  # every entry of kubeadm-config
                journal.forget(name)
        for item in params["files"] if params["state"] == "present" else []:
            journal.record(item["path"], "kubeadm-config", params["run_id"], base64.b64decode(item["before"] or ""),
                           base64.b64decode(item["content"]), 0o600, (0, 0), [])
    module.exit_json(changed=False, component="kubeadm-config", files=[], restarted_at="", waited=0.0, seconds=0.0)


def apply(module, journal):
    params, begun = module.params, time.monotonic()
    component = Component(module)
    if not module.check_mode:
        sweep(journal, component.name)
    restart, late = params["restart"] and bool(component.unit), False
    if params["state"] == "present":
        work, settled = planned(module, journal), []
        flags, flags_before = params["flags"], params["flags_before"]
    else:
        work, settled = originals(module, journal, component)
        flags, flags_before = params["flags"], params["flags_before"]
        if not params["files"]:  # without a plan
            flags = flags or noted_flags(journal, component.name)
            flags_before = component._flags(component.processes()[0]) if component.processes() else []
        late = not work and unsettled(component, settled, flags)
        restart = late and bool(component.unit)
    result = dict(
        changed=bool(work or restart),
        component=component.name,
        files=[dict(path=item[0], backup="", action="removed" if item[2] is None else "written") for item in work],
        restarted_at="", waited=0.0, seconds=0.0,
    )
    if module._diff:  # only then, because Ansible keeps results, and whole files do not belong in them
        result["diff"] = [dict(before_header=item[0], after_header=item[0], before=show(item[1], component.name),
                               after=show(item[2], component.name)) for item in work]
    if module.check_mode or not (work or settled or restart or params["state"] == "present"):
        module.exit_json(**result)
    if params["state"] == "present":
        for item, (path, before, after, mode, owner) in zip(result["files"], work):
            item["backup"] = journal.record(path, component.name, params["run_id"], before, after, mode, owner, flags_before,
                                            params["service"])
    else:
        for item, (path, before, *_rest) in zip(result["files"], work):
            item["backup"] = journal.keep(params["run_id"], path, before)
    if work or restart or late or params["state"] == "present":
        try:
            result["waited"] = settle(component, work, flags, flags_before, restart, params["force"])
        except Failed as failure:
            if params["state"] == "present":
                forget_undone(module, journal, work)
            result.update(seconds=round(time.monotonic() - begun, 1))
            fail(module, component, failure, result)
    if params["state"] == "restored":
        for name in settled + [item[0] for item in work]:
            journal.forget(name)
    result.update(restarted_at=component.restarted_at, seconds=round(time.monotonic() - begun, 1))
    module.exit_json(**result)


def sweep(journal, name):
    """Remove what killed runs left beside the component's files and in the journal's folder."""
    journal.sweep()
    for path, entry in journal.files.items():
        if entry["component"] == name and name != "kubeadm-config":
            with contextlib.suppress(files.Untrusted):
                remove(temporary(path))


if __name__ == "__main__":
    main()
