# SPDX-License-Identifier: Apache-2.0
"""Remembers each Service's desired state, and its part of the fingerprint.

When a Node joins, the framework needs both for every Service. They do not depend on Nodes, so they are computed only
when the Service or its load balancer has changed. Nothing here calls the cloud.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.cloud import Invalid, LoadBalancerSpec
from ccm.cloud.toolkit.recent import Recent

from ..settings_sections import LoadBalancerClass, LoadBalancerSection
from . import load_balancer_rules as rules
from .load_balancer_rules import DesiredLoadBalancer
from .memory import REMEMBERED


@dataclass
class Known:
    """What was computed for one state of a Service. `by_provider`: Octavia provider of the existing load balancer and
    family of its additional VIP, each "" if there is none -> the desired state."""

    spec: LoadBalancerSpec
    fingerprint: str = ""
    by_provider: dict[tuple[str, str], DesiredLoadBalancer] = field(default_factory=dict)


class DesiredStates:
    def __init__(self, section: LoadBalancerSection, classes: Mapping[str, LoadBalancerClass]) -> None:
        self._section = section
        self._classes = classes
        self._known: Recent[tuple[str, str], Known] = Recent(REMEMBERED)

    def of(
        self, spec: LoadBalancerSpec, made_by: str = "", second: str = "", *, nodes_only: bool = False
    ) -> DesiredLoadBalancer:
        """Return the desired state, remembered or new.

        For a Service that cannot be served, raises Invalid, or with `nodes_only` returns a desired state for its
        members alone; neither is remembered.
        """
        by_provider, key = self._for(spec).by_provider, (made_by, second)
        new = by_provider.get(("", second))
        if key not in by_provider and new is not None and new.provider == made_by:
            by_provider[key] = dataclasses.replace(new, made_by=made_by)
        if key not in by_provider:
            more = (spec, self._section, self._classes, made_by)
            try:
                by_provider[key] = rules.desired_load_balancer(*more, second=second)
            except Invalid:
                if not nodes_only:
                    raise
                return rules.desired_load_balancer(*more, second=second, nodes_only=True)
        return by_provider[key]

    def fingerprint(self, spec: LoadBalancerSpec) -> str:
        known = self._for(spec)
        if not known.fingerprint:
            known.fingerprint = rules.fingerprint(spec, self._section, self._classes)
        return known.fingerprint

    def forget(self, spec: LoadBalancerSpec) -> None:
        """Forget a Service whose load balancer is gone."""
        self._known.forget((spec.cluster, spec.uid))

    def _for(self, spec: LoadBalancerSpec) -> Known:
        known = self._known.get((spec.cluster, spec.uid))
        if known is None or known.spec != spec:
            known = Known(spec)
            self._known.put((spec.cluster, spec.uid), known)
        return known
