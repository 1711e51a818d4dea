# SPDX-License-Identifier: Apache-2.0
"""Print kubernetes-versions.md from the collection's table of version facts; a unit test compares the file with it.

python tests/docs/kubernetes_versions.py > docs/reference/kubernetes-versions.md
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

TABLE = Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "facts" / "versions.py"
HEAD = """\
# Kubernetes versions

<!-- Made by `make docs` from plugins/module_utils/facts/versions.py: change it there. -->

What this collection knows of the releases {first} to {last}. Preflight, the planner and `verify.yml` decide by the
same table.

## Flags, values and gates

*Deprecated*: a warning. *Without effect*: accepted, but nothing reads it. *Fatal*: the component does not start with
it. *Gone*: the release does not know it any more.

"""
PROVIDERS = """
## In-tree providers

A value of `--cloud-provider` that names one of these is recognised; the plan says what became of it. From 1.29 on the
providers still there are off unless the gate `DisableCloudProviders` is set to false; from 1.31 on there are none.

"""


def load() -> ModuleType:
    """The table is stdlib-only: it can be read without Ansible."""
    spec = importlib.util.spec_from_file_location("kubernetes_versions_table", TABLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return row(*head) + row(*["---"] * len(head)) + "".join(row(*cells) for cells in rows)


def page(versions: Any) -> str:
    """The whole page as Markdown."""
    show = versions.show

    def since(version: tuple[int, int] | None) -> str:
        return "-" if version is None else show(version)

    facts = []
    for fact in versions.FACTS:
        name = f"`{fact.flag}`" if fact.kind == versions.FIELD else f"`--{fact.flag}`"
        value = "" if fact.value is None else f" `{fact.value}`"
        stages = (fact.deprecated_in, fact.no_effect_in, fact.fatal_in, fact.gone_in)
        facts.append((fact.component, name + value, *map(since, stages), fact.reason))
    head = ("component", "what", "deprecated", "without effect", "fatal", "gone", "why")
    providers = [
        (f"`{p.name}`", show(p.gone_in), p.successor or "none", f"`{p.provider_id}`")
        for p in versions.IN_TREE_PROVIDERS
    ]
    first, last = map(show, versions.SUPPORTED)
    return (
        HEAD.format(first=first, last=last)
        + table(head, facts)
        + PROVIDERS
        + table(("provider", "gone in", "successor", "providerID"), providers)
    )


if __name__ == "__main__":
    print(page(load()), end="")
