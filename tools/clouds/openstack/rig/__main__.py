# SPDX-License-Identifier: Apache-2.0
"""Runs the commands: ``python3 -m rig``."""

import sys

from rig.cli import main

sys.exit(main(sys.argv[1:]))
