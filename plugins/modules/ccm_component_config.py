#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_component_config
short_description: Put the planned configuration of one Kubernetes component in place, behind a health gate
description:
  - Writes the files that P(outoftree.ccm.migration_plan#filter) planned for one component on this host, and waits until
    the component runs with them and is healthy. When it does not come up in time, the old files are put back, the old
    configuration is waited for, and the task fails with the component's own last log lines.
  - A static Pod counts as updated when a I(new) process of the component runs with exactly the planned flags and its
    health endpoint on this host answers, twice in a row. Asking the endpoint alone could be answered by the old process.
  - Every file is backed up once per run below O(state_directory), outside the folder the kubelet reads. The journal there
    keeps what each file was before the first change, so that O(state=restored) restores it byte for byte.
  - A file is written only when it still is what the plan was made from, and only by a path that root alone decides about.
  - It may be killed at any time. What was half-written is removed by the next call, a restart that is still missing is made
    up for, and while a module goes on that nobody waits for any more, the next one waits for it.
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
      - V(kubeadm-config) only takes down what M(outoftree.ccm.ccm_kubeadm_config) is about to change in the cluster, so
        that it can be undone; nothing on the host but the journal is written.
      - V(kubeadm-patches) are files that only the next C(kubeadm upgrade) reads, so nothing is waited for.
      - V(k3s) and V(rke2) are restarted as a whole.
    type: str
    required: true
    choices: [kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubeadm-config, kubeadm-patches, k3s, rke2]
  service:
    description:
      - The systemd service to restart for the component. Without one a static Pod's manifest is written, which the kubelet takes up
        by itself.
      - With O(state=restored) the journal knows it.
    type: dict
    default: {}
    suboptions:
      unit:
        description: Name of the unit. For V(kubelet) it may be left out.
        type: str
      data_directory:
        description: Where k3s or RKE2 keeps its data, certificates of its API server among them.
        type: path
      port:
        description: The port of the API server of k3s or RKE2 on this host, V(6443) when it is not given.
        type: int
  state:
    description:
      - V(present) writes O(files).
      - V(restored) restores every file of the component that the journal knows, as O(files) says (the plan of
        P(outoftree.ccm.rollback_plan#filter)). Those that O(files) does not name get their original bytes, if nobody else has
        written them since. A copy of what is overwritten or removed is kept like every other backup.
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
        description: Path of the file. A symbolic link stays one, its target is written.
        type: path
        required: true
      content:
        description:
          - The new content in base64, so that every byte is kept. Required with O(state=present).
          - With O(state=restored) only for files that somebody else has written since; the others are restored from the journal.
          - For V(k3s) and V(rke2) with the placeholders that M(outoftree.ccm.ccm_component_flags_info) returns instead of secrets;
            the values are taken from the file as it is.
        type: str
      keep:
        description: With O(state=restored), leave the file as it is, and forget it in the journal. There is nothing to undo in it any more.
        type: bool
        default: false
      sha256:
        description: SHA-256 of the content that the plan was made from, empty for a file that does not exist.
        type: str
        default: ''
      before:
        description: The content that the plan was made from in base64. Only for O(component=kubeadm-config).
        type: str
  flags:
    description:
      - The managed flags that the new process must show, in order. They are those that the new, or restored, files give it.
      - With O(state=restored) and without O(files), they default to those that the journal has noted before its first run.
    type: list
    elements: str
    default: []
  flags_before:
    description: The managed flags before the change, which a restored process must show.
    type: list
    elements: str
    default: []
  restart:
    description: Restart the service even when no file changes, because it runs with other flags than its files say.
    type: bool
    default: false
  run_id:
    description: Name of the folder of this run's backups.
    type: str
    default: manual
  state_directory:
    description: Where journal and backups are kept.
    type: path
    default: /var/lib/outoftree-ccm
  timeout:
    description: Seconds to wait for the component, again for the restored one, and before that for another run on this host.
    type: int
    default: 180
  force:
    description: With O(state=restored), put the original over files that someone else has changed since and that O(files) does not name.
    type: bool
    default: false
  journal_copy:
    description:
      - A copy of this host's journal, as M(outoftree.ccm.ccm_journal_copy) returns it. It takes the place of a journal that is missing,
        empty, unreadable or damaged, and is ignored otherwise. An unreadable journal is moved aside, and stays in O(state_directory).
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

- name: Put every file of the kubelet back
  outoftree.ccm.ccm_component_config:
    component: kubelet
    state: restored
"""

RETURN = r"""
files:
  description: The files that were (in check mode, would be) written or removed.
  returned: always
  type: list
  elements: dict
  sample:
    - path: /etc/default/kubelet
      backup: /var/lib/outoftree-ccm/backups/20261121T091500Z/etc__default__kubelet
      action: written
component:
  description: The component.
  returned: always
  type: str
  sample: kubelet
restarted_at:
  description: When the kubelet was restarted, by this host's clock; empty when it was not.
  returned: always
  type: str
  sample: "2026-11-21T09:15:03Z"
waited:
  description: Seconds until the component was healthy.
  returned: always
  type: float
  sample: 9.5
seconds:
  description: Seconds the whole change took on this host.
  returned: always
  type: float
  sample: 11.2
restored:
  description: Whether the old configuration was put back and serves again.
  returned: failure
  type: bool
  sample: true
"""

import base64
import contextlib
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, journal as _journal, journal_copy, logs, secrets
from ansible_collections.outoftree.ccm.plugins.module_utils.host.component import WHOLE, Component, Failed, read, remove, show, temporary


def planned(module, journal):
    """Return [(path, before, after, mode, owner)] of the files that are not yet as planned; refuse what changed since."""
    work = []
    for item in module.params["files"]:
        path = item["path"]
        if item["content"] is None:
            module.fail_json(msg="{0}: 'content' is missing; without it a file can only be restored (state: restored)".format(path))
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
    """Return the same for what the journal knows of the component, and the names of files that need no write any more.

    The plan says what becomes of each file: its original bytes, or a content where somebody else has written it since.
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
                             "{1}: merge it by hand, or set 'force' to put the original back".format(
                                 name, os.path.join(journal.directory, original["copy"])))
        work.append((name, before, after, mode, owner))
    return work, settled


def noted_flags(journal, name):
    """Return the flags that a component had before the first run that the journal knows, for want of a plan."""
    entries = [entry for entry in journal.files.values() if entry["component"] == name]
    return min(entries, key=lambda entry: entry["written"][0]["run"])["original"]["flags"] if entries else []


def revealed(name, content, before):
    """Return a planned content in base64 as bytes, with the secrets of the file as it is."""
    after = base64.b64decode(content)
    return secrets.reveal(after.decode("utf-8"), (before or b"").decode("utf-8", "replace")).encode("utf-8") if name in WHOLE else after


def refuse(module, path):
    module.fail_json(msg="{0} was changed after the plan was made, so nothing was written on this host for {1}: run again to plan with its "
                     "new content".format(path, module.params["component"]))


def settle(component, work, flags, flags_before, restart):
    """Write the files and wait; put them back and raise Failed with the reason when the component does not come up."""
    since = time.time() - 1
    folders = logs.pod_directories(component.name, component.logs)
    old = {process.identity for process in component.processes()} if work or restart else set()
    written = []
    try:
        for path, before, after, mode, owner in work:
            component.write(path, after, mode, owner)
            written.append((path, before, mode, owner))
        if work or restart:
            component.take_up([item[0] for item in work])
        return component.wait(flags, old, folders)
    except (Failed, OSError) as exc:
        log = component.log(since)
        restored = restore(component, written, flags_before, restart)
        raise Failed(str(exc), log, restored) from exc


def restore(component, written, flags_before, restart):
    """Put the old files back and say whether the old configuration serves again."""
    try:
        for path, before, mode, owner in written:
            component.write(path, before, mode, owner)
        if written or restart:
            component.take_up([item[0] for item in written])
            component.wait(flags_before, set(), logs.pod_directories(component.name, component.logs))
        return True
    except (Failed, OSError):
        return False


def unsettled(component, settled, flags):
    """Whether files are back of which the component does not know yet."""
    return bool(settled) and component.name not in ("kubeadm-config", "kubeadm-patches") and not component.runs(flags, settled)


def fail(module, component, failure, work, result):
    reason, log, restored = failure.args
    if module.params["state"] == "restored" and not work:
        after = "Its files are the old ones again: look at it on that host now."
    elif not work:
        after = "No file was changed now; after an earlier migration, playbooks/rollback.yml puts the old configuration back."
    elif restored:
        after = "The old configuration was put back and serves again."
    else:
        after = "The old configuration was put back but {0} does not serve yet: look at it on that host now.".format(component.name)
    words = "\n".join(["Its last log lines:"] + ["  " + line for line in log]) if log else "It logged nothing."
    module.fail_json(
        msg="{0} on {1} did not come up with the new configuration: {2}. {3} {4}".format(
            component.name, os.uname().nodename, reason, after, words),
        restored=restored, **dict(result, changed=not restored))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            component=dict(type="str", required=True, choices=[
                "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm-config", "kubeadm-patches", "k3s",
                "rke2"]),
            service=dict(type="dict", default={}, options=dict(unit=dict(type="str"), data_directory=dict(type="path"),
                                                               port=dict(type="int"))),
            state=dict(type="str", default="present", choices=["present", "restored"]),
            files=dict(type="list", elements="dict", default=[], options=dict(
                path=dict(type="path", required=True),
                content=dict(type="str"),
                keep=dict(type="bool", default=False),
                sha256=dict(type="str", default=""),
                before=dict(type="str"),
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
        module.fail_json(msg="the option journal_copy is no copy of a journal: {0}".format(exc))
    except OSError as exc:
        place = exc.filename or module.params["state_directory"]
        after = "nothing else was changed on this host"
        # Of a restore only the journal is written here, when all else is done. An error of write(2) names no file.
        if module.params["state"] == "restored" and (exc.filename or "journal.json" + _journal.UNFINISHED).endswith(_journal.UNFINISHED):
            after = "the files are restored, and only the journal still names them: fix that, then run again"
        module.fail_json(msg="cannot write {0}: {1}; {2}".format(place, exc.strerror, after))


def record_cluster(module, journal):
    """Take down, or forget, the ConfigMap's content. It is the cluster's change, so this host reports none."""
    params = module.params
    if not module.check_mode:
        if params["state"] == "restored":
            for name in originals(module, journal, Component(module))[1]:  # all of them
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
        diff=[dict(before_header=item[0], after_header=item[0], before=show(item[1], component.name),
                   after=show(item[2], component.name)) for item in work],
    )
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
            result["waited"] = settle(component, work, flags, flags_before, restart)
        except Failed as failure:
            if params["state"] == "present":
                for path, *_rest in work:
                    journal.undo(path, read(path))
            result["seconds"] = round(time.monotonic() - begun, 1)
            fail(module, component, failure, work, result)
    if params["state"] == "restored":
        for name in settled + [item[0] for item in work]:
            journal.forget(name)
    result.update(restarted_at=component.restarted_at, seconds=round(time.monotonic() - begun, 1))
    module.exit_json(**result)


def sweep(journal, name):
    """Remove what runs that were killed have left beside the component's files, and in the journal's folder."""
    journal.sweep()
    for path, entry in journal.files.items():
        if entry["component"] == name and name != "kubeadm-config":
            with contextlib.suppress(files.Untrusted):
                remove(temporary(path))


if __name__ == "__main__":
    main()
