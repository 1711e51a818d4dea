# SPDX-License-Identifier: Apache-2.0
"""How hypothesis searches in the fuzz tests: the same examples in every run, unless FUZZ_EXAMPLES asks for a search."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

#: How many examples each test tries, and then other ones each time; 0: as many as the test says, always the same.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))


def bounded(examples: int) -> settings:
    """Try this many examples, however slow the machine is."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
