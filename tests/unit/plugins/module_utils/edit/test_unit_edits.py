# SPDX-License-Identifier: Apache-2.0
"""Single edits of flags in units and environment files, and the proof that follows an edit. systemd's own library reads the results.

A plan that the proof refuses is safe but useless. Therefore most tests run the edits alone: they must be right without the proof.
"""

from __future__ import annotations

import itertools
import re

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit_edits
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit_edits import Planned

from tests import systemd

NAME = "kubelet.service"
UNIT, FILE, SECOND = f"/etc/systemd/system/{NAME}", "/etc/a", "/etc/b"


def sources(unit: str, file: str = "", second: str = "") -> _unit.Sources:
    text = f"[Service]\nEnvironmentFile={FILE}\nEnvironmentFile={SECOND}\n{unit}\n"
    return _unit.Sources((UNIT,), (FILE, SECOND), {UNIT: text, FILE: file, SECOND: second})


def placed(place: str, text: str) -> _unit.Sources:
    """Return a unit that has a text in ExecStart, in a variable of the unit, or in a variable of an environment file."""
    line = place.format(text)
    if line.startswith("ExecStart"):
        return sources(line)
    if line.startswith("Environment"):
        return sources(f"{line}\nExecStart=/k $A --last")
    return sources("ExecStart=/k $A --last", line + "\n")


def argv(unit: _unit.Sources) -> list[str]:
    return systemd.command_line(NAME, [unit.texts[UNIT] or ""], {path: unit.texts[path] or "" for path in (FILE, SECOND)})[1:]


def removed(unit: _unit.Sources, *numbers: int) -> _unit.Sources:
    line, spans = unit.command_line(), {}  # type: ignore[var-annotated]
    items = _unit.occurrences(line)
    for number in numbers:
        unit_edits.remove(spans, line, items[number], unit.texts)
    return unit.edited(spans)


# -- a flag is removed --------------------------------------------------------------------------------------------------

#: Places of arguments, and the text between two arguments there.
LAYOUTS = [
    *[("ExecStart=/k {}", separator) for separator in (" ", " \\\n  ", "  \\\n\t", "\\\n", " \\\r\n  ")],
    *[('Environment="A={}"', separator) for separator in (" ", " \\\n  ", "\\\n")],
    *[("A={}", separator) for separator in (" ", " \\\n  ", " \\\n")],
    *[('A="{}"', separator) for separator in (" ", " \\\n  ", " \\\n", "\\\n ", "\n", "\n  ", "\r\n")],
    ("A='{}'", " "),
    ("A='{}'", "\n  "),
    ('A="\n  {}\n"', "\n  "),
]


@pytest.mark.parametrize(("place", "separator"), LAYOUTS)
@pytest.mark.parametrize("flag", ["--cloud-config=/c", "--cloud-config /c"])
@pytest.mark.parametrize("position", [1, 2])
def test_a_text_without_a_flag_is_as_if_it_had_never_had_it(place: str, separator: str, flag: str, position: int) -> None:
    words = ["--v=2", "--x=1"]
    with_it = placed(place, separator.join([*words[:position], flag, *words[position:]]))
    without = placed(place, separator.join(words))
    assert argv(without)[:2] == words
    assert removed(with_it, 0).texts == without.texts


#: A unit's lines with two flags to remove, and the lines without these flags.
LEFT = [
    (" --v=2 \\\n  --cloud-config=/c \\\n  --cloud-config=/d", " --v=2"),
    (" --v=2 \\\n  --cloud-config \\\n  /c --cloud-config=/d", " --v=2"),
    (" --v=2 \\\n  --cloud-config=/c \\\n  --cloud-config=/d \\\n  --x=1", " --v=2 \\\n  --x=1"),
    (" --v=2 \\\n# c\n  --cloud-config=/c --cloud-config=/d", " --v=2\n# c"),
    (" --v=2 \\\n# c \\\n  ; d\n  --cloud-config=/c \\\n  --cloud-config=/d", " --v=2\n# c \\\n  ; d"),
    (" --v=2 --cloud-config \\\n# c\n  /c \\\n  --cloud-config=/d \\\n", " --v=2\n# c"),
    (" --cloud-config=/c \\\n# c\n  --cloud-config=/d", "\n# c"),
    (" --cloud-config=/c \\\n# c\n  --cloud-config=/d \\\n# d\n  --x=1", " \\\n# c\n# d\n  --x=1"),
    (" --v=2 \\\n# c\n  --cloud-config=/c \\\n# d\n  --cloud-config=/d \\\n  --x=1", " --v=2 \\\n# c\n# d\n  --x=1"),
    (" a\\\\ \\\n  --cloud-config=/c \\\n  --cloud-config=/d", " a\\\\"),
]


@pytest.mark.parametrize(("before", "after"), LEFT)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_no_line_is_left_that_a_backslash_joins_with_nothing(before: str, after: str, end: str) -> None:
    """Comments between the lines of a command belong to other people: they stay, whatever is removed around them."""
    found = sources((f"ExecStart=/k{before}\nRestart=always").replace("\n", end))
    left = removed(found, 0, 1).texts[UNIT] or ""
    assert re.sub(r"\s*\nRestart", "\nRestart", left.replace(end, "\n")) == sources(f"ExecStart=/k{after}\nRestart=always").texts[UNIT]
    assert "=always" in left and dict(systemd_settings(left))["Restart"] == "always"


def systemd_settings(text: str) -> list[tuple[str, str]]:
    return [(key, value) for section, key, value in systemd.unit_settings(text) if section == "Service"]


@pytest.mark.parametrize(("before", "expected"), [
    ("ExecStart=/k --v=2 \\\n  --cloud-config=/c \\\n# c\n\nX=1", ["--v=2", "--y=1"]),
    ("ExecStart=/k \\\n  --cloud-config=/c \\\n\nX=1", ["--y=1"]),
    ("ExecStart=/k --v=2 --cloud-config=/c", ["--v=2", "--y=1"]),
])
@pytest.mark.parametrize("first", ["the removal", "the addition"])
def test_a_flag_may_take_the_place_of_the_last_one(before: str, expected: list[str], first: str) -> None:
    found = sources(before)
    line, spans = found.command_line(), {}  # type: ignore[var-annotated]
    steps = [lambda: unit_edits.remove(spans, line, _unit.occurrences(line)[0], found.texts), lambda: unit_edits.append(spans, line, "", "--y=1")]
    for step in steps if first == "the removal" else reversed(steps):
        step()
    assert argv(found.edited(spans)) == expected


@pytest.mark.parametrize("place", ["ExecStart=/k {}", 'Environment="A={}"', "Environment='A={}'", 'A="{}"', "A='{}'", "A={}", 'Environment="A=" "A={}"'])
@pytest.mark.parametrize("word", ["aws", "x", "'aws'", '"aws"', "a'w's", "a\\'s", "''", "aws \\\n"])
def test_a_value_that_becomes_empty_does_not_take_the_next_argument(place: str, word: str) -> None:
    if {*place} & {*word} & {"'", '"'} or place == "A='{}'" and "\n" in word:
        return  # no such spelling
    word = word.replace("\\", "\\\\") if "A=" in place and "'" in word else word
    found = placed(place, f"--cloud-provider {word} --x=1")
    line, spans = found.command_line(), {}  # type: ignore[var-annotated]
    (item,) = _unit.occurrences(line)
    unit_edits.replace(spans, line, item, "")
    assert argv(found.edited(spans)) == ["--cloud-provider", "", "--x=1", *argv(found)[3:]]


SPELLINGS = {
    "ExecStart=/k --v=2 {} --x=1": ["--cloud-config=/c", '"--cloud-config=/c"', "'--cloud-config=/c d'", '--cloud-"config"=/c', '--cloud-config=""',
                                    "--cloud-config\\x3d/c", '"--cloud-config" "/c d"', "--cloud-config ''", "--cloud-config \\\n # note\n /c"],
    'Environment="A=--v=2 {} --x=1"': ["--cloud-config=/c", "'--cloud-config=/c d'", "--cloud-'config'=/c", "--cloud-config '/c'", "--cloud-config\\x3d/c"],
    "Environment='A=--v=2 {} --x=1'": ["--cloud-config=/c", '"--cloud-config=/c d"', '--cloud-config "/c"', '--cloud-config ""'],
    "ExecStart=/k --v=2 {} --x=1\nEnvironment=C=/c": ["--cloud-config=${C}", "\"--cloud-config=${C}d\"", "--cloud-config x${C}"],
    'A="--v=2 {}': ['--cloud-config /"c', '--cloud-config=/"c', '--cloud-con"fig /c'],
    "A=--v=2\\ {}\\ --x=1": ["--cloud-config=/c", "--cloud-config\\ /c", "--cloud-config /c", " --cloud-config=/c "],
    'A="--v=2 {} --x=1"': ["--cloud-config=/c", "'--cloud-config=/c d'", '\\"--cloud-config=/c\\"', "--cloud-conf\\\nig=/c", '--cloud-""config=/c',
                           "--cloud-config\n/c", '--cloud-con""fig /c',
                           '--cloud-"config=/c --y=1 "', '--cloud-config "/"c', "--cloud-config /\\\nc", '--cloud-con\\\nfig "/"c'],
    "A=--v=2 {} --x=1": ["--cloud-config=/c", "\\-\\-cloud-config=/c", "--cloud-conf\\\nig=/c", "--cloud-config \\\n/c", "--cloud-config=\\'/c\\ d\\'"],
    "A='--v=2 ' \"{} --x=1\"": ["--cloud-config=/c", "--cloud-config /c", '--cloud-con"fig=/c', '--cloud-con" \'fig=/c\' "'],
    "A='--v=2 ' {}\" --x=1\"": ["--cloud-config=/c", "--cloud-config\\ /c", "--cloud-config=\\\n/c"],
}


@pytest.mark.parametrize(("place", "spelling"), [(place, spelling) for place, all_ in SPELLINGS.items() for spelling in all_])
def test_every_other_argument_stays_however_a_flag_is_spelled(place: str, spelling: str) -> None:
    found = placed(place, spelling)
    line, before = found.command_line(), argv(found)
    assert [argument.value for argument in line.given] == before
    (item,) = _unit.occurrences(line)
    gone = [id(part) for part in item.parts]
    assert argv(removed(found, 0)) == [argument.value for argument in line.given if id(argument) not in gone] != before


@pytest.mark.parametrize(("before", "after"), [*itertools.product([" \\\n", "\\\n ", " \\\n ", "\t\\\n", "\\\n\t"], repeat=2)])
@pytest.mark.parametrize("place", ['A="{}"', 'Environment="A={}"', "ExecStart=/k {}"])
def test_one_blank_stays_between_the_neighbours_and_no_empty_line(place: str, before: str, after: str) -> None:
    """In an environment file, a backslash at a line's end joins lines without a blank."""
    found = removed(placed(place, f"--v=2{before}--cloud-config=/c{after}--x=1"), 0)
    assert argv(found)[:2] == ["--v=2", "--x=1"]
    joined = "".join(text or "" for text in found.texts.values()).count("\\\n")
    blank = place.startswith("E") or before[0] != "\\" or after[-1] != "\n"
    assert joined == (1 if blank else 2)


@pytest.mark.parametrize(("file", "second"), [
    ("A=--cloud-\"config\"\n", "B=/c --x=1\n"),
    ("A=\"--v=2 --cloud-\"config\n", "B='/'c\n"),
    ("A=\"--v=2 --cloud-config\"\n", "B=\"/\"c --x=1\n"),
    ("A='--v=2 '--cloud-config\nB=\"/\"c --x=1\n", "C=3\n"),
])
def test_a_flag_in_two_variables_goes_from_both(file: str, second: str) -> None:
    found = sources("ExecStart=/k $A $B $C", file, second)
    assert argv(removed(found, 0)) == [word for word in argv(found) if word not in ("--cloud-config", "/c")]


@pytest.mark.parametrize(("place", "separator"), LAYOUTS)
def test_flags_side_by_side_go_together(place: str, separator: str) -> None:
    flags = ["--cloud-provider=aws", "--cloud-config=/c"]
    for words in (flags, [*flags, "--v=2"], ["--v=2", *flags], ["--v=2", *flags, "--x=1"], [flags[0], "--v=2", flags[1]]):
        found = placed(place, separator.join(words))
        assert argv(removed(found, 0, 1)) == [word for word in argv(found) if not word.startswith("--cloud")], words


@pytest.mark.parametrize(("place", "separator"), LAYOUTS)
@pytest.mark.parametrize("flags", [["--cloud-provider=", "--cloud-config=/c"], ["--cloud-config=/c", "--cloud-provider="]])
def test_a_flag_gets_a_value_beside_one_that_goes(place: str, separator: str, flags: list[str]) -> None:
    """The two edits touch: one starts where the other ends."""
    found, spans = placed(place, separator.join(["--v=2", *flags, "--x=1"])), {}  # type: ignore[var-annotated]
    line = found.command_line()
    items = {item.name: item for item in _unit.occurrences(line)}
    unit_edits.replace(spans, line, items["cloud-provider"], "external")
    unit_edits.remove(spans, line, items["cloud-config"], found.texts)
    assert argv(found.edited(spans))[:3] == ["--v=2", "--cloud-provider=external", "--x=1"]


def test_a_flag_that_is_the_value_of_a_variable_inside_braces_cannot_go() -> None:
    found = sources("ExecStart=/k ${A}", "A=--cloud-config=/c\n")
    with pytest.raises(_unit.UnitRefused, match=rf"^{UNIT} has \$\{{A\}} in ExecStart, which stays as an empty argument .*--cloud-config .* {FILE}"):
        removed(found, 0)


# -- a flag gets another value, or is added -----------------------------------------------------------------------------

VALUES = ["external", "", "a b", "it's", 'q"q', "c\\d", "100%n", "$A$$", "é,`x`"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("place", "old"), [
    *itertools.product(["ExecStart=/k {} --x=1", "ExecStart=/k \"{}\" --x=1", 'Environment="A={} --x=1"', "Environment=A={}", 'A="{} --x=1"'],
                       ["--cloud-provider=", "--cloud-provider=aws", "--cloud_provider=aws"]),
    *itertools.product(["ExecStart=/k --cloud-provider {} --x=1"], ["aws", '""', "''", '"aws"', "a''ws"]),
    *itertools.product(["Environment=\"A=--cloud-provider {} --x=1\""], ["aws", "''", "'aws'"]),
    *itertools.product(['A="--cloud-provider {} --x=1"'], ["aws", "''", "'aws'", '\\"\\"', 'a""ws']),
])
def test_systemd_reads_another_value_and_every_other_argument(place: str, old: str, value: str) -> None:
    if not value and (old == "aws" or old == 'a""ws'):
        value = "gce"  # an empty argument needs quotes, and no plan has one
    found = placed(place, old)
    line, spans = found.command_line(), {}  # type: ignore[var-annotated]
    (item,) = _unit.occurrences(line)
    assert unit_edits.replace(spans, line, item, value) == (FILE if place.startswith("A") else UNIT)
    expected, last = [argument.value for argument in line.given], item.parts[-1]
    number = next(number for number, argument in enumerate(line.given) if argument is last)
    expected[number] = value if len(item.parts) == 2 else expected[number].partition("=")[0] + "=" + value
    assert argv(found.edited(spans)) == expected


@pytest.mark.parametrize(("old", "value", "new"), [
    ("a\\x63", "c", "\\x63"), ("\\x61c", "a", "\\x61"), ("\\x61\\x62\\x63", "ac", "\\x61\\x63"), ('a,"b c"', "b c", '"b c"'), ("'a b',c", "a b", "'a b'"),
    ("\\x61", "aa", "\\x61a"), ("\\x61b\\x61", "aa", "\\x61\\x61"), ("\\x61b", "b", "b"),
    ("a%N\\x62", "b", "\\x62"), ("a%N\\x62", "Zkubeletb", "Z%N\\x62"), ("a%i\\x62", "Zb", "Z\\x62"), ('a"b"', "ab c", 'a"b c"'),
])
def test_what_a_new_value_has_in_common_with_the_old_one_keeps_its_spelling(old: str, value: str, new: str) -> None:
    place, spans = "ExecStart=/k --feature-gates={} --x=1", {}  # type: ignore[var-annotated]
    found = placed(place, old)
    line = found.command_line()
    unit_edits.replace(spans, line, _unit.occurrences(line)[0], value)
    assert found.edited(spans).texts == placed(place, new).texts
    assert argv(found.edited(spans)) == [f"--feature-gates={value}", "--x=1"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("command", "file"), [
    ("${A}", 'A="--cloud-provider=aws"'), ("${A}", "A=--cloud-provider="), ("--cloud-provider=${A}", 'A="aws"'), ("--cloud-provider ${A}", 'A="aws"'),
    ("--cloud-provider ${A}", 'A=""'), ("--cloud-provider=${A}", 'A=""'), ("--cloud-provider=${A}", 'A="a"'), ("--cloud-provider=${A}", 'A="$"'),
])
def test_the_value_of_a_variable_inside_braces_is_one_argument_whatever_it_has(command: str, file: str, value: str) -> None:
    found = sources(f"ExecStart=/k {command} --x=1", file + "\n")
    line, spans = found.command_line(), {}  # type: ignore[var-annotated]
    (item,) = _unit.occurrences(line)
    try:
        path = unit_edits.replace(spans, line, item, value)
    except _unit.UnitRefused as exc:  # there is no such spelling without quotes
        assert '"' not in file and value == "it's" and FILE in str(exc)
        return
    assert argv(found.edited(spans)) == [*(["--cloud-provider", value] if " " in command else [f"--cloud-provider={value}"]), "--x=1"]
    if spans:
        assert spans.keys() == {path} and (path == FILE or file == 'A=""')


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("place", "variable"), [
    ("ExecStart=/k --x=1", ""), ("ExecStart=/k '--x=a b'", ""), ("ExecStart=/k $A --x=1 \\\n # the end", ""), ("A=--x=1 # 2", "A"), ("A=", "A"), ("A='x'", "A"),
    ('Environment="A=--x=1"', "A"), ("Environment=A=--x=1 B=2", "A"), ("Environment=A=", "A"), ("Environment=C=3 A='x' B=2", "A"),
])
def test_a_further_flag_is_one_more_argument_whatever_it_has(place: str, variable: str, value: str) -> None:
    found = placed(place, "")
    line, spans, flag = found.command_line(), {}, f"--y={value}"  # type: ignore[var-annotated]
    try:
        path = unit_edits.append(spans, line, variable, flag)
    except _unit.UnitRefused as exc:
        assert "'" in value and place == "A='x'" and f"{FILE}: --y cannot be added to A" in str(exc)
        return
    before, after = argv(found), argv(found.edited(spans))
    at = len(before) - (1 if variable else 0)
    assert path == (FILE if place.startswith("A") else UNIT) and after == [*before[:at], flag, *before[at:]]
    unit_edits.append(spans, line, variable, "--z=3")
    assert argv(found.edited(spans)) == [*before[:at], flag, "--z=3", *before[at:]]


@pytest.mark.parametrize("value", ['"\'x"', "x\\\\", "'\"x'", '"--v=2 \'x"'])
def test_behind_a_quote_that_is_never_closed_no_flag_is_added(value: str) -> None:
    line = sources("ExecStart=/k $A", f"A={value}\n").command_line()
    with pytest.raises(_unit.UnitRefused, match=f"^{FILE}: a quote or a backslash in the value of A is never closed, so --x "):
        unit_edits.append({}, line, "A", "--x=1")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("text", ["", "B=1", "B=1\n", "# a note", "B='x\ny'\n\n", "\n"])
def test_a_new_variable_is_a_line_of_its_own(text: str, end: str) -> None:
    text = text.replace("\n", end)
    found, spans = sources("ExecStart=/k $A", text), {}  # type: ignore[var-annotated]
    unit_edits.new_variable(spans, found, FILE, "A", "--x=1")
    after = found.edited(spans).texts[FILE] or ""
    assert systemd.environment_file(after) == {**systemd.environment_file(text), "A": "--x=1"}
    assert after.startswith(text) and ("\r\n" in text) == (after.count("\n") == after.count("\r\n")) and after.endswith("\n")
    assert len(after.splitlines()) == len(text.splitlines()) + 1


@pytest.mark.parametrize(("text", "line"), [("B=1\nC='x\n", 2), ("B=1\nC='x\ny", 3), ('B="x', 1), ("B=1 \\", 1), ("B=1\n# x \\", 2), ("B=1\n# x \\\n", 2)])
def test_no_variable_is_added_where_another_line_would_be_a_part_of_the_last(text: str, line: int) -> None:
    with pytest.raises(_unit.UnitRefused, match=f"^{FILE} line {line}: the file ends inside quotes or after a backslash"):
        unit_edits.new_variable({}, sources("ExecStart=/k $A", text), FILE, "A", "--x=1")


# -- the proof ----------------------------------------------------------------------------------------------------------

COMMAND = "ExecStart=/k --v=2 --controllers=*,bootstrap --cloud-config=/c --cloud-provider=aws --x=1"


def changed(old: str, new: str) -> tuple[_unit.Sources, unit_edits.Spans]:
    """Return a unit, and an edit of one place in the unit."""
    found = sources(COMMAND)
    at = (found.texts[UNIT] or "").index(old)
    return found, {UNIT: [unit_edits.Span(at, at + len(old), new)]}


def planned(unit: _unit.Sources, **then: str | None) -> list[Planned]:
    items = {item.name: item for item in _unit.occurrences(unit.command_line())}
    named = {name.replace("_", "-"): value for name, value in then.items()}
    return [Planned(items.get(name), name, value) for name, value in named.items()]


@pytest.mark.parametrize(("old", "new", "then"), [
    ("--cloud-config=/c ", "", {"cloud_config": None}),
    ("=aws", "=external", {"cloud_provider": "external"}),
    (" --x=1", " --x=1 --feature-gates=X=true", {"feature_gates": "X=true"}),
    ("--cloud-config=/c", "--feature-gates=X=true", {"cloud_config": None, "feature_gates": "X=true"}),
    ("--v=2", "--v=2 --feature-gates=", {"feature_gates": ""}),
    ("--v=2", "--v=2", {}),
])
def test_what_was_planned_and_nothing_else_is_proven(old: str, new: str, then: dict[str, str | None]) -> None:
    found, spans = changed(old, new)
    assert unit_edits.proven(found, spans, planned(found, **then)) == found.edited(spans)


@pytest.mark.parametrize(("old", "new", "then", "why"), [
    ("--x=1", "--x=2", {}, r"line 4: an edit there would also turn the argument '--x=1' into '--x=2'\."),
    ("--v=2 ", "", {}, r"line 4: an edit there would also turn the argument '--v=2' into '--x=1'"),
    (" --x=1", "", {}, r"line 4: an edit there would also remove the argument '--x=1'\."),
    ("--x=1", "--x=1 --y=2", {}, r"line 4: an edit there would also add the argument '--y=2'\."),
    ("=aws", "=gce", {}, r": after the edit, its flags would be --controllers=\*,bootstrap --cloud-config=/c --cloud-provider=gce instead of "
                         r"--controllers=\*,bootstrap --cloud-config=/c --cloud-provider=aws\."),
    ("*,bootstrap", "*", {}, r": after the edit, its flags would be --controllers=\* .* instead of --controllers=\*,bootstrap "),
    ("--cloud-config=/c --cloud-provider=aws", "--cloud-provider=aws --cloud-config=/c", {}, ": after the edit, its flags would be "),
    ("--cloud-config=/c ", "", {}, ": after the edit, its flags would be "),
    ("--cloud-config=/c ", "--cloud-config=/c --cloud-config=/c ", {}, ": after the edit, its flags would be "),
    ("--controllers=*,bootstrap --cloud-config=/c --cloud-provider=aws ", "", {}, ": after the edit, its flags would be none instead of "),
    ("/k", "'/k", {}, "the edited files could not be read again: .*ExecStart has a quote that is never closed"),
    ("--v=2", "--v=2", {"cloud_provider": "external"}, ": after the edit, its flags would be .*=aws instead of .*=external"),
])
def test_any_other_difference_is_refused_with_its_place(old: str, new: str, then: dict[str, str | None], why: str) -> None:
    found, spans = changed(old, new)
    with pytest.raises(_unit.UnitRefused, match=f"^({UNIT} ?)?{why}"):
        unit_edits.proven(found, spans, planned(found, **then))


def test_edits_of_the_same_place_are_refused() -> None:
    found, spans = changed("--x=1", "--x=2")
    with pytest.raises(_unit.UnitRefused, match="^the edited files could not be read again: overlapping edits"):
        unit_edits.proven(found, {UNIT: spans[UNIT] * 2}, [])
