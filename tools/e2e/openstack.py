# SPDX-License-Identifier: Apache-2.0
"""OpenStack's services as the cloud of the cluster on which the specs run, and the variables with which the collection
rolls out a controller for them: this project's runtime, or cloud-provider-openstack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bed import images, paths
from bed.cluster import Bed
from bed.documents import RUNTIME_IMAGE
from bed.errors import BedError
from bed.progress import Progress

VENDOR = "openstack"
#: The folder of the services' data, apart from that of `make openstack`.
FOLDER = paths.BUILD / "openstack-for-e2e"
SECONDS = 1800


def start(bed: Bed) -> None:
    """Start the services, with a server for each machine of the bed."""
    _rig("up", "--bed", bed.plan.name)


def stop() -> None:
    _rig("down")


def variables(bed: Bed, column: str, progress: Progress) -> Path:
    """Write the variables for the controller of a column to a file that only its owner can read, and return the file.
    Both controllers get the same cloud.conf."""
    chosen = {
        "ccm_runtime_cloud_config": (FOLDER / "cloud.conf").read_text(),
        "ccm_runtime_credentials": {"ca.crt": (FOLDER / "tls/ca.crt").read_text()},
        "ccm_runtime_cluster_cidr": bed.plan.pod_cidr,
    }
    if column == "openstack-theirs":
        chosen |= {
            "ccm_runtime_vendor": VENDOR,
            "ccm_runtime_image": images.VENDORS[VENDOR].image,  # the vendor has none for Kubernetes 1.37 yet
            "ccm_runtime_image_archive": str(images.ensure_vendor(VENDOR, progress)),
        }
    else:
        chosen |= {
            "ccm_runtime_cloud_provider": "openstack",
            "ccm_runtime_cloud_config_path": "/etc/config/cloud.conf",  # cloud.conf names ca.crt in this folder
            "ccm_runtime_image": RUNTIME_IMAGE,
            "ccm_runtime_image_archive": str(images.RUNTIME_ARCHIVE),
        }
    file = bed.folder / f"{column}.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(chosen))
    return file


def _rig(*arguments: str) -> None:
    folders = ":".join(str(paths.REPOSITORY / folder) for folder in ("tools/bed", "tools/clouds/openstack"))
    environment = {**os.environ, "PYTHONPATH": folders, "OUTOFTREE_RIG": str(FOLDER)}
    command = [sys.executable, "-m", "rig", *arguments]
    if subprocess.run(command, env=environment, timeout=SECONDS, check=False).returncode:
        raise BedError(f"the OpenStack services: `rig {' '.join(arguments)}` failed")
