# SPDX-License-Identifier: Apache-2.0
"""docs/reference/gce.md: the keys of gce.conf that the provider `gce` reads, from the tables in its code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ccm.providers.gce import settings as conf

INTRO = """# Configuration of the provider `gce`

This page lists each key of gce.conf. [Another page](../providers/gce.md) says how to run the provider.

The provider reads the file of cloud-provider-gcp. Unknown keys and invalid values are errors, and all are reported at
once, each with its line. Durations are Go's: `5s`, `1m30s`.
"""
OTHERS = """## Keys without effect

A warning in the log names them.
"""
VARIABLES = """## Variables

`GOOGLE_APPLICATION_CREDENTIALS` names a file with credentials; `credentials-file` takes precedence.
`GCE_METADATA_HOST` names another metadata server. Google's own libraries read the same variables.
"""


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for name, section in conf.SECTIONS.items():
        yield f"## `[{name}]`\n\n{section.__doc__}\n"
        yield table(("Key", "Value", "Default", "Meaning"), [_row(each) for each in dataclasses.fields(section)])
    yield OTHERS
    rows = [(f"`[{section}] {key}`", why) for (section, key), why in conf.IGNORED.items()]
    yield table(("Key", "Reason"), rows)
    yield VARIABLES


def _row(field: dataclasses.Field[Any]) -> tuple[str, str, str, str]:
    kind = field.metadata["kind"]
    default = "" if field.default == "" else f"`{str(field.default).removesuffix('.0')}`"
    if isinstance(field.default, bool):
        default = default.lower()
    if kind.__name__ == "duration":
        default = f"{default[:-1]}s`"
    key = field.name.replace("_", "-")
    return f"`{key}`", conf.KINDS.get(kind, kind.__name__), default, field.metadata["help"]
