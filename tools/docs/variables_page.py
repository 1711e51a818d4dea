# SPDX-License-Identifier: Apache-2.0
"""docs/reference/variables.md, from the argument_specs of both roles: the variables to set first, and then all."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[2] / "roles"
NAMES = ("ccm_runtime", "ccm_install")
#: The variables that most clusters set.
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
COLUMNS = ("Variable", "Type", "Default", "Meaning", "When to set it, and why the default")
INTRO = """# Variables

Set these variables in the inventory for all hosts, or with `-e`. Only the provider's name, or the vendor's, is
required. The names begin with their role: `ccm_runtime` rolls the controller out, `ccm_install` migrates the cluster.
The playbooks use both.

[A sample inventory for each layout](../inventories) shows them in place.

## Set these eight first
"""
BOOKS = """## The eight playbooks

You run no other playbooks. `verify` and `lint` change something only if `ccm_install_verify_active` or
`ccm_install_lint_condition` is set:
"""
JOBS = (
    ("preflight", "Says what `site` would change and why it could not start. `site` runs it first.", "no"),
    ("site", "Migrates the cluster, and rolls out a changed controller.", "yes"),
    (
        "leader_migration",
        "Does what `site` does for an in-tree provider up to Kubernetes 1.30, with a Lease that hands the loops over. "
        "Its stages are tags.",
        "yes",
    ),
    ("verify", "Checks a migrated cluster by effects. `site` runs the same checks last.", "no"),
    (
        "verify_active",
        "Creates a load balancer, asks it from outside and from Pods, names what is broken, and deletes it again.",
        "yes",
    ),
    ("rollback", "Restores what `site` changed.", "yes"),
    ("lint", "Says what keeps components of the next Kubernetes from starting, before or after a migration.", "no"),
    ("render", "Writes the objects of a rollout as files, without a cluster.", "files only"),
)
ROLES_ALONE = """\
On its own, the role `outoftree.ccm.ccm_install` does what `preflight` does. The role `outoftree.ccm.ccm_runtime` rolls
the controller out on a cluster whose components already run with `--cloud-provider=external`, and its entry point
`remove` removes the controller. All other tasks of the roles are private.
"""
ALL = """## All variables

`ansible-doc -t role outoftree.ccm.ccm_install outoftree.ccm.ccm_runtime` prints the same descriptions.
"""
OLD = """## Former variables

These variables still have an effect, with a deprecation warning, until 2.0.0.
"""

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def page(head: str, table: Table) -> Iterator[str]:
    options = public()
    yield head + INTRO
    yield table(COLUMNS, [row(name, options[name]) for name in FIRST])
    yield ALL
    yield table(COLUMNS, [row(name, option) for name, option in options.items()])
    yield OLD
    yield table(
        ("Former", "Set instead"),
        [(f"`{old}`", re.sub(r"\bccm_\w+", r"`\g<0>`", new)) for old, new in former().items()],
    )
    yield BOOKS
    jobs = [(f"`outoftree.ccm.{book}`", job, change) for book, job, change in JOBS]
    yield table(("Playbook", "Job", "Changes something"), jobs)
    yield ROLES_ALONE


def former() -> dict[str, str]:
    """Return the former variables, from the table of the filter that warns about them."""
    source = (ROLES.parent / "plugins/filter/former_variables.py").read_text()
    (table,) = [
        statement.value
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "FORMER"
    ]
    found: dict[str, str] = ast.literal_eval(table)
    return found


def public() -> dict[str, dict[str, Any]]:
    """Return every variable that users set, once, even if several entry points read it."""
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
        kind += ": " + ", ".join(f"`{choice}`" for choice in option["choices"] if choice)
    # The last sentence of each description says why somebody sets the option.
    *what, reason = option["description"]
    return f"`{name}`", kind, _default(option), meaning(what), meaning(reason)


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
    """Return a description with Ansible's markup converted to Markdown."""
    text = description if isinstance(description, str) else " ".join(description)
    text = re.sub(r"\bL\(([^,()]+), *([^()]+)\)", r"[\1](\2)", text)
    text = re.sub(r"\b[BI]\(([^()]*)\)", r"*\1*", text)
    # The markup names another role's variable as PLUGIN#role:ENTRY:NAME, and a plugin as PLUGIN#TYPE.
    text = re.sub(r"\b[OCVREPM]\((?:[\w.]+#role:\w+:)?([^()#]*)(?:#\w+)?\)", r"`\1`", text)
    return " ".join(text.split())
