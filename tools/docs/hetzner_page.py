# SPDX-License-Identifier: Apache-2.0
"""docs/reference/hetzner.md: the variables and annotations that the provider `hetzner` reads, from the tables in the
provider's code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ccm.providers.hetzner import annotations as hetzner_annotations
from ccm.providers.hetzner.settings import IGNORED, KINDS, ROBOT_REFUSED, Variables

INTRO = """# Configuration of the provider `hetzner`

This page lists each variable and each annotation. [Another page](../providers/hetzner.md) says how to run the provider.

## Variables

The provider reads the variables of hcloud-cloud-controller-manager from the environment, and from the file of
`--cloud-config`, which has one `NAME=value` on each line. If a variable is in both places, the values must be equal.
An empty value counts as not set. All problems are reported at once, each with the variable's name, or with file and
line. Durations are Go's: `5s`, `1m30s`.
"""
OURS = "### Variables that hcloud-cloud-controller-manager does not have\n"
OTHERS = f"""### Variables without effect

A warning in the log names them. `ROBOT_ENABLED=true` is refused: {ROBOT_REFUSED}.
"""
ANNOTATIONS = f"""## Annotations of Services

All have the prefix `{hetzner_annotations.PREFIX}`. An Event of the Service reports an invalid value and an unknown name
with this prefix. The controller writes nothing for such a Service.
"""
NEW = " Only for a new load balancer."


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for ours in (False, True):
        if ours:
            yield OURS
        fields = [field for field in dataclasses.fields(Variables) if field.metadata["ours"] is ours]
        yield table(("Variable", "Kind", "Default", "Meaning"), [_row(field) for field in fields])
    yield OTHERS
    yield table(("Variable", "Reason"), [(f"`{name}`", reason) for name, reason in IGNORED.items()])
    yield ANNOTATIONS
    rows = [
        (f"`{each.name}`", each.kind, each.default, each.effect + (NEW if each.for_new else ""))
        for each in hetzner_annotations.TABLE.by_key.values()
    ]
    yield table(("Annotation", "Kind", "Default", "Effect"), rows)


def _row(field: dataclasses.Field[Any]) -> tuple[str, str, str, str]:
    kind = field.metadata["kind"]
    default = "" if field.default in ("", None) else f"`{str(field.default).removesuffix('.0')}`"
    if field.default is True or field.default is False:
        default = default.lower()
    if kind.__name__ in ("seconds", "duration") and default:
        default = f"{default[:-1]}s`"
    return f"`{field.name.upper()}`", KINDS.get(kind, kind.__name__), default, field.metadata["help"]
