# SPDX-License-Identifier: Apache-2.0
"""Prints kubernetes-versions.md from the collection's table of version facts. A unit test compares file and output:

python tools/docs/kubernetes_versions.py > docs/reference/kubernetes-versions.md
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

The collection supports Kubernetes {first} to {last}. This page lists which flags, values and feature gates of an old
cloud integration are fatal in which release. Preflight, the planner and `verify.yml` use the same table.

## Flags, values and gates

Each cell has the first release for which its column's title is true, or `-` for none. *Deprecated*: the component
warns. *Without effect*: the component accepts the flag, but nothing reads it. *Fatal*: the component does not start
with the flag. *Gone*: the component does not know the flag.

"""
PROVIDERS = """
## In-tree providers

The collection recognises these values of `--cloud-provider`, and the plan names the successor. From 1.29
on, the remaining in-tree providers are off unless the gate `DisableCloudProviders` is false. From 1.31 on, there are
none.

"""
VOLUMES = """
## In-tree volume plug-ins

Kubernetes translates volumes of these plug-ins into volumes of their CSI drivers (KEP-625). *Default*: the gate is on
by default. *Stable*: the feature is stable. *Gate gone*: the gate is removed, so nothing can turn the translation off.
*Plug-in gone*: the plug-in's code is removed. From 1.29 on, no release mounts such a volume without the driver
([Volumes before a migration](../how-to/volumes.md)).

"""


def load() -> ModuleType:
    """Import the table, which needs only the standard library, without Ansible."""
    spec = importlib.util.spec_from_file_location("kubernetes_versions_table", TABLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |\n"


def what(names: list[tuple[str, str]]) -> str:
    """Return several flags, or a flag and its values, as one cell."""
    values = [f"`{value}`" for unused, value in names if value]
    return f"{names[0][0]} {', '.join(values)}" if values else ", ".join(name for name, unused in names)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return row(*head) + row(*["---"] * len(head)) + "".join(row(*cells) for cells in rows)


def page(versions: Any) -> str:
    """Return the whole page as Markdown."""
    show = versions.show

    def since(version: tuple[int, int] | None) -> str:
        return "-" if version is None else show(version)

    components: dict[tuple[str, ...], list[str]] = {}
    for fact in versions.FACTS:
        name = f"`{fact.flag}`" if fact.kind == versions.FIELD else f"`--{fact.flag}`"
        stages = (fact.deprecated_in, fact.no_effect_in, fact.fatal_in, fact.gone_in)
        cells = (name, fact.value or "", *map(since, stages), fact.reason)
        components.setdefault(cells, []).append(fact.component)
    # Facts with the same life cycle and reason share a row: values of one flag, or flags of one component.
    alike: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for (name, value, *cells), those in components.items():
        alike.setdefault((", ".join(those), name if value else "", *cells), []).append((name, value))
    facts = [(those, what(names), *cells) for (those, unused, *cells), names in alike.items()]
    head = ("Component", "What", "Deprecated", "Without effect", "Fatal", "Gone", "Why")
    providers = [
        (f"`{p.name}`", show(p.gone_in), p.successor or "none", f"`{p.provider_id}`")
        for p in versions.IN_TREE_PROVIDERS
    ]
    volumes = [
        (
            v.cloud,
            f"`{v.source}`, `{v.provisioner}`",
            f"`{v.driver}`" if v.driver else "none",
            *map(since, (v.on_in, v.stable_in, v.gate_gone_in, v.plugin_gone_in)),
        )
        for v in versions.IN_TREE_VOLUMES
    ]
    plug_in = ("Cloud", "Field, provisioner", "CSI driver", "Default", "Stable", "Gate gone", "Plug-in gone")
    first, last = map(show, versions.SUPPORTED)
    return (
        HEAD.format(first=first, last=last)
        + table(head, facts)
        + PROVIDERS
        + table(("Provider", "Gone in", "Successor", "providerID of the successor"), providers)
        + VOLUMES
        + table(plug_in, volumes)
    )


if __name__ == "__main__":
    print(page(load()), end="")
