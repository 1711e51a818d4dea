# SPDX-License-Identifier: Apache-2.0
"""How hypothesis runs the fuzz tests: the same examples in every run, unless FUZZ_EXAMPLES asks for new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

#: Number of examples per test, different in each run; 0: the test's own number, the same examples in each run.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))


def bounded(examples: int) -> settings:
    """Return settings for this many examples, without a time limit. FUZZ_EXAMPLES overrides the number."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
