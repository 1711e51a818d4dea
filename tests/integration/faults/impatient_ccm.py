# SPDX-License-Identifier: Apache-2.0
"""`ccm` as a process that forgets objects missing in a list after seconds: `python impatient_ccm.py FLAGS...`.

Normally it forgets the next few of them only after five minutes, which is too long for a test of restarts.
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
