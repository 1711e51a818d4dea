# SPDX-License-Identifier: Apache-2.0
"""Finds the zone and the region of a machine among the tags of what contains it, as cloud-provider-vsphere does. Pure.

Objects are texts such as `HostSystem:host-12`. `parents` maps each object to what contains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .settings_sections import Labels

#: The maximum number of objects on a path. No inventory is nested deeper, but `parents` may have a loop.
DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag: the name of its category, and its own name."""

    category: str
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine is in the inventory. `machine`: the machine itself; `folder`: what contains it. Each field is ""
    if unknown."""

    host: str = ""
    pool: str = ""
    machine: str = ""
    folder: str = ""

    @property
    def starts(self) -> Iterator[str]:
        """The inventory objects to search upwards from. The first one with both tags on its path wins."""
        return (start for start in (self.host, self.pool, self.machine) if start)


def ancestors(start: str, parents: Mapping[str, str]) -> list[str]:
    """Return the object and everything that contains it, the nearest first."""
    chain = [start]
    while (above := parents.get(chain[-1], "")) and len(chain) < DEEPEST:
        chain.append(above)
    return chain


def zone_and_region(path: Sequence[str], tags: Mapping[str, Sequence[Tag]], labels: Labels) -> tuple[str, str] | None:
    """Return the zone and the region on this path, None if one of them is missing.

    Upstream searches upwards until it has both. Until then, a tag further up replaces a nearer one of the same
    category. This provider does the same, so that a Node gets the same labels as its neighbours.
    """
    zone = region = ""
    for object_ in path:
        for tag in tags.get(object_, ()):
            if tag.category == labels.zone:
                zone = tag.name
            elif tag.category == labels.region:
                region = tag.name
            if zone and region:
                return zone, region
    return None


def place_labels(
    place: Place, parents: Mapping[str, str], tags: Mapping[str, Sequence[Tag]], labels: Labels
) -> tuple[str, str] | None:
    """Return the zone and the region of a machine, None if no path has both."""
    for start in place.starts:
        if (zone := zone_and_region(ancestors(start, parents), tags, labels)) is not None:
            return zone
    return None
