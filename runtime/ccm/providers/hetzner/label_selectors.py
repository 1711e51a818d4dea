# SPDX-License-Identifier: Apache-2.0
"""Label selectors as Kubernetes and Hetzner write them: `a=b, a!=b, a in (b,c), a notin (b,c), a, !a`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

#: The maximum length of a selector, and the maximum number of its conditions.
LONGEST, MANY = 2048, 32
KEY = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
#: The form of values, which is the same for Kubernetes and Hetzner.
CLOUD_VALUES = re.compile(VALUE)
_CONDITION = re.compile(
    rf"(?P<not>!)\s*(?P<absent>{KEY})"
    rf"|(?P<key>{KEY})(?:\s*(?P<equals>==|=|!=)\s*(?P<value>{VALUE})"
    rf"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?"
)
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class Condition:
    """One condition of a selector. `values`: None for any value. `negated`: whether the operator is `!=`, `notin` or
    `!`."""

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        there = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return there is not self.negated


@dataclass(frozen=True)
class Selector:
    """All conditions must match. Without conditions, everything matches."""

    conditions: tuple[Condition, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.matches(labels) for each in self.conditions)

    @classmethod
    def parse(cls, text: str, values: re.Pattern[str] = CLOUD_VALUES) -> Selector:
        """Parse a label selector. Raises a ValueError that says what is expected."""
        expected = f"a label selector such as 'role=web,zone in (a,b),!drain', of at most {MANY} conditions"
        parts = [part.strip() for part in _COMMA.split(text)] if text.strip() else []
        if len(text) > LONGEST or len(parts) > MANY:
            raise ValueError(expected)
        requirements = []
        for part in parts:
            if (match := _CONDITION.fullmatch(part)) is None:
                raise ValueError(expected)
            several = [each.strip() for each in (match["values"] or "").split(",")]
            if match["set"] and not all(values.fullmatch(each) for each in several):
                raise ValueError(expected)
            if match["not"]:
                requirements.append(Condition(match["absent"], None, negated=True))
            elif match["set"]:
                requirements.append(Condition(match["key"], frozenset(several), negated=match["set"] == "notin"))
            elif match["equals"]:
                requirements.append(
                    Condition(match["key"], frozenset([match["value"]]), negated=match["equals"] == "!=")
                )
            else:
                requirements.append(Condition(match["key"], None))
        return cls(tuple(requirements))
