# SPDX-License-Identifier: Apache-2.0
"""YAML values with their line numbers, for configurations that report all problems at once. Pure.

`Document` reads plain values from an untrusted source, with limits.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import yaml

from ccm.base.yaml_reader import Document as Document
from ccm.base.yaml_reader import scalar
from ccm.cloud import ConfigError


@dataclass(frozen=True)
class Located:
    """A value and its line. Mappings are dict[str, Located], sequences list[Located].

    `text`: a scalar as the file has it, which Go's YAML assigns to a field of type string: 0123456 and `yes`, where
    `value` is 42798 and True. None for anything else, and for null.
    """

    value: Any
    line: int
    text: str | None = field(default=None, compare=False)


@dataclass
class Problems:
    """Problems with their lines. `source`: the file, for messages."""

    source: str
    reported: list[tuple[int, str]] = field(default_factory=list)

    def add(self, where: Located, text: str) -> None:
        self.reported.append((where.line, text))

    def raise_any(self) -> None:
        """Raise ConfigError with all problems, sorted by line, if there are any."""
        if self.reported:
            raise ConfigError([f"{self.source}: line {line}: {text}" for line, text in sorted(set(self.reported))])


def read(text: str, problems: Problems) -> Located:
    """Return the document. Its value is None if the text is empty or not YAML; the latter is added to `problems`."""
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return Located(None, 1) if node is None else _Reader(loader, problems).located(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it contains invalid characters"
        problems.add(Located(None, mark.line + 1 if mark else 1), f"not YAML: {problem}")
        return Located(None, 1)
    finally:
        if loader is not None:
            loader.dispose()


class _Reader:
    """Converts nodes to values. An aliased node is converted once, because aliases can multiply to billions."""

    def __init__(self, loader: yaml.SafeLoader, problems: Problems) -> None:
        self._loader, self._problems = loader, problems
        self._made: dict[int, Located | None] = {}

    def located(self, node: yaml.Node) -> Located:
        line = node.start_mark.line + 1
        if id(node) in self._made:
            if (made := self._made[id(node)]) is None:
                self._problems.add(Located(None, line), "an anchor contains itself")
            return made or Located(None, line)
        self._made[id(node)] = None
        value = self._value(node, line)
        located = self._made[id(node)] = Located(value, line, _text(node, value))
        return located

    def _value(self, node: yaml.Node, line: int) -> Any:
        if isinstance(node, yaml.MappingNode):
            self._find_doubles(node)
            self._loader.flatten_mapping(node)  # merged keys come first, so that the mapping's own keys win
            values: dict[str, Located] = {}
            for key_node, value_node in node.value:
                key, at = str(key_node.value), key_node.start_mark.line + 1
                values[key] = dataclasses.replace(self.located(value_node), line=at)
            return values
        if isinstance(node, yaml.SequenceNode):
            return [self.located(each) for each in node.value]
        if not node.tag.startswith("tag:yaml.org,2002:"):
            return Unreadable(node.tag)
        try:
            return scalar(self._loader, node)
        except ValueError:  # for example an invalid date, which is read as text
            return node.value

    def _find_doubles(self, node: yaml.MappingNode) -> None:
        keys: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in keys:
                self._problems.add(Located(None, key_node.start_mark.line + 1), f"{key}: duplicate key")
            keys.add(key)


def _text(node: yaml.Node, value: Any) -> str | None:
    if value is None or isinstance(value, Unreadable) or not isinstance(node, yaml.ScalarNode):
        return None
    if isinstance(value, bytes):  # !!binary
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return str(node.value)


@dataclass(frozen=True)
class Unreadable:
    """A value with a custom tag, such as `!vault`."""

    tag: str

    def __repr__(self) -> str:
        return f"a value tagged {self.tag}"


def shown(value: Located) -> str:
    """Return a value for a message: the kind of a collection, or the value itself."""
    if isinstance(value.value, dict | list):
        return f"{'a' if value.value else 'an empty'} {'mapping' if isinstance(value.value, dict) else 'list'}"
    if value.value is None:
        return "nothing"
    return repr(value.value)
