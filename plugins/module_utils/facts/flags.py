# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command-line flags of Kubernetes components: the managed ones, and how to find them in argument lists and in raw text.

Pure and stdlib-only: it runs on managed nodes (Python 3.8) and on the Ansible controller. It knows neither files nor
Kubernetes versions.
"""

from __future__ import annotations

import itertools
import re
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

#: Flags that this collection reads and edits. The value of a string flag may be a separate argument.
MANAGED_FLAGS = (
    "cloud-provider",
    "cloud-config",
    "external-cloud-volume-plugin",
    "enable-admission-plugins",
    "disable-admission-plugins",
    "feature-gates",
    "enable-leader-migration",
    "leader-migration-config",
    "cloud-provider-gce-lb-src-cidrs",
    "concurrent-service-syncs",
    "controllers",
)

#: The cloud controllers of kube-controller-manager by the names and aliases that C(--controllers) knows. Only these items of that list
#: are managed, because installers write the rest.
CLOUD_CONTROLLERS = ("service-lb-controller", "service", "node-route-controller", "route", "cloud-node-lifecycle-controller",
                     "cloud-node-lifecycle")

#: Flags without a separate argument: C(--flag) alone means true.
BOOLEAN_FLAGS = ("enable-leader-migration", "enable-load-reader", "log-cadvisor-usage", "storage-driver-secure", "allocate-node-cidrs",
                 "configure-cloud-routes", "leader-elect")

#: Programs that take a command as text. Flags in that text cannot be found or changed.
SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")

#: Options of shells whose value is the next word, and options of C(env) before the text of a command.
_WITH_WORD = re.compile(r"[-+][A-Za-z]*[oO]|--rcfile|--init-file")
_SPLIT = re.compile(r"-[0iv]*S|--split-string")

#: A cloud configuration's absolute path after the name of its flag: C(--flag=PATH), two words, a list, a key of YAML or JSON.
_CLOUD_CONFIG = re.compile(r"\bcloud[-_]config[=:,\s\"'-]+(/[^\s\"',\]}\\]+)")


class Flag(NamedTuple):
    """One occurrence of a flag in an argument list. C(width) is 2 if the value is a separate argument."""

    name: str
    value: str
    index: int  # type: ignore[assignment]
    width: int


def split_flag(argument: str) -> Tuple[str, bool, str]:
    """Return (name, whether a value follows '=', value) of an argument; the name is '' if it is not a flag.

    Kubernetes components treat '_' in a flag's name as '-' (component-base, WordSepNormalizeFunc).
    """
    if not argument.startswith("--"):
        return "", False, ""
    name, equals, value = argument[2:].partition("=")
    return name.replace("_", "-"), bool(equals), value


def is_true(value: str) -> bool:
    """Return whether a boolean flag's value is true (Go's strconv.ParseBool). No component starts with a value that is neither true nor false."""
    return value in ("1", "t", "T", "true", "TRUE", "True")


def shell(argv: Iterable[str]) -> str:
    """Return the program and its option if a command contains another command as one text, as C(sh -c TEXT) and C(env -S TEXT) do; '' for
    any other command.

    C(argv) may begin with systemd's prefixes of ExecStart (C(-), C(@), C(+), C(!), C(:)), and with other programs that start the shell, such as
    C(nice).
    """
    words = list(argv)
    words[:1] = [word.lstrip("-@+!:") for word in words[:1]]
    for index, word in enumerate(words):
        program = "" if "=" in word else word.rpartition("/")[2]
        option = _before_text(words[index + 1:]) if program in SHELLS else ""
        if program == "env":
            options = itertools.takewhile(lambda item: item.startswith("-"), words[index + 1:])
            option = next((match.group() for match in map(_SPLIT.match, options) if match), "")
        if option:
            return "{0} {1}".format(word, option)
        if program in SHELLS:
            return ""
    return ""


def _before_text(options: Iterable[str]) -> str:
    """Return the option of a shell after which a command follows as text, '' if it runs a script."""
    words = iter(options)
    for word in words:
        if word[:1] not in ("-", "+") or word in ("-", "--"):
            return ""
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return word
        if _WITH_WORD.fullmatch(word):
            next(words, "")
    return ""


def unquoted(item: str) -> str:
    """Return an item of a list of names without blanks and quotes: components read such flags as CSV (pflag, StringSlice)."""
    item = item.strip()
    return item[1:-1] if len(item) > 1 and item[0] == item[-1] == '"' else item


def cloud_controllers(value: str) -> List[str]:
    """Return the items of C(--controllers) that name a cloud controller, as they are written: with C(-) if it is switched off, or quoted."""
    names = [(item, unquoted(item) if item.startswith('"') else item) for item in value.split(",")]
    return [item for item, name in names if (name[1:] if name.startswith("-") else name) in CLOUD_CONTROLLERS]


def managed(name: str, value: str) -> bool:
    """Return whether a flag with this value is managed. C(--controllers) is managed only if it names a cloud controller."""
    return name in MANAGED_FLAGS and (name != "controllers" or bool(cloud_controllers(value)))


def find_flags(argv: Iterable[str], names: Iterable[str] = MANAGED_FLAGS, whole: bool = False) -> List[Flag]:
    """Return every occurrence of the named flags in order. A component uses the last occurrence of a name.

    With C(whole), a C(--controllers) that names no cloud controller is returned, too.
    """
    wanted = set(names)
    args = list(argv)
    flags: List[Flag] = []
    index = 0
    while index < len(args):
        name, has_value, value = split_flag(args[index])
        width = 1
        if name in wanted:
            if not has_value and name in BOOLEAN_FLAGS:
                value = "true"
            elif not has_value and index + 1 < len(args):
                value, width = args[index + 1], 2
            if whole or name not in MANAGED_FLAGS or managed(name, value):
                flags.append(Flag(name, value, index, width))
        index += width
    return flags


def effective(argv: Iterable[str], names: Iterable[str] = MANAGED_FLAGS, whole: bool = False) -> Dict[str, str]:
    """Map each named flag to its effective value, which is the last one."""
    return {flag.name: flag.value for flag in find_flags(argv, names, whole)}


def cloud_configs(text: str) -> Set[str]:
    """Return the paths that a text of any layout gives to --cloud-config, without those in lines that are comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return set(_CLOUD_CONFIG.findall("\n".join(lines)))


def render(name: str, value: str) -> str:
    return "--{0}={1}".format(name, value)


def without_list_items(value: str, unwanted: Iterable[str]) -> str:
    """Return a comma-separated flag value without the unwanted items, the others in their order.

    Blanks and quotes around an item are ignored in the comparison.
    """
    drop = {unquoted(item) for item in unwanted}
    return ",".join(item for item in value.split(",") if item.strip() and unquoted(item) not in drop)


class Span(NamedTuple):
    """A replacement of C(text[start:end])."""

    start: int
    end: int
    text: str


def apply_spans(text: str, spans: Iterable[Span]) -> str:
    """Apply replacements. Insertions at the same place keep their order. Removals may overlap: two flags side by side share the blank between them.

    Raises ValueError for other replacements that overlap.
    """
    pieces: List[str] = []
    position, removed = 0, True
    for span in sorted(spans, key=lambda item: (item.start, item.end)):
        if span.start < position and (span.text or not removed):
            raise ValueError("overlapping edits at character {0}".format(span.start))
        pieces.append(text[position:span.start])
        pieces.append(span.text)
        position, removed = max(position, span.end), not span.text
    pieces.append(text[position:])
    return "".join(pieces)
