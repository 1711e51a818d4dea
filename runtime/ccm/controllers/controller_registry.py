# SPDX-License-Identifier: Apache-2.0
"""Registry of controllers: the built-in ones, and those of packages with an entry point in `ccm.controllers`.

The entry point's name is the controller's name, and its value is a `ControllerSpec`. If a package cannot be imported,
its controller is reported by name and everything else starts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

import msgspec

from ccm.base.installed import entry_points

from . import built_in_controllers
from .controller_spec import ControllerSpec

GROUP = "ccm.controllers"

#: Built-in controllers by name, in start order.
BUILT_IN: Mapping[str, ControllerSpec[Any]] = {spec.name: spec for spec in built_in_controllers.BUILT_IN}
_TAKEN = {name for spec in BUILT_IN.values() for name in (spec.name, spec.alias, *spec.former)}


class Unusable(msgspec.Struct, frozen=True):
    """A controller of another package that cannot run. `why` is a sentence that names controller and package."""

    why: str


@functools.cache
def _points() -> dict[str, list[EntryPoint]]:
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    return points


def installed() -> list[str]:
    """Return the sorted names of other packages' controllers, usable or not. Imports none of them."""
    return sorted(name for name in _points() if name not in _TAKEN)


def refused() -> list[str]:
    """Return one sentence for each entry point that has the name of a built-in controller; the built-in one runs."""
    return [
        f"controller {name!r} of {_package(point)} is not used: a built-in controller already has this name"
        for name, points in sorted(_points().items())
        if name in _TAKEN
        for point in points
    ]


@functools.cache
def look_up(name: str) -> ControllerSpec[Any] | Unusable:
    """Return the controller with this canonical name, or why it cannot run. Raises KeyError if there is none."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    points = _points()[name]
    if len({point.value for point in points}) > 1:
        packages = ", ".join(sorted(_package(point) for point in points))
        return Unusable(f"more than one package provides controller {name!r} ({packages}): uninstall all but one")
    where = f"controller {name!r} of {_package(points[0])}"
    try:
        spec = points[0].load()
    except (Exception, SystemExit) as error:  # a foreign package may raise anything while it is imported
        return Unusable(f"{where} cannot be imported: {type(error).__name__}: {error}")
    if not isinstance(spec, ControllerSpec):
        return Unusable(f"{where}: {points[0].value} is a {type(spec).__name__}, not a ControllerSpec")
    if spec.name != name:
        return Unusable(f"{where}: its ControllerSpec is named {spec.name!r}; it must have the entry point's name")
    return spec


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version} ({point.value})" if point.dist else point.value
