# SPDX-License-Identifier: Apache-2.0
"""What may differ between a vendor's controller and ours is listed with the reason, and nothing else differs."""

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
    """A permitted difference. `fields`: patterns for the names of `unequal`. `services`: which have it; () if any may.

    `by_ours`, `by_theirs`: whether a takeover by this controller changes the fields, too. `page`: the difference's name
    on the provider's page.
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
        print(name, differences)  # pytest shows it if the test fails
        found[name] = set(differences)
    return found


def are_listed(differing: Found, listed: Iterable[Difference]) -> None:
    """Check that all differences found are listed, and that each listed one was found: for each of its Services, or for
    any if it names none."""
    listed = list(listed)
    others = {name: fields for name in differing if (fields := unlisted(name, differing[name], listed))}
    assert not others, f"differ, and are not listed: {others}"
    for difference in listed:
        for pattern in difference.fields:
            having = {name for name, fields in differing.items() if any(fnmatchcase(each, pattern) for each in fields)}
            assert having, f"nothing differs in {pattern!r} any more: {difference.page}"
            assert having >= set(difference.services), f"{difference.page}: differs only in {having}"


def unlisted(name: str, fields: set[str], listed: Iterable[Difference]) -> set[str]:
    patterns = [each.fields for each in listed if not each.services or name in each.services]
    return {field for field in fields if not any(fnmatchcase(field, one) for few in patterns for one in few)}


def rows_of(page: Path, heading: str) -> list[str]:
    """Return the first cells of the table below a heading, without the table's header."""
    section = page.read_text(encoding="utf-8").partition(f"{heading}\n")[2].partition("\n#")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]
