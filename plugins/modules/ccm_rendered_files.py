#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_rendered_files
short_description: Keep rendered files in a folder, without touching other files there
description:
  - Writes files to a folder. C(.outoftree-ccm.json) in the folder records the paths and the digests of the files that the module wrote.
  - The module never replaces or removes a file that somebody else wrote, or changed since. If that were necessary, the module fails before it
    writes anything, and names every such file.
  - The module removes files that it wrote before and that O(files) does not have any more.
version_added: 1.0.0
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
  directory:
    description: The folder. It is created if it does not exist.
    type: path
    required: true
  files:
    description: The text of each file by its path in the folder.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Write what the filter rendered
  outoftree.ccm.ccm_rendered_files:
    directory: /srv/git/cluster/ccm
    files: "{{ objects | outoftree.ccm.rendered_files(secret) }}"
  delegate_to: localhost
"""

RETURN = r"""
written:
  description: Paths of the files that were written, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [controller/daemonset.yaml]
removed:
  description: Paths of the files that were removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [kubeadm/cluster-configuration.yaml]
"""

import hashlib
import json
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

NOTES = ".outoftree-ccm.json"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def safe(path):
    """Return whether the path stays in the folder, and is not that of the file with this module's notes."""
    parts = path.split("/")
    return bool(path) and not os.path.isabs(path) and not {"", ".", ".."} & set(parts) and path != NOTES


def read(path):
    """Return the content of a file, None if there is none. Raises OSError if it is not a file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def noted(folder):
    """Return the digest of each file that this module wrote, by its path. Raises ValueError for notes that cannot be read."""
    data = read(os.path.join(folder, NOTES))
    if data is None:
        return {}
    try:
        return dict(json.loads(data.decode("utf-8"))["files"])
    except (ValueError, KeyError, TypeError) as exc:
        raise ValueError("its file {0} cannot be read ({1}). If the folder has only rendered files, remove the folder, and run "
                         "again".format(NOTES, exc)) from exc


def leads_out(folder, path):
    """Return the path up to its first symbolic link, None if it has none."""
    place = folder
    for part in path.split("/"):
        place = os.path.join(place, part)
        if os.path.islink(place):
            return os.path.relpath(place, folder)
    return None


def plan(folder, wanted):
    """Return {path: (content now, content to write)}, the paths to remove, and a text for each file that is in the way.
    Raises OSError and ValueError."""
    before, write, remove, foreign = noted(folder), {}, [], []
    for path in sorted(set(wanted) | set(before)):
        link = leads_out(folder, path)
        if link is not None:
            foreign.append("{0} (a symbolic link)".format(link))
            continue
        content = read(os.path.join(folder, path))
        after = wanted.get(path)
        if content == after:
            continue
        if content is not None and path not in before:
            foreign.append("{0} (not rendered by this playbook)".format(path))
        elif content is not None and digest(content) != before[path]:
            foreign.append("{0} (changed since it was rendered)".format(path))
        elif after is None:
            remove.append(path)
        else:
            write[path] = (content, after)
    return write, remove, sorted(set(foreign))


def replace(module, path, data):
    handle, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chmod(name, 0o644)
    module.atomic_move(name, path)


def carry_out(module, folder, wanted, write, remove):
    for path, contents in write.items():
        os.makedirs(os.path.dirname(os.path.join(folder, path)), mode=0o755, exist_ok=True)
        replace(module, os.path.join(folder, path), contents[1])
    for path in remove:
        os.remove(os.path.join(folder, path))
        parent = os.path.dirname(os.path.join(folder, path))
        if parent != folder and not os.listdir(parent):
            os.rmdir(parent)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    notes = {"files": {path: digest(data) for path, data in sorted(wanted.items())}}
    replace(module, os.path.join(folder, NOTES), (json.dumps(notes, indent=2) + "\n").encode("utf-8"))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            directory=dict(type="path", required=True),
            files=dict(type="dict", required=True),
        ),
        supports_check_mode=True,
    )
    folder = os.path.abspath(module.params["directory"])
    bad = sorted(path for path in module.params["files"] if not safe(path))
    if bad:
        module.fail_json(msg="these paths do not stay in the folder: {0}".format(", ".join(bad)))
    wanted = {path: text.encode("utf-8") for path, text in module.params["files"].items()}
    try:
        write, remove, foreign = plan(folder, wanted)
        if foreign:
            module.fail_json(msg="{0} has files of somebody else, and nothing was written: {1}. Choose another folder, or move them away"
                             .format(folder, ", ".join(foreign)))
        changed = bool(write or remove)
        if changed and not module.check_mode:
            carry_out(module, folder, wanted, write, remove)
    except (OSError, ValueError) as exc:
        module.fail_json(msg="cannot keep rendered files in {0}: {1}".format(folder, exc))
    result = dict(changed=changed, written=sorted(write), removed=remove)
    if module._diff:
        result["diff"] = [
            dict(before_header=path, after_header=path, before=(before or b"").decode("utf-8", "replace"), after=after.decode("utf-8"))
            for path, (before, after) in write.items()]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
