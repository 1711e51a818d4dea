# SPDX-License-Identifier: Apache-2.0
"""The options of `pytest --pyargs ccm.conformance`. pytest loads this module in every run of the environment, so it
imports nothing else of the runtime."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ccm", "conformance of a cloud provider (pytest --pyargs ccm.conformance)")
    group.addoption("--ccm-provider", metavar="NAME", help="check this provider, as in --cloud-provider")
    group.addoption("--ccm-cloud-config", metavar="FILE", help="read the provider's configuration from this file")
    group.addoption("--ccm-allow-writes", action="store_true", help="create and delete load balancers and routes")
    group.addoption(
        "--ccm-route-cidr", metavar="CIDR", default="198.18.77.0/24", help="create routes to this free range"
    )
    group.addoption(
        "--ccm-patience", metavar="SECONDS", default=300.0, type=float, help="wait this long for a load balancer"
    )
