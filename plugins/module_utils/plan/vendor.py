# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a vendor's own cloud-controller-manager is rolled out: its image, its environment, and the missing settings. Pure; runs on the Ansible controller.

A vendor is the content of roles/ccm_runtime/files/vendors/VENDOR.yml. This module knows only the keys of credentials, not their values.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions


def rollout(vendor: Dict[str, Any], kubernetes: str, image: str = "", configured: bool = False, credentials: Collection[str] = (),
            environment: Collection[str] = (), own_args: bool = False) -> Dict[str, Any]:
    """Return what the rollout of a vendor's controller needs, and the problems that prevent it.

    C(kubernetes) is the cluster's version in any form, '' if unknown. C(image) is the image that will be rolled out. C(configured): there
    is a configuration file. C(credentials) are the keys of the Secret, C(environment) the names of the user's own variables, and
    C(own_args): the user replaces all arguments.
    """
    minor = versions.parse(kubernetes)
    reads_config = vendor.get("config", "required") == "required" or (vendor.get("config") == "optional" and configured)
    keys = vendor.get("credentials", {})
    # A variable of the user replaces the vendor's variable of the same name, so the Secret does not need the key with
    # its value.
    wanted = [key for key, about in keys.items() if about["env"] not in environment]
    problems = [] if image else [_no_image(vendor, minor)]
    if reads_config and not configured and not own_args:
        problems.append("it requires a configuration file, set ccm_runtime_cloud_config to its content")
    if configured and not reads_config:
        problems.append("it reads no configuration file, remove ccm_runtime_cloud_config")
    missing = [key for key in wanted if keys[key].get("required") and key not in credentials]
    if missing:
        problems.append("it requires credentials, set these keys of ccm_runtime_credentials: " + ", ".join(missing))
    unknown = [key for key in credentials if keys and key not in keys]
    if unknown:
        problems.append("it does not read these keys of ccm_runtime_credentials: {0} (it reads {1})".format(
            ", ".join(unknown), ", ".join(keys)))
    return {
        "minor": versions.show(minor) if minor else "",
        "image": vendor.get("image") or (_images(vendor).get(minor, "") if minor else ""),
        "reads_config": reads_config,
        "from_secret": [{"env": keys[key]["env"], "key": key} for key in wanted if key in credentials],
        "problems": problems,
    }


def _images(vendor: Dict[str, Any]) -> Dict[versions.Version, str]:
    """Return the vendor's images by Kubernetes minor."""
    by_version = {versions.parse(minor): image for minor, image in vendor.get("images", {}).items()}
    return {minor: image for minor, image in by_version.items() if minor}


def _no_image(vendor: Dict[str, Any], minor: Optional[versions.Version]) -> str:
    if not minor:
        return "the cluster's Kubernetes version is unknown, set ccm_runtime_kubernetes_version"
    return "it has no image for Kubernetes {0}, set ccm_runtime_image (nearest: {1})".format(
        versions.show(minor), ", ".join(_nearest(_images(vendor), minor)))


def _nearest(images: Dict[versions.Version, str], minor: versions.Version) -> List[str]:
    """Return the images of the nearest older and the nearest newer minor of Kubernetes, each as C(MINOR: IMAGE), as far as they exist."""
    older = [each for each in sorted(images) if each < minor][-1:]
    newer = [each for each in sorted(images) if each > minor][:1]
    return ["{0}: {1}".format(versions.show(each), images[each]) for each in older + newer]
