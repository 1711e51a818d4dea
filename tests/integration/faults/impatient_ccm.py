# SPDX-License-Identifier: Apache-2.0
"""`ccm` as a process that lets objects which a list lacks go after seconds: `python impatient_ccm.py FLAGS...`.

It takes five minutes otherwise until the next few of them may go, which is longer than a test of restarts shall wait.
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
