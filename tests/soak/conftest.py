# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the integration tests: a simulated cloud, and processes."""

from __future__ import annotations

from ..integration.faults.conftest import cloud, witness
from ..integration.runtime.conftest import admin_token, start_ccm

__all__ = ["admin_token", "cloud", "start_ccm", "witness"]
