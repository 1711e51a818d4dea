# SPDX-License-Identifier: Apache-2.0
"""docs/reference/variables.md, from the argument_specs of both roles: what to set first, and then everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[2] / "roles"
NAMES = ("ccm_runtime", "ccm_install")
#: What most clusters set.
FIRST = (
    "ccm_runtime_cloud_provider",
    "ccm_runtime_cloud_config",
    "ccm_runtime_cluster_name",
    "ccm_runtime_cluster_cidr",
    "ccm_runtime_image",
    "ccm_runtime_image_archive",
    "ccm_runtime_bind_address",
    "ccm_install_takeover",
)
COLUMNS = ("Variable", "Type", "Default", "Meaning")
INTRO = """# Variables

Set these variables in the inventory for all hosts, or with `-e`. Only the provider's name, or the vendor's, is
required. The names begin with their role: `ccm_runtime` rolls the controller out, `ccm_install` migrates the cluster.
The playbooks use both.

[A sample inventory for each layout](../inventories) shows them in place.

## Set these eight first
"""
ALL = """## All variables

`ansible-doc -t role outoftree.ccm.ccm_install outoftree.ccm.ccm_runtime` prints the same descriptions.
"""

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def page(head: str, table: Table) -> Iterator[str]:
    options = public()
    yield head + INTRO
    yield table(COLUMNS, [row(name, options[name]) for name in FIRST])
    yield ALL
    yield table(COLUMNS, [row(name, option) for name, option in options.items()])


def public() -> dict[str, dict[str, Any]]:
    """Every variable that users set, once, whichever entry points read it."""
    found: dict[str, dict[str, Any]] = {}
    for role in NAMES:
        specs = yaml.safe_load((ROLES / role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
        for entry in specs.values():
            for name, option in (entry.get("options") or {}).items():
                if name.startswith(f"{role}_"):
                    found.setdefault(name, option)
    return found


def row(name: str, option: dict[str, Any]) -> tuple[str, ...]:
    kind = option["type"] if option["type"] != "raw" else "any"
    if "elements" in option:
        kind = f"{kind} of {option['elements']}"
    if "choices" in option:
        kind += ": " + ", ".join(f"`{choice}`" for choice in option["choices"])
    return f"`{name}`", kind, _default(option), meaning(option["description"])


def _default(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "required"
    default = option.get("default")
    if default is None:
        return "not set"
    if default in ("", [], {}):
        return "empty"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def meaning(description: str | list[str]) -> str:
    """A description with Ansible's markup as Markdown."""
    text = description if isinstance(description, str) else " ".join(description)
    text = re.sub(r"\bL\(([^,()]+), *([^()]+)\)", r"[\1](\2)", text)
    text = re.sub(r"\b[BI]\(([^()]*)\)", r"*\1*", text)
    text = re.sub(r"\b[OCVRE]\(([^()]*)\)", lambda found: f"`{found[1].removesuffix('#role')}`", text)
    return " ".join(text.split())
