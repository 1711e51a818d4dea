# SPDX-License-Identifier: Apache-2.0
"""Obtains the Kubernetes binaries: from KUBEBUILDER_ASSETS, the cache, the official release, or the Go compiler.

A release's own checksums come from the server that has the binaries. They prove that nothing was damaged in transit,
not that the server is honest. If OUTOFTREE_SHA256SUMS names a file with checksums from a source of your own, only these
checksums count. Go checks a build from source against the sums in go.sum.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from bed import golang, locks, paths
from bed.archive import architecture
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from bed.versions import BINARIES, Version

CONNECT_SECONDS = 3.0
READ_SECONDS = 60.0
KUBERNETES_MIRROR = "OUTOFTREE_K8S_MIRROR"
ETCD_MIRROR = "OUTOFTREE_ETCD_MIRROR"
#: Names a file in the format of sha256sum; each name in it is the end of a URL: v1.36.3/bin/linux/amd64/kubelet.
CHECKSUMS = "OUTOFTREE_SHA256SUMS"
_DEFAULT_MIRRORS = {
    KUBERNETES_MIRROR: "https://dl.k8s.io",
    ETCD_MIRROR: "https://github.com/etcd-io/etcd/releases/download",
}


class Unavailable(Exception):
    """The release cannot be downloaded now; it can still be built."""


def missing(folder: Path, etcd: str = "") -> list[str]:
    """Return the binaries that are missing in ``folder``. If ``etcd`` is set, an etcd of another version counts as
    missing: the folder's name has only the version of Kubernetes."""
    absent = [name for name in BINARIES if not os.access(folder / name, os.X_OK)]
    return absent if not etcd or "etcd" in absent or _is_etcd(folder / "etcd", etcd) else ["etcd", *absent]


def _is_etcd(program: Path, version: str) -> bool:
    first = run(str(program), "--version", check=False).partition("\n")[0]
    return first == f"etcd Version: {version.removeprefix('v')}"


def ensure(version: Version, progress: Progress) -> Path:
    """Return the folder with all binaries of ``version``: KUBEBUILDER_ASSETS if it can be used, otherwise the cache,
    which is completed first."""
    if given := os.environ.get("KUBEBUILDER_ASSETS"):
        if refusal := refuse_assets(Path(given), version):
            progress.say(f"KUBEBUILDER_ASSETS={given} is not used: {refusal}")
        else:
            return Path(given)
    folder = paths.cache() / "kubernetes" / version.kubernetes
    folder.mkdir(parents=True, exist_ok=True)
    if not missing(folder, version.etcd):
        return folder
    with locks.held(f"binaries-{version.kubernetes}"):
        if missing(folder, version.etcd):
            try:
                download(version, folder, progress)
            except Unavailable as error:
                progress.say(f"No release to download ({error}): building it, some minutes the first time")
                build(version, folder, progress)
    return folder


def refuse_assets(folder: Path, version: Version) -> str | None:
    """Return why the binaries of ``folder`` cannot be used, or None."""
    if absent := missing(folder):
        return f"it lacks {', '.join(absent)}"
    found = run(str(folder / "kubelet"), "--version").split()[-1]
    return None if found == version.kubernetes else f"its kubelet is {found}, not {version.kubernetes}"


def download(version: Version, folder: Path, progress: Progress) -> None:
    """Download the binaries that are missing in ``folder``. Raises Unavailable if one cannot be downloaded now,
    BedError if one has no checksum, or content that does not match it."""
    absent = missing(folder, version.etcd)
    if any(mirror(name) == "none" for name in (KUBERNETES_MIRROR, ETCD_MIRROR)):
        raise Unavailable(f"{KUBERNETES_MIRROR} or {ETCD_MIRROR} is none")
    with progress.step(f"Download of Kubernetes {version.kubernetes}") as step:
        for number, name in enumerate(absent, start=1):
            step.detail = f"{number}/{len(absent)} {name}"
            (_download_etcd if name == "etcd" else _download_kubernetes)(version, name, folder)
        step.detail = f"{len(absent)} binaries"


def mirror(variable: str) -> str:
    return (os.environ.get(variable) or _DEFAULT_MIRRORS[variable]).rstrip("/")


def _download_kubernetes(version: Version, name: str, folder: Path) -> None:
    url = f"{mirror(KUBERNETES_MIRROR)}/{version.kubernetes}/bin/linux/{architecture()}/{name}"
    checksum = _own_checksum(url) or (_read(url + ".sha256").split() or [""])[0]
    _install(_fetch(url, checksum, folder / f"{name}.tmp"), folder / name)


def _download_etcd(version: Version, name: str, folder: Path) -> None:
    base = f"{mirror(ETCD_MIRROR)}/{version.etcd}"
    release = f"etcd-{version.etcd}-linux-{architecture()}"
    url = f"{base}/{release}.tar.gz"
    checksum = _own_checksum(url)
    if not checksum:
        checksum = _sums(_read(f"{base}/SHA256SUMS")).get(f"{release}.tar.gz", "")
        if not checksum:
            raise BedError(f"{base}/SHA256SUMS names no {release}.tar.gz: check {ETCD_MIRROR}")
    archive = _fetch(url, checksum, folder / "etcd.tar.gz.tmp")
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"{release}/etcd")
        if member is None:
            raise BedError(f"{base}/{release}.tar.gz holds no etcd: check {ETCD_MIRROR}")
        with (folder / "etcd.tmp").open("wb") as out:
            shutil.copyfileobj(member, out)
    archive.unlink()
    _install(folder / "etcd.tmp", folder / name)


def _sums(text: str) -> dict[str, str]:
    lines = [line.split() for line in text.splitlines()]
    return {line[1].lstrip("*"): line[0] for line in lines if len(line) == 2}


def _own_checksum(url: str) -> str:
    """Return the checksum of ``url`` in the operator's file, or "" without such a file. Raises BedError if the file
    cannot be used, or does not name the URL."""
    if not (given := os.environ.get(CHECKSUMS)):
        return ""
    try:
        sums = _sums(Path(given).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BedError(f"{CHECKSUMS}={given} cannot be read: {error}") from error
    for name, checksum in sums.items():
        if url.endswith(f"/{name}"):
            return checksum.lower()
    raise BedError(
        f"{CHECKSUMS}={given} has no checksum of {url}: add a line 'SHA256  PATH' with the end of that address"
    )


def _install(partial: Path, target: Path) -> None:
    partial.chmod(0o755)
    partial.replace(target)


def _read(url: str) -> str:
    with _open(url) as response:
        return str(response.read().decode())


def _fetch(url: str, checksum: str, target: Path) -> Path:
    digest = hashlib.sha256()
    with _open(url) as response, target.open("wb") as out:
        try:
            while block := response.read(1 << 20):
                digest.update(block)
                out.write(block)
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{url} broke off: {error}") from error
    if digest.hexdigest() != checksum:
        target.unlink()
        raise BedError(
            f"{url} has the SHA-256 {digest.hexdigest()} but its checksum file says {checksum or 'nothing'}: "
            "it is damaged or not what it claims to be, and was not kept"
        )
    return target


def _open(url: str):  # type: ignore[no-untyped-def]  # urllib gives no useful name to its answers
    _reach(url)
    try:
        return urllib.request.urlopen(url, timeout=READ_SECONDS)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url} answers {error.code}") from error
    except (OSError, HTTPException) as error:
        raise Unavailable(f"{url}: {error}") from error


_reached: set[str] = set()


def _reach(url: str) -> None:
    """Raise Unavailable if a server does not answer a HEAD request in time. The request runs in a thread, which is left
    behind after that time, because name resolution may hang for long."""
    server = urllib.parse.urlsplit(url).netloc
    if server in _reached:
        return
    failure: list[str] = [f"no answer within {CONNECT_SECONDS:.0f} s"]

    def attempt() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=CONNECT_SECONDS).close()
        except urllib.error.HTTPError:
            pass
        except OSError as error:
            failure[0] = str(error)
            return
        failure.clear()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS + 0.5)
    if failure:
        raise Unavailable(f"{server}: {failure[0]}")
    _reached.add(server)


def build(version: Version, folder: Path, progress: Progress, compiler: Callable[..., str] = run) -> None:
    """Compile the binaries that are missing in ``folder``: etcd, and then all programs of Kubernetes by one command,
    because Go compiles the next program while it links one on a single core."""
    absent = missing(folder, version.etcd)
    with progress.step(f"Build of Kubernetes {version.kubernetes}") as step:
        go = str(golang.ensure(progress))
        if "etcd" in absent:
            step.detail = "etcd"
            packages = {"etcd": "go.etcd.io/etcd/server/v3"}
            _compile(go, compiler, folder, version.etcd_module, "-s -w", packages)
        if packages := {name: f"k8s.io/kubernetes/cmd/{name}" for name in absent if name != "etcd"}:
            step.detail = ", ".join(packages)
            _compile(go, compiler, folder, version.module, version_flags(version), packages)
        step.detail = f"{len(absent)} binaries"


def _compile(
    go: str, compiler: Callable[..., str], folder: Path, module: str, flags: str, packages: dict[str, str]
) -> None:
    """Compile a module's packages, known by their programs' names. They appear in ``folder`` when all are complete."""
    scratch = folder / "build.tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    # Go calls the program of server/v3 "server" if the target is a folder.
    target = scratch if len(packages) > 1 else scratch / next(iter(packages))
    compiler(go, "build", "-trimpath", "-ldflags", flags, "-o", str(target), *packages.values(),
             cwd=str(paths.BED / "kubernetes" / module), env={**os.environ, "CGO_ENABLED": "0"},
             timeout=3600)  # fmt: skip
    for name in packages:
        _install(scratch / name, folder / name)
    scratch.rmdir()


def version_flags(version: Version) -> str:
    """Return the linker's flags for the version. Without them, kubeadm and kubelet would report v0.0.0-master and
    refuse each other."""
    major, minor = version.kubernetes.removeprefix("v").split(".")[:2]
    facts = {
        "gitVersion": version.kubernetes,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items())])
