# SPDX-License-Identifier: Apache-2.0
"""`make ee`: build the execution environment of docs/how-to, on the bed's Python image, and use it.

Nothing is asked of a container registry or a Galaxy server: base image and kubernetes.core are those that are here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from bed import images
from bed.progress import Progress

from . import artifact, environments
from .environments import REPOSITORY

TAG = "localhost/outoftree-ccm-ee:test"
DEFINITION = REPOSITORY / "docs" / "how-to" / "execution-environment.yml"
# As the bed builds images; pip's configuration is the machine's, where it has one.
_PODMAN = ("podman", "--runtime", "runc")
_BUILD = (*_PODMAN, "build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--quiet")
_MOUNTS = ("/etc/ssl/certs", "/etc/pip.conf")


def context(folder: Path, user: Path) -> Path:
    """What ansible-builder makes of the definition, with kubernetes.core from a file."""
    artifact.tarball(folder, user)
    kubernetes = artifact.repacked("kubernetes.core", folder).name
    definition = yaml.safe_load(DEFINITION.read_text())
    collections = definition["dependencies"]["galaxy"]["collections"]
    collections[collections.index({"name": "kubernetes.core"})] = {"name": f"collections/{kubernetes}", "type": "file"}
    definition["additional_build_files"].append({"src": kubernetes, "dest": "collections"})
    (folder / "execution-environment.yml").write_text(yaml.safe_dump(definition))
    builder = Path(sys.executable).with_name("ansible-builder")
    run(str(builder), "create", "--verbosity", "1", cwd=folder)
    return folder / "context"


def build(folder: Path) -> None:
    arguments = {
        "EE_BASE_IMAGE": images.PYTHON_IMAGE,
        "PYCMD": "/usr/bin/python3",
        "ANSIBLE_GALAXY_CLI_COLLECTION_OPTS": "--offline",
    }
    options = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    options += [word for path in _MOUNTS if os.path.exists(path) for word in ("--volume", f"{path}:{path}:ro")]
    run(*_BUILD, *options, "--tag", TAG, str(folder))


def use() -> None:
    """What a user does in it, without a network."""
    inside = (*_PODMAN, "run", "--rm", "--network", "none")
    listed = json.loads(run(*inside, TAG, "ansible-doc", "--type", "role", "--list", "--json", "outoftree.ccm"))
    roles = {"outoftree.ccm.ccm_install", "outoftree.ccm.ccm_runtime"}
    assert set(listed) == roles, listed
    inventory = REPOSITORY / "docs" / "inventories" / "kubeadm.yml"
    run(*inside, "--volume", f"{inventory}:/runner/inventory.yml:ro", TAG,
        "ansible-playbook", "--syntax-check", "-i", "inventory.yml", "outoftree.ccm.preflight")  # fmt: skip
    run(*inside, TAG, "python3", "-c", "import kubernetes")


def run(*command: str, cwd: Path = REPOSITORY) -> str:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\n{' '.join(command)} failed with exit status {done.returncode}")
    return done.stdout


def main() -> None:
    images.ensure_python(Progress())
    user = environments.of_a_user()
    with tempfile.TemporaryDirectory() as scratch:
        build(context(Path(scratch), user))
    try:
        use()
    finally:
        run("podman", "image", "rm", TAG)
    print("the execution environment was built and used; its image is removed")


if __name__ == "__main__":
    main()
