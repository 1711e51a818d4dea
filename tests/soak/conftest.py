# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the integration tests: a real API server, a simulated cloud, processes."""

from __future__ import annotations

from ..integration.conftest import apiserver, kube
from ..integration.faults.conftest import cloud, witness
from ..integration.runtime.conftest import admin_token, clean, start_ccm

__all__ = ["admin_token", "apiserver", "clean", "cloud", "kube", "start_ccm", "witness"]
