# SPDX-License-Identifier: Apache-2.0
"""A real API server does what the explorer's does; `tests/explore/test_semantics.py` is the other half."""

from __future__ import annotations

import uuid

import pytest

from ccm.engine.client import KubeClient
from tests.explore.semantics import SUITE, Check


@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
async def test_as_the_explorers_api_server(kube: KubeClient, check: Check) -> None:
    await check(kube, f"same-{uuid.uuid4().hex[:8]}")
