# SPDX-License-Identifier: Apache-2.0
"""Flags that ask for something which does not happen are reported at the start, never ignored."""

from __future__ import annotations

import logging

import pytest

from ccm.manager.running_controllers import without_effect
from ccm.options.command_line import parse

ALL = ("cloud-node-controller", "cloud-node-lifecycle-controller", "service-lb-controller", "node-route-controller")
NODES, LIFECYCLE, SERVICES, _ = ALL
WARN, INFO = logging.WARNING, logging.INFO


@pytest.mark.parametrize(
    ("flags", "runs", "missing", "expected"),
    [
        ("", ALL, {}, []),
        ("", (), {LIFECYCLE: "instances"}, []),
        ("--fence-dead-nodes --refresh-node-labels=always --load-balancer-drain-nodes=cordoned", ALL, {}, []),
        ("--delete-orphaned-load-balancers", ALL, {}, []),
        ("--fence-dead-nodes", (NODES,), {}, [(INFO, "--fence-dead-nodes", f"{LIFECYCLE} does not run in this")]),
        (
            "--fence-dead-nodes",
            (SERVICES,),
            {NODES: "instances", LIFECYCLE: "instances"},
            [(WARN, "--fence-dead-nodes", "provider sim has no instances")],
        ),
        ("--fence-dead-nodes --node-deletion-cap=0", ALL, {}, [(WARN, "--fence-dead-nodes", "--node-deletion-cap=0")]),
        ("--fence-dead-nodes --node-deletion-cap=1", ALL, {}, []),
        ("--refresh-node-labels=always", (SERVICES,), {}, [(INFO, "--refresh-node-labels=always", NODES)]),
        (
            "--load-balancer-drain-nodes=cordoned",
            (NODES,),
            {SERVICES: "load balancers"},
            [(WARN, "--load-balancer-drain-nodes=cordoned", "no load balancers")],
        ),
        ("--load-balancer-drain-nodes=never", (NODES,), {SERVICES: "load balancers"}, []),
        (
            "--delete-orphaned-load-balancers --orphan-audit-period=0",
            ALL,
            {},
            [(WARN, "--delete-orphaned-load-balancers", "--orphan-audit-period=0")],
        ),
    ],
)
def test_what_has_no_effect(flags, runs, missing, expected):
    found = list(without_effect(parse(["--cloud-provider=sim", *flags.split()]), runs, missing))
    assert len(found) == len(expected), found
    for (level, sentence), (expected_level, flag, why) in zip(found, expected, strict=True):
        assert level == expected_level and sentence.startswith(f"{flag} has no effect") and why in sentence
