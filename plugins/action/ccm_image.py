# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls the module once to find out whether the node has the image. If not, copies the archive to the node and calls
the module again, except in check mode."""

from __future__ import annotations

import json
import tarfile

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


def image_id(path, name):
    """Return the ID (digest of its config) of the named image in an archive of 'docker save' or 'podman save'. Raises AnsibleError."""
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile("manifest.json")
            entries = json.load(member) if member else []
    except FileNotFoundError as exc:
        raise AnsibleError("there is no image archive {0} on the Ansible controller. Build it, or unset "
                           "ccm_runtime_image_archive to pull {1} from its registry".format(path, name)) from exc
    except (OSError, KeyError, ValueError, tarfile.TarError) as exc:
        raise AnsibleError("{0} is not an image archive of 'docker save' or 'podman save': {1}".format(path, exc)) from exc
    named = [entry for entry in entries if name in (entry.get("RepoTags") or [])]
    if not named:
        tags = sorted(tag for entry in entries for tag in entry.get("RepoTags") or [])
        raise AnsibleError("{0} has no image named {1}. Set ccm_runtime_image to one of its images: {2}".format(
            path, name, ", ".join(tags) or "none has a name"))
    digest = named[0]["Config"].rsplit("/", 1)[-1]
    return "sha256:{0}".format(digest[:-5] if digest.endswith(".json") else digest)


class ActionModule(ActionBase):
    """Action plugin of ccm_image."""

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if not arguments.get("name") or not arguments.get("archive"):
            raise AnsibleError("ccm_image needs 'name' and 'archive'")
        path = self._loader.path_dwim(arguments["archive"])
        arguments["archive"] = path
        arguments["image_id"] = arguments.get("image_id") or image_id(path, arguments["name"])
        state = self._execute("outoftree.ccm.ccm_image", arguments, task_vars)
        if state.get("failed") or state.get("present") or self._task.check_mode:
            result.update(state)
            return result
        folder = self._make_tmp_path()
        try:
            arguments["node_archive"] = self._connection._shell.join_path(folder, "outoftree-ccm-image.tar")
            self._transfer_file(path, arguments["node_archive"])
            self._fixup_perms2((folder, arguments["node_archive"]))
            result.update(self._execute("outoftree.ccm.ccm_image", arguments, task_vars))
        finally:
            self._remove_tmp_path(folder)
        return result

    def _execute(self, name, arguments, task_vars):
        return self._execute_module(module_name=name, module_args=arguments, task_vars=task_vars)
