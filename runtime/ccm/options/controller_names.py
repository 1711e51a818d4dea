# SPDX-License-Identifier: Apache-2.0
"""Names of controllers, and lists that switch things on and off by name (reference 7.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

#: Canonical controller names -> aliases. Their order is the order in which they start.
CONTROLLERS: Mapping[str, str] = {
    "cloud-node-controller": "cloud-node",
    "cloud-node-lifecycle-controller": "cloud-node-lifecycle",
    "service-lb-controller": "service",
    "node-route-controller": "route",
    "persistentvolume-label-controller": "pvlabel",
}
#: Run only when named: upstream has none of that name any more, and who takes its place should not notice.
OFF_BY_DEFAULT = frozenset({"persistentvolume-label-controller"})
#: What `*` stands for.
ON_BY_DEFAULT = tuple(name for name in CONTROLLERS if name not in OFF_BY_DEFAULT)
_CANONICAL = {alias: name for name, alias in CONTROLLERS.items()} | {name: name for name in CONTROLLERS}
#: Names that only configurations of leader migration use; upstream's own defaults name controllers so that exist under
#: these names nowhere (W28).
_FORMER = {"route-controller": "node-route-controller", "service-controller": "service-lb-controller"}


def canonical(name: str) -> str:
    """The present name of a controller that is named by any name it ever had; a name of no controller of ours as is."""
    return _CANONICAL.get(name) or _FORMER.get(name, name)


def select(items: Iterable[str], known: Mapping[str, str], off: Collection[str] = ()) -> tuple[set[str], list[str]]:
    """What a list chooses, and what of it is unknown: `*` for all but those that are `off` unless named, `name` on,
    `-name` off; the first mention of a name wins. `known`: each accepted spelling -> its canonical name."""
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
    """`--controllers`; aliases are understood. Raises ValueError naming every unknown one."""
    chosen, unknown = select(items, _CANONICAL, OFF_BY_DEFAULT)
    if unknown:
        known = ", ".join(f"{name} ({alias})" for name, alias in CONTROLLERS.items())
        raise ValueError(f"unknown controller {', '.join(unknown)}: known are {known}")
    return tuple(name for name in CONTROLLERS if name in chosen)


def spell_controllers(selected: tuple[str, ...]) -> list[str]:
    """A list that selects them again."""
    if selected[: len(ON_BY_DEFAULT)] == ON_BY_DEFAULT:
        return ["*", *selected[len(ON_BY_DEFAULT) :]]
    return list(selected) or [f"-{name}" for name in CONTROLLERS]
