# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's words: how it splits text at white space, removes quotes and escapes, and how to write text that it reads back.

Pure and stdlib-only (it also runs on managed nodes, Python 3.8). The rules are those of C(extract_first_word) and C(cunescape_one) in
systemd's src/basic; the tests compare them with systemd's own library. Each decoded character knows its place in a file.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Span, apply_spans

WHITESPACE = " \t\n\r"
QUOTES = "\"'"

#: Characters that need no quotes and no escapes anywhere: not in a unit, not in an environment file, not in a variable.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,./:@~^")

#: The backslash that joins the line at a text's end with one before it, and what lies between the two lines: line ends and comments.
JOINED = re.compile(r"[ \t]*\\(\r?\n(?:[ \t]*[#;].*\n)*)[ \t]*\Z")

#: A backslash at a text's end that escapes what follows it. If there are several, the last one escapes only if their number is odd.
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")

_C_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'", "s": " "}
#: Escapes with digits: how many, and their base.
_NUMBERS = {"x": (2, 16), "u": (4, 16), "U": (8, 16)}


class CannotWrite(ValueError):
    """A text cannot be written at its place, because no spelling of it has the same meaning there."""


class Char(NamedTuple):
    """One decoded character (or the whole text of one %-specifier), its span in the raw text of a file, and the quotes around it.

    C(layer) says which rules encode a character there: C(unit) or C(environment).
    """

    start: int
    end: int
    char: str
    quote: str = ""
    path: str = ""
    layer: str = "unit"


class Place(NamedTuple):
    """Where more text goes: a position in a file, the quotes around it, and the layer's rules."""

    path: str
    at: int
    quote: str
    layer: str


class Word(NamedTuple):
    """One word: its decoded characters, and every character that it consists of in the raw text, quotes and escapes included.

    C(inside) is the place for more text at its end. C(open): the text ended inside quotes or after a backslash. C(strange): it has an
    unknown escape.
    """

    chars: Tuple[Char, ...]
    raw: Tuple[Char, ...]
    inside: Place
    open: bool
    strange: bool

    @property
    def value(self) -> str:
        return text_of(self.chars)

    @property
    def start(self) -> int:
        return self.raw[0].start

    @property
    def end(self) -> int:
        return self.raw[-1].end


def text_of(chars: Iterable[Char]) -> str:
    return "".join([char.char for char in chars])


def escapes(text: str) -> bool:
    """Return whether a text ends in a backslash that escapes what follows it."""
    return _ESCAPE.search(text) is not None


def split_words(chars: Sequence[Char], c_escapes: bool = False) -> List[Word]:
    """Split decoded text into words.

    With C(c_escapes), split it as systemd splits a line of a unit, where C(\\x20) is a blank and an unknown escape stays as it is. Without,
    split it as systemd splits C($VARIABLE) of ExecStart, where a backslash keeps the following character.
    """
    words: List[Word] = []
    position = 0
    while position < len(chars):
        if chars[position].char in WHITESPACE:
            position += 1
            continue
        word, position = _word(chars, position, c_escapes)
        words.append(word)
    return words


def last_command(words: Iterable[Word]) -> List[Word]:
    """Return the words of the last command of ExecStart. A lone C(;) ends a command, and C(\\;) is the argument C(;) (C(config_parse_exec))."""
    command: List[Word] = []
    ended = False
    for word in words:
        raw = text_of(word.raw)
        if raw == ";":
            ended = True
            continue
        if raw == "\\;":
            word = word._replace(chars=(word.raw[0]._replace(end=word.end, char=";"),))
        command = [word] if ended else command + [word]
        ended = False
    return command


def _word(chars: Sequence[Char], first: int, c_escapes: bool) -> Tuple[Word, int]:
    decoded: List[Char] = []
    quote, pair = "", None  # type: str, Optional[Char]
    position, escaped, strange = first, False, False
    while position < len(chars):
        char = chars[position]
        width = 1
        if escaped:
            escaped = False
            new, width = _unescaped(chars, position, c_escapes)
            strange = strange or len(new) > 1
            decoded += [_within(item, quote) for item in new]
        elif char.char == "\\":
            escaped = True
        elif quote and char.char == quote:
            quote = ""
        elif not quote and char.char in QUOTES:
            quote, pair = char.char, pair or char
        elif not quote and char.char in WHITESPACE:
            break
        else:
            decoded.append(_within(char, quote))
        position += width
    if escaped and c_escapes and not quote:  # the blank after the backslash was stripped at the end of the line
        decoded.append(_within(chars[position - 1], quote))
        escaped, strange = False, True
    inside = _inside(decoded, pair, chars[first])
    return Word(tuple(decoded), tuple(chars[first:position]), inside, bool(quote) or escaped, strange), position


def _within(char: Char, quote: str) -> Char:
    """Return a character with the quotes of its own layer. In a variable of an environment file, only the file's quotes count, not those in the value."""
    return char._replace(quote=quote) if char.layer == "unit" and char.quote != quote else char


def _inside(decoded: List[Char], pair: Optional[Char], first: Char) -> Place:
    if decoded:
        last = decoded[-1]
        return Place(last.path, last.end, last.quote, last.layer)
    if pair is not None:  # ""
        return Place(pair.path, pair.end, pair.char if pair.layer == "unit" else pair.quote, pair.layer)
    return Place(first.path, first.end, first.quote, first.layer)


def _unescaped(chars: Sequence[Char], position: int, c_escapes: bool) -> Tuple[List[Char], int]:
    """Return the characters for a backslash and what follows it at C(position), and how many of the following characters belong to it."""
    back, char = chars[position - 1], chars[position]
    if not c_escapes:
        return [char._replace(start=back.start)], 1
    text, width = _c_escape(text_of(chars[position:position + 9]))
    if not width:
        return [back, char], 1
    return [char._replace(start=back.start, end=chars[position + width - 1].end, char=text)], width


def _c_escape(text: str) -> Tuple[str, int]:
    """Return the character of a C escape and the length of the escape; 0 if it is none (C(cunescape_one))."""
    kind = text[0]
    if kind in _C_ESCAPES:
        return _C_ESCAPES[kind], 1
    if kind in _NUMBERS:
        width, base = _NUMBERS[kind]
        digits, lead = text[1:1 + width], 1
    else:
        width, base, digits, lead = 3, 8, text[:3], 0
    if len(digits) < width or any(digit not in ("01234567" if base == 8 else "0123456789abcdefABCDEF") for digit in digits):
        return "", 0
    number = int(digits, base)
    if not number or base == 8 and number > 0xFF or kind == "U" and not _is_character(number):
        return "", 0
    content = bytes([number]) if kind == "x" or base == 8 else chr(number).encode("utf-8", "surrogatepass")
    return content.decode("utf-8", "surrogateescape"), lead + width


def _is_character(number: int) -> bool:
    """Return whether Unicode has a character of this number, which systemd checks only for C(\\U) (C(unichar_is_valid))."""
    return number < 0x110000 and not 0xD800 <= number < 0xE000 and not 0xFDD0 <= number < 0xFDF0 and number & 0xFFFE != 0xFFFE


# -- specifiers ---------------------------------------------------------------------------------------------------------


def specified(chars: Iterable[Char], specifiers: Dict[str, str]) -> List[Char]:
    """Return the characters with systemd's %-specifiers replaced; C(specifiers) has the text for each letter. Unknown
    ones stay as they are."""
    result: List[Char] = []
    waiting: Optional[Char] = None
    for char in chars:
        if waiting is None and char.char == "%":
            waiting = char
            continue
        if waiting is not None:
            text = "%" if char.char == "%" else specifiers.get(char.char)
            if text is None:
                result += [waiting, char]
            else:
                result.append(char._replace(start=waiting.start, char=text))
            waiting = None
            continue
        result.append(char)
    return result if waiting is None else result + [waiting]


def of_unit(name: str) -> Dict[str, str]:
    """Return the specifiers that a unit's name alone decides, such as C(kubelet.service) or C(kubelet@a.service)."""
    stem = name.rpartition(".")[0] or name
    prefix, at, instance = stem.partition("@")
    return {"n": name, "N": stem, "p": prefix, "i": instance, "j": prefix.rpartition("-")[2]} if name else {}


# -- edits --------------------------------------------------------------------------------------------------------------


def encoded(text: str, place: Place, split: bool, command: bool = False) -> str:
    """Return the spelling of a text at a place. C(split): it is part of a variable that ExecStart splits. C(command): it is part of ExecStart.

    Raises CannotWrite.
    """
    if _PLAIN.issuperset(text):
        return text
    if split:
        text = "".join("\\" + char if char in WHITESPACE + "\\\"'" else char for char in text)
    if place.layer == "environment":
        return _in_environment_file(text, place.quote)
    special = {"\\": "\\\\", '"': '\\"', "'": "\\'", "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r", "$": "$$" if command else "$"}
    special[" "] = " " if place.quote else "\\x20"
    return "".join(special.get(char, char) for char in text)


def _in_environment_file(text: str, quote: str) -> str:
    if quote == '"':
        return "".join("\\" + char if char in '"\\`$' else char for char in text)
    if quote == "'":
        if "'" in text:
            raise CannotWrite("a value in single quotes cannot have a single quote")
        return text
    if "\n" in text or "\r" in text:
        raise CannotWrite("a value without quotes cannot have more lines")
    return "".join(char if char in _PLAIN else "\\" + char for char in text)


def edited(text: str, spans: Sequence[Span], in_unit: bool) -> str:
    """Apply edits to a file. Text that is added at the end of a removed word takes the word's place.

    If an edit empties a line of a unit, the line is removed with the backslash that joins it to the line before.
    """
    added = [span.start for span in spans if span.text]
    spans = [span if span.text else span._replace(end=min([at for at in added if span.start < at < span.end] + [span.end])) for span in spans]
    gone = [span.start for span in spans if in_unit and not span.text]
    places = [len(apply_spans(text[:at], [span for span in spans if span.start < at])) for at in gone]
    text = apply_spans(text, spans)
    for place in sorted(places, reverse=True):
        before, behind = JOINED.search(text[:place]), re.match(r"[ \t]*(?=\r?\n|$)", text[place:])
        head = text[:before.start()] if before else ""
        if before and behind and not escapes(head):
            text = head + re.sub(r"\r?\n$", "", before.group(1)) + text[place + behind.end():]
    return text


def spans_of(chars: Iterable[Char]) -> Dict[str, List[Span]]:
    """Return the spans that remove characters, by file: one span for each run of adjacent characters."""
    by_path: Dict[str, List[Span]] = {}
    for char in chars:
        spans = by_path.setdefault(char.path, [])
        if spans and spans[-1].end == char.start:
            spans[-1] = spans[-1]._replace(end=char.end)
        else:
            spans.append(Span(char.start, char.end, ""))
    return by_path


def rewritten(chars: Sequence[Char], inside: Place, new: str, split: bool, command: bool = False) -> Dict[str, List[Span]]:
    """Return the edits after which a word reads C(new). The beginning and end that both texts share stay, with quotes and escapes.

    Raises CannotWrite.
    """
    first, at = 0, 0
    lone = command and new == ";"  # without a backslash or quotes, it would end the command
    while not lone and first < len(chars) and chars[first].char and new.startswith(chars[first].char, at):
        at += len(chars[first].char)
        first += 1
    last, until = len(chars), len(new)
    while not lone and last > first and chars[last - 1].char and until - len(chars[last - 1].char) >= at \
            and new.endswith(chars[last - 1].char, at, until):
        until -= len(chars[last - 1].char)
        last -= 1
    place = inside
    if first < last or chars and not first:
        place = Place(chars[first].path, chars[first].start, chars[first].quote, chars[first].layer)
    elif first:
        place = Place(chars[first - 1].path, chars[first - 1].end, chars[first - 1].quote, chars[first - 1].layer)
    spans = spans_of(chars[first:last])
    text = "\\;" if lone and not place.quote else encoded(new[at:until], place, split, command)
    there = spans.setdefault(place.path, [])
    if there:  # the first removed span begins at the place
        there[0] = there[0]._replace(text=text)
    elif text:
        there.append(Span(place.at, place.at, text))
    return {path: items for path, items in spans.items() if items}
