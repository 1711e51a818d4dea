# SPDX-License-Identifier: Apache-2.0
"""Fixtures. All tests of a session share one API server, and each test leaves it empty."""

from __future__ import annotations

from ..runtime.conftest import clean

__all__ = ["clean"]
