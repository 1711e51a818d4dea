# SPDX-License-Identifier: Apache-2.0
"""Reads annotations of Services for a provider: a table of known annotations, and validated values. Pure.

An invalid value is reported on the Service. Each annotation restricts the format and length of its value, because
Services may come from untrusted users, and values become part of paths, queries, patterns and Events.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.base.text import quoted

#: The maximum length of a value, in characters. Many formats allow fewer.
LONGEST = 2048
#: How many annotations one message names.
NAMED = 10
#: The maximum number of labels in a selector, and of tags.
MANY = 16

NUMBER = re.compile(r"[+-]?[0-9]{1,15}", re.ASCII)
DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
LABEL_PART = re.compile(r"[A-Za-z0-9_./-]{0,317}", re.ASCII)


@dataclass(frozen=True)
class Annotation:
    """One annotation that a provider knows. `read` converts the text or raises a ValueError that says what is
    expected. `kind`: a description for readers.

    `names_another`: the annotation refers to a resource of the project other than the Service's own load balancer; a
    provider may require that the administrator allows it. `for_new`: it has no effect on an existing load balancer.
    """

    key: str
    kind: str
    effect: str
    read: Callable[[str], Any]
    default: str = ""
    names_another: bool = False
    for_new: bool = False

    @property
    def name(self) -> str:
        """The key without its prefix."""
        return self.key.rpartition("/")[2]


class AnnotationTable:
    """All annotations that a provider knows. `prefix`: the prefix of its own annotations, including the slash."""

    def __init__(self, prefix: str, known: Iterable[Annotation]) -> None:
        self.prefix = prefix
        self.by_key = {each.key: each for each in known}
        self.by_name = {each.name: each for each in self.by_key.values()}

    def unknown(self, annotations: Mapping[str, str]) -> list[str]:
        """Return unknown annotations with the prefix, most likely misspelled; only the first ones if there are many."""
        return sorted(key for key in annotations if key.startswith(self.prefix) and key not in self.by_key)[:NAMED]


class ServiceAnnotations:
    """The parsed annotations of a Service. `problems`: one sentence for each invalid value."""

    def __init__(self, annotations: Mapping[str, str], table: AnnotationTable) -> None:
        self._problems: dict[str, str] = {}
        self._prefix = table.prefix
        self._values: dict[str, Any] = {}
        for key, text in sorted(annotations.items()):
            if (known := table.by_key.get(key)) is None:
                continue
            try:
                if len(text) > LONGEST:
                    raise ValueError(f"{known.kind} of at most {LONGEST} characters")
                self._values[key] = known.read(text)
            except ValueError as error:
                self._problems[key] = f"annotation {key}: {quoted(text)} is not {error}"

    @property
    def problems(self) -> list[str]:
        return list(self._problems.values())

    def problems_of(self, *names: str) -> list[str]:
        """Return the problems of these annotations only, such as those that choose the backends."""
        return [self._problems[self._prefix + name] for name in names if self._prefix + name in self._problems]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of `PREFIX/NAME` (or of a whole key), `default` if the Service does not set a valid one.

        An empty value counts as set: it overrides the configuration.
        """
        return self._values.get(name if "/" in name else self._prefix + name, default)

    def is_set(self, name: str) -> bool:
        return self._prefix + name in self._values


# Value formats. Each function converts the text or raises a ValueError that says what is expected.


def short_text(text: str) -> str:
    text = text.strip()
    if len(text) > 255 or not text.isprintable():
        raise ValueError("a name of at most 255 characters")
    return text


def address(text: str) -> str:
    text = text.strip()
    if not text:
        return ""
    try:
        return str(ipaddress.ip_address(text if len(text) <= 45 and "%" not in text else ""))
    except ValueError:
        raise ValueError("an IP address") from None


def tags(text: str) -> str:
    text = text.strip()
    if len(text) > 1024 or text.count(",") >= MANY or not text.isprintable():
        raise ValueError(f"at most {MANY} tags, comma-separated")
    return text


def host_name(text: str) -> str:
    """Parse a host name that the API server accepts in the status of a Service; "" stays "". Raises ValueError."""
    text = text.strip()
    labels = text.split(".") if len(text) <= 253 else [""]
    if text and not (all(DNS_LABEL.fullmatch(label) for label in labels) and not labels[-1].isdigit()):
        raise ValueError("a DNS name in lower case")
    return text


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if NUMBER.fullmatch(text.strip()) else least - 1
        if not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return read


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def selector(text: str) -> dict[str, str | None]:
    """Parse `key=value` or `key`, comma-separated: labels and their values, None for any value. Raises ValueError."""
    labels: dict[str, str | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not LABEL_PART.fullmatch(key) or not LABEL_PART.fullmatch(value) or len(labels) >= MANY:
            raise ValueError(f"key=value or key, comma-separated, of at most {MANY} labels")
        labels[key] = value if equals and value else None
    return labels
