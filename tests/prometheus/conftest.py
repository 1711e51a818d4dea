# SPDX-License-Identifier: Apache-2.0
"""Fixtures: Prometheus' own programs, compiled the first time, and the fixtures of the runtime's integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bed import go_programs
from bed.progress import Progress

from ..integration.runtime.conftest import cloud, start_ccm

__all__ = ["cloud", "start_ccm"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests as long, and set a long timeout: the first test that uses a program compiles it for minutes."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def promtool() -> Path:
    return go_programs.ensure("promtool", Progress())


@pytest.fixture(scope="session")
def prometheus() -> Path:
    return go_programs.ensure("prometheus", Progress())
