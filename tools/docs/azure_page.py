# SPDX-License-Identifier: Apache-2.0
"""docs/reference/azure.md: the keys of azure.json that the provider `azure` reads, from the tables in its code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ccm.providers.azure import settings as conf

INTRO = """# Configuration of the provider `azure`

This page lists each key of azure.json. [Another page](../providers/azure.md) says how to run the provider.

The provider reads the file of cloud-provider-azure, as JSON or YAML. Invalid values are errors, and all are reported at
once, each with its line. Unknown keys have no effect, as in cloud-provider-azure; a warning in the log names them.
Durations are Go's: `5s`, `1m30s`.
"""
OTHERS = """## Keys without effect

A warning in the log names these keys, and all keys that are not on this page.
"""
VARIABLES = """## Variables

`AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET` and `AZURE_FEDERATED_TOKEN_FILE` override the keys
above. `AZURE_AUTHORITY_HOST` is the URL of another Microsoft Entra ID, and `AZURE_POD_IDENTITY_AUTHORITY_HOST` that of
another service for tokens of managed identities. Azure's own libraries read the same variables.
"""


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for title, section in (("## Keys", conf.Common), ("## `runtime`", conf.Runtime)):
        yield f"{title}\n\n{section.__doc__}\n"
        yield table(("Key", "Value", "Default", "Meaning"), [_row(each) for each in dataclasses.fields(section)])
    yield OTHERS
    yield table(("Key", "Reason"), [(f"`{key}`", why) for key, why in sorted(conf.IGNORED.items())])
    yield VARIABLES


def _row(field: dataclasses.Field[Any]) -> tuple[str, str, str, str]:
    kind = field.metadata["kind"]
    default = "" if field.default == "" else f"`{str(field.default).removesuffix('.0')}`"
    if isinstance(field.default, bool):
        default = default.lower()
    if kind.__name__ == "duration":
        default = f"{default[:-1]}s`"
    if kind is conf.cloud_kind:
        default = "`AzurePublicCloud`"
    return f"`{conf.spelt(field.name)}`", conf.KINDS.get(kind, kind.__name__), default, field.metadata["help"]
