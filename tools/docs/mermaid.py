# SPDX-License-Identifier: Apache-2.0
"""Downloads mermaid, which draws diagrams in the reader's browser, because the site loads no scripts from other
hosts."""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bed"))

from bed import paths

#: The version that sphinxcontrib-mermaid was written for, and the SHA-512 of its package.
VERSION = "11.12.1"
SHA512 = "UlIZrRariB11TY1RtTgUWp65tphtBv4CSq7vyS2ZZ2TgoMjs2nloq+wFqxiwcxlhHUvs7DPGgMjs2aeQxz5h9g=="
_PARTS = ("package/dist/mermaid.esm.min.mjs", "package/dist/chunks/mermaid.esm.min/")


def into(static: Path) -> bool:
    """Copy mermaid into a folder, from the cache or npm. Return False if npm fails: then diagrams are shown as text."""
    cached = paths.cache() / f"mermaid-{VERSION}"
    if not cached.is_dir() and (refused := fetch(cached)):
        print(f"The site shows diagrams as text: {refused}")
        return False
    shutil.copytree(cached, static / "mermaid")
    return True


def fetch(folder: Path) -> str:
    """Download mermaid into a new folder. Return why that failed, or ""."""
    if not shutil.which("npm"):
        return "npm, which downloads mermaid, is missing"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        done = subprocess.run(
            ["npm", "pack", "--silent", f"mermaid@{VERSION}"], cwd=scratch, capture_output=True, text=True, timeout=120
        )
        package = Path(scratch, f"mermaid-{VERSION}.tgz")
        if done.returncode or not package.is_file():
            return f"npm pack mermaid@{VERSION} failed: {done.stderr.strip()}"
        content = package.read_bytes()
        if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
            return f"the package mermaid@{VERSION} is not the one whose SHA-512 is in tools/docs/mermaid.py"
        unpack(content, Path(scratch, "mermaid"))
        Path(scratch, "mermaid").rename(folder)
    return ""


def unpack(package: bytes, folder: Path) -> None:
    """Unpack the modules that a browser loads, without files for debugging."""
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(_PARTS) and member.name.endswith(".mjs"):
                target = folder / Path(member.name).relative_to("package/dist")
                target.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())
