# SPDX-License-Identifier: Apache-2.0
"""Go programs that tests and beds run, compiled into the cache.

The cache knows a program by a digest of its module's folder (sources, versions and checksums) and of its tags. Programs
below ``tools/bed/vendors`` are released code: their modules have no more than ``tool`` lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bed import golang, locks, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run

_VENDORS = paths.BED / "vendors"
#: Build tags that leave out the service discovery of all clouds, but keep that of Kubernetes. Prometheus' pages for
#: browsers, which would need npm, are never built.
_PROMETHEUS = "remove_all_sd,enable_kubernetes_sd"
#: Build tags that leave out the parts that need C libraries.
_CRI_O = "containers_image_openpgp,exclude_graphdriver_btrfs"
_CONTAINERD = "no_btrfs,no_devmapper,no_zfs,no_aufs"
_E2E = paths.REPOSITORY / "tools/e2e"


@dataclass(frozen=True)
class Program:
    """``module`` is the folder of go.mod, ``package`` what is compiled there; ``title`` is for people; ``tags`` are
    build constraints. With ``c_sources``, the program is compiled from the C files in that folder of the Go
    module ``package``."""

    module: Path
    package: str
    title: str
    tags: str = ""
    c_sources: str = ""


PROGRAMS = {
    "peer": Program(paths.REPOSITORY / "tools/bench/peer", ".", "the peer (the upstream framework)"),
    "cloud-configs": Program(paths.BED / "cloud_configs", ".", "the parsers of cloud providers' configurations"),
    "gotables": Program(paths.REPOSITORY / "tests/peers/gotables", ".", "the reader of peers' tests"),
    "kubernetes-yaml": Program(paths.BED / "kubernetes_yaml", ".", "Kubernetes' parser of YAML"),
    "e2e": Program(_E2E / "suite", ".", "Kubernetes' end-to-end specs"),
    "agnhost": Program(_E2E / "suite", "k8s.io/kubernetes/test/images/agnhost", "agnhost, which their Pods run"),
    "coredns": Program(_E2E / "dns", ".", "CoreDNS"),
    "vcsim": Program(paths.REPOSITORY / "tools/clouds/vsphere/simulator", ".", "vcsim"),
    "openstack-cloud-controller-manager": Program(
        _VENDORS / "openstack",
        "k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager",
        "cloud-provider-openstack",
    ),
    "vsphere-cloud-controller-manager": Program(
        _VENDORS / "vsphere",
        "k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager",
        "cloud-provider-vsphere",
    ),
    "aws-cloud-controller-manager": Program(
        _VENDORS / "aws", "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager", "cloud-provider-aws"
    ),
    "prometheus": Program(
        _VENDORS / "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "Prometheus", _PROMETHEUS
    ),
    "crio": Program(_VENDORS / "crio", "github.com/cri-o/cri-o/cmd/crio", "CRI-O", _CRI_O),
    "pinns": Program(_VENDORS / "crio", "github.com/cri-o/cri-o", "pinns, which CRI-O calls", c_sources="pinns/src"),
    # For Debian 11, without the snapshotters that need a library or a file system of their own.
    **{
        name: Program(_VENDORS / "containerd", f"github.com/containerd/containerd/cmd/{name}", name, _CONTAINERD)
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    "csi-driver": Program(paths.BED / "csi", ".", "the bed's CSI driver"),
    "csi-attacher": Program(
        _VENDORS / "csi",
        "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
        "csi-attacher, which attaches volumes",
    ),
    "promtool": Program(
        _VENDORS / "prometheus", "github.com/prometheus/prometheus/cmd/promtool", "promtool", _PROMETHEUS
    ),
}


def ensure(name: str, progress: Progress) -> Path:
    """Return the static binary of one of PROGRAMS, compiled if need be. Raises BedError if Go cannot compile it."""
    program = PROGRAMS.get(name)
    if program is None:
        raise BedError(f"program {name} is not one the bed knows: choose from {', '.join(PROGRAMS)}")
    binary = paths.cache() / "programs" / f"{name}-{_digest(program)}"
    with locks.held(f"program-{name}"):
        if not os.access(binary, os.X_OK):
            go = golang.ensure(progress)
            binary.parent.mkdir(parents=True, exist_ok=True)
            partial = binary.with_suffix(".tmp")
            with progress.step(f"Build of {program.title}: minutes the first time"):
                if program.c_sources:
                    _compile_c(go, program, partial)
                else:
                    _compile(go, program, partial)
            partial.replace(binary)
    return binary


def _compile(go: Path, program: Program, target: Path) -> None:
    command = ["nice", str(go), "build", "-p", "2", "-trimpath", "-ldflags", "-s -w", "-o", str(target)]
    command += ["-tags", program.tags] if program.tags else []
    environment = {**os.environ, "CGO_ENABLED": "0"}
    run(*command, program.package, cwd=str(program.module), env=environment, timeout=3600)


def _compile_c(go: Path, program: Program, target: Path) -> None:
    if not shutil.which("gcc"):
        raise BedError(f"{program.title} needs gcc, which is missing here: apt-get install gcc libc6-dev")
    module = json.loads(run(str(go), "mod", "download", "-json", program.package, cwd=str(program.module)))
    sources = sorted(map(str, (Path(module["Dir"]) / program.c_sources).glob("*.c")))
    run("gcc", "-std=c99", "-Os", "-static", "-s", "-o", str(target), *sources)


def _digest(program: Program) -> str:
    """Return a digest of the tags and the module's files; only of go.mod and go.sum if the package is elsewhere."""
    hashed = hashlib.sha256(program.tags.encode())
    for file in sorted(program.module.glob("*" if program.package == "." else "go.*")):
        hashed.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return hashed.hexdigest()[:16]
