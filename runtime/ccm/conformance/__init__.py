# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: requirements for providers as cases that anyone can run (docs/providers/your-own.md).

Three front ends run the same cases: `ccm check-provider`, `pytest --pyargs ccm.conformance`, and a provider's own test
suite, which can also cause failures that are impossible from outside (`World`). The kit calls providers only by the
contract, and knows no particular cloud.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "CASES": "cases",
    **dict.fromkeys(("Case", "Outcome", "Result", "check"), "kit"),
    "Subject": "subject",
    **dict.fromkeys(("Failed", "Trial"), "trial"),
    **dict.fromkeys(("Listener", "NotRun", "Trouble", "World"), "world"),
}


def __getattr__(name: str) -> Any:
    """Import the kit when it is used: pytest loads `plugin`, and with it this package, in every run of the
    environment."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
