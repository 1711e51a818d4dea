# SPDX-License-Identifier: Apache-2.0
"""The rig and the bed are no installed packages: put their folders on the path."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent.parent
for folder in ("bed", "openstack"):
    if (path := str(TESTS / folder)) not in sys.path:
        sys.path.insert(0, path)
