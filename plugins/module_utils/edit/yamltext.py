# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edit YAML text in place: comments, key order, anchors, quoting and line ends of everything else stay.

A round trip through a YAML library would rewrite the whole file. Here, the library only reports the position of each node (PyYAML's
marks), and edits replace spans of the text. The result is parsed again and compared with the intended data. An edit that would change
anything else, such as an alias of a changed list, is refused.

It runs only on the Ansible controller, which always has PyYAML. It knows neither Kubernetes nor files.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Span, apply_spans

try:
    import yaml
except ImportError:  # pragma: no cover - ansible-core itself requires PyYAML on the controller
    yaml = None  # type: ignore[assignment]


#: Words that are not text in YAML unless they are quoted.
WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


#: Maximum number of columns, so large that the library does not break lines.
WIDTH = 10 ** 6


class NotYaml(ValueError):
    """The text is not one YAML document."""


class EditRefused(ValueError):
    """The edit cannot be made without changing something else in the text."""


def load(text: str) -> Any:
    """Return the data of one YAML document."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise NotYaml(_problem(exc)) from exc


def _problem(exc: Any) -> str:
    mark = getattr(exc, "problem_mark", None)
    what = getattr(exc, "problem", None) or str(exc).splitlines()[0]
    return "line {0}, column {1}: {2}".format(mark.line + 1, mark.column + 1, what) if mark else what


def pruned(data: Any) -> Any:
    """Return data without empty collections and nulls, because an emptied list may be written as [], as nothing, or be omitted."""
    if isinstance(data, dict):
        items = {key: pruned(value) for key, value in data.items()}
        return {key: value for key, value in items.items() if value is not None and value != {} and value != []}
    if isinstance(data, list):
        return [pruned(item) for item in data]
    return data


def independent(data: Any) -> Any:
    """Return a copy without shared parts, so that changing an alias does not change its anchor."""
    if isinstance(data, dict):
        return {key: independent(value) for key, value in data.items()}
    return [independent(item) for item in data] if isinstance(data, list) else data


class YamlText:
    """One YAML document and the edits to make in it. Paths are tuples of keys and indexes of the *original* text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = load(text)
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as exc:  # pragma: no cover - load() has parsed it already
            raise NotYaml(_problem(exc)) from exc
        self._removed: Dict[int, set] = {}
        self._replaced: Dict[Tuple, str] = {}
        self._raw: Dict[Tuple, str] = {}
        self._inserts: List[Tuple[Tuple, Any]] = []
        self._blocks: List[Tuple[str, str]] = []
        self._keys: List[Tuple[Tuple, str, str]] = []
        self._newline = "\r\n" if "\r\n" in text else "\n"

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

    def _chain(self, path: Tuple) -> List[Tuple[Any, Optional[int]]]:
        """Return (node, index of the next node in it) from the root to the node at the path."""
        chain: List[Tuple[Any, Optional[int]]] = []
        node = self._root
        for step in path:
            if isinstance(node, yaml.MappingNode):
                index = next((i for i, (key, unused) in enumerate(node.value) if key.value == step), None)
                if index is None and any(key.value == "<<" for key, unused in node.value):
                    raise EditRefused("line {0}: '{1}' comes from a merge key (<<). Write it out there".format(
                        node.start_mark.line + 1, step))
                if index is None:
                    raise KeyError(step)
                chain.append((node, index))
                node = node.value[index][1]
            else:
                chain.append((node, step))
                node = node.value[step]
        chain.append((node, None))
        return chain

    def _node(self, path: Tuple) -> Any:
        return self._chain(path)[-1][0]

    # -- edits ---------------------------------------------------------------------------------------------------

    def remove(self, path: Tuple) -> None:
        """Remove a list item or a key with its value."""
        chain = self._chain(path)
        node, index = chain[-2]
        self._removed.setdefault(id(node), set()).add(index)
        # An emptied collection is removed, too, up to but not including a top-level key.
        if len(self._removed[id(node)]) == len(node.value) and len(path) > 2:
            self.remove(path[:-1])

    def replace(self, path: Tuple, value: str) -> None:
        """Replace a scalar and keep its quotes."""
        self._replaced[path] = value

    def raw(self, path: Tuple, text: str) -> None:
        """Replace a scalar or a list in one line with YAML text of one line."""
        self._raw[path] = text

    def raw_text(self, path: Tuple) -> str:
        """Return the text of a scalar or of a list in one line."""
        node = self._node(path)
        return self.text[node.start_mark.index:node.end_mark.index]

    def keep(self, path: Tuple, value: str) -> None:
        """Cancel the removal of an item of a top-level key's list, and replace its value instead."""
        node, index = self._chain(path)[-2]
        self._removed.get(id(node), set()).discard(index)
        self._replaced[path] = value

    def append(self, path: Tuple, value: Any) -> None:
        """Append a string, or a mapping, to a list that is not empty."""
        self._inserts.append((path, value))

    def add_key(self, path: Tuple, key: str, value: str) -> None:
        """Add a key with a string to a mapping that is not empty."""
        self._keys.append((path, key, value))

    def set_block(self, key: str, block: str) -> None:
        """Append lines (indented by two, ending in a newline) to the mapping at a top-level key."""
        self._blocks.append((key, block))

    def render(self, expected: Any) -> str:
        """Return the edited text. Raises EditRefused if its data is not exactly as expected."""
        spans: List[Span] = []
        self._removal_spans(self._root, spans, set())
        spans += [self._replacement(path, value) for path, value in self._replaced.items()]
        spans += [self._rawly(path, text) for path, text in self._raw.items()]
        spans += [self._insertion(path, value) for path, value in self._inserts]
        spans += [self._key(path, key, value) for path, key, value in self._keys]
        spans += [self._block(key, block) for key, block in self._blocks]
        try:
            result = apply_spans(self.text, spans)
            actual = load(result)
        except (NotYaml, ValueError) as exc:
            raise EditRefused("the edited text would not be YAML: {0}".format(exc)) from exc
        if pruned(actual) != pruned(expected):
            raise EditRefused("the edit would change other parts of the text (an anchor with aliases?)")
        return result

    # -- spans ---------------------------------------------------------------------------------------------------

    def _removal_spans(self, node: Any, spans: List[Span], seen: set) -> None:
        if isinstance(node, yaml.ScalarNode) or id(node) in seen:  # an alias has the same node as its anchor
            return
        seen.add(id(node))
        removed = self._removed.get(id(node), set())
        if removed and len(removed) == len(node.value):  # only a top-level key is emptied instead of removed
            spans.append(self._emptied(node))
            return
        for index in sorted(removed):
            spans.append(self._flow_child(node, index) if node.flow_style else self._block_child(node, index))
        for index, child in enumerate(node.value):
            if index not in removed:
                self._removal_spans(child[1] if isinstance(node, yaml.MappingNode) else child, spans, seen)

    def _emptied(self, node: Any) -> Span:
        empty = "{}" if isinstance(node, yaml.MappingNode) else "[]"
        if node.flow_style:
            return Span(node.start_mark.index, node.end_mark.index, empty)
        start = node.start_mark.index
        while start > 0 and self.text[start - 1] in " \t\r\n":
            start -= 1
        return Span(start, self._last(node), " " + empty)

    def _block_child(self, node: Any, index: int) -> Span:
        child = node.value[index]
        first, last = child if isinstance(node, yaml.MappingNode) else (child, child)
        start = self.text.rfind("\n", 0, first.start_mark.index) + 1
        lead = self.text[start:first.start_mark.index].strip()
        if lead != ("" if isinstance(node, yaml.MappingNode) else "-"):
            raise EditRefused("line {0}: the entry shares its line with another".format(first.start_mark.line + 1))
        end = self.text.find("\n", max(self._last(last), first.start_mark.index))
        return Span(start, len(self.text) if end < 0 else end + 1, "")

    def _flow_child(self, node: Any, index: int) -> Span:
        def ends(position: int) -> Tuple[int, int]:
            child = node.value[position]
            first, last = child if isinstance(node, yaml.MappingNode) else (child, child)
            return first.start_mark.index, self._last(last)

        start, end = ends(index)
        if index + 1 < len(node.value):
            end = ends(index + 1)[0]
        removed = self._removed[id(node)]
        if index - 1 not in removed and all(later in removed for later in range(index, len(node.value))):
            start = ends(index - 1)[1]  # nothing follows it, so the comma before it is removed, too
        return Span(start, end, "")

    def _last(self, node: Any) -> int:
        """Return the end of a node's last character. A block collection's own end mark is after trailing comments."""
        if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
            return node.end_mark.index
        last = node.value[-1]
        return max(self._last(part) for part in (last if isinstance(last, tuple) else (last,)))

    def _replacement(self, path: Tuple, value: str) -> Span:
        node = self._node(path)
        return Span(node.start_mark.index, node.end_mark.index, _scalar(value, node.style))

    def _rawly(self, path: Tuple, text: str) -> Span:
        node = self._node(path)
        start, end = node.start_mark.index, node.end_mark.index
        if start == end:  # a key without a value
            return Span(start, end, " " + text)
        if "\n" in self.text[start:end]:
            raise EditRefused("line {0}: the value takes more than one line".format(node.start_mark.line + 1))
        return Span(start, end, text)

    def _insertion(self, path: Tuple, value: Any) -> Span:
        node = self._node(path)
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise EditRefused("line {0}: there is no list with items to which another one could be added".format(node.start_mark.line + 1))
        last = node.value[-1]
        end = self._last(last)
        if node.flow_style:
            return Span(end, end, ", " + self._item(value, last, None))
        line = self.text.rfind("\n", 0, last.start_mark.index) + 1
        lead = self.text[line:last.start_mark.index]
        if lead.strip() != "-":
            raise EditRefused("line {0}: the entry shares its line with another".format(last.start_mark.line + 1))
        after = self.text.find("\n", end)
        entry = lead + self._item(value, last, len(lead))
        if after < 0:
            return Span(len(self.text), len(self.text), self._newline + entry)
        return Span(after + 1, after + 1, entry + self._newline)

    def _item(self, value: Any, last: Any, indent: Optional[int]) -> str:
        """Return a list item in the style of the last one: a scalar in its quotes, a mapping in several lines (one if C(indent) is None)."""
        if isinstance(value, str):
            return _scalar(value, getattr(last, "style", None))
        if indent is None:
            return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=WIDTH).strip()
        lines = yaml.safe_dump(value, default_flow_style=False, sort_keys=False, width=WIDTH).splitlines()
        return (self._newline + " " * indent).join(lines)

    def _key(self, path: Tuple, key: str, value: str) -> Span:
        node = self._node(path)
        entry = "{0}: {1}".format(key, _scalar(value, None))
        if node.flow_style:
            end = self._last(node.value[-1][1])
            return Span(end, end, ", " + entry)
        entry = " " * node.value[-1][0].start_mark.column + entry
        after = self.text.find("\n", self._last(node))
        if after < 0:
            return Span(len(self.text), len(self.text), self._newline + entry)
        return Span(after + 1, after + 1, entry + self._newline)

    def _block(self, key: str, block: str) -> Span:
        block = block.replace("\n", self._newline)
        try:
            node = self._node((key,))
        except KeyError:
            lead = "" if self.text.endswith("\n") else self._newline
            return Span(len(self.text), len(self.text), "{0}{1}:{2}{3}".format(lead, key, self._newline, block))
        if isinstance(node, yaml.ScalarNode) or not node.value:
            start = node.start_mark.index
            while self.text[start - 1] in " \t":
                start -= 1
            return Span(start, node.end_mark.index, self._newline + block.rstrip("\r\n"))
        if node.flow_style:
            raise EditRefused("{0} is written in one line".format(key))
        after = self.text.find("\n", self._last(node))
        if after < 0:
            return Span(len(self.text), len(self.text), self._newline + block)
        return Span(after + 1, after + 1, block)


def _scalar(value: str, style: Optional[str]) -> str:
    if style == "'":
        return "'{0}'".format(value.replace("'", "''"))
    plain = style is None and value and value.lower() not in WORDS and not any(mark in value for mark in (": ", " #", "\n", ",", "[", "]", "{", "}"))
    if plain and (value.startswith("--") or value[0].isalpha()):
        return value
    if style is None and value.startswith("--") and ": " not in value and " #" not in value and "\n" not in value:
        return value
    return '"{0}"'.format(value.replace("\\", "\\\\").replace('"', '\\"'))


def quoted(value: str) -> str:
    """Return a string as YAML in one line, in quotes if necessary."""
    return _scalar(value, None)
