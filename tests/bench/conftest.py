# SPDX-License-Identifier: Apache-2.0
"""The bed and the integration tests' cluster are no installed packages: put them on the path."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "bed"), str(TESTS.parent)]
