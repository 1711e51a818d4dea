# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits YAML text in place: comments, key order, anchors, quoting and line ends of everything else stay.

A round trip through a YAML library would rewrite the whole file. Here, the library only reports the position of each node (PyYAML's
marks), and edits replace spans of the text. The result is parsed again and compared with the intended data. An edit that would change
anything else, such as an alias of a changed list, is refused. Only the first document is edited, because Kubernetes reads no other.

It runs only on the Ansible controller, which always has PyYAML. It knows neither Kubernetes' objects nor files.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Set, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit.kubernetes_yaml import (
    NotYaml, compose, data_of, is_merge, key_of, load, merged, resolved,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Span, apply_spans

try:
    import yaml
except ImportError:  # pragma: no cover - ansible-core itself requires PyYAML on the controller
    yaml = None  # type: ignore[assignment]


class EditRefused(ValueError):
    """The edit cannot be made without changing something else in the text."""


def pruned(data: Any) -> Any:
    """Return data without empty collections and nulls, because an emptied list may be written as [], as nothing, or be omitted."""
    if isinstance(data, dict):
        items = {key: pruned(value) for key, value in data.items()}
        return {key: value for key, value in items.items() if value is not None and value != {} and value != []}
    if isinstance(data, list):
        return [pruned(item) for item in data]
    return data


def independent(data: Any) -> Any:
    """Return a copy of all collections in the data."""
    if isinstance(data, dict):
        return {key: independent(value) for key, value in data.items()}
    return [independent(item) for item in data] if isinstance(data, list) else data


def difference(one: Any, other: Any, place: str = "") -> str:
    """Return the first place where two documents differ, such as C(spec.containers[0].image), or C(the whole document)."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *other]:
            if one.get(key) != other.get(key):
                return difference(one.get(key), other.get(key), "{0}.{1}".format(place, key).lstrip("."))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, theirs) in enumerate(zip(one, other)):
            if mine != theirs:
                return difference(mine, theirs, "{0}[{1}]".format(place, index))
    return place or "the whole document"


class YamlText:
    """The first document of a text and the edits to make in it. Paths are tuples of keys and indexes of the *original* text."""

    def __init__(self, text: str) -> None:
        self._mark = "\ufeff" if text.startswith("\ufeff") else ""  # a byte order mark is part of no line, and libyaml does not count it in positions
        self.text = text = text[len(self._mark):]
        self._root, self._end = compose(text)
        self.data = data_of(self._root)
        self._removed: List[Tuple] = []
        self._replaced: Dict[Tuple, str] = {}
        self._raw: Dict[Tuple, str] = {}
        self._added: Dict[Tuple, List[Tuple[Optional[str], Any]]] = {}
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._json = re.match(r"\s*\{\s*\"", text) is not None

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, path: Tuple, default: Any = None) -> Any:
        """Return the data at a path of the original text, or the default."""
        data = self.data
        for step in path:
            try:
                data = data[step]
            except (KeyError, IndexError, TypeError):
                return default
        return data

    def line(self, path: Tuple) -> int:
        """Return the line (from 1) on which the node at a path starts."""
        return self._node(path).start_mark.line + 1

    def _chain(self, path: Tuple) -> List[Tuple[Any, int]]:
        """Return (node, index of the next node in it) from the root to the node at the path. Raises EditRefused and KeyError."""
        chain: List[Tuple[Any, int]] = []
        node = self._root
        for step in path:
            if isinstance(node, yaml.MappingNode):
                index = _index(node, step)
                chain.append((node, index))
                node = node.value[index][1]
            else:
                chain.append((node, step))
                node = node.value[step]
        chain.append((node, -1))
        return chain

    def _node(self, path: Tuple) -> Any:
        return self._chain(path)[-1][0]

    # -- edits ---------------------------------------------------------------------------------------------------

    def remove(self, path: Tuple) -> None:
        """Remove a list item or a key with its value. An emptied collection is removed, too, unless it is a top-level key or shares its line."""
        self._chain(path)
        self._removed.append(path)

    def replace(self, path: Tuple, value: str) -> None:
        """Replace a scalar and keep its quotes."""
        self._replaced[path] = value

    def raw(self, path: Tuple, text: str) -> None:
        """Replace a scalar or a one-line list with YAML text of one line."""
        self._raw[path] = text

    def raw_text(self, path: Tuple) -> str:
        """Return the text of a scalar or of a one-line list."""
        node = self._node(path)
        return self.text[node.start_mark.index:node.end_mark.index]

    def append(self, path: Tuple, value: Any) -> None:
        """Append data to a list, or give a list to a key without data. Raises EditRefused if the key has other data."""
        if self.get(path) not in (None, []) and not isinstance(self._node(path), yaml.SequenceNode):
            raise EditRefused("line {0}: it is not a list to which an item could be added".format(self.line(path)))
        self._added.setdefault(path, []).append((None, value))

    def add_key(self, path: Tuple, key: str, value: Any) -> None:
        """Add a key with data to a mapping, or give data to a key that has none."""
        node = self._node(path)
        if isinstance(node, yaml.MappingNode) and key in self.get(path):
            if not isinstance(value, (dict, list)):
                self._raw[path + (key,)] = self._flow(value, None)
                return
            for part, item in [(None, item) for item in value] if isinstance(value, list) else value.items():
                self._added.setdefault(path + (key,), []).append((part, item))
        else:
            self._added.setdefault(path, []).append((key, value))

    def render(self, expected: Any) -> str:
        """Return the edited text. Raises EditRefused if its data, apart from empty parts, is not as expected."""
        gone = self._gone()
        spans: List[Span] = []
        # If two texts are added at the same place, the deeper one comes first.
        for path in sorted(self._added, key=len, reverse=True):
            spans.append(self._addition(path, gone))
        self._removal_spans(self._root, gone, spans, set())
        spans += [self._replacement(path, value) for path, value in self._replaced.items()]
        spans += [self._rawly(path, text) for path, text in self._raw.items()]
        try:
            result = apply_spans(self.text, spans)
            actual = load(result)
        except (NotYaml, ValueError) as exc:
            raise EditRefused("the edited text would not be YAML: {0}".format(exc)) from exc
        if pruned(actual) != pruned(expected):
            raise EditRefused("the edit would not change {0} as intended: its text may be shared (an anchor with aliases, a merge key)".format(
                difference(pruned(actual), pruned(expected))))
        return self._mark + result

    # -- removals ------------------------------------------------------------------------------------------------

    def _gone(self) -> Dict[int, Set[int]]:
        """Return the positions of the children to remove, by the id() of their collection."""
        gone: Dict[int, Set[int]] = {}
        grown = {id(self._node(path)) for path in self._added}
        todo = list(self._removed)
        while todo:
            path = todo.pop()
            node, index = self._chain(path)[-2]
            gone.setdefault(id(node), set()).update(_same(node, index))
            empty = len(gone[id(node)]) == len(node.value) and id(node) not in grown
            if empty and len(path) > 2 and self._alone(*self._chain(path[:-1])[-2]):
                todo.append(path[:-1])
        return gone

    def _removal_spans(self, node: Any, gone: Dict[int, Set[int]], spans: List[Span], seen: Set[int]) -> None:
        if node is None or isinstance(node, yaml.ScalarNode) or id(node) in seen:  # an alias has the same node as its anchor
            return
        seen.add(id(node))
        removed = gone.get(id(node), set())
        if removed and len(removed) == len(node.value):
            if not self._grows(node):
                spans.append(self._emptied(node))
                return
            removed = removed - {0}  # the added entries take its place
        for index in sorted(removed):
            spans.append(self._flow_child(node, index, removed) if node.flow_style else self._block_child(node, index))
        for index, child in enumerate(node.value):
            if index not in gone.get(id(node), set()):
                self._removal_spans(child[1] if isinstance(node, yaml.MappingNode) else child, gone, spans, seen)

    def _grows(self, node: Any) -> bool:
        return any(self._node(path) is node for path in self._added)

    def _emptied(self, node: Any) -> Span:
        empty = "{}" if isinstance(node, yaml.MappingNode) else "[]"
        if node.flow_style:
            return Span(node.start_mark.index, node.end_mark.index, empty)
        return Span(self._before(node.start_mark.index, " \t\r\n"), self._last(node), " " + empty)

    def _before(self, start: int, blanks: str) -> int:
        while start > 0 and self.text[start - 1] in blanks:
            start -= 1
        return start

    def _alone(self, node: Any, index: int) -> bool:
        """Return whether an entry can be removed without a part of another one: it begins its line, or is in a one-line collection."""
        if node.flow_style:
            return True
        first = _ends(node, index)[0]
        line = self.text.rfind("\n", 0, first.start_mark.index) + 1
        return self.text[line:first.start_mark.index].strip() == ("" if isinstance(node, yaml.MappingNode) else "-")

    def _block_child(self, node: Any, index: int) -> Span:
        first, last = _ends(node, index)
        if not self._alone(node, index):
            raise EditRefused("line {0}: the entry shares its line with another".format(first.start_mark.line + 1))
        start = self.text.rfind("\n", 0, first.start_mark.index) + 1
        end = self.text.find("\n", max(self._last(last), first.start_mark.index))
        return Span(start, len(self.text) if end < 0 else end + 1, "")

    def _flow_child(self, node: Any, index: int, removed: Set[int]) -> Span:
        start, end = self._extent(node, index)
        if index + 1 < len(node.value):
            end = self._extent(node, index + 1)[0]
        if index > 0 and index - 1 not in removed and all(later in removed for later in range(index, len(node.value))):
            start = self._extent(node, index - 1)[1]  # nothing follows it, so the comma before it is removed, too
        return Span(start, end, "")

    def _extent(self, node: Any, index: int) -> Tuple[int, int]:
        first, last = _ends(node, index)
        return first.start_mark.index, self._last(last)

    def _last(self, node: Any) -> int:
        """Return the position after a node's last character. PyYAML's end marks cannot be used for block collections and block scalars, because they include
        the blank lines after the node."""
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            return self._before(node.end_mark.index, " \t\r\n")
        if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
            return node.end_mark.index
        last = node.value[-1]
        return max(self._last(part) for part in (last if isinstance(last, tuple) else (last,)))

    # -- replacements --------------------------------------------------------------------------------------------

    def _replacement(self, path: Tuple, value: str) -> Span:
        node = self._node(path)
        flow = self._json or any(parent.flow_style for parent, unused in self._chain(path)[:-1])
        return Span(node.start_mark.index, self._last(node), _scalar(value, node.style, flow))

    def _rawly(self, path: Tuple, text: str) -> Span:
        node = self._node(path)
        start, end = node.start_mark.index, node.end_mark.index
        if start == end:  # a key without a value
            return Span(start, end, " " + text)
        if "\n" in self.text[start:end]:
            raise EditRefused("line {0}: the value takes more than one line".format(node.start_mark.line + 1))
        return Span(start, end, text)

    # -- additions -----------------------------------------------------------------------------------------------

    def _addition(self, path: Tuple, gone: Dict[int, Set[int]]) -> Span:
        """Return the span that adds entries to the collection at a path."""
        node, entries = self._node(path), self._added[path]
        if node is None or isinstance(node, yaml.ScalarNode) or not node.value:
            return self._filled(path, entries)
        removed = gone.get(id(node), set())
        kept = [index for index in range(len(node.value)) if index not in removed]
        model = node.value[kept[-1] if kept else 0]
        model = model[1] if isinstance(model, tuple) else model
        if node.flow_style:
            text = ", ".join(self._flow_entry(key, value, model) for key, value in entries)
            start, end = self._extent(node, kept[-1] if kept else 0)
            return Span(end, end, ", " + text) if kept else Span(start, end, text)
        lead, position = self._lead(node, kept[-1] if kept else 0)
        lines = [self._newline.join(self._entry(key, value, model, len(lead))) for key, value in entries]
        if not kept:
            return Span(position, self._extent(node, 0)[1], (self._newline + lead).join(lines))
        after = self.text.find("\n", self._extent(node, kept[-1])[1])
        if after < 0:
            return Span(len(self.text), len(self.text), "".join(self._newline + lead + line for line in lines))
        return Span(after + 1, after + 1, "".join(lead + line + self._newline for line in lines))

    def _lead(self, node: Any, index: int) -> Tuple[str, int]:
        """Return how a new line next to an entry of a block collection begins (indentation, and '- ' in a sequence), and where the entry starts.

        Raises EditRefused if the entry of a sequence shares its line.
        """
        first = _ends(node, index)[0]
        start = first.start_mark.index
        if isinstance(node, yaml.MappingNode):
            return " " * first.start_mark.column, start
        if not self._alone(node, index):
            raise EditRefused("line {0}: the entry shares its line with another".format(first.start_mark.line + 1))
        return self.text[self.text.rfind("\n", 0, start) + 1:start], start

    def _filled(self, path: Tuple, entries: List[Tuple[Optional[str], Any]]) -> Span:
        """Return the span that gives entries to a key without any. Raises EditRefused for an empty document."""
        data: Any = [value for unused, value in entries] if entries[0][0] is None else dict(entries)
        if not path:
            raise EditRefused("the document is empty")
        node, (parent, index) = self._node(path), self._chain(path)[-2]
        start = self._before(node.start_mark.index, " \t")
        if parent.flow_style or not isinstance(parent, yaml.MappingNode):
            return Span(start, node.end_mark.index, " " + self._flow(data, None))
        indent = parent.value[index][0].start_mark.column + (0 if isinstance(data, list) else 2)
        return Span(start, node.end_mark.index, "".join(self._newline + " " * indent + line for line in self._block(data)))

    def _entry(self, key: Optional[str], value: Any, model: Any, indent: int) -> List[str]:
        """Return the lines of an entry of a block collection, the first one without its indentation."""
        if key is not None:
            lines = self._block({key: value})
        elif isinstance(value, str):
            lines = [_scalar(value, getattr(model, "style", None) or None)]
        else:
            lines = self._block(value)
        return lines[:1] + [" " * indent + line for line in lines[1:]]

    def _flow_entry(self, key: Optional[str], value: Any, model: Any) -> str:
        style = getattr(model, "style", None)
        return self._flow(value, style) if key is None else self._flow({key: value}, style)[1:-1]

    def _flow(self, data: Any, style: Optional[str]) -> str:
        """Return data in one line."""
        if self._json or not isinstance(data, (str, dict, list)):
            return json.dumps(data, ensure_ascii=False)
        if isinstance(data, str):
            return _scalar(data, style, True)
        if isinstance(data, list):
            return "[{0}]".format(", ".join(self._flow(item, style) for item in data))
        return "{{{0}}}".format(", ".join("{0}: {1}".format(key, self._flow(value, None)) for key, value in data.items()))

    def _block(self, data: Any) -> List[str]:
        """Return data as lines."""
        if isinstance(data, str):
            return [_scalar(data, None)]
        if not data or not isinstance(data, (dict, list)):
            return [self._flow(data, None)]
        lines: List[str] = []
        for item in data:
            inner = self._block(data[item] if isinstance(data, dict) else item)
            if isinstance(data, list):
                lines += ["- " + inner[0]] + ["  " + line for line in inner[1:]]
            elif isinstance(data[item], (dict, list)) and data[item]:
                lines += [item + ":"] + [("  " if isinstance(data[item], dict) else "") + line for line in inner]
            else:
                lines.append("{0}: {1}".format(item, inner[0]))
        return lines


def _index(node: Any, key: str) -> int:
    """Return the position of a key in a mapping; of several, the last one. Raises KeyError, and EditRefused if the key comes from a merge key."""
    position = None
    for index, (name, value) in enumerate(node.value):
        if is_merge(name):
            position = -1 if key in merged(value) else position
        elif key_of(name) == key:
            position = index
    if position is None:
        raise KeyError(key)
    if position < 0:
        raise EditRefused("line {0}: '{1}' comes from a merge key (<<). Write it out there".format(node.start_mark.line + 1, key))
    return position


def _same(node: Any, index: int) -> Set[int]:
    """Return the positions of all entries with the key of this entry. They must be removed together, because without the last
    one, an earlier one would take effect."""
    if not isinstance(node, yaml.MappingNode):
        return {index}
    key = key_of(node.value[index][0])
    return {position for position, (name, unused) in enumerate(node.value) if not is_merge(name) and key_of(name) == key}


def _ends(node: Any, index: int) -> Tuple[Any, Any]:
    """Return the first and the last node of an entry."""
    child = node.value[index]
    return child if isinstance(node, yaml.MappingNode) else (child, child)


def _scalar(value: str, style: Optional[str], flow: bool = False) -> str:
    if style == "'" and value.isprintable():
        return "'{0}'".format(value.replace("'", "''"))
    return value if style is None and _is_plain(value, flow) else json.dumps(value, ensure_ascii=False)


def _is_plain(value: str, flow: bool) -> bool:
    """Return whether text needs no quotes."""
    if not value.isprintable() or value != value.strip() or not (value.startswith("--") or value[:1].isalpha()):
        return False
    if ": " in value or " #" in value or value.endswith(":") or resolved(value) is not value:
        return False
    return not any(char in value for char in ",[]{}?") or value.startswith("--") and not flow
