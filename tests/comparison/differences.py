# SPDX-License-Identifier: Apache-2.0
"""What may differ between a vendor's controller and ours: it is listed with the reason, and nothing else differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .belongings import Belongings, unequal

#: Names of Services -> names of the fields that differ.
Found = dict[str, set[str]]


@dataclass(frozen=True)
class Difference:
    """What may differ. `fields`: patterns of `unequal`'s names; `services`: which ones have it, all if empty.

    `by_ours`, `by_theirs`: whether taking a load balancer over changes it, too. `page`: how the provider's page names
    it.
    """

    page: str
    fields: tuple[str, ...]
    services: tuple[str, ...] = ()
    by_ours: bool = False
    by_theirs: bool = False


def differing(one: Mapping[str, Belongings], other: Mapping[str, Belongings]) -> Found:
    assert one.keys() == other.keys()
    found = {}
    for name in one:
        differences = unequal(one[name], other[name])
        print(name, differences)  # shown by pytest when the test failed
        found[name] = set(differences)
    return found


def are_listed(found: Found, listed: Iterable[Difference]) -> None:
    """Everything that was found is listed, and everything that is listed was found, of each Service that is named."""
    listed = list(listed)
    others = {name: fields for name in found if (fields := unlisted(name, found[name], listed))}
    assert not others, f"differ, and are not listed: {others}"
    for difference in listed:
        for pattern in difference.fields:
            having = {name for name, fields in found.items() if any(fnmatchcase(each, pattern) for each in fields)}
            assert having, f"nothing differs in {pattern!r} any more: {difference.page}"
            assert having >= set(difference.services), f"{difference.page}: differs only in {having}"


def unlisted(name: str, fields: set[str], listed: Iterable[Difference]) -> set[str]:
    patterns = [each.fields for each in listed if not each.services or name in each.services]
    return {field for field in fields if not any(fnmatchcase(field, one) for few in patterns for one in few)}


def rows_of(page: Path, heading: str) -> list[str]:
    """The first cells of the table below a heading, without its own head."""
    section = page.read_text(encoding="utf-8").partition(f"{heading}\n")[2].partition("\n#")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]
