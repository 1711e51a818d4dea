# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of this host's container runtime: containerd or CRI-O, whichever the kubelet uses.

It uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
from typing import List, Optional, Tuple, Union

from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files, processes, settings

#: Socket of the containerd of k3s and RKE2, and its clients. k3s has ctr built in, RKE2 unpacks one.
RANCHER_SOCKET = "/run/k3s/containerd/containerd.sock"
RANCHER_CLIENTS = (["k3s", "ctr"], ["/usr/local/bin/k3s", "ctr"], ["/opt/bin/k3s", "ctr"], ["/var/lib/rancher/rke2/bin/ctr"], ["ctr"])


class Failed(Exception):
    """The images cannot be read or changed. The text says why, and what to do."""


def of_kubelet(namespace: str) -> Union[Containerd, CriO]:
    """Return the images of the running kubelet's container runtime. Without a unit named kubelet (k3s, RKE2), that is containerd."""
    kubelet = processes.of_unit("kubelet", "kubelet")
    endpoint = settings.kubelet_settings(kubelet.argv)["runtime_endpoint"] if kubelet else ""
    path = endpoint[len("unix://"):] if endpoint.startswith("unix://") else endpoint
    return CriO(path) if os.path.basename(path) == "crio.sock" else Containerd(namespace)


def installed(program: str) -> bool:
    """Return whether a program is installed that root alone can change."""
    try:
        return bool(files.program(program) if os.path.isabs(program) else files.find_program(program))
    except OSError:
        return False


class Containerd:
    """containerd's images in one of its namespaces."""

    title = "containerd"

    def __init__(self, namespace: str) -> None:
        self.command = ["ctr"]
        if os.path.exists(RANCHER_SOCKET):
            client = next((command for command in RANCHER_CLIENTS if installed(command[0])), ["ctr"])
            self.command = client + ["--address", RANCHER_SOCKET]
        self.command = self.command + ["-n", namespace]

    def ids(self, name: str) -> List[str]:
        """Return the IDs (digests of the configs) of the images with a name. Raises Failed."""
        listed = self._run("images", "ls", "name=={0}".format(name))
        if listed.returncode != 0:
            raise Failed("cannot list containerd's images: {0}. Install ctr on the node, and run as root (--become)".format(
                listed.stderr.strip()))
        digests = [line.split()[2] for line in listed.stdout.splitlines()[1:] if line.split()[:1] == [name]]
        return self._config_ids(digests[0], 2) if digests else []

    def load(self, archive: str, name: str) -> Optional[str]:
        """Import an archive. Return why that failed, None if it did not."""
        done = self._run("images", "import", archive)
        return done.stderr.strip() if done.returncode != 0 else None

    def _config_ids(self, digest: str, depth: int) -> List[str]:
        """Return the IDs of the images behind a manifest, or behind an index of manifests."""
        outcome = self._run("content", "get", digest)
        try:
            manifest = json.loads(outcome.stdout) if outcome.returncode == 0 else {}
        except ValueError:
            return []
        if "config" in manifest:
            return [manifest["config"].get("digest", "")]
        return [id_ for item in manifest.get("manifests", []) if depth for id_ in self._config_ids(item["digest"], depth - 1)]

    def _run(self, *arguments):
        return commands.run(self.command + list(arguments), timeout=300)


class CriO:
    """CRI-O's images. CRI-O cannot import an image, so skopeo writes it into CRI-O's storage. CRI-O reports the place
    of that storage."""

    title = "CRI-O"

    def __init__(self, path: str) -> None:
        self.socket = path
        self._place = ("", "")

    def ids(self, name: str) -> List[str]:
        """Return the ID (digest of the config) of the image with a name, as a list; [] if skopeo does not find it. Raises Failed."""
        if not installed("skopeo"):
            raise Failed("CRI-O has no command for an import. Install skopeo on the node")
        done = commands.run(["skopeo", "inspect", "--config", "--raw", self._reference(name)], timeout=300)
        return ["sha256:" + hashlib.sha256(done.stdout.encode("utf-8")).hexdigest()] if done.returncode == 0 else []

    def load(self, archive: str, name: str) -> Optional[str]:
        """Import an archive. Return why that failed, None if it did not. Raises Failed."""
        source = "docker-archive:{0}:{1}".format(archive, name)
        done = commands.run(["skopeo", "copy", "--quiet", source, self._reference(name)], timeout=300)
        return done.stderr.strip() if done.returncode != 0 else None

    def _reference(self, name: str) -> str:
        return "containers-storage:[{0}@{1}]{2}".format(*self._storage(), name)

    def _storage(self) -> Tuple[str, str]:
        """Return driver and folder of CRI-O's storage. Raises Failed."""
        if not all(self._place):
            connection = _Unix(self.socket)
            try:
                connection.request("GET", "/info")
                storage = json.loads(connection.getresponse().read().decode("utf-8"))
                self._place = (storage["storage_driver"], storage["storage_root"])
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as exc:
                raise Failed("CRI-O does not report at {0} where its images are: {1!r}. Check 'crio status info' on the node, and run "
                             "as root (--become)".format(self.socket, exc)) from exc
            finally:
                connection.close()
        return self._place


class _Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket, with a time limit."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
