# SPDX-License-Identifier: Apache-2.0
"""Makes and checks everything that a release consists of, without publishing anything (`make release-check`):

    python -m tools.packaging.release [--version VERSION] [--base-image IMAGE] [--without-image]

build/release/source is a copy of the checkout with the release's version and changelog; the checkout stays as it is.
build/release/dist has the files that .github/workflows/release.yml publishes. Servers on loopback stand in for
registry, Galaxy and package index. Signatures are made with a key that exists only during this run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bed import images, machines
from bed.errors import BedError
from bed.progress import Progress

from . import actionlint, artifact, base_image, environments, fragments, servers, versions
from .environments import BUILD, REPOSITORY

FOLDER = BUILD / "release"
SOURCE = FOLDER / "source"
DIST = FOLDER / "dist"
PROJECT = "https://github.com/outoftree/ccm"
#: The name in the role's default, so that a node without a registry has the image after it imports the archive.
IMAGE = "localhost/outoftree-ccm"
#: The limit for the uncompressed image, in bytes.
LARGEST = 120_000_000
#: The steps that only the workflow does: they need an identity that GitHub gives, or they publish something.
ELSEWHERE = (
    "push of the image to ghcr.io, signed by cosign without a key",
    "upload to PyPI by trusted publishing, to Galaxy by token",
    "signature of SHA256SUMS by cosign without a key, and GitHub's attestation of provenance",
    "tag and GitHub release",
)


class Failed(Exception):
    """A step failed; the message contains all that its program wrote."""


@dataclass
class Release:
    version: str
    base_image: str = ""
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def made(self, what: str, file: str, checked: str) -> None:
        """Add a row about a file that was made: what it is, its name, and how it was checked."""
        self.rows.append((what, file, checked))

    @property
    def collection(self) -> Path:
        return DIST / f"outoftree-ccm-{self.version}.tar.gz"

    @property
    def wheel(self) -> Path:
        return DIST / f"outoftree_ccm-{self.version}-py3-none-any.whl"

    @property
    def archive(self) -> Path:
        return DIST / f"outoftree-ccm-image-{self.version}.tar.gz"


def run(*command: str | Path, cwd: Path = SOURCE, seconds: float = 1800, **variables: str) -> str:
    """Run a program and return what it writes. Raises Failed if it fails."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=cwd, env=inherited | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=seconds,
    )  # fmt: skip
    if done.returncode:
        name = " ".join(map(str, command))
        raise Failed(f"{done.stdout}{done.stderr}\n{name} failed with exit status {done.returncode}")
    return done.stdout + done.stderr


def source(release: Release) -> None:
    """Write the source of the release: a copy of the checkout with the release's version and changelog."""
    paths = artifact.tracked()
    for path in paths:
        target = SOURCE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, target)
    versions.put(release.version, SOURCE, paths)
    release.made(
        "version", "build/release/source", f"{len(versions.DECLARED)} files declare {versions.current(SOURCE)}"
    )


def changelog(release: Release) -> None:
    number = len(list((SOURCE / "changelogs" / "fragments").glob("*.yml")))
    text = fragments.check(release.version, SOURCE)
    shutil.copy(SOURCE / "CHANGELOG.md", DIST)
    release.made("changelog", "CHANGELOG.md", f"{len(text.splitlines())} lines from {number} fragments")


def collection(release: Release) -> None:
    environment = environments.of_galaxy()
    of_galaxy = environments.variables(environment)
    run(environment / "bin" / "ansible-galaxy", "collection", "build", "--output-path", DIST, SOURCE, **of_galaxy)
    with tempfile.TemporaryDirectory() as home:
        # The importer runs ansible-lint, which needs the modules of the dependency.
        dependency = artifact.repacked("kubernetes.core", Path(home))
        install = (environment / "bin" / "ansible-galaxy", "collection", "install", "--offline", dependency)
        run(*install, cwd=Path(home), **of_galaxy | {"HOME": home})
        rules = {f"GALAXY_IMPORTER_{rule}": "true" for rule in ("REQUIRE_V1_OR_GREATER", "CHECK_REQUIRED_TAGS")}
        importer = (environment / "bin" / "python", environments.IMPORTER, release.collection)
        said = run(*importer, cwd=Path(home), **of_galaxy | rules | {"HOME": home})
    wrong = [line for line in said.splitlines() if line.startswith(("WARNING", "ERROR"))]
    if wrong or "Importer processing completed successfully" not in said:
        raise Failed(f"Galaxy would not take {release.collection.name}:\n{said}")
    release.made("collection", release.collection.name, "galaxy-importer, with the rules from 1.0.0 on: no warning")


def packages(release: Release) -> None:
    """Build wheels and sdists. With the commit's date as their time, each build gives the same files."""
    date = commit_date()
    for folder in (SOURCE / "runtime", SOURCE / "runtime" / "simcloud", SOURCE / "suite"):
        run(environments.UV, "build", "--quiet", "--out-dir", DIST, folder, SOURCE_DATE_EPOCH=date)
    (DIST / ".gitignore").unlink(missing_ok=True)
    made = sorted(path for path in DIST.iterdir() if path.name.startswith(("outoftree_ccm", "ccm_suite")))
    run(environments.of_release() / "bin" / "twine", "check", "--strict", *made)
    for path in made:
        release.made("package", path.name, "twine check --strict")


def bill_of_materials(release: Release) -> None:
    """Write the bill of materials: what the image has from PyPI, in an environment like that of the Containerfile."""
    with tempfile.TemporaryDirectory() as scratch:
        python = Path(scratch) / "venv" / "bin" / "python"
        run(environments.UV, "venv", "--quiet", python.parent.parent)
        install = (environments.UV, "pip", "install", "--quiet", "--python", python)
        run(*install, "--require-hashes", "--requirement", SOURCE / "runtime" / "requirements.lock")
        run(*install, "--no-deps", release.wheel)
        run(environments.UV, "pip", "uninstall", "--quiet", "--python", python, "setuptools")  # as the Containerfile
        made = DIST / f"outoftree-ccm-{release.version}.cdx.json"
        program = environments.of_release() / "bin" / "cyclonedx-py"
        about = ("--pyproject", SOURCE / "runtime" / "pyproject.toml", "--output-reproducible", "--validate")
        run(program, "environment", *about, "--output-file", made, python)
    listed = json.loads(made.read_text())
    if listed["metadata"]["component"]["version"] != release.version:
        raise Failed(f"{made.name} is about {listed['metadata']['component']}")
    names = {component["name"] for component in listed["components"]}
    if not {"aiohttp", "openstacksdk", "uvloop"} <= names:
        raise Failed(f"{made.name} has only {', '.join(sorted(names))}")
    locked = set(re.findall(r"^(\S+==[^ ;]+)", (SOURCE / "runtime" / "requirements.lock").read_text(), re.MULTILINE))
    found = {f"{re.sub('[-_.]+', '-', each['name']).lower()}=={each['version']}" for each in listed["components"]}
    if others := found - locked - {f"outoftree-ccm=={release.version}"}:
        raise Failed(f"{made.name} has what the lock does not have: {', '.join(sorted(others))}")
    release.made("SBOM", made.name, f"CycloneDX {listed['specVersion']} is valid, {len(names)} components")


def image(release: Release) -> None:
    """Build the image and its archive for nodes without a registry, and push the image to a registry on loopback."""
    images.ensure_python(Progress()) if not release.base_image else None
    tag = f"{IMAGE}:{release.version}"
    before = image_id(tag)  # of `make image`, which a bed may use
    base = f"BASE_IMAGE={base_image.pullable(release.base_image or images.PYTHON_IMAGE)}"
    labels = {"version": release.version, "source": PROJECT, "revision": commit()}
    labels |= base_image.labels(release.base_image)
    options = [word for name, text in labels.items() for word in ("--label", f"org.opencontainers.image.{name}={text}")]
    build = (
        *images.BUILD,
        "--quiet",
        "--layers=false",
        "--force-rm",
        "--no-cache",
        "--timestamp",
        commit_date(),
        "--build-arg",
        base,
        *options,
        "--tag",
    )
    run(*build, tag, SOURCE / "runtime")
    try:
        first = image_id(tag)
        run(*build, tag, SOURCE / "runtime")
        if (again := image_id(tag)) != first:
            run("podman", "image", "rm", "--force", first)
            raise Failed(f"two builds of the image differ: {first} and {again}")
        size = int(run("podman", "image", "inspect", "--format", "{{ .Size }}", tag))
        if size > LARGEST:
            raise Failed(f"the image has {size / 1e6:.0f} MB, and may have {LARGEST / 1e6:.0f} MB")
        release.made("image", tag, f"two builds are equal, {size / 1e6:.0f} MB")
        said = run(
            "podman", "--runtime", "runc", "run", "--rm", "--network", "none", *machines.limits(), tag, "--version"
        )
        if release.version not in said:
            raise Failed(f"the image calls itself {said.strip()}, not {release.version}")
        tar = release.archive.with_suffix("")
        run("podman", "save", "--quiet", "--format", "docker-archive", "--output", tar, tag)
        run("gzip", "--no-name", "-1", tar)
        release.made("image", release.archive.name, f"runs, and says {said.strip()}")
        registry = servers.Registry()
        with servers.serve(registry) as host:
            target = f"{host}/outoftree/ccm:{release.version}"
            run("podman", "push", "--quiet", "--tls-verify=false", tag, target)
        kind, manifest = registry.manifests[release.version]
        parts = json.loads(manifest)
        missing = {part["digest"] for part in (parts["config"], *parts["layers"])} - set(registry.blobs)
        if missing:
            raise Failed(f"the registry has no {', '.join(missing)}")
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        release.made("push", "a registry on loopback", f"complete, {digest[:19]}…, {kind.rpartition('.')[2]}")
    finally:
        if image_id(tag) != before:
            run("podman", "image", "rm", "--force", tag)
            run("podman", "tag", before, tag) if before else None


def image_id(tag: str) -> str:
    listed = run("podman", "images", "--quiet", "--no-trunc", "--filter", f"reference={tag}")
    return listed.strip()


def installed_by_a_user(release: Release) -> None:
    """Install collection and wheel as a user does: from servers, into environments without anything of this project."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        install_collection(release.collection, home, with_keyring(release.collection, home))
        release.made("install", "ansible-galaxy, a Galaxy on loopback", "dependency resolved, signature valid")
        said = install_wheel(release.wheel, release.version, home)
        release.made("install", "pip, an index on loopback", said)


def install_collection(tarball: Path, home: Path, signed: tuple[Path, Path] | None = None) -> Path:
    """Install the collection as a user with this home folder. SIGNED: a keyring, and a signature of the manifest."""
    environment = environments.of_a_user()
    dependency = artifact.repacked("kubernetes.core", home)
    signatures = {tarball.name: [signed[1].read_text()]} if signed else {}
    # Each signed collection must have one valid signature; kubernetes.core is not signed.
    proof = ("--keyring", signed[0], "--required-valid-signature-count", "1") if signed else ()
    with servers.serve(servers.Galaxy(tarball, dependency, signatures=signatures)) as host:
        arguments = ("collection", "install", "outoftree.ccm", "--server", f"http://{host}/", *proof)
        of_user = environments.variables(environment) | {"HOME": str(home)}
        run(environment / "bin" / "ansible-galaxy", *arguments, cwd=home, **of_user)
    return home / ".ansible" / "collections" / "ansible_collections"


def install_wheel(wheel: Path, version: str, home: Path) -> str:
    """Install the wheel and return what `ccm --version` prints. Dependencies come from the index of this machine."""
    with servers.serve(servers.Index(wheel)) as host:
        run(environments.UV, "venv", "--quiet", home / "venv", cwd=home)
        extra = ("--extra-index-url", f"http://{host}/simple/", f"outoftree-ccm=={version}")
        run(
            environments.UV, "pip", "install", "--quiet", "--python", home / "venv" / "bin" / "python", *extra, cwd=home
        )
    said = run(home / "venv" / "bin" / "ccm", "--version", cwd=home).strip()
    if version not in said:
        raise Failed(f"the installed program says {said}, not {version}")
    return said


@contextlib.contextmanager
def key() -> Iterator[Callable[..., str]]:
    """Yield a function that runs GnuPG with a key which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpg") as home:

        def gpg(*arguments: str | Path) -> str:
            return run("gpg", "--homedir", home, "--batch", "--quiet", "--yes", *arguments, cwd=FOLDER)

        gpg(
            "--passphrase",
            "",
            "--quick-generate-key",
            "release-check <release-check@localhost>",
            "ed25519",
            "sign",
            "1d",
        )
        try:
            yield gpg
        finally:
            run("gpgconf", "--homedir", home, "--kill", "all", cwd=FOLDER)


def with_keyring(tarball: Path, home: Path) -> tuple[Path, Path]:
    """Return a keyring, and a signature of the collection's manifest, in the form that `ansible-galaxy` takes."""
    run("tar", "-xzf", tarball, "MANIFEST.json", cwd=home)
    with key() as gpg:
        gpg("--armor", "--detach-sign", "--output", home / "MANIFEST.json.asc", home / "MANIFEST.json")
        gpg("--export", "--output", home / "keyring.gpg")
    return home / "keyring.gpg", home / "MANIFEST.json.asc"


def commit() -> str:
    return run("git", "rev-parse", "HEAD", cwd=REPOSITORY).strip()


def commit_date() -> str:
    """Return the date of the commit, in seconds since 1970."""
    return run("git", "log", "-1", "--format=%ct", cwd=REPOSITORY).strip()


def provenance(release: Release) -> None:
    """Write a statement of what was made from what (in-toto, SLSA 1). The workflow adds one that GitHub signs."""
    workflow = os.environ.get("GITHUB_WORKFLOW_REF", "")
    builder = f"https://github.com/{workflow}" if workflow else f"{PROJECT}/blob/main/tools/packaging/release.py"
    subjects = [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in sorted(DIST.iterdir())]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{PROJECT}/blob/main/MAINTAINERS.md#release",
                "externalParameters": {"version": release.version},
                "resolvedDependencies": [{"uri": f"git+{PROJECT}", "digest": {"gitCommit": commit()}}],
            },
            "runDetails": {
                "builder": {"id": builder},
                "metadata": {"finishedOn": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
            },
        },
    }
    made = DIST / "provenance.intoto.json"
    made.write_text(json.dumps(statement, indent=2) + "\n")
    release.made("provenance", made.name, f"in-toto statement, SLSA 1, {len(subjects)} subjects")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(release: Release) -> None:
    sums = DIST / "SHA256SUMS"
    files = sorted(path for path in DIST.iterdir() if path != sums)
    sums.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files))
    run("sha256sum", "--check", "--strict", "--quiet", sums.name, cwd=DIST)
    release.made("checksums", sums.name, f"sha256sum --check of {len(files)} files")
    with key() as gpg:
        signature = FOLDER / "SHA256SUMS.asc"
        gpg("--armor", "--detach-sign", "--output", signature, sums)
        gpg("--verify", signature, sums)
    release.made("signature", "of SHA256SUMS, not kept", "gpg --verify, with a key of this run")


def workflows(release: Release) -> None:
    done = actionlint.check(REPOSITORY)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)
    release.made("workflows", ".github/workflows", f"actionlint {actionlint.VERSION}")


STEPS = (
    source, changelog, workflows, packages, bill_of_materials, collection, image, installed_by_a_user, provenance,
    checksums,
)  # fmt: skip


#: Exceptions for which a run prints only the message, without a traceback.
EXPECTED = (
    Failed, BedError, fragments.BadChangelog, versions.Disagreement, ValueError, environments.NoPython,
)  # fmt: skip


def table(rows: list[tuple[str, str, str]]) -> str:
    """Return the rows as a table with a header, and with the sizes of files."""
    sizes = {path.name: f"{path.stat().st_size / 1024:,.0f} KiB" for path in DIST.iterdir()}
    lines = [("WHAT", "WHERE", "SIZE", "CHECKED"), *((a, b, sizes.get(b, "-"), c) for a, b, c in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="1.0.0", help="the release (default: %(default)s)")
    parser.add_argument("--base-image", default="", metavar="IMAGE", help="of the Containerfile; default: the bed's")
    parser.add_argument("--without-image", action="store_true", help="leave out the image, where there is no podman")
    asked = parser.parse_args()
    release = Release(asked.version, asked.base_image)
    for folder in (SOURCE, DIST):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    try:
        for step in STEPS:
            if step is image and asked.without_image:
                release.made("image", "-", "not built: --without-image")
                continue
            began = time.monotonic()
            step(release)
            print(f"ok  {time.monotonic() - began:5.1f} s  {step.__name__.replace('_', ' ')}", flush=True)
    except EXPECTED as failure:
        print(f"{step.__name__.replace('_', ' ')}: {failure}", file=sys.stderr)
        return 1
    print(f"\nRelease {release.version}, in {DIST.relative_to(REPOSITORY)}:\n\n{table(release.rows)}")
    print("\nNot done here, but in .github/workflows/release.yml:", *ELSEWHERE, sep="\n  - ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
