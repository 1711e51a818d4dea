# SPDX-License-Identifier: Apache-2.0
"""Tables of k8s.io/component-helpers."""

from __future__ import annotations

from typing import Any

from ccm.controllers.nodes import node_rules

from ..suite import ERROR, Row, Suite, Unresolved, outcome

SUITE = Suite("helpers", "node/util")


@SUITE.table("ips_test.go::TestParseNodeIPAnnotation", rows=20, variable="testCases")
def node_ip_annotation(row: Row) -> tuple[Any, Any]:
    ours = outcome(lambda: node_rules.parse_provided_ips(row["in"]), node_rules.NodeRuleError)
    if row.get("err"):
        return ERROR, ours
    try:
        return row["out"], ours
    except Unresolved:
        if row._values["out"] != [{"$ident": "net.IPv4zero"}]:
            raise
        return ["0.0.0.0"], ours
