# SPDX-License-Identifier: Apache-2.0
"""When only Nodes change, only the annotations that select targets must be valid."""

from __future__ import annotations

import pytest

from ccm.cloud import Invalid
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as classic_rules
from ccm.providers.aws.load_balancers.network import load_balancer_rules as network_rules
from ccm.providers.aws.settings_sections import Global

from . import classic, rows

KINDS = pytest.mark.parametrize(
    ("rules", "spec"), [(classic_rules, classic.spec), (network_rules, rows.spec)], ids=["classic", "nlb"]
)


@KINDS
@pytest.mark.parametrize("name", ["healthcheck-port", "no-such-annotation", "cross-zone-load-balancing-enabled"])
def test_what_does_not_concern_targets_does_not_keep_them_from_following(rules, spec, name):
    desired = spec(annotations={name: "nonsense"})
    with pytest.raises(Invalid):
        rules.desired_state(desired, Global(), "kube")
    assert rules.desired_state(desired, Global(), "kube", nodes_only=True).name == rows.NAME


@KINDS
def test_which_targets_is_never_guessed(rules, spec):
    desired = spec(annotations={"target-node-labels": "a" * 3000})
    with pytest.raises(Invalid):
        rules.desired_state(desired, Global(), "kube", nodes_only=True)
