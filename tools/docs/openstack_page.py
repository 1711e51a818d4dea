# SPDX-License-Identifier: Apache-2.0
"""docs/reference/openstack.md: the keys of cloud.conf and the annotations that the provider `openstack` reads, from
the tables in the provider's code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ccm.cloud.toolkit.setting_kinds import duration
from ccm.providers.openstack import annotations
from ccm.providers.openstack import settings_sections as config

INTRO = """# Configuration of the provider `openstack`

This page explains each key of cloud.conf and each annotation, and what happens if one cannot be applied. [Another
page](../providers/openstack.md) says how to run the provider.

## cloud.conf

The provider reads the file of cloud-provider-openstack, in the same dialect: git's configuration format, as Go's gcfg
reads it. Upper and lower case do not matter in names of sections and keys. A value with `#`, `;` or spaces around it
needs quotes; a backslash and a quote are written `\\\\` and `\\"`. A key that may be repeated makes a list. Durations
are Go's: `5s`, `1m30s`.

Unknown, contradictory and missing keys and invalid values are errors. All of them are reported at once, each with its
line, and the file is not used. cloud-provider-openstack logs unknown keys and continues without them. The provider
reads no environment variables (`OS_*`) except `OS_CCM_REGIONAL`, which cloud-provider-openstack reads, too.
"""
OTHERS = """### Keys without effect

A warning in the log names them.
"""
REFUSED = "### Keys that are refused\n"
CLASSES = '`[LoadBalancerClass "NAME"]`, chosen by the annotation `loadbalancer.openstack.org/class`.\n'
RUNTIME = """\
This section belongs to this project. cloud-provider-openstack warns of it and continues, so both can read one file.
"""
ANNOTATIONS = """## Annotations of Services

These are the annotations of cloud-provider-openstack. An Event of the Service reports a value that is invalid, or
that this cloud's Octavia does not support. If the default names a key of cloud.conf, that key's value applies.
"Allowed" says which annotations Services may have if `allowed-annotations` is not set: those that concern only the
Service's own load balancer and name nothing else in the project. `sharing` limits `load-balancer-id`.
"""


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for name, section in config.SECTIONS.items():
        yield f"### `[{name}]`\n"
        if section is config.LoadBalancerClass:
            yield CLASSES
        if section is config.Runtime:
            yield RUNTIME
        fields = [
            (f"`{field.name.replace('_', '-')}`", _kind(field), _default(field), field.metadata["help"])
            for field in dataclasses.fields(section)
        ]
        yield table(("Key", "Kind", "Default", "Meaning"), fields)
    yield OTHERS
    ignored = [(f"`[{section}] {key}`", why) for (section, key), why in config.IGNORED.items()]
    yield table(("Key", "Why"), ignored)
    yield REFUSED
    refused = [(f"`[{section}] {key}`", why) for (section, key), why in config.REFUSED.items()]
    yield table(("Key", "Why, and what to do"), refused)
    yield ANNOTATIONS
    rows = [
        (f"`{each.key}`", each.kind, each.default, "no" if each.names_another else "yes", each.effect)
        for each in annotations.TABLE
    ]
    yield table(("Annotation", "Kind", "Default", "Allowed", "Meaning"), rows)


def _kind(field: dataclasses.Field[Any]) -> str:
    kind = field.metadata["kind"]
    return ("secret " if field.metadata["secret"] else "") + config.KINDS.get(kind, kind.__name__)


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value in ("", (), None):
        return "none"
    if isinstance(value, tuple):
        return f"`{', '.join(map(str, value))}`"
    if field.metadata["kind"] is duration:
        return f"`{value:g}s`"
    return f"`{str(value).lower() if isinstance(value, bool) else f'{value:g}' if isinstance(value, float) else value}`"
