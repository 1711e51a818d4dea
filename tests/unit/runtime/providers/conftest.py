# SPDX-License-Identifier: Apache-2.0
"""Turns off the pause in which shared reads gather callers, because tests would spend most of their time in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ccm.cloud.toolkit import shared_reads


@pytest.fixture(autouse=True, scope="module")
def _at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_reads, "GATHER", 0.0)
        yield
