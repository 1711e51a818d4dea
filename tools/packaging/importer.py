# SPDX-License-Identifier: Apache-2.0
"""Runs galaxy-importer as Galaxy does, but without its limit of 180 s on ansible-lint:

    python tools/packaging/importer.py COLLECTION.tar.gz

A slow machine is not the collection's fault. The caller of this program has a time limit of its own.
"""

from __future__ import annotations

import runpy
import subprocess
from typing import Any


class Patient(subprocess.Popen[Any]):
    """A process that `communicate` waits for without a time limit."""

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        return super().communicate(input)


if __name__ == "__main__":
    subprocess.Popen = Patient  # type: ignore[misc]
    runpy.run_module("galaxy_importer.main", run_name="__main__")
