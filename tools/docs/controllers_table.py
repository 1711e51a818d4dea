# SPDX-License-Identifier: Apache-2.0
"""Writes roles/ccm_runtime/vars/main/controllers.yml, which lists the runtime's controllers and their rights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.controller_spec import Right
from ccm.manager.rights_check import CHEAPER, IDENTITY, needed

FILE = Path(__file__).parents[2] / "roles" / "ccm_runtime" / "vars" / "main" / "controllers.yml"
HEAD = """---
# SPDX-License-Identifier: Apache-2.0
# Written by `make docs` from the runtime's code (ccm.controllers.built_in_controllers): do not edit.
"""
#: Rights that are needed only when somebody reads a protected path, such as /metrics; the runtime does not check them
#: when it starts.
REVIEWS = [
    Right("tokenreviews", "create", "authentication.k8s.io"),
    Right("subjectaccessreviews", "create", "authorization.k8s.io"),
]
_VERBS = ["get", "list", "watch", "create", "patch", "update", "delete", "approve"]


class _Indented(yaml.SafeDumper):
    """Indents the items of lists below their key, as ansible-lint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def text() -> str:
    default = needed(spec for spec in BUILT_IN.values() if spec.on_by_default)
    specs = [
        {
            "name": spec.name,
            "alias": spec.alias,
            "on_by_default": spec.on_by_default,
            "rules": rules(set(needed([spec])) - set(default)),
        }
        for spec in BUILT_IN.values()
    ]
    leaders = [{"name": spec.name, "component": "*"} for spec in BUILT_IN.values() if spec.migrated]
    parts = [
        ("In the order in which they start.", "__ccm_runtime_controller_specs", specs),
        ("controllerLeaders of a LeaderMigrationConfiguration.", "__ccm_runtime_migrating", leaders),
        (
            "Rights of the controllers that are on by default, and for serving metrics. Only Nodes that wait for their "
            "initialisation are replaced, all else is patched.",
            "__ccm_runtime_rules",
            rules([IDENTITY, *CHEAPER, *default, *REVIEWS]),
        ),
    ]
    return HEAD + "".join(
        f"# {comment}\n{yaml.dump({name: value}, Dumper=_Indented, sort_keys=False)}" for comment, name, value in parts
    )


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return the rules of a ClusterRole, one for each resource, for all rights except those in a single namespace,
    which rbac.yaml.j2 grants."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for right in sorted(each for each in rights if not each.namespace):
        found.setdefault((right.group, right.resource, right.name), []).append(right.verb)
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            **({"resourceNames": [name]} if name else {}),
            "verbs": sorted(verbs, key=_VERBS.index),
        }
        for (group, resource, name), verbs in found.items()
    ]
