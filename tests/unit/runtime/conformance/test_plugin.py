# SPDX-License-Identifier: Apache-2.0
"""pytest loads the plugin of the kit in every run, so it must not bring the kit along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ccm.conformance

PROGRAM = """
import sys
import ccm.conformance.plugin
print(*sorted(name for name in sys.modules if name.startswith("ccm.")))
"""


def test_the_options_of_pytest_load_nothing_of_the_kit() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["ccm.conformance", "ccm.conformance.plugin"]


def test_every_public_name_is_there_when_it_is_used() -> None:
    assert {name for name in ccm.conformance.__all__ if getattr(ccm.conformance, name) is None} == set()
    with pytest.raises(ImportError, match="Cases"):
        from ccm.conformance import Cases  # noqa: F401
