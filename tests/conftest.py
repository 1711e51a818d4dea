# SPDX-License-Identifier: Apache-2.0
"""What all tests have in common: the results say what each cost, and a test in quarantine decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests import processor, quarantine

_begun: pytest.StashKey[float] = pytest.StashKey()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    entries = quarantine.parse(quarantine.LIST.read_text().splitlines())
    for item in items:
        entry = quarantine.entry_of(item.nodeid, entries)
        if entry is not None:
            item.add_marker(pytest.mark.xfail(reason=f"in quarantine since {entry.since}: {entry.why}", strict=False))
            item.user_properties.append(("quarantine", str(entry.since)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_begun] = processor.used()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """JUnit XML has the properties of a test's last report, which is that of its teardown."""
    if call.when == "teardown" and _begun in item.stash:
        others = [(name, value) for name, value in item.user_properties if name != "cpu"]
        cost = max(0.0, processor.used() - item.stash[_begun])
        item.user_properties[:] = [*others, ("cpu", f"{cost:.3f}")]
