# SPDX-License-Identifier: Apache-2.0
"""Builds all images without a registry, each one only when its sources have changed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bed import binaries, go_programs, golang, keys, locks, paths
from bed.archive import Image, write
from bed.documents import RUNTIME_IMAGE
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from bed.systems import DEFAULT, SYSTEMS
from bed.versions import Version

PYTHON_IMAGE = f"localhost/outoftree-bed-python:{DEFAULT}"
PAUSE_IMAGE = "localhost/outoftree-bed-pause:1"
SIMULATOR_IMAGE = "localhost/outoftree-ccm-simcloud:0.1.0"
APP_IMAGE = "localhost/outoftree-bed-app:1"
IMPOSTOR_IMAGE = "localhost/outoftree-bed-impostor:1"
DNS_IMAGE = "localhost/outoftree-bed-coredns:1"
RUNTIME_ARCHIVE = paths.BUILD / "images" / "outoftree-ccm-0.1.0.tar"


@dataclass(frozen=True)
class Vendor:
    """Another cloud-controller-manager as an image: its tag, the path inside, and the program (`go_programs`)."""

    image: str
    path: str
    program: str


#: The word after ``--only vendor-`` -> the vendor's image and program. Images of real vendors have the tag of the
#: release that they contain.
VENDORS = {
    "sim": Vendor("localhost/outoftree-bed-vendor:1", "/sim-cloud-controller-manager", "peer"),
    "openstack": Vendor(
        "registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0",
        "/bin/openstack-cloud-controller-manager",
        "openstack-cloud-controller-manager",
    ),
    "vsphere": Vendor(
        "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.36.0",
        "/bin/vsphere-cloud-controller-manager",
        "vsphere-cloud-controller-manager",
    ),
    "aws": Vendor(
        "registry.k8s.io/provider-aws/cloud-controller-manager:v1.37.1",
        "/bin/aws-cloud-controller-manager",
        "aws-cloud-controller-manager",
    ),
}
DEBIAN_MIRROR = "OUTOFTREE_DEBIAN_MIRROR"
_LABEL = "dev.outoftree.bed.content"
_PYTHON_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,iproute2"
# Folders of Debian that an image does not need, because nobody logs in.
_UNUSED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "var/log")

# Debian 12's crun refuses a hybrid cgroup v1 host, and a build needs no network of its own. With the host's bundle of
# certificates, a build trusts an intercepting proxy as the host does.
BUILD = (
    "podman", "--runtime", "runc", "build", "--isolation", "chroot", "--network", "host",
    "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro",
)  # fmt: skip


def folder() -> Path:
    """Return the folder of the archives that nodes import; node containers have it as /opt/bed/images."""
    return paths.cache() / "images"


def debian_mirror() -> str:
    """Return the URL from which debootstrap gets Debian's packages."""
    return os.environ.get(DEBIAN_MIRROR) or "http://deb.debian.org/debian"


def of_python(suite: str) -> str:
    """Return the name of the image of this Debian release with Python."""
    return f"{PYTHON_IMAGE.partition(':')[0]}:{suite}"


def of_node(system: str) -> str:
    """Return the name of the image of a machine with one of SYSTEMS."""
    return f"localhost/outoftree-bed-node:{system}"


def ensure_python(progress: Progress, suite: str = DEFAULT) -> None:
    """Build a small Debian with Python: the base of the images of nodes, runtime and simulated cloud."""
    image = of_python(suite)
    key = keys.of_sources([], suite, _PYTHON_PACKAGES, *_UNUSED)
    if _is_current(image, key):
        return
    with progress.step(f"Image {image} by debootstrap"), tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        root = Path(scratch) / "root"
        run("debootstrap", "--variant=minbase", f"--include={_PYTHON_PACKAGES}", suite, str(root), debian_mirror())
        for unused in _UNUSED:
            shutil.rmtree(root / unused)
            (root / unused).mkdir()
        archive = str(Path(scratch) / "root.tar")
        run("tar", "--numeric-owner", "-C", str(root), "-cf", archive, ".")
        run("podman", "import", "--quiet", "--change", f"LABEL {_LABEL}={key}", archive, image)


def ensure_node(progress: Progress, name: str = DEFAULT) -> None:
    """Build the image of a node, on top of the image with Python: one debootstrap serves both."""
    containerfile = paths.BED / "Containerfile.node"
    system, image = SYSTEMS[name], of_node(name)
    base = of_python(system.suite)
    key = keys.of_sources([containerfile, paths.BED / "node"], _id_of(base), system.packages, system.unit)
    if _is_current(image, key):
        return
    with progress.step(f"Image {image}"):
        _build(containerfile, paths.BED, image, key, BASE_IMAGE=base, PACKAGES=system.packages, UNIT=system.unit)


def ensure_systems(names: Collection[str], progress: Progress) -> None:
    """Build the images of machines with these systems, and compile the programs for them."""
    for name in sorted(names):
        for program in SYSTEMS[name].programs:
            go_programs.ensure(program, progress)
        with locks.held("images"):
            ensure_python(progress, SYSTEMS[name].suite)
            ensure_node(progress, name)


def ensure_runtime(progress: Progress) -> Path:
    """Build the controller's image in podman, and the archive that nodes import. Return the archive."""
    containerfile = paths.RUNTIME / "Containerfile"
    made_of = ("pyproject.toml", "requirements.lock", "build.lock", "image", "ccm")
    sources = [containerfile, *(paths.RUNTIME / each for each in made_of)]
    key = keys.of_sources(sources, _id_of(PYTHON_IMAGE))
    stamp = RUNTIME_ARCHIVE.with_name(RUNTIME_ARCHIVE.name + ".content")
    if not _is_current(RUNTIME_IMAGE, key):
        with progress.step(f"Image {RUNTIME_IMAGE}"):
            _build(containerfile, paths.RUNTIME, RUNTIME_IMAGE, key, BASE_IMAGE=PYTHON_IMAGE)
    if not RUNTIME_ARCHIVE.exists() or not stamp.exists() or stamp.read_text() != key:
        with progress.step(f"Archive {RUNTIME_ARCHIVE.relative_to(paths.REPOSITORY)}"):
            RUNTIME_ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
            unfinished = RUNTIME_ARCHIVE.with_name(RUNTIME_ARCHIVE.name + ".tmp")
            unfinished.unlink(missing_ok=True)
            run("podman", "save", "--quiet", "--format", "docker-archive", "--output", str(unfinished), RUNTIME_IMAGE)
            unfinished.replace(RUNTIME_ARCHIVE)
            stamp.write_text(key)
    return RUNTIME_ARCHIVE


def ensure_simulator(progress: Progress) -> None:
    """Build the image of the simulated cloud, which a bed's gateway runs. No node imports it."""
    folder = paths.RUNTIME / "simcloud"
    containerfile = folder / "Containerfile"
    sources = [containerfile, folder / "pyproject.toml", folder / "ccm_simcloud"]
    key = keys.of_sources(sources, _id_of(PYTHON_IMAGE))
    if not _is_current(SIMULATOR_IMAGE, key):
        with progress.step(f"Image {SIMULATOR_IMAGE}"):
            _build(containerfile, folder, SIMULATOR_IMAGE, key, BASE_IMAGE=PYTHON_IMAGE)


def ensure_control_plane(version: Version, binaries: Path, progress: Progress) -> Path:
    """Return the archive of the static Pods' images, with the tags that kubeadm expects."""
    tags = {
        name: f"registry.k8s.io/{name}:{version.kubernetes}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    }
    tags["etcd"] = f"registry.k8s.io/etcd:{version.etcd_image_tag}"
    key = keys.of_binaries([binaries / name for name in tags])
    archive = folder() / f"control-plane-{version.kubernetes}-{key}.tar"
    if not archive.exists():
        with progress.step(f"Archive of the control plane's images {version.kubernetes}"):
            write([Image(tag, ((f"/usr/local/bin/{name}", binaries / name),)) for name, tag in tags.items()], archive)
            _forget_others(archive, f"control-plane-{version.kubernetes}-*.tar")
    return archive


def ensure_programs(progress: Progress) -> Path:
    """Return the archive with what nodes run: the pause image, the demonstration's app, and a hostile program."""
    sources = paths.BED / "programs"
    archive = folder() / f"programs-{keys.of_sources([sources])}.tar"
    if not archive.exists():
        go = str(golang.ensure(progress))
        with progress.step("Archive of the bed's own images"), tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
            images = []
            for name, tag in (("pause", PAUSE_IMAGE), ("app", APP_IMAGE), ("impostor", IMPOSTOR_IMAGE)):
                binary = Path(scratch) / name
                run(go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(binary), f"./{name}",
                    cwd=str(sources), env={**os.environ, "CGO_ENABLED": "0"})  # fmt: skip
                images.append(Image(tag, ((f"/{name}", binary),), entrypoint=(f"/{name}",), user="65532:65532"))
            write(images, archive)
            _forget_others(archive, "programs-*.tar")
    return archive


def ensure_dns(progress: Progress) -> Path:
    """Return the archive of CoreDNS. Only clusters for end-to-end specs run it."""
    binary = go_programs.ensure("coredns", progress)
    archive = folder() / f"coredns-{keys.of_binaries([binary])}.tar"
    with locks.held("images"):
        if not archive.exists():
            with progress.step(f"Archive {archive.name}"):
                write([Image(DNS_IMAGE, (("/coredns", binary),), entrypoint=("/coredns",))], archive)
                _forget_others(archive, "coredns-*.tar")
    return archive


def ensure_agnhost(tag: str, progress: Progress) -> Path:
    """Return the archive of the image that Pods of Kubernetes' end-to-end specs run, with the specs' tag."""
    containerfile = paths.REPOSITORY / "tools/e2e/Containerfile.agnhost"
    binary = go_programs.ensure("agnhost", progress)
    with locks.held("images"):
        ensure_python(progress)
        key = keys.of_sources([containerfile], _id_of(PYTHON_IMAGE), binary.name, tag)
        archive = folder() / f"agnhost-{key}.tar"
        if not archive.exists():
            with progress.step(f"Image {tag}"), tempfile.TemporaryDirectory(dir=_scratch()) as context:
                shutil.copy(binary, Path(context) / "agnhost")
                _build(containerfile, Path(context), tag, key, BASE_IMAGE=PYTHON_IMAGE)
                unfinished = archive.with_suffix(".tmp")
                unfinished.unlink(missing_ok=True)
                run("podman", "save", "--quiet", "--format", "docker-archive", "--output", str(unfinished), tag)
                unfinished.replace(archive)
                # Nodes import the archive; podman itself runs no such container.
                run("podman", "image", "rm", tag, check=False)
                _forget_others(archive, "agnhost-*.tar")
    return archive


def vendor_archive(name: str) -> Path:
    return paths.BUILD / "images" / f"vendor-{name}.tar"


def ensure_vendor(name: str, progress: Progress) -> Path:
    """Return the archive of another vendor's cloud-controller-manager: an image of one static binary."""
    vendor, archive = VENDORS[name], vendor_archive(name)
    binary = go_programs.ensure(vendor.program, progress)
    key = keys.of_binaries([binary])
    stamp = archive.with_name(archive.name + ".content")
    if not archive.exists() or not stamp.exists() or stamp.read_text() != key:
        with progress.step(f"Archive {archive.relative_to(paths.REPOSITORY)}"):
            files = ((vendor.path, binary),)
            write([Image(vendor.image, files, entrypoint=(vendor.path,), user="65532:65532")], archive)
            stamp.write_text(key)
    return archive


def ensure_all(version: Version, progress: Progress, only: str | None = None) -> None:
    """Build every image that a bed needs, or the ``only`` one and its base. Only the control plane's images need the
    binaries of Kubernetes."""
    steps: dict[str, Callable[[], object]] = {
        "python": lambda: ensure_python(progress),
        "node": lambda: ensure_node(progress),
        "runtime": lambda: ensure_runtime(progress),
        "simulator": lambda: ensure_simulator(progress),
        "control-plane": lambda: ensure_control_plane(version, binaries.ensure(version, progress), progress),
        "programs": lambda: ensure_programs(progress),
    }
    vendors = {f"vendor-{name}": partial(ensure_vendor, name, progress) for name in VENDORS}
    steps |= vendors
    if only is not None and only not in steps:
        raise BedError(f"--only {only}: choose from {', '.join(steps)}")
    on_python = {"node", "runtime", "simulator"}
    needed = {only, "python"} if only in on_python else {only} if only else set(steps) - set(vendors)
    with locks.held("images"):
        for name, make in steps.items():
            if name in needed:
                make()


def _is_current(tag: str, key: str) -> bool:
    found = run("podman", "image", "inspect", "--format", f'{{{{ index .Labels "{_LABEL}" }}}}', tag, check=False)
    return found.strip() == key


def _id_of(tag: str) -> str:
    return run("podman", "image", "inspect", "--format", "{{ .Id }}", tag).strip()


def forget() -> None:
    """Remove every image that was built here, with the layers that builds left."""
    bases = {of_python(system.suite) for system in SYSTEMS.values()}
    for tag in (SIMULATOR_IMAGE, RUNTIME_IMAGE, *map(of_node, SYSTEMS), *sorted(bases)):
        run("podman", "image", "rm", tag, check=False)
    _prune()
    for archive in (RUNTIME_ARCHIVE, *map(vendor_archive, VENDORS)):
        archive.unlink(missing_ok=True)
        archive.with_name(archive.name + ".content").unlink(missing_ok=True)


def _prune(*filters: str) -> None:
    """Remove layers that only serve as build cache; they inherit the label from their base image."""
    more = [word for text in filters for word in ("--filter", text)]
    run("podman", "image", "prune", "--force", "--filter", f"label={_LABEL}", *more, check=False)


def _build(containerfile: Path, context: Path, tag: str, key: str, **arguments: str) -> None:
    """Build ``tag``, and remove the image that it replaces, unless a container still uses that."""
    before = run("podman", "image", "inspect", "--format", "{{ .Id }}", tag, check=False).strip()
    named = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    run(*BUILD, *named, "--label", f"{_LABEL}={key}", "--file", str(containerfile), "--tag", tag, str(context),
        timeout=1800)  # fmt: skip
    if before and before != _id_of(tag):
        run("podman", "image", "rm", before, check=False)
    _prune("until=24h")


def _forget_others(current: Path, pattern: str) -> None:
    for other in folder().glob(pattern):
        if other != current:
            other.unlink()


def _scratch() -> Path:
    """Return the folder for temporary files on the cache's disk: /tmp may be small, or in memory."""
    path = paths.cache() / "tmp"
    path.mkdir(parents=True, exist_ok=True)
    return path
