# SPDX-License-Identifier: Apache-2.0
"""The options of `pytest --pyargs ccm.conformance`. pytest loads this in every run of the environment: it imports
nothing but pytest."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ccm", "conformance of a cloud provider (pytest --pyargs ccm.conformance)")
    group.addoption("--ccm-provider", metavar="NAME", help="the provider, as for --cloud-provider")
    group.addoption("--ccm-cloud-config", metavar="FILE", help="its configuration")
    group.addoption("--ccm-allow-writes", action="store_true", help="make and remove load balancers and routes")
    group.addoption("--ccm-route-cidr", metavar="CIDR", default="198.18.77.0/24", help="a range that nothing uses")
    group.addoption("--ccm-patience", metavar="SECONDS", default=300.0, type=float, help="for a load balancer")
