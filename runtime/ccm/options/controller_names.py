# SPDX-License-Identifier: Apache-2.0
"""Names of controllers, and lists that enable and disable items by name, like upstream's `--controllers`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ccm.controllers.controller_registry import BUILT_IN, installed

#: The built-in controllers: canonical names -> aliases, in the order in which they start.
CONTROLLERS: Mapping[str, str] = {name: spec.alias for name, spec in BUILT_IN.items()}
#: These run only if named, like all controllers of other packages.
OFF_BY_DEFAULT = frozenset(name for name, spec in BUILT_IN.items() if not spec.on_by_default)
#: The controllers that `*` selects.
ON_BY_DEFAULT = tuple(name for name, spec in BUILT_IN.items() if spec.on_by_default)
_CANONICAL = {alias: name for name, alias in CONTROLLERS.items()} | {name: name for name in CONTROLLERS}
_FORMER = {former: name for name, spec in BUILT_IN.items() for former in spec.former}


def canonical(name: str) -> str:
    """Return the current name of a controller, given any of its names; other names are returned unchanged."""
    return _CANONICAL.get(name) or _FORMER.get(name, name)


def select(items: Iterable[str], known: Mapping[str, str], off: Collection[str] = ()) -> tuple[set[str], list[str]]:
    """Return the selected items of a list, and its unknown items. `*` selects all except those in `off`, `name` adds an
    item, and `-name` removes one; the first mention of a name wins. `known`: each accepted spelling -> its canonical
    name."""
    everything = False
    chosen: dict[str, bool] = {}
    unknown: list[str] = []
    for item in items:
        bare = item.removeprefix("-")
        if item == "*":
            everything = True
        elif bare in known:
            chosen.setdefault(known[bare], not item.startswith("-"))
        else:
            unknown.append(repr(item))
    return {name for name in known.values() if chosen.get(name, everything and name not in off)}, unknown


def select_controllers(items: Iterable[str]) -> tuple[str, ...]:
    """Parse `--controllers`, including aliases. Raises ValueError that lists every unknown name."""
    others = installed()
    chosen, unknown = select(items, _CANONICAL | dict(zip(others, others, strict=True)), {*OFF_BY_DEFAULT, *others})
    if unknown:
        known = ", ".join([*(f"{name} ({alias})" for name, alias in CONTROLLERS.items()), *others])
        raise ValueError(f"unknown controller {', '.join(unknown)}: known controllers are {known}")
    return tuple(name for name in (*CONTROLLERS, *others) if name in chosen)


def spell_controllers(selected: tuple[str, ...]) -> list[str]:
    """Return a list for `--controllers` that makes the same selection."""
    if selected[: len(ON_BY_DEFAULT)] == ON_BY_DEFAULT:
        return ["*", *selected[len(ON_BY_DEFAULT) :]]
    return list(selected) or [f"-{name}" for name in CONTROLLERS]
