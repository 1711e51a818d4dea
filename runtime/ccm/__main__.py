# SPDX-License-Identifier: Apache-2.0
"""`python -m ccm` is `ccm`."""

import sys

from .cli import main

sys.exit(main())
