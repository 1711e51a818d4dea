# SPDX-License-Identifier: Apache-2.0
"""Annotations of Services as a provider reads them: a table of what there is, and values in their forms. Pure.

A value that cannot be understood is reported on the Service. Each value has a form and a longest text: who creates
Services may be a stranger, and values go into paths, queries, patterns and Events.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: The longest value, in characters. What has a form of its own is shorter.
LONGEST = 2048
#: How much of a value that cannot be understood is quoted, and how many annotations one message names.
QUOTED, NAMED = 80, 10
#: How many labels a selector may ask for, and how many tags.
MANY = 16

NUMBER = re.compile(r"[+-]?[0-9]{1,15}", re.ASCII)
DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
LABEL_PART = re.compile(r"[A-Za-z0-9_./-]{0,317}", re.ASCII)


@dataclass(frozen=True)
class Annotation:
    """`read` makes a value of the text or raises ValueError saying what it should be. `kind`: for readers.

    `names_another`: it names something else of the project than the Service's own load balancer, and works only if the
    administrator allows it. `for_new`: an existing load balancer stays as it is, whatever it says.
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
        """Without its prefix."""
        return self.key.rpartition("/")[2]


class AnnotationTable:
    """All annotations that a provider knows. `prefix`: of those that are its own, ended by a slash."""

    def __init__(self, prefix: str, known: Iterable[Annotation]) -> None:
        self.prefix = prefix
        self.by_key = {each.key: each for each in known}
        self.by_name = {each.name: each for each in self.by_key.values()}

    def unknown(self, given: Mapping[str, str]) -> list[str]:
        """Annotations of the prefix that mean nothing, most likely misspelt; the first ones of many."""
        return sorted(key for key in given if key.startswith(self.prefix) and key not in self.by_key)[:NAMED]


class ServiceAnnotations:
    """What a Service says, read. `problems`: a sentence for each value that cannot be understood."""

    def __init__(self, given: Mapping[str, str], table: AnnotationTable) -> None:
        self.problems: list[str] = []
        self._prefix = table.prefix
        self._values: dict[str, Any] = {}
        for key, text in sorted(given.items()):
            if (known := table.by_key.get(key)) is None:
                continue
            try:
                if len(text) > LONGEST:
                    raise ValueError(f"{known.kind} of at most {LONGEST} characters")
                self._values[key] = known.read(text)
            except ValueError as error:
                self.problems.append(f"annotation {key}: {quoted(text)} is not {error}")

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `PREFIX/NAME` (or of a whole key), `default` where the Service says nothing.

        Empty text is said, too: it undoes what the configuration says.
        """
        return self._values.get(name if "/" in name else self._prefix + name, default)

    def given(self, name: str) -> bool:
        return self._prefix + name in self._values


def quoted(text: str) -> str:
    """For a message: the beginning of a long one."""
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")


# Forms of values. Each makes a value of the text or raises ValueError saying what it should be.


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
    """As the API server takes it for the status of a Service."""
    text = text.strip()
    labels = text.split(".") if len(text) <= 253 else [""]
    if text and not (all(DNS_LABEL.fullmatch(each) for each in labels) and not labels[-1].isdigit()):
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
    """`key=value` or `key`, comma-separated: labels and their values, None for any. Raises ValueError."""
    wanted: dict[str, str | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not LABEL_PART.fullmatch(key) or not LABEL_PART.fullmatch(value) or len(wanted) >= MANY:
            raise ValueError(f"key=value or key, comma-separated, of at most {MANY} labels")
        wanted[key] = value if equals and value else None
    return wanted
