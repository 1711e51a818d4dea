# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads YAML as Kubernetes does: by the rules of sigs.k8s.io/yaml (go-yaml v2, then JSON), which differ from PyYAML's.

The kubelet, kubeadm and kube-proxy read the first document and ignore the rest. If a key occurs twice, the last one is used. Dates are text.
An unknown tag has no effect. C(y), C(n), C(on) and C(off) are booleans, and C(12:30) is text. A merge key overrides the keys before
it. Tabs may separate words.

The text may come from any host. Therefore the numbers of its characters, levels and values are limited.
Runs only on the Ansible controller (it needs PyYAML). It knows neither Kubernetes' objects nor files.
"""

from __future__ import annotations

import base64
import calendar
import functools
import math
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

try:
    import yaml
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner
    from yaml.tokens import ScalarToken
except ImportError:  # pragma: no cover - ansible-core itself requires PyYAML on the controller
    yaml = None  # type: ignore[assignment]
    Parser, Reader, Scanner = (type(name, (), {}) for name in ("Parser", "Reader", "Scanner"))  # type: ignore[assignment,misc]

#: libyaml's parser, None if PyYAML was built without libyaml.
LIBYAML = getattr(yaml, "CParser", None) or getattr(getattr(yaml, "cyaml", None), "CParser", None)

#: Classes of nodes, as Any because the stubs require a tag.
_SCALAR: Any = getattr(yaml, "ScalarNode", None)
_SEQUENCE: Any = getattr(yaml, "SequenceNode", None)
_MAPPING: Any = getattr(yaml, "MappingNode", None)

#: Maximum number of characters in a text. Manifests and configurations have a few KiB.
CHARACTERS = 256 << 10

#: Maximum number of values in a text, counting an alias as all values of its anchor. A manifest has a few hundred. The kubelet has such a limit, too.
VALUES = 20000

#: Maximum number of levels. A manifest has about ten.
LEVELS = 64

#: Number of texts whose nodes are kept, because a plan reads the same file several times.
KEPT = 16

_BLANKS = " \t"
_BREAKS = "\r\n\x85\u2028\u2029"
_ENDS = "\0" + _BLANKS + _BREAKS
_PREFIX = "tag:yaml.org,2002:"

_WORDS: Dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    ".nan": math.nan, ".NaN": math.nan, ".NAN": math.nan, "<<": "<<",
}
_WORDS.update({word: True for text in ("y", "yes", "true", "on") for word in (text, text.capitalize(), text.upper())})
_WORDS.update({word: False for text in ("n", "no", "false", "off") for word in (text, text.capitalize(), text.upper())})
_WORDS.update({sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")})

#: Text that libyaml may read differently from go-yaml (an escape, and separators in one-line collections), so that PyYAML's slower parser reads it.
_DIFFERENT = re.compile(r"\\/|\?|:[,\[\]{}]")

_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: A number that begins with a point, as in Go: an underscore may be only between two digits.
_FRACTION = re.compile(r"\.{0}([eE][-+]?{0})?".format("[0-9]+(_[0-9]+)*"))
_TIME = "([01]?[0-9]|2[0-3]):[0-5]?[0-9]:[0-5]?[0-9]([.,][0-9]+)?"
_TIMESTAMP = re.compile(
    r"([0-9]{{4}})-(0?[1-9]|1[0-2])-([0-9]{{1,2}})([Tt]{0}(Z|[-+]([01][0-9]|2[0-4]):([0-5][0-9]|60))| +{0})?".format(_TIME))


class NotYaml(ValueError):
    """Kubernetes cannot read the text, or the text exceeds this collection's limits: CHARACTERS, LEVELS and VALUES."""


class Document(NamedTuple):
    """The first document of a text: its root node, None if it is empty, and the position after it."""

    root: Any
    end: int


def load(text: str) -> Any:
    """Return the data of the first document, as Kubernetes reads it. Raises NotYaml."""
    return data_of(compose(text).root)


@functools.lru_cache(maxsize=KEPT)
def compose(text: str) -> Document:
    """Return the nodes of the first document. Callers share the nodes, and must not change them. Raises NotYaml."""
    if len(text) > CHARACTERS:
        raise NotYaml("it has {0} characters, more than the {1} that this collection reads".format(len(text), CHARACTERS))
    wrong = Reader.NON_PRINTABLE.search(text)
    if wrong:
        raise NotYaml("line {0}: the character U+{1:04X} is not allowed".format(text.count("\n", 0, wrong.start()) + 1, ord(wrong.group())))
    if LIBYAML is not None and not _DIFFERENT.search(text):
        try:
            return _Composer(LIBYAML(text)).first()
        except yaml.YAMLError:
            pass  # PyYAML's own parser gives the reason, in the same words on every machine
    try:
        return _Composer(_Parser(text)).first()
    except yaml.YAMLError as exc:
        raise NotYaml(_reason(exc)) from exc


def _reason(exc: Any) -> str:
    mark = getattr(exc, "problem_mark", None)
    what = getattr(exc, "problem", None) or str(exc).splitlines()[0]
    return "line {0}, column {1}: {2}".format(mark.line + 1, mark.column + 1, what) if mark else what


# -- text to nodes ----------------------------------------------------------------------------------------------------


class _Composer:
    """Creates nodes from a parser's events. A scalar without a tag in the text has the tag '' if it has no quotes, otherwise None. A collection
    always has None."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._anchors: Dict[str, Any] = {}
        self._values, self._levels = 0, 0
        self._weights: Dict[int, int] = {}

    def first(self) -> Document:
        """Return the first document. The documents after it are not read. Raises NotYaml."""
        self._parser.get_event()
        event = self._parser.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            return Document(None, event.start_mark.index)
        if event.version not in (None, (1, 1)):
            raise NotYaml("its %YAML directive is not 1.1")
        root = self._node(self._parser.get_event())
        return Document(root, self._parser.get_event().start_mark.index)

    def _node(self, event: Any) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        before = self._values
        self._count(event, 1)
        self._levels += 1
        if self._levels > LEVELS:
            raise NotYaml("line {0}: it has more than {1} levels".format(event.start_mark.line + 1, LEVELS))
        if isinstance(event, yaml.ScalarEvent):
            tag = "" if event.tag is None and event.implicit[0] else event.tag
            node = _SCALAR(tag, event.value, event.start_mark, event.end_mark, event.style or None)
            self._anchor(event, node)
        else:
            node = self._collection(event)
        self._levels -= 1
        self._weights[id(node)] = self._values - before
        return node

    def _collection(self, event: Any) -> Any:
        listed = isinstance(event, yaml.SequenceStartEvent)
        node = (_SEQUENCE if listed else _MAPPING)(None, [], event.start_mark, None, event.flow_style)
        self._anchor(event, node)
        children = []
        inner = self._parser.get_event()
        while not isinstance(inner, yaml.CollectionEndEvent):
            children.append(self._node(inner))
            inner = self._parser.get_event()
        node.value = children if listed else list(zip(children[::2], children[1::2]))
        node.end_mark = inner.end_mark
        return node

    def _anchor(self, event: Any, node: Any) -> None:
        if event.anchor is not None:  # a later anchor of the same name replaces it
            self._anchors[event.anchor] = node

    def _aliased(self, event: Any) -> Any:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise NotYaml("line {0}: the alias '{1}' has no anchor".format(event.start_mark.line + 1, event.anchor))
        if id(node) not in self._weights:
            raise NotYaml("line {0}: the anchor '{1}' contains itself".format(event.start_mark.line + 1, event.anchor))
        self._count(event, self._weights[id(node)])
        return node

    def _count(self, event: Any, values: int) -> None:
        self._values += values
        if self._values > VALUES:
            raise NotYaml("line {0}: it has more than {1} values, with every alias followed".format(event.start_mark.line + 1, VALUES))


class _Parser(Reader, Scanner, Parser):  # type: ignore[misc]
    """PyYAML's own parser with the rules of libyaml, of which go-yaml is a translation."""

    ESCAPE_REPLACEMENTS = {  # type: ignore[misc]  # the stubs call it final
        key: value for key, value in getattr(Scanner, "ESCAPE_REPLACEMENTS", {}).items() if key != "/"
    }

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)

    # Tabs separate words, except in front of what may be a key.

    def scan_to_next_token(self) -> None:
        while True:
            if self.column == 0 and self.peek() == "\ufeff":
                self.forward()
            while self.peek() == " " or self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
                self.forward()
            if self.peek() == "#":
                while self.peek() not in "\0" + _BREAKS:
                    self.forward()
            if not self.scan_line_break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def scan_plain(self) -> Any:
        parts: List[str] = []
        blanks, lines = "", ""
        start = end = self.get_mark()
        while not self._at_marker() and self.peek() != "#":
            length = self._plain_length()
            if length:
                parts += [_folded(lines) if lines else blanks, self.prefix(length)]
                blanks, lines = "", ""
                self.forward(length)
                self.allow_simple_key = False
                end = self.get_mark()
            if self.peek() not in _BLANKS + _BREAKS:
                break
            blanks, lines = self._plain_spaces(start)
            if not self.flow_level and self.column < self.indent + 1:
                break
        if lines:
            self.allow_simple_key = True
        return ScalarToken("".join(parts), True, start, end)

    def scan_directive(self) -> Any:
        token = Scanner.scan_directive(self)
        if token.name not in ("YAML", "TAG"):
            raise NotYaml("line {0}: the directive %{1} is unknown".format(token.start_mark.line + 1, token.name))
        return token

    def scan_block_scalar_indicators(self, start_mark: Any) -> Any:
        # One sign and one digit, in any order. Each is optional, so the first match is at the beginning.
        indicators = next(re.finditer(r"[1-9][-+]|[-+]?[1-9]?", self.prefix(2))).group()
        self.forward(len(indicators))
        indent = indicators.strip("-+")
        return {"+": True, "-": False}.get(indicators.strip(indent)), int(indent) if indent else None

    def scan_block_scalar_ignored_line(self, start_mark: Any) -> None:
        while self.peek() in _BLANKS:
            self.forward()
        Scanner.scan_block_scalar_ignored_line(self, start_mark)

    def scan_block_scalar_indentation(self) -> Any:
        result = Scanner.scan_block_scalar_indentation(self)
        self._refuse_tab(self.peek() == "\t")
        return result

    def scan_block_scalar_breaks(self, indent: int) -> Any:
        result = Scanner.scan_block_scalar_breaks(self, indent)
        self._refuse_tab(self.column < indent and self.peek() == "\t")
        return result

    def _refuse_tab(self, wrong: bool) -> None:
        if wrong:
            raise NotYaml("line {0}, column {1}: a tab is used for indentation".format(self.line + 1, self.column + 1))

    def _at_marker(self) -> bool:
        return self.column == 0 and self.prefix(3) in ("---", "...") and self.peek(3) in _ENDS

    def _plain_length(self) -> int:
        length = 0
        while True:
            char = self.peek(length)
            if char in _ENDS or self.flow_level and char in ",?[]{}" or char == ":" and self.peek(length + 1) in _ENDS:
                return length
            length += 1

    def _plain_spaces(self, start: Any) -> Tuple[str, str]:
        """Skip white space after a word; return its blanks, and its line breaks if it has any."""
        blanks, lines = "", ""
        while self.peek() in _BLANKS or self.peek() in _BREAKS:
            if self.peek() in _BREAKS:
                blanks, lines = "", lines + self.scan_line_break()
                continue
            self._refuse_tab(bool(lines) and self.peek() == "\t" and self.column < self.indent + 1)
            blanks += "" if lines else self.peek()
            self.forward()
        return blanks, lines


def _folded(lines: str) -> str:
    if lines[0] != "\n":
        return lines
    return lines[1:] or " "


# -- nodes to data ----------------------------------------------------------------------------------------------------


def data_of(node: Any) -> Any:
    """Return the data of a node, without shared parts. Raises NotYaml."""
    if node is None:
        return None
    if isinstance(node, yaml.ScalarNode):
        return _finite(node, _scalar(node))
    if isinstance(node, yaml.SequenceNode):
        return [data_of(item) for item in node.value]
    data: Dict[str, Any] = {}
    for key, value in node.value:
        data.update(merged(value) if is_merge(key) else {key_of(key): data_of(value)})
    return data


def is_merge(key: Any) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.tag in ("", _PREFIX + "merge")


def merged(node: Any) -> Dict[str, Any]:
    """Return the entries that a merge key adds. Raises NotYaml."""
    parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
    data: Dict[str, Any] = {}
    for part in reversed(parts):  # an earlier mapping overrides later ones
        if not isinstance(part, yaml.MappingNode):
            raise NotYaml("line {0}: a merge key (<<) needs a mapping".format(node.start_mark.line + 1))
        data.update(data_of(part))
    return data


def key_of(node: Any) -> str:
    """Return a key as text, because keys are text in JSON. Raises NotYaml."""
    key = _scalar(node) if isinstance(node, yaml.ScalarNode) else data_of(node)
    if key is None or isinstance(key, (dict, list)):
        raise NotYaml("line {0}: a key is neither text nor a number".format(node.start_mark.line + 1))
    if isinstance(key, int) and key >= 2 ** 63:
        raise NotYaml("line {0}: the number {1} is too large for a key".format(node.start_mark.line + 1, key))
    if isinstance(key, bool):
        return str(key).lower()
    return _short(key) if isinstance(key, float) else str(key)


def _short(number: float) -> str:
    """Return a number as Go's FormatFloat(number, 'g', -1, 32) writes it: with the fewest digits that give the same 32-bit number."""
    single = _single(number)
    if not math.isfinite(single):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(single), ".nan")
    text = next(text for text in map("{0:.{1}e}".format, [single] * 9, range(9)) if _single(float(text)) == single)
    digits, unused, exponent = text.partition("e")
    if not -5 < int(exponent) < 6:
        return text
    return "{0:.{1}f}".format(float(text), max(len(digits.partition(".")[2]) - int(exponent), 0))


def _single(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _scalar(node: Any) -> Any:
    tag, value = node.tag, node.value
    if tag is None or not (tag == "" or tag.startswith(_PREFIX)):
        return value
    kind = tag[len(_PREFIX):]
    if kind == "binary":
        return _binary(node)
    result = resolved(value) if kind in ("", "bool", "int", "float", "null") else value
    if kind == "float" and _kind(result) == "int" and result < 2 ** 63:
        result = float(result)
    if kind in ("bool", "int", "float", "null") and _kind(result) != kind or kind == "timestamp" and not _is_timestamp(value):
        raise NotYaml("line {0}: '{1}' is not a !!{2}".format(node.start_mark.line + 1, value, kind))
    return result


def _finite(node: Any, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise NotYaml("line {0}: JSON has no number {1}".format(node.start_mark.line + 1, node.value))
    return value


def _kind(value: Any) -> str:
    return {type(None): "null", bool: "bool", int: "int", float: "float"}.get(type(value), "str")


def _binary(node: Any) -> str:
    try:
        return base64.b64decode("".join(node.value.split()), validate=True).decode("utf-8", "replace")
    except ValueError as exc:
        raise NotYaml("line {0}: a !!binary value is not base64".format(node.start_mark.line + 1)) from exc


def resolved(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _number(text.replace("_", ""), text) if _FRACTION.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    plain = re.sub("^0b([-+])", r"\g<1>0b", text.replace("_", ""))
    whole = _INTEGER.fullmatch(plain)
    number = _integer(whole.group(1), whole.group(2)) if whole else None
    return _number(plain, text) if number is None else number


def _integer(sign: str, digits: str) -> Optional[int]:
    """Return the number, None if it does not fit into 64 bits."""
    number = int(digits, {"0x": 16, "0b": 2}.get(digits[:2].lower(), 8 if digits[0] == "0" else 10))  # int() knows the prefix of a base
    number = -number if sign == "-" else number
    return number if -2 ** 63 <= number < (2 ** 63 if sign else 2 ** 64) else None


def _number(plain: str, text: str) -> Any:
    number = float(plain) if _FLOAT.fullmatch(plain) else math.inf
    return number if math.isfinite(number) else text


def _is_timestamp(text: str) -> bool:
    """Return whether go-yaml accepts a text as a C(!!timestamp). Its value remains the text."""
    match = _TIMESTAMP.fullmatch(text)
    return match is not None and 1 <= int(match.group(3)) <= calendar.monthrange(int(match.group(1)), int(match.group(2)))[1]
