# SPDX-License-Identifier: Apache-2.0
"""The release before this one. Until there is a release, that is the last commit with one cloud in a process."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
COMMIT = "9976757d3"


def runtime(folder: Path) -> Path:
    """Write the runtime of the release to `folder`. Return the folder for PYTHONPATH."""
    command = ["git", "archive", COMMIT, "runtime/ccm"]
    archive = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder / "runtime"
