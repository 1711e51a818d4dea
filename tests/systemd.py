# SPDX-License-Identifier: Apache-2.0
"""Reads environment files, units and the arguments of ExecStart with systemd's own library.

Tests compare the product with the library, and doubles of systemd use it, so that neither shares the product's parser.
The library is `libsystemd-shared`, which every Linux with systemd has (Debian and Ubuntu: `apt install systemd`). Its
functions are no public interface: the signatures are those of systemd 252 (Debian 12) and, where they changed, of 254
and later. Without it, tests fail: nothing is skipped.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PLACES = ("/usr/lib/*/systemd", "/usr/lib/systemd", "/usr/lib64/systemd", "/lib/systemd")
#: ExtractFlags of src/basic/extract-word.h.
RELAX, CUNESCAPE, UNQUOTE = 1 << 0, 1 << 1, 1 << 5
#: What systemd allows before the program of ExecStart=.
PREFIXES = "-@+!:"

_Strings = ctypes.POINTER(ctypes.c_char_p)
_Found = ctypes.CFUNCTYPE(
    ctypes.c_int, *[ctypes.c_char_p] * 2, ctypes.c_uint, ctypes.c_char_p, ctypes.c_uint, ctypes.c_char_p, ctypes.c_int,
    ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip
_Lookup = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
)  # fmt: skip


class Refused(ValueError):
    """systemd does not accept a text: it ignores the text, or does not start the unit."""


@functools.cache
def library() -> tuple[ctypes.CDLL, int]:
    """Return systemd's library and its version."""
    paths = sorted(path for place in PLACES for path in glob.glob(f"{place}/libsystemd-shared-[0-9]*.so"))
    if not paths:
        raise RuntimeError(
            f"libsystemd-shared is in none of {' '.join(PLACES)}. Install it with 'apt install systemd' (Fedora: "
            "'dnf install systemd-shared'): the tests compare with systemd itself"
        )
    match = re.search(r"shared-(\d+)", paths[-1])
    assert match
    loaded = ctypes.CDLL(paths[-1])
    loaded.log_set_max_level(0)  # it warns of what it ignores
    return loaded, int(match.group(1))


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.fmemopen.restype = ctypes.c_void_p
    libc.fmemopen.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


def version() -> int:
    return library()[1]


def _taken(strings: ctypes._Pointer[ctypes.c_char_p]) -> list[str]:
    """Return the strings of an array, and free it."""
    found = []
    array = ctypes.cast(strings, ctypes.POINTER(ctypes.c_void_p))
    while array and (place := array[len(found)]):
        found.append(ctypes.string_at(place).decode("utf-8", "surrogateescape"))
        _libc().free(place)
    if array:
        _libc().free(array)
    return found


def _array(strings: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode("utf-8", "surrogateescape") for text in strings]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _file(text: str) -> tuple[int, bytes]:
    content = text.encode("utf-8", "surrogateescape")
    if not content:  # fmemopen refuses it
        content = b"\n"
    return _libc().fmemopen(content, len(content), b"r"), content


def environment_file(text: str) -> dict[str, str]:
    """Return the variables that a service gets from an environment file. Raises Refused."""
    shared = library()[0]
    stream, content = _file(text)
    strings = _Strings()
    result = shared.load_env_file(ctypes.c_void_p(stream), None, ctypes.byref(strings))
    _libc().fclose(stream)
    del content
    if result < 0:
        raise Refused(f"the file cannot be read: {result}")
    pairs = [text for text in _taken(strings) if _valid(text)]
    return dict(pair.split("=", 1) for pair in pairs)


def _valid(assignment: str) -> bool:
    """Return whether systemd keeps an assignment; it logs the others and goes on."""
    valid = library()[0].env_assignment_is_valid
    valid.restype = ctypes.c_bool
    return bool(valid(ctypes.c_char_p(assignment.encode("utf-8", "surrogateescape"))))


def words(text: str) -> tuple[list[str], bool]:
    """Split the value of a setting into words; also return whether the whole value could be split."""
    rest, found = text.encode("utf-8", "surrogateescape"), []
    while True:
        result, word, rest = _first_word(rest, library()[0].extract_first_word)
        if result <= 0:
            return found, result == 0
        found.append(word)


def commands(text: str) -> tuple[list[list[str]], bool]:
    """Split the value of ExecStart= into commands; also return whether the whole value could be split.

    The library does not separate commands: a lone `;` separates them, and a lone `\\;` is the argument `;`
    (config_parse_exec in systemd's src/core/load-fragment.c).
    """
    rest, found = text.encode("utf-8", "surrogateescape"), list[list[str]]([[]])
    more = (b"x.service", b"x.service", 1, b"")
    while True:
        lone = re.match(rb"(\\?);(?=[ \t\n\r]|\Z)", rest) if found[-1] else None
        if lone:
            rest = rest[lone.end() :].lstrip(b" \t\n\r")
            found = [*found[:-1], [*found[-1], ";"]] if lone.group(1) else [*found, []]
            continue
        result, word, rest = _first_word(rest, library()[0].extract_first_word_and_warn, *more)
        if result <= 0:
            return [command for command in found if command], result == 0
        if found[-1] or word != ";":
            found[-1].append(word)


def _first_word(text: bytes, function: Any, *more: Any) -> tuple[int, str, bytes]:
    """Return a function's result, the first word, and the text behind it."""
    content, word = ctypes.c_char_p(text), ctypes.c_void_p()
    result = function(ctypes.byref(content), ctypes.byref(word), None, UNQUOTE | CUNESCAPE, *more)
    if result <= 0:
        return result, "", b""
    assert word.value
    found = ctypes.string_at(word.value).decode("utf-8", "surrogateescape")
    _libc().free(word)
    return result, found, content.value or b""


def unit_settings(text: str) -> list[tuple[str, str, str]]:
    """Return (section, key, value) of every assignment in a unit file."""
    shared = library()[0]
    found: list[tuple[str, str, str]] = []

    @_Found
    def parsed(_unit, _file, _line, section, _at, key, _type, value, _data, _user):  # type: ignore[no-untyped-def]
        found.append(tuple((part or b"").decode("utf-8", "surrogateescape") for part in (section, key, value)))
        return 0

    @_Lookup
    def lookup(_table, _section, _key, function, kind, data, _user):  # type: ignore[no-untyped-def]
        function[0] = ctypes.cast(parsed, ctypes.c_void_p).value
        kind[0] = 0
        data[0] = None
        return 1

    stream, content = _file(text)
    sections = b"Unit\0Service\0Install\0\0"
    result = shared.config_parse(
        b"x.service", b"x.service", ctypes.c_void_p(stream), sections, lookup, None, 0, None, None
    )
    _libc().fclose(stream)
    del content
    if result < 0:
        raise Refused(f"the unit cannot be read: {result}")
    return found


def specified(text: str, unit: str) -> str:
    """Replace the specifiers that a unit's name decides."""
    stem = unit.rpartition(".")[0]
    prefix, instance = stem.partition("@")[::2]
    known = {"%": "%", "n": unit, "N": stem, "p": prefix, "i": instance, "j": prefix.rpartition("-")[2]}
    return re.sub("%(.)", lambda match: known.get(match.group(1), match.group(0)), text, flags=re.DOTALL)


def expanded(argv: list[str], environment: dict[str, str]) -> list[str]:
    """Return arguments with their variables replaced, as they are when the process starts."""
    shared, number = library()
    pairs = _array(f"{name}={value}" for name, value in environment.items())
    if number < 254:
        shared.replace_env_argv.restype = _Strings
        return _taken(shared.replace_env_argv(_array(argv), pairs))
    strings = _Strings()
    result = shared.replace_env_argv(_array(argv), pairs, ctypes.byref(strings), None, None)
    if result < 0:
        raise Refused(f"the arguments cannot be made: {result}")
    return _taken(strings)


def _without(environment: dict[str, str], removed: list[str]) -> dict[str, str]:
    """Remove variables, or assignments, as UnsetEnvironment= does."""
    shared = library()[0]
    shared.strv_env_delete.restype = _Strings
    pairs = _array(f"{name}={value}" for name, value in environment.items())
    return dict(pair.split("=", 1) for pair in _taken(shared.strv_env_delete(pairs, 1, _array(removed))))


def command_line(name: str, units: list[str], environment_files: dict[str, str]) -> list[str]:
    """Return the argument list of a service from the texts of its unit, drop-ins and existing environment files.

    A unit may name environment files by a pattern. Raises Refused if systemd would not start the service.
    """
    command, environment, patterns, removed = "", {}, [], []
    for text in units:
        for section, key, value in unit_settings(text):
            if section != "Service":
                continue
            if key == "ExecStart":
                command = value
            elif key == "Environment":
                if not value:
                    environment = {}
                assignments = [specified(word, name) for word in words(value)[0]]
                environment |= dict(pair.split("=", 1) for pair in assignments if _valid(pair))
            elif key == "EnvironmentFile":
                patterns = [*patterns, specified(value, name)] if value else []
            elif key == "UnsetEnvironment":
                removed = [*removed, *(specified(word, name) for word in words(value)[0])] if value else []
    for pattern in patterns:
        path = pattern.removeprefix("-")
        matching = sorted(other for other in environment_files if _matches(other, path)) if path.startswith("/") else []
        if not matching and not pattern.startswith("-"):
            raise Refused(f"EnvironmentFile={pattern} does not exist")
        for other in matching:
            environment |= environment_file(environment_files[other])
    environment = _without(environment, removed)
    split, whole = commands(command)
    if not whole or not split:
        raise Refused(f"ExecStart={command} is not a command")
    argv = [specified(word, name) for word in split[-1]]
    program = argv[0].lstrip(PREFIXES)
    if program.startswith("$"):
        raise Refused(f"{program} is no program: its name is taken as it is written")
    prefix = argv[0][: len(argv[0]) - len(program)]
    argv = argv[1:] if "@" in prefix else [program, *argv[1:]]
    return argv if ":" in prefix else expanded(argv, environment)


def _matches(path: str, pattern: str) -> bool:
    # Unlike fnmatch, no wildcard of glob(3) stands for a slash or for the dot at the beginning of a name.
    return Path(path).match(pattern) and path.count("/") == pattern.count("/") and (
        not Path(path).name.startswith(".") or Path(pattern).name.startswith(".")
    )
