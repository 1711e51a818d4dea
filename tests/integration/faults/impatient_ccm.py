# SPDX-License-Identifier: Apache-2.0
"""`ccm` with a short memory for objects that are missing from a list: `python impatient_ccm.py FLAGS...`.

This program forgets such objects after a few seconds. `ccm` itself forgets only a few every five minutes, too slowly
for a test of restarts.
"""

from __future__ import annotations

import sys

from ccm.engine import absence_rules

absence_rules.GRACE = 3.0

from ccm.cli import main  # noqa: E402 - what reads the times comes after they are set
from ccm.engine import informer  # noqa: E402

informer.LIST_AGAIN_FIRST = informer.LIST_AGAIN_MAX = 1.0

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
