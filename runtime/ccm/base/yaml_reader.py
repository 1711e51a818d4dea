# SPDX-License-Identifier: Apache-2.0
"""Strict reader for YAML (and therefore JSON) files. A problem names the file and, as far as known, line and key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

Path = tuple[str | int, ...]
#: No file that is read here is nested deeper. The limit stops an alias that contains itself.
_DEPTH = 20
#: No file that is read here has more values. The limit stops aliases of aliases, which multiply.
_VALUES = 10_000


class _TooMuch(ValueError):
    """The document exceeds a limit; no legitimate file does."""


@dataclass
class Document:
    """One parsed file. `data`: its content as plain values. `problems`: the problems so far, in the order found."""

    source: str
    data: Any = None
    problems: list[str] = field(default_factory=list)
    _lines: dict[Path, int] = field(default_factory=dict)
    _values: int = 0

    @classmethod
    def parse(cls, text: str, source: str, *, secret: bool = False) -> Document:
        """Parse `text`; never raises. If it is not YAML, that is a problem and the data is None. `secret`: quote no
        content."""
        import yaml  # only if there is a file to read: the import takes as long as that of all of asyncio

        harmless = (
            yaml.scanner.ScannerError,
            yaml.parser.ParserError,
            _TooMuch,
        )  # their messages quote at most single characters of the file
        document = cls(source)
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            if node is not None:
                document.data = document._convert(loader, node, ())
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            why = ""
            if not secret or isinstance(error, harmless):
                why = f": {getattr(error, 'problem', None) or str(error).partition(chr(10))[0]}"
            document.problems.append(f"{source}{line}: this is not YAML{why}")
        return document

    def problem(self, path: Path, what: str) -> None:
        self.problems.append(f"{self.place(path)}: {spell(path)}{': ' if path else ''}{what}")

    def place(self, path: Path) -> str:
        """Return the file and the line of the key, such as "c.yaml, line 7". For a missing key it is the line of the
        mapping; if no line is known, return the file alone."""
        line = next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), None)
        return f"{self.source}, line {line}" if line else self.source

    def mapping(self, path: Path, value: Any) -> dict[str, Any]:
        """Return `value` if it is a mapping, otherwise {}. Anything but a mapping or None adds a problem."""
        if isinstance(value, dict):
            return value
        if value is not None:
            self.problem(path, f"expected keys and values, not {value!r}")
        return {}

    def unknown(self, path: Path, known: Iterable[str]) -> None:
        """Report that the last part of `path` is not a known key."""
        known, key = list(known), str(path[-1])
        near = [name for name in known if name.lower() == key.lower()] or difflib.get_close_matches(key, known, 1)
        self.problem(path, f"unknown key; {f'did you mean {near[0]}?' if near else 'known keys: ' + ', '.join(known)}")

    def _convert(self, loader: yaml.SafeLoader, node: yaml.Node, path: Path) -> Any:
        import yaml

        self._values += 1
        if len(path) > _DEPTH:
            raise _TooMuch(f"nested more than {_DEPTH} deep")
        if self._values > _VALUES:
            raise _TooMuch(f"more than {_VALUES} values")
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._lines.setdefault((*path, index), item.start_mark.line + 1)
            return [self._convert(loader, item, (*path, index)) for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return scalar(loader, node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            inner, line = (*path, key), key_node.start_mark.line + 1
            if key in mapping:
                self.problem(inner, f"duplicate key, set again in line {line}")
            self._lines.setdefault(inner, line)
            mapping[key] = self._convert(loader, value_node, inner)
        return mapping


def scalar(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """Return the value of a scalar. Raises ValueError if the text does not have the form of its tag, such as
    `!!bool x`; PyYAML raises a different exception for each tag."""
    try:
        return loader.construct_object(node)
    except (LookupError, AttributeError, TypeError, OverflowError):
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise ValueError(f"{node.value!r} does not have the form of {tag}") from None


def spell(path: Path) -> str:
    """Return the path as text, for example `Generic.LeaderMigration.controllerLeaders[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
