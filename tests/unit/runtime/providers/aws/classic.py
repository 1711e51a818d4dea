# SPDX-License-Identifier: Apache-2.0
"""Services that ask for a Classic Load Balancer, and their desired states, for unit tests of the provider aws."""

from __future__ import annotations

from typing import Any

from ccm.cloud import LoadBalancerSpec, Port
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as rules
from ccm.providers.aws.load_balancers.classic.load_balancer_steps import Place
from ccm.providers.aws.settings_sections import Global

from .rows import spec as network

HTTP, HTTPS = Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443)
CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a1"
PLACE = Place(("subnet-a", "subnet-b"), ("sg-own",), {"subnet-a": "a", "subnet-b": "b", "subnet-a2": "a"})


def spec(*ports: Port, **more: Any) -> LoadBalancerSpec:
    """Return a Service that asks for a Classic Load Balancer. `annotations`: without their prefix."""
    return network(*ports, **{**more, "annotations": {"type": None, **more.get("annotations", {})}})


def want(*ports: Port, common: dict[str, Any] | None = None, **more: Any) -> rules.DesiredState:
    """Return the desired state. `common`: keys of [Global]. `more`: annotations, with underscores for dashes."""
    annotations = {name.replace("_", "-"): text for name, text in more.items()}
    return rules.desired_state(spec(*ports, annotations=annotations), Global(**(common or {})), "kube")
