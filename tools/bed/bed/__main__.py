# SPDX-License-Identifier: Apache-2.0
"""``python3 -m bed``."""

import sys

from bed.cli import main

sys.exit(main(sys.argv[1:]))
