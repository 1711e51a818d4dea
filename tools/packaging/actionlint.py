# SPDX-License-Identifier: Apache-2.0
"""`make actionlint`: checks the workflows of .github with actionlint, which is built once, into the cache.

The package of PyPI would download the program from another server. The Go module comes from the module proxy, as the
programs of the test bed do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bed import golang, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run

VERSION = "v1.7.12"
MODULE = "github.com/rhysd/actionlint/cmd/actionlint"


def ensure(progress: Progress) -> Path:
    """Return the program, built if need be. Raises BedError if Go cannot build it."""
    folder = paths.cache() / "tools" / f"actionlint-{VERSION}"
    program = folder / "actionlint"
    if not program.exists():
        go = golang.ensure(progress)
        with progress.step(f"Build of actionlint {VERSION}"):
            environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "", "CGO_ENABLED": "0"}
            run(str(go), "install", f"{MODULE}@{VERSION}", env=environment, timeout=900)
    return program


def check(root: Path) -> subprocess.CompletedProcess[str]:
    """Run actionlint on the workflows below ROOT, without shellcheck and pyflakes, so that nobody must install
    these."""
    program = ensure(Progress())
    command = [program, "-no-color", "-shellcheck=", "-pyflakes=", *sorted(root.glob(".github/workflows/*.yml"))]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


if __name__ == "__main__":
    try:
        done = check(paths.REPOSITORY)
    except BedError as error:
        sys.exit(f"actionlint: {error}")
    print(done.stdout + done.stderr, end="")
    sys.exit(done.returncode)
