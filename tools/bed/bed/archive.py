# SPDX-License-Identifier: Apache-2.0
"""Writes container images of a few static binaries straight into a docker-archive.

``podman build`` and ``podman save`` would copy every binary three times for the same archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_EPOCH = "1970-01-01T00:00:00Z"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An image that consists only of ``files`` (path inside -> file here)."""

    tag: str
    files: tuple[tuple[str, Path], ...]
    entrypoint: tuple[str, ...] = ()
    user: str = ""


def architecture() -> str:
    """Return this machine's architecture as Go and container images name it."""
    return _MACHINES.get(platform.machine(), platform.machine())


def write(images: Sequence[Image], target: Path) -> None:
    """Write ``images`` to ``target``, which appears only when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".tmp")
    manifest: list[dict[str, Any]] = []
    with tarfile.open(partial, "w") as tar:
        for image in images:
            with tempfile.TemporaryFile(dir=target.parent) as layer:
                _layer(image, layer)
                layer.seek(0)
                digest = hashlib.file_digest(layer, "sha256").hexdigest()
                _add(tar, f"{digest}.tar", layer)
            config = json.dumps(_config(image, digest), sort_keys=True).encode()
            config_name = hashlib.sha256(config).hexdigest() + ".json"
            _add(tar, config_name, io.BytesIO(config))
            manifest.append({"Config": config_name, "RepoTags": [image.tag], "Layers": [f"{digest}.tar"]})
        _add(tar, "manifest.json", io.BytesIO(json.dumps(manifest).encode()))
    os.replace(partial, target)


def names(archive: Path) -> list[str]:
    """Return the tags of the images in an archive."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None, archive
        return [tag for entry in json.load(manifest) for tag in entry["RepoTags"]]


def _config(image: Image, digest: str) -> dict[str, Any]:
    config: dict[str, Any] = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    if image.entrypoint:
        config["Entrypoint"] = list(image.entrypoint)
    if image.user:
        config["User"] = image.user
    return {
        "architecture": architecture(),
        "os": "linux",
        "created": _EPOCH,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }


def _layer(image: Image, out: BinaryIO) -> None:
    with tarfile.open(fileobj=out, mode="w") as tar:
        for inside, source in image.files:
            with source.open("rb") as file:
                _add(tar, inside.lstrip("/"), file, mode=0o755)


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO, mode: int = 0o644) -> None:
    """Add a file without owner and time, so that the same content gives the same digest."""
    info = tarfile.TarInfo(name)
    info.size = file.seek(0, io.SEEK_END)
    info.mode = mode
    file.seek(0)
    tar.addfile(info, file)
