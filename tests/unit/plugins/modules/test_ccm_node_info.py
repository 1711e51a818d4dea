# SPDX-License-Identifier: Apache-2.0
"""The facts of a Node are those that the module's documentation describes."""

from __future__ import annotations

import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes
from ansible_collections.outoftree.ccm.plugins.modules import ccm_node_info as subject


def test_every_fact_of_a_node_is_documented() -> None:
    described = yaml.safe_load(subject.RETURN)["nodes"]["contains"]
    (fact,) = nodes.judged([nodes.summary({"metadata": {"name": "worker-1"}}, "sim://")], [])
    assert sorted(fact) == sorted(described)
