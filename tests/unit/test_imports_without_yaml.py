# SPDX-License-Identifier: Apache-2.0
"""The modules' shared code can be imported without PyYAML, as `ansible-test sanity` requires."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.glob("plugins/module_utils/**/*.py")]
SCRIPT = """import importlib, sys
sys.path.insert(0, sys.argv[1])
sys.modules["yaml"] = None
for name in sys.argv[2:]:
    importlib.import_module("ansible_collections.outoftree.ccm." + name)
"""


def test_everything_that_modules_share_can_be_imported_without_yaml(tmp_path: Path) -> None:
    namespace = tmp_path / "ansible_collections" / "outoftree"
    namespace.mkdir(parents=True)
    (namespace / "ccm").symlink_to(ROOT)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *sorted(NAMES)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=300)
    assert len(NAMES) > 50 and done.returncode == 0, done.stderr
