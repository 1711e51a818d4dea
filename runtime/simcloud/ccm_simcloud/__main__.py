# SPDX-License-Identifier: Apache-2.0
"""`python -m ccm_simcloud`: the same as `ccm sim`, for machines without the controller."""

from __future__ import annotations

import sys

from . import main

sys.exit(main(sys.argv[1:]))
