#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_image
short_description: Import a container image from an archive file into containerd or CRI-O on a node
description:
  - Use this module for nodes that cannot reach a registry. The archive (C(docker save), C(podman save)) is on the Ansible controller.
    The module copies and imports it only if the image is missing in the container runtime that the kubelet uses.
  - An image with the same name but another content counts as missing. The module compares the image ID with that in the archive.
  - k3s and RKE2 have their own containerd, which the module calls with their own C(ctr).
  - CRI-O has no command for an import. The module asks CRI-O where its storage is, and imports the image with C(skopeo), which the node needs.
  - The module searches for these programs in the system's directories, not in C(PATH), and runs them only if root alone can change them.
  - The module removes copies of the archive that killed runs left behind.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  name:
    description: Full reference of the image, as in a Pod.
    type: str
    required: true
  archive:
    description: Path of the archive on the Ansible controller.
    type: path
    required: true
  image_id:
    description: ID of the image in the archive. By default, it is read from the archive.
    type: str
  node_archive:
    description: Path of the archive on the node. The module's action plugin copies it there if needed.
    type: path
  containerd_namespace:
    description: The containerd namespace of the kubelet.
    type: str
    default: k8s.io
"""

EXAMPLES = r"""
- name: Import the runtime's image
  outoftree.ccm.ccm_image:
    name: localhost/outoftree-ccm:0.1.0
    archive: build/images/outoftree-ccm-0.1.0.tar
"""

RETURN = r"""
image_id:
  description: ID of the image in the archive.
  returned: always
  type: str
  sample: sha256:5f0c...
present:
  description: Whether the node has the image now.
  returned: always
  type: bool
  sample: true
"""

import glob
import os
import pwd
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.host import images

#: Name of the copy on the node, in one of Ansible's temporary folders.
COPY = "outoftree-ccm-image.tar"


def homes():
    """Return the home folders of the current user, and of the user who became root with sudo."""
    folders = [os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir]
    try:
        folders.append(pwd.getpwnam(os.environ.get("SUDO_USER", "")).pw_dir)
    except KeyError:
        pass
    return folders


def sweep(module):
    """Remove copies of archives that killed runs left behind."""
    for place in {module._remote_tmp.replace("~", folder, 1) for folder in homes()}:
        for path in glob.glob(os.path.join(glob.escape(place), "ansible-tmp-*", COPY)):
            if path != module.params["node_archive"]:
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def bring(module, store):
    """Import the archive if the kubelet's container runtime does not have the archive's image. Raises images.Failed."""
    params = module.params
    if params["image_id"] in store.ids(params["name"]):
        module.exit_json(changed=False, present=True, image_id=params["image_id"])
    if module.check_mode or not params["node_archive"]:
        module.exit_json(changed=True, present=False, image_id=params["image_id"])
    if not os.path.exists(params["node_archive"]):
        raise images.Failed("the archive {0} was not copied to the node".format(params["node_archive"]))
    reason = store.load(params["node_archive"], params["name"])
    if reason is not None:
        raise images.Failed("{0} cannot import {1}: {2}".format(store.title, params["archive"], reason))
    if params["image_id"] not in store.ids(params["name"]):
        raise images.Failed("{0} was imported, but it has no image named {1}. Set ccm_runtime_image to the name of the image "
                            "in the archive".format(params["archive"], params["name"]))
    module.exit_json(changed=True, present=True, image_id=params["image_id"])


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", required=True),
            archive=dict(type="path", required=True),
            image_id=dict(type="str"),
            node_archive=dict(type="path"),
            containerd_namespace=dict(type="str", default="k8s.io"),
        ),
        supports_check_mode=True,
    )
    params = module.params
    if not params["image_id"]:
        module.fail_json(msg="image_id is missing: run this module through its action plugin")
    if not module.check_mode:
        sweep(module)
    try:
        bring(module, images.of_kubelet(params["containerd_namespace"]))
    except images.Failed as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
