# SPDX-License-Identifier: Apache-2.0
"""The bed is no installed package: put its folder on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
