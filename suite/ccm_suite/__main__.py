# SPDX-License-Identifier: Apache-2.0
"""`python -m ccm_suite` is `ccm-suite`."""

import sys

from .command import main

sys.exit(main())
