# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes versions that the bed can raise, and what belongs to each."""

from __future__ import annotations

from dataclasses import dataclass

from bed.errors import BedError

KUBERNETES = (
    "kube-apiserver",
    "kubectl",
    "kubeadm",
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
)
BINARIES = ("etcd", *KUBERNETES)


@dataclass(frozen=True)
class Version:
    """One release. ``module``: the folder of its Go module, below tools/bed/kubernetes or as an absolute path.
    ``etcd``: a version of the minor that kubeadm of this release installs by default. The exception is 1.30, whose
    kubeadm installs 3.5: here it has the etcd of 1.36."""

    kubernetes: str
    module: str
    etcd: str

    @property
    def minor(self) -> int:
        return int(self.kubernetes.split(".")[1])

    @property
    def etcd_module(self) -> str:
        return f"etcd-{self.etcd.rpartition('.')[0]}"

    @property
    def etcd_image_tag(self) -> str:
        return f"{self.etcd.removeprefix('v')}-0"

    @property
    def kubeadm_api(self) -> str:
        """Return the API version of the configuration that kubeadm of this release reads and stores."""
        return "kubeadm.k8s.io/v1beta4" if self.minor >= 31 else "kubeadm.k8s.io/v1beta3"

    @property
    def in_tree(self) -> bool:
        """Return whether kube-apiserver and kubelet know the flags of in-tree clouds, and PersistentVolumeLabel."""
        return self.minor <= 30


VERSIONS = {
    version.kubernetes: version
    for version in (
        # The last minor with in-tree cloud flags, PersistentVolumeLabel and kubeadm's v1beta3.
        Version("v1.30.4", "v1.30", "v3.6.16"),
        # Upgrades of clusters start from this release.
        Version("v1.36.3", "v1.36", "v3.6.16"),
        Version("v1.37.2", "v1.37", "v3.7.3"),
    )
}
DEFAULT = "v1.37.2"


def find(name: str) -> Version:
    """Return the version ``name``, with or without its v. Raises BedError, which lists the known versions."""
    version = VERSIONS.get("v" + name.removeprefix("v"))
    if version is None:
        raise BedError(f"Kubernetes {name} is not one the bed knows: choose from {', '.join(sorted(VERSIONS))}")
    return version
