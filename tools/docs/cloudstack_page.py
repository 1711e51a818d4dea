# SPDX-License-Identifier: Apache-2.0
"""docs/reference/cloudstack.md: the keys and annotations that the provider `cloudstack` reads, from the tables in the
provider's code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ccm.cloud.toolkit.setting_kinds import duration
from ccm.providers.cloudstack import annotations as cloudstack_annotations
from ccm.providers.cloudstack.settings import IGNORED, KINDS, SECTIONS

INTRO = """# Configuration of the provider `cloudstack`

This page lists each key and each annotation. [Another page](../providers/cloudstack.md) says how to run the provider.

## cloud-config

The provider reads the file of cloudstack-kubernetes-provider, in the same dialect: git's configuration format, as Go's
gcfg reads it. Upper and lower case do not matter in names of sections and keys. Unknown, contradictory and missing keys
and invalid values are errors. All of them are reported at once, each with its line. Durations are Go's: `5s`, `1m30s`.
Keys that cloudstack-kubernetes-provider does not have are marked; it refuses a file that has them.
"""
OTHERS = """### Keys without effect

A warning in the log names them.
"""
ANNOTATIONS = f"""## Annotations of Services

These are the annotations of cloudstack-kubernetes-provider. All have the prefix
`{cloudstack_annotations.PREFIX}`. An Event of the Service reports an invalid value
and an unknown name with this prefix. The controller writes nothing for such a Service.
"""


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for name, section in SECTIONS.items():
        yield f"### `[{name}]`\n"
        yield table(
            ("Key", "Kind", "Default", "Only here", "Meaning"), [_row(field) for field in dataclasses.fields(section)]
        )
    yield OTHERS
    yield table(("Key", "Reason"), [(f"`[{section}] {key}`", why) for (section, key), why in IGNORED.items()])
    yield ANNOTATIONS
    prefix = len(cloudstack_annotations.PREFIX)
    rows = [
        (f"`{each.key[prefix:]}`", each.kind, each.default, each.effect)
        for each in cloudstack_annotations.TABLE.by_key.values()
    ]
    yield table(("Annotation", "Kind", "Default", "Effect"), rows)


def _row(field: dataclasses.Field[Any]) -> tuple[str, str, str, str, str]:
    kind = field.metadata["kind"]
    default = "" if field.default == "" else f"`{str(field.default).removesuffix('.0').lower()}`"
    if kind is duration:
        default = f"{default[:-1]}s`"
    said = ("secret " if field.metadata["secret"] else "") + KINDS.get(kind, kind.__name__)
    return (
        f"`{field.name.replace('_', '-')}`",
        said,
        default,
        "yes" if field.metadata["ours"] else "",
        field.metadata["help"],
    )
