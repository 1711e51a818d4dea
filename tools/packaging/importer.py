# SPDX-License-Identifier: Apache-2.0
"""galaxy-importer as Galaxy runs it, but without its limit of 180 s on ansible-lint:

    python tools/packaging/importer.py COLLECTION.tar.gz

A busy machine is no fault of the collection. Who starts this has a limit of its own.
"""

from __future__ import annotations

import runpy
import subprocess
from typing import Any


class Patient(subprocess.Popen[Any]):
    """A program that is waited for until it ends."""

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        return super().communicate(input)


if __name__ == "__main__":
    subprocess.Popen = Patient  # type: ignore[misc]
    runpy.run_module("galaxy_importer.main", run_name="__main__")
