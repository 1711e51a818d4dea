# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: requirements for providers as cases that anyone can run (docs/providers/your-own.md).

Three front ends run the same cases: `ccm check-provider`, `pytest --pyargs ccm.conformance`, and a provider's own test
suite, which can also cause failures that are impossible from outside (`World`). The kit calls providers only by the
contract, and knows no particular cloud.
"""

from .cases import CASES
from .kit import Case, Outcome, Result, check
from .subject import Subject
from .trial import Failed, Trial
from .world import Listener, NotRun, Trouble, World

__all__ = [
    "CASES",
    "Case",
    "Failed",
    "Listener",
    "NotRun",
    "Outcome",
    "Result",
    "Subject",
    "Trial",
    "Trouble",
    "World",
    "check",
]
