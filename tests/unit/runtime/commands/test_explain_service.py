# SPDX-License-Identifier: Apache-2.0
"""What `ccm explain service` says about a Service whose Events have expired."""

import datetime

import msgspec

from ccm.commands.explain.explain_service import state_of
from ccm.controllers.services.class_rules import UNDECLARED
from ccm.engine.objects import Service

NOW = datetime.datetime(2026, 1, 1, 2, tzinfo=datetime.UTC)


def service(*conditions):
    metadata = {"namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}
    known = {"status": "True", "reason": "R", "message": "403 quota", "lastTransitionTime": "2026-01-01T01:30:00Z"}
    listed = [{"type": each, **known} for each in conditions]
    body = {"metadata": metadata, "spec": {"type": "LoadBalancer"}, "status": {"conditions": listed}}
    return msgspec.convert(body, Service)


def test_the_condition_says_why_it_waits_and_since_when():
    assert state_of(service("Another", "LoadBalancerWaiting"), [], NOW, UNDECLARED)[-1] == "  30 min ago: 403 quota"
    assert state_of(service("Another"), [], NOW, UNDECLARED)[-1] == "It waits for the address of a load balancer."
