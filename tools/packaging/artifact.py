# SPDX-License-Identifier: Apache-2.0
"""Makes the collection in the two forms that tools need: the tarball for Galaxy, and a tree for `ansible-test`."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

from .environments import BUILD, REPOSITORY, variables

#: What `ansible-test` checks. The runtime is a separate Python package: ruff, mypy and import-linter check it.
TREE = (
    "COPYING",
    "LICENSE",
    "README.md",
    "changelogs",
    "docs/inventories",
    "docs/reference/kubernetes-versions.md",
    "extensions",
    "galaxy.yml",
    "meta",
    "playbooks",
    "plugins",
    "requirements.yml",
    "roles",
    "tools/docs/kubernetes_versions.py",
    "tests/drawn.py",
    "tests/sanity",
    "tests/systemd.py",
    "tests/unit/plugins",
)


def tracked(*places: str) -> list[str]:
    """Return the paths of the checkout's files that git knows and that exist."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *places], cwd=REPOSITORY, capture_output=True, check=True)
    return [path for path in listed.stdout.decode().split("\0") if path and (REPOSITORY / path).is_file()]


def tree(folder: Path) -> Path:
    """Copy the collection to FOLDER/ansible_collections, as `ansible-test` requires it; return the copy's folder."""
    root = folder / "ansible_collections" / "outoftree" / "ccm"
    shutil.rmtree(root, ignore_errors=True)
    for path in tracked(*TREE):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, target)
    return root


def tarball(folder: Path, environment: Path) -> Path:
    """Return the tarball that `ansible-galaxy collection build` makes of the checkout."""
    program = environment / "bin" / "ansible-galaxy"
    arguments = ["collection", "build", "--force", "--output-path", str(folder), str(REPOSITORY)]
    done = subprocess.run([program, *arguments], env=variables(environment), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("outoftree-ccm-*.tar.gz")
    return made


def repacked(collection: str, folder: Path) -> Path:
    """Make a tarball of a collection that is installed in build/venv, because tests cannot use a Galaxy server.

    The package `ansible` leaves out some folders, so the tarball's lists name only the files that are there.
    """
    namespace, name = collection.split(".")
    (root,) = (BUILD / "venv" / "lib").glob(f"python3*/site-packages/ansible_collections/{namespace}/{name}")
    manifest = json.loads((root / "MANIFEST.json").read_text())
    files = json.loads((root / "FILES.json").read_text())
    files["files"] = [entry for entry in files["files"] if (root / entry["name"]).exists()]
    listed = json.dumps(files).encode()
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(listed).hexdigest()
    made = folder / f"{namespace}-{name}-{manifest['collection_info']['version']}.tar.gz"
    with tarfile.open(made, "w:gz") as tar:
        for entry, content in (("MANIFEST.json", json.dumps(manifest).encode()), ("FILES.json", listed)):
            info = tarfile.TarInfo(entry)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for entry in (file["name"] for file in files["files"] if file["name"] != "."):
            tar.add(root / entry, entry, recursive=False)
    return made


def install(home: Path, environment: Path) -> Path:
    """Install the collection and its dependencies as a user with this home folder; return the folder of collections."""
    tarballs = [repacked("kubernetes.core", home), tarball(home, environment)]
    arguments = ["collection", "install", "--offline", *map(str, tarballs)]
    program = environment / "bin" / "ansible-galaxy"
    of_user = variables(environment) | {"HOME": str(home)}
    done = subprocess.run([program, *arguments], env=of_user, cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return home / ".ansible" / "collections" / "ansible_collections"
