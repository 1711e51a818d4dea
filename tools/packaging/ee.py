# SPDX-License-Identifier: Apache-2.0
"""`make ee`: builds the execution environment of docs/how-to, on the test bed's Python image, and runs commands in it.

It needs no container registry and no Galaxy server: base image and kubernetes.core come from this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from bed import images, machines
from bed.progress import Progress

from . import artifact, environments
from .environments import REPOSITORY

TAG = "localhost/outoftree-ccm-ee:test"
DEFINITION = REPOSITORY / "docs" / "how-to" / "execution-environment.yml"
# podman and its options for a build, as in the test bed (bed/images.py).
_PODMAN = ("podman", "--runtime", "runc")
_BUILD = (*_PODMAN, "build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--quiet")
# Keep no stage of the build: containers of builds that were killed would still use its layers, and the image could not
# be removed with them.
_NOTHING_LEFT = ("--layers=false", "--force-rm")
# The build uses this machine's certificates, and its configuration of pip if there is one.
_MOUNTS = ("/etc/ssl/certs", "/etc/pip.conf")


def context(folder: Path, user: Path) -> Path:
    """Return the build context that ansible-builder makes from the definition, with kubernetes.core from a file."""
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
    run(*_BUILD, *_NOTHING_LEFT, *options, "--tag", TAG, str(folder))


def use() -> None:
    """Use the environment as a user does, without a network. Raises Failed or AssertionError."""
    inside = (*_PODMAN, "run", "--rm", "--network", "none", *machines.limits())
    listed = json.loads(run(*inside, TAG, "ansible-doc", "--type", "role", "--list", "--json", "outoftree.ccm"))
    roles = {"outoftree.ccm.ccm_install", "outoftree.ccm.ccm_runtime"}
    assert set(listed) == roles, listed
    inventory = REPOSITORY / "docs" / "inventories" / "kubeadm.yml"
    run(*inside, "--volume", f"{inventory}:/runner/inventory.yml:ro", TAG,
        "ansible-playbook", "--syntax-check", "-i", "inventory.yml", "outoftree.ccm.preflight")  # fmt: skip
    run(*inside, TAG, "python3", "-c", "import kubernetes")


class Failed(Exception):
    """A command failed; the message has the command and its output."""


def run(*command: str, cwd: Path = REPOSITORY) -> str:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{done.stdout}{done.stderr}\n{' '.join(command)} failed with exit status {done.returncode}")
    return done.stdout


def main() -> None:
    images.ensure_python(Progress())
    user = environments.of_a_user()
    begun = time.monotonic()
    with contextlib.ExitStack() as then:
        scratch = then.enter_context(tempfile.TemporaryDirectory())
        build(context(Path(scratch), user))
        then.callback(run, "podman", "image", "rm", TAG)
        print(f"the execution environment was built in {time.monotonic() - begun:.0f} s", flush=True)
        use()
        print("playbooks and roles of the collection are found in it, and the library kubernetes is", flush=True)
    print("its image is removed")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        # If removing the image fails as well, print the first failure, too.
        sys.exit("\n".join(str(each) for each in (failure.__context__, failure) if each))
