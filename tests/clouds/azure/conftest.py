# SPDX-License-Identifier: Apache-2.0
"""The API server of the session is shared: each test leaves it empty."""

from __future__ import annotations

from tests.integration.runtime.conftest import clean

__all__ = ["clean"]
