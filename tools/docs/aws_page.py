# SPDX-License-Identifier: Apache-2.0
"""docs/reference/aws.md: the keys of cloud.conf and the annotations that the provider `aws` reads, from the tables in
the provider's code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ccm.cloud.toolkit.annotation_reader import Annotation
from ccm.providers.aws import annotations as forms
from ccm.providers.aws import settings_sections as conf
from ccm.providers.aws.load_balancers.classic import annotations as classic
from ccm.providers.aws.load_balancers.network import annotations as network

INTRO = """# Configuration of the provider `aws`

This page lists each key of cloud.conf and each annotation. [Another page](../providers/aws.md) says how to run the
provider.

## cloud.conf

The provider reads the file of cloud-provider-aws. Upper and lower case do not matter. Unknown keys and invalid values
are errors, and all are reported at once, each with its line. Durations are Go's: `5s`, `1m30s`.
"""
NAMED = 'Each section has a name of its own and all four keys: `[ServiceOverride "NAME"]`.\n'
OTHERS = """### Keys without effect

A warning in the log names them.
"""
REFUSED = "### Keys that are refused\n"
ANNOTATIONS = f"""## Annotations of Services

All have the prefix `{forms.PREFIX}`. An Event of the Service reports an invalid value and an unknown name with this
prefix. The controller writes nothing for such a Service. Annotations for the other type of load balancer, and those of
the AWS Load Balancer Controller, have no effect, and an Event says so.
"""
COLUMNS = ("Annotation", "Value", "Default", "Effect")


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for name, section in conf.SECTIONS.items():
        yield f"### `[{name}]`\n"
        yield NAMED if section is conf.ServiceOverride else f"{section.__doc__}\n"
        yield table(("Key", "Value", "Default", "Meaning"), [_row(each) for each in dataclasses.fields(section)])
    yield OTHERS
    yield table(("Key", "Reason"), [(_key(where), why) for where, why in conf.IGNORED.items()])
    yield REFUSED
    yield table(("Key", "Why, and what to do"), [(_key(where), why) for where, why in conf.REFUSED.items()])
    yield ANNOTATIONS
    common = {each.key for each in forms.COMMON}
    yield "### Both types\n"
    yield table(COLUMNS, [_annotation(each) for each in forms.COMMON])
    for title, known in (("Network", network.TABLE), ("Classic", classic.TABLE)):
        yield f"### {title} Load Balancers\n"
        yield table(COLUMNS, [_annotation(each) for each in known.by_key.values() if each.key not in common])


def _annotation(annotation: Annotation) -> tuple[str, str, str, str]:
    effect = annotation.effect + (" Only for a new load balancer." if annotation.for_new else "")
    return f"`{annotation.key.removeprefix(forms.PREFIX)}`", annotation.kind, annotation.default, effect


def _key(where: tuple[str, str]) -> str:
    section, key = where
    return f"`[{section}] {conf.SPELLINGS[key]}`"


def _row(field: dataclasses.Field[Any]) -> tuple[str, str, str, str]:
    kind = field.metadata["kind"]
    default = "" if field.default in ("", ()) else f"`{str(field.default).removesuffix('.0')}`"
    if isinstance(field.default, bool):
        default = default.lower()
    if kind.__name__ == "duration":
        default = f"{default[:-1]}s`"
    key = conf.SPELLINGS[field.name.replace("_", "")]
    return f"`{key}`", conf.KINDS.get(kind, kind.__name__), default, field.metadata["help"]
