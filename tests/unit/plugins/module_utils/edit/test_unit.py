# SPDX-License-Identifier: Apache-2.0
"""Units and environment files as systemd reads them, and the flags in their command lines."""

from __future__ import annotations

import base64
import contextlib
import re

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import env_file, kubelet, unit_edits
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags

from tests import systemd

UNIT = "/etc/systemd/system/kubelet.service"


def sources(text: str) -> _unit.Sources:
    return _unit.Sources((UNIT,), (), {UNIT: text})


def arguments(text: str) -> list[str]:
    return [argument.value for argument in sources(text).command_line().arguments]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("comment", ["# not --cloud-provider=aws", "  ; a comment", "# it ends in a backslash \\", "#a\n#b"])
@pytest.mark.parametrize("after", ["", "  --config=/c \\\n"])
def test_the_flag_is_never_written_into_a_comment(comment: str, after: str, end: str) -> None:
    """systemd.syntax(7): a comment after a line that ends in a backslash is ignored, and the line continues after the comment."""
    before = f"[Service]\nExecStart=/usr/bin/kubelet \\\n  --v=2 \\\n{comment}\n{after}  --node-ip=10.0.0.1\n".replace("\n", end)
    words = ["/usr/bin/kubelet", "--v=2", *(["--config=/c"] if after else []), "--node-ip=10.0.0.1"]
    assert arguments(before) == words
    edit = kubelet.plan(sources(before), (1, 33))
    edited = sources(before).edited(edit.spans)
    assert arguments(edited.texts[UNIT] or "") == [*words, "--cloud-provider=external"]
    assert edited.texts[UNIT] == before.replace("--node-ip=10.0.0.1", "--node-ip=10.0.0.1 --cloud-provider=external")


def test_a_comment_before_the_last_argument_hides_no_flag() -> None:
    text = "[Service]\nExecStart=/usr/bin/kubelet --v=2 \\\n# the cloud\n  --cloud-provider=aws \\\n  --config=/c\n"
    edit = kubelet.plan(sources(text), (1, 33))
    assert [(change.now, change.then) for change in edit.changes] == [("aws", "external")]
    assert sources(text).edited(edit.spans).texts[UNIT] == text.replace("=aws", "=external")
    gone = _unit.flags(sources(text).command_line())
    spans: dict[str, list[flags.Span]] = {}
    unit_edits.remove(spans, sources(text).command_line(), _unit.occurrences(sources(text).command_line())[gone[0].index], {UNIT: text})
    assert arguments(sources(text).edited(spans).texts[UNIT] or "") == ["/usr/bin/kubelet", "--v=2", "--config=/c"]


def test_an_environment_file_has_no_comments_inside_a_value() -> None:
    """systemd reads environment files by other rules: a line after a backslash belongs to the value, even if it starts with '#'."""
    values = env_file.parse("/etc/default/kubelet", 'A="--v=2 \\\n#no-comment"\n# B=1\nC=2\n')
    assert "".join(char.char for char in values["A"].chars) == "--v=2 #no-comment"
    assert set(values) == {"A", "C"}


@pytest.mark.parametrize(("text", "expected"), [
    ("ExecStartPre=/bin/cp a b\n", [("line 2: ExecStartPre", "/bin/cp a b")]),
    ("X=1\nExecCondition=\\\n/bin/t\nExecStart=/k\n", [("line 4: ExecCondition", "/bin/t")]),
    ("ExecStartPre=\nExecStartPre=x\nExecStartPost=/y\n", [("line 3: ExecStartPre", "x")]),
])
def test_what_runs_before_the_program_is_named_with_its_line(text: str, expected: list[tuple[str, str]]) -> None:
    found = list(_unit.before_start([(UNIT, f"[Service]\n{text}")]))
    assert found == [(f"{UNIT} {place}", command) for place, command in expected]
    settings = systemd.unit_settings(f"[Service]\n{text}")
    assert [command for unused, command in found] == [value for unused, key, value in settings if value and key in ("ExecStartPre", "ExecCondition")]


def test_a_shell_that_starts_the_kubelet_is_refused_with_its_file() -> None:
    text = "[Service]\nExecStart=/bin/sh -c 'exec /usr/bin/kubelet --v=2'\n"
    with pytest.raises(_unit.UnitRefused, match=f"{UNIT}.*shell.*/bin/sh -c"):
        kubelet.plan(sources(text), (1, 33))


@pytest.mark.parametrize("lead", ["", "-", "@", "+", "!!"])
def test_a_shell_is_known_by_its_name(lead: str) -> None:
    assert flags.shell([lead + "/usr/bin/bash", "-ec", "exec kubelet"]) == "/usr/bin/bash -ec"
    assert flags.shell([lead + "/usr/bin/env", "sh", "-c", "exec kubelet"]) == "sh -c"
    assert flags.shell([lead + "/usr/bin/kubelet", "--v=2"]) == ""
    assert flags.shell([lead + "/bin/sh", "/opt/start-kubelet", "--v=2"]) == "", "a script may pass its arguments on"


DROP_IN = "/etc/systemd/system/kubelet.service.d/20-ours.conf"
DEFAULT = "/etc/default/kubelet"


@pytest.mark.parametrize(("path", "before", "after"), [
    pytest.param(DROP_IN, "Environment=A=--v=2", 'Environment="A=--v=2 --x=1 --y=2"', id="white-space-would-end-it"),
    pytest.param(DROP_IN, "Environment=B=1 A=--v=2 C=3", 'Environment=B=1 "A=--v=2 --x=1 --y=2" C=3', id="one-of-three"),
    pytest.param(DROP_IN, "Environment=A=", 'Environment="A=--x=1 --y=2"', id="empty"),
    pytest.param(DROP_IN, "Environment='A=--v=2'", "Environment='A=--v=2 --x=1 --y=2'", id="in-quotes"),
    pytest.param(DROP_IN, "Environment=A='--v=2'", "Environment=A='--v=2 --x=1 --y=2'", id="its-value-in-quotes"),
    pytest.param(DROP_IN, "Environment=A=''", "Environment=A='--x=1 --y=2'", id="its-empty-value-in-quotes"),
    pytest.param(DROP_IN, 'Environment=A="" B=1', 'Environment=A="--x=1 --y=2" B=1', id="an-empty-value-before-another"),
    pytest.param(DROP_IN, 'Environment="A="', 'Environment="A=--x=1 --y=2"', id="empty-in-quotes"),
    pytest.param(DEFAULT, "A=--v=2", "A=--v=2 --x=1 --y=2", id="to-the-end-of-the-line"),
    pytest.param(DEFAULT, "A=", 'A="--x=1 --y=2"', id="an-empty-line"),
    pytest.param(DEFAULT, 'A=""', 'A="--x=1 --y=2"', id="empty-quotes"),
    pytest.param(DEFAULT, 'A="--v=2 "', 'A="--v=2 --x=1 --y=2"', id="a-space-is-there"),
])
def test_flags_are_added_to_a_variable_as_systemd_reads_it(path: str, before: str, after: str) -> None:
    """systemd.exec(5): white space ends an assignment in Environment=; the end of the line ends it in an environment file."""
    unit = "[Service]\nExecStart=/usr/bin/kubelet $A\n"
    lead = "[Service]\n" if path == DROP_IN else ""
    texts = {UNIT: unit, path: f"{lead}{before}\n"}
    found = _unit.Sources((UNIT, *([DROP_IN] if path == DROP_IN else [])), (DEFAULT,), dict(texts))
    spans: dict[str, list[flags.Span]] = {}
    assert [unit_edits.append(spans, found.command_line(), "A", flag) for flag in ("--x=1", "--y=2")] == [path, path]
    edited = found.edited(spans)
    assert edited.texts == {UNIT: unit, path: f"{lead}{after}\n"}
    assert [argument.value for argument in edited.command_line().arguments][-2:] == ["--x=1", "--y=2"]


def test_the_flag_is_not_lost_in_an_assignment_without_quotes() -> None:
    found = _unit.Sources((UNIT, DROP_IN), (), {UNIT: "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
                                                DROP_IN: "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=2\n"})
    edit = kubelet.plan(found, (1, 33))
    assert found.edited(edit.spans).texts[DROP_IN] == '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external"\n'
    assert edit.after == [("cloud-provider", "external")]


@pytest.mark.parametrize(("value", "after", "argument"), [
    ("--a='b c'", "--a='b c --cloud-provider=external'", "--a=b c"),
    ('x"y"', 'x"y --cloud-provider=external"', "xy"),
    (r"a\x62", r'a\x62" --cloud-provider=external"', "ab"),
    ("'--a=b'c", "'--a=b'c\" --cloud-provider=external\"", "--a=bc"),
])
def test_quotes_inside_a_value_stay(value: str, after: str, argument: str) -> None:
    """Quotes around the whole assignment would change the meaning of the inner quotes."""
    found = _unit.Sources((UNIT, DROP_IN), (), {UNIT: "[Service]\nExecStart=/usr/bin/kubelet ${KUBELET_EXTRA_ARGS}\n",
                                                DROP_IN: f"[Service]\nEnvironment=KUBELET_EXTRA_ARGS={value}\n"})
    assert found.command_line().arguments[1].value == argument
    found.texts[UNIT] = "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
    edit = kubelet.plan(found, (1, 33))
    assert found.edited(edit.spans).texts[DROP_IN] == f"[Service]\nEnvironment=KUBELET_EXTRA_ARGS={after}\n"


@pytest.mark.parametrize("value", [r"a\q", '"', "'b"])
def test_an_assignment_that_systemd_ignores_sets_nothing(value: str) -> None:
    line = sources(f"[Service]\nExecStart=/usr/bin/kubelet $A $B\nEnvironment=B=1 A={value}\n").command_line()
    assert [argument.value for argument in line.arguments] == ["/usr/bin/kubelet", "1"] and line.unset == ("A",)


@pytest.mark.parametrize(("assignment", "values"), [
    ("A=--v=2 B=x", ["--v=2"]),
    ("\"A=--v=2 --a='b c'\"", ["--v=2", "--a=b c"]),
    ("A='--v=2 --a=b'", ["--v=2", "--a=b"]),
    ('B=x A="--v=2 --a=b"', ["--v=2", "--a=b"]),
    ("A=''", []),
    ("A=", []),
    ("A", []),
])
def test_what_an_assignment_in_a_unit_gives(assignment: str, values: list[str]) -> None:
    assert arguments(f"[Service]\nExecStart=/k $A\nEnvironment={assignment}\n") == ["/k", *values]


# -- the formats of systemd's files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"# \xfc\nA=1\n", b"A=1\n  ; \xfc\n", b"A=\xc3\xbc\n"])
def test_comments_may_have_any_bytes(content: bytes) -> None:
    assert _unit.decoded("/e", content).encode("utf-8", "surrogateescape") == content


@pytest.mark.parametrize(("content", "words"), [(b"A=\xfc", "/e line 1: the byte 0xfc "), (b"# x\nA=1\nB=\xe4\n", "/e line 3: the byte 0xe4 ")])
def test_a_byte_of_a_value_that_is_not_utf_8_is_named_with_its_line(content: bytes, words: str) -> None:
    with pytest.raises(_unit.UnitRefused, match=words):
        _unit.decoded("/e", content)


@pytest.mark.parametrize(("text", "lines"), [
    ("", []),
    ("a\n", ["a"]),
    ("a\nb", ["a", "b"]),
    ("\na\n", ["", "a"]),
    ("a\\\nb\nc\n", ["a b", "c"]),
    ("a\\\r\nb\r\n", ["a b"]),
    ("a\rb\n\rc", ["a", "b", "c"]),
    ("a\\", ["a "]),
    ("a\\\\\nb", ["a\\\\", "b"]),
    ("a\\\\\\\nb", ["a\\\\ b"]),
    ("a\\\n", ["a "]),
    ("#a\\\nb\n", ["b"]),
    ("a\\\n#b\nc\n", ["a c"]),
    ("\ufeffa\n", ["a"]),
])
def test_where_the_lines_of_a_unit_end(text: str, lines: list[str]) -> None:
    assert ["".join(char.char for char in line) for line in _unit.logical_lines("/u", text)] == lines


@pytest.mark.parametrize(("written", "value"), [
    ("x  \t", "x"), ("x\r", "x"), ("", ""), ("  ", ""), ("x y", "x y"),
    ('"x" y', "xy"), ('"x"y', "xy"), (' "x"', "x"), ('\t"x"\t', "x"), ('"x" \\\n', "x"), ('"\n x\n"', "\n x\n"), ("'x\\\ny'", "x\\\ny"),
    ("'x'", "x"), ("\"\"'x'", "x"), ('x"y"', 'x"y"'),
    ("\\x", "x"), ("a\\nb", "anb"), ('"a\\nb"', "a\\nb"), ('"a\\"b"', 'a"b'), ("'a\\b'", "a\\b"), ("a\\\\", "a\\"),
    ("a\\\nb", "ab"), ("a\\\r\nb", "a"), ("a\\\nbc d", "abc d"), ('"a\\\nb"', "ab"), ("a \\\nb", "a b"),
])
@pytest.mark.parametrize("end", ["", "\n"])
def test_values_of_an_environment_file(written: str, value: str, end: str) -> None:
    text = f"A={written}{end}"
    found = env_file.parse("/e", text)["A"]
    assert "".join(char.char for char in found.chars) == value
    assert systemd.environment_file(text)["A"] == value


@pytest.mark.parametrize(("text", "names"), [
    ("A=1\nA=2\nB=3\n", {"A": "2", "B": "3"}), ("A B=1\n1=2\nA.B=3\n=4\nx\n", {}), (" A =1\n\tB\t= 2\n", {"A": "1", "B": "2"}), ("A='x\nB=1", {"A": "x\nB=1"}),
    ("A=x\\", {"A": "x"}), ('A="x\\', {"A": "x"}), ("#A=1\n;B=2\n C=3", {"C": "3"}), ("\ufeffA=1\n", {}), ("A=\\\nB=1\n", {"A": "B=1"}),
])
def test_the_variables_of_an_environment_file(text: str, names: dict[str, str]) -> None:
    assert {name: "".join(char.char for char in value.chars) for name, value in env_file.parse("/e", text).items()} == names
    assert systemd.environment_file(text) == names


@pytest.mark.parametrize(("text", "line"), [
    ("# x \\\nA=1\n", 1), ("\n# x \\\nA=1\n", 2), ("A=1\n; x\\\n\nB=1\n", 0), ("A=1\n; x\\\nA=1\n", 2), ("A=1\n# x\\\nA=2\n", 2),
    ("# x\\\\\nA=1\n", 0), ("# x\\y\nA=1\n", 0),
])
def test_a_comment_that_releases_of_systemd_read_in_two_ways_is_refused_with_its_line(text: str, line: int) -> None:
    assert env_file.ambiguous(text) == line
    unit = {"unit": "kubelet.service", "unit_files": [], "environment_files": ["/e"]}
    files = {"/e": {"exists": True, "content": base64.b64encode(text.encode()).decode(), "sha256": "", "problem": ""}}
    with pytest.raises(_unit.UnitRefused, match=f"/e line {line}: .*254") if line else contextlib.nullcontext():
        _unit.sources(files, unit)  # type: ignore[arg-type]


@pytest.mark.parametrize(("body", "words"), [
    pytest.param("ExecStart=/k a \\\n b", ["/k", "a", "b"], id="no-end-of-line"),
    pytest.param("ExecStart=/k a\\\nb\n", ["/k", "a", "b"], id="a-continued-line"),
    pytest.param("ExecStart=/k a\\\r\nb\r\n", ["/k", "a", "b"], id="a-continued-line-of-another-system"),
    pytest.param("ExecStart=/k $A $B\nEnvironment=A=1\nEnvironment=B=2\n", ["/k", "1", "2"], id="assignments-add-up"),
    pytest.param("ExecStart=/k $A $B\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n", ["/k", "2"], id="an-empty-one-resets-them"),
    pytest.param("ExecStart=/k $A\nEnvironment=A=bA\n", ["/k", "bA"], id="a-name-that-is-the-last-letter"),
    pytest.param("x\n#ExecStart=/no\nExecStart=/k\n[Install]\nExecStart=/no\n", ["/k"], id="what-says-nothing"),
    pytest.param("ExecStart=/k $A\nEnvironment=A=", ["/k"], id="an-empty-assignment-at-the-end"),
    pytest.param("ExecStart=/k a=b=c\n", ["/k", "a=b=c"], id="equals-signs"),
    pytest.param("ExecStart=/k $A\nEnvironment=A=1 \\q A=2\n", ["/k", "1"], id="words-behind-an-unknown-escape"),
])
def test_what_a_unit_runs(body: str, words: list[str]) -> None:
    assert arguments(f"[Service]\n{body}") == words == systemd.command_line("kubelet.service", [f"[Service]\n{body}"], {})


@pytest.mark.parametrize("line", [
    "ExecStart=/k a", "ExecStart =  /k a", "ExecStart\t=\t/k a \t", "  ExecStart=/k a", "ExecStart=", "ExecStart=  ", "ExecStart= a=b = c ", "ExecStart",
    "ExecStart=\\\n  /k \\\n", "ExecStart= \\\n /k\\\n a ", "ExecStart=x", "ExecStart= x", "ExecStart=\r\n", "[Unit]\nExecStart=/k\n [Service] \nExecStart= /l",
])
def test_a_setting_is_that_of_systemd(line: str) -> None:
    text = f"[Service]\n{line}\n[Install]\nX=1\n"
    found = [(key, _unit.text_of(chars)) for key, chars in _unit.settings("/u", text)]
    assert found == [(key, value) for section, key, value in systemd.unit_settings(text) if section == "Service"]


@pytest.mark.parametrize("word", [
    "${A", "x${A", "${A}${", "${A}x${B", "$", "$$", "$$A", "$${A}", "a$$b", "${A}$$", "${A}x${B}", "x$A", "${B}", "$B", "$A", "${A}", "${C}", "x${C}x", "$A}",
    "${D}", "${}", "x${}y", "${A}}",
])
def test_a_variable_in_a_word_is_that_of_systemd(word: str) -> None:
    text = f"[Service]\nEnvironment='A=1 2' B= D=1\nExecStart=/k {word} --last\n"
    assert arguments(text)[1:] == systemd.command_line("kubelet.service", [text], {})[1:]


@pytest.mark.parametrize("removed", ["A", "\\x41", "'A'", "A=1", "'A=1 2'", "'A=1\\x202'", "A\\s", "B A", "B=3", "'B=3' A", "A=1\\s2", "%%A", "C"])
def test_a_variable_that_a_unit_removes_is_that_of_systemd(removed: str) -> None:
    text = f"[Service]\nEnvironment='A=1 2' B=3\nUnsetEnvironment={removed}\nExecStart=/k $A $B --last\n"
    assert arguments(text)[1:] == systemd.command_line("kubelet.service", [text], {})[1:]


@pytest.mark.parametrize(("command", "path"), [
    ("--cloud-provider=aws $A", UNIT), ("--cloud-provider aws $A", UNIT), ("--cloud-provider=${B}", DEFAULT), ("--cloud-provider ${B}", DEFAULT),
    ("--cloud-provider $B", DEFAULT), ("--cloud-provider ${D}", DROP_IN), ("--cloud-provider x${B}", DEFAULT), ("--cloud-provider '' $A", UNIT),
    ("$C", DEFAULT), ("--cloud-provider= $A", UNIT), ("--cloud-provider=${D}", DROP_IN), ("--cloud-provider=${E}", DEFAULT),
])
def test_the_file_of_a_flag_is_that_in_which_its_value_can_be_changed(command: str, path: str) -> None:
    texts: dict[str, str | None] = {UNIT: f"[Service]\nExecStart=/k {command}\n", DROP_IN: "[Service]\nEnvironment=D=aws\n",
                                    DEFAULT: "A=--x=1\nB=aws\nC=--cloud-provider=aws\nE=e\n"}
    (item,) = _unit.occurrences(_unit.Sources((UNIT, DROP_IN), (DEFAULT,), texts).command_line())
    assert item.path == path and path in item.paths
    changed = dict(texts)
    for old, new in (("aws", "gce"), ("=e\n", "=gce\n"), ("--cloud-provider= ", "--cloud-provider=gce "), ("''", "'gce'")):
        changed[path] = (changed[path] or "").replace(old, new)
    units = ["[Service]\nEnvironmentFile=" + DEFAULT + "\n", changed[UNIT] or "", changed[DROP_IN] or ""]
    argv = systemd.command_line("kubelet.service", units, {DEFAULT: changed[DEFAULT] or ""})
    assert re.search("--cloud-provider[= ]x?gce", " ".join(argv))


@pytest.mark.parametrize("command", [
    ":/k $A", "-:/k $A $$", ":/k", "@/k x $A", ":@/k x $A", "/opt/k@1/kubelet a b", "+/k@1 a", "@/opt/k@1 a b",
    "@/k@1 k@1 ${A}", "!!/k $A", "-@/k a b", "/k:1 $A",
])
def test_the_arguments_behind_the_program_are_those_of_systemd(command: str) -> None:
    text = f"[Service]\nEnvironment=A=1\nExecStart={command}\n"
    given = [argument.value for argument in sources(text).command_line().given]
    assert given == systemd.command_line("kubelet.service", [text], {})[1:]


@pytest.mark.parametrize(("command", "line"), [('"', 3), ("/k 'a", 3), ('/k a \\\n  "b c', 3), ('\\\n"/k', 4), ("\\\n  /k \\\n 'a\" b", 4)])
def test_a_quote_in_exec_start_that_is_never_closed_is_named_with_its_line(command: str, line: int) -> None:
    text = f"[Service]\n# a comment\nExecStart={command}\n"
    with pytest.raises(systemd.Refused):
        systemd.command_line("kubelet.service", [text], {})
    with pytest.raises(_unit.UnitRefused, match=f"^{UNIT} line {line}: ExecStart has a quote that is never closed"):
        arguments(text)


@pytest.mark.parametrize("line", ["ExecStart=/k b \\ ", "ExecStart=/k b a\\\t", "Environment=A=1 B=\\ \nExecStart=/k $A$B c"])
def test_a_backslash_before_blanks_at_the_end_of_a_line_stays(line: str) -> None:
    """systemd strips the blanks first. It then keeps the backslash in a command, and ignores an assignment that ends in one."""
    text = f"[Service]\n{line}\n"
    assert arguments(text)[1:] == systemd.command_line("kubelet.service", [text], {})[1:]


@pytest.mark.parametrize("command", ["$A --x=1", "-$A", "${A}/k", "/k --x=1 ; $A b"])
def test_a_variable_is_no_program(command: str) -> None:
    with pytest.raises(_unit.UnitRefused, match=f"^{UNIT} line 2: ExecStart has a variable as its program.*Write its path"):
        _unit.parse_unit([(UNIT, f"[Service]\nExecStart={command}\n")])


def test_environment_files_add_up_until_they_are_reset() -> None:
    unit = _unit.parse_unit([("/u", "[Service]\nEnvironmentFile=/a\nEnvironmentFile=-/b\n"), ("/v", "[Service]\nEnvironmentFile=/c\n")])
    assert unit.environment_files == ("/a", "/b", "/c")
    unit = _unit.parse_unit([("/u", "[Service]\nEnvironmentFile=/a\nEnvironmentFile=\nEnvironmentFile=/b\n")])
    assert unit.environment_files == ("/b",)


# -- flags --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("argv", "expected"), [
    (["--cloud-provider=aws"], [("cloud-provider", "aws")]),
    (["--cloud-provider", "aws", "--cloud-config=/c"], [("cloud-provider", "aws"), ("cloud-config", "/c")]),
    (["--cloud-provider", "aws", "--cloud-config", "/c", "x"], [("cloud-provider", "aws"), ("cloud-config", "/c")]),
    (["/k", "--cloud-provider"], [("cloud-provider", "")]),
    (["--v=2", "--node-ip"], []),
    (["--controllers=*,bootstrap", "--controllers=*,-service"], [("controllers", "*,-service")]),
])
def test_managed_flags_of_a_process(argv: list[str], expected: list[tuple[str, str]]) -> None:
    assert _unit.managed_flags(argv) == expected


def test_other_flags_are_looked_for_by_their_names() -> None:
    line = _unit.of_process(["/k", "--node-ip", "1", "--controllers=*", "--cloud-provider=aws"])
    assert [(item.name, item.value) for item in _unit.occurrences(line, ["node-ip", "controllers"])] == [("node-ip", "1")]
    assert [item.name for item in _unit.occurrences(line, ["node-ip", "controllers"], whole=True)] == ["node-ip", "controllers"]


@pytest.mark.parametrize("name", sorted(set(flags.BOOLEAN_FLAGS) & set(flags.MANAGED_FLAGS)))
def test_a_switch_takes_no_argument(name: str) -> None:
    assert _unit.managed_flags([f"--{name}", "x"]) == [(name, "true")]
    assert _unit.managed_flags([f"--{name}=false"]) == [(name, "false")]


ENV_A, ENV_B = "/etc/a", "/etc/b"


@pytest.mark.parametrize(("a", "b", "after_a", "after_b"), [
    pytest.param('A="--cloud-config /c --v=2"\n', "", 'A="--v=2"\n', "", id="first-with-its-value"),
    pytest.param('A="--v=2 --cloud-config /c"\n', "", 'A="--v=2"\n', "", id="last-with-its-value"),
    pytest.param('A="  --cloud-config=/c   --v=2"\n', "", 'A="   --v=2"\n', "", id="after-white-space"),
    pytest.param("A=--cloud-config \\\n  /c --v=2\n", "", "A=\\\n --v=2\n", "", id="a-value-in-the-next-line"),
    pytest.param("A=--cloud-config\n", "B=/c --v=2\n", "A=\n", "B=--v=2\n", id="a-value-in-another-file"),
    pytest.param("X=12345678901234567890\nA=--cloud-config\n", "B=/c\n", "X=12345678901234567890\nA=\n", "B=\n", id="whatever-the-places"),
    pytest.param("A=--cloud-config\nB=/c --v=2\n", "", "A=\nB=--v=2\n", "", id="a-value-in-another-variable"),
    pytest.param('A="--cloud-config=/c  "\n', "", 'A=""\n', "", id="with-the-blanks-at-the-end-of-a-value"),
    pytest.param("A=--cloud-config=/c  \n", "", "A=  \n", "", id="without-the-blanks-behind-a-value"),
    pytest.param('A="\n--cloud-config=/c\n--v=2"\n', "", 'A="\n--v=2"\n', "", id="the-first-line-of-a-value"),
])
def test_a_flag_goes_with_its_value_wherever_that_is(a: str, b: str, after_a: str, after_b: str) -> None:
    found = _unit.Sources((UNIT,), (ENV_A, ENV_B), {UNIT: "[Service]\nExecStart=/k $A $B\n", ENV_A: a, ENV_B: b})
    line = found.command_line()
    (item,) = _unit.occurrences(line)
    spans: dict[str, list[flags.Span]] = {}
    unit_edits.remove(spans, line, item, found.texts)
    edited = found.edited(spans)
    assert (edited.texts[ENV_A], edited.texts[ENV_B]) == (after_a, after_b)


@pytest.mark.parametrize(("before", "after"), [
    ('A="--cloud-config=/c"\n', 'A="--x=1"\n'),
    ('A="--cloud-config=/c x"\n', 'A="x --x=1"\n'),
    ('A="--v=2 --cloud-config=/c"\n', 'A="--v=2 --x=1"\n'),
])
def test_a_flag_takes_the_place_of_one_that_goes(before: str, after: str) -> None:
    found = _unit.Sources((UNIT,), (ENV_A,), {UNIT: "[Service]\nExecStart=/k $A\n", ENV_A: before})
    line = found.command_line()
    spans: dict[str, list[flags.Span]] = {}
    unit_edits.remove(spans, line, _unit.occurrences(line)[0], found.texts)
    unit_edits.append(spans, line, "A", "--x=1")
    assert found.edited(spans).texts[ENV_A] == after


@pytest.mark.parametrize(("exec_start", "path", "expected"), [
    ("/k $A $B", "/etc/e", "B"),
    ("/k $A $B $C", "/etc/e", "B"),
    ("/k $A $B $D", "/etc/e", "D"),
    ("/k $A --v=2", "/etc/e", ""),
    ("/k --v=2", "/etc/e", ""),
    ("/k $C", "/etc/e", ""),
    ("/k $A $B", "/usr/lib/e", ""),
])
def test_where_a_further_flag_comes_last(exec_start: str, path: str, expected: str) -> None:
    texts: dict[str, str | None] = {UNIT: f"[Service]\nExecStart={exec_start}\n", path: "A=-a\nB=-b\nD=-d\n"}
    assert unit_edits.last_variable(_unit.Sources((UNIT,), (path,), texts).command_line()) == expected


def test_a_flag_is_a_packages_when_any_part_of_it_is() -> None:
    parts = [_unit.Argument(value, path, 0, 0, "") for value, path in (("--cloud-provider", "/etc/e"), ("aws", "/usr/lib/e"))]
    assert unit_edits.of_a_package(_unit.Occurrence("cloud-provider", "aws", tuple(parts)))
    assert not unit_edits.of_a_package(_unit.Occurrence("cloud-provider", "", (parts[0],)))


def test_a_command_line_is_read_once_for_the_same_texts() -> None:
    sources = _unit.Sources((UNIT,), ("/e",), {UNIT: "[Service]\nExecStart=/k %i $A\n", "/e": "A=--a\n"})
    line = sources.command_line()
    assert sources.command_line() is line
    assert [argument.value for argument in sources.command_line({"i": "x"}).arguments] == ["/k", "x", "--a"]
    assert sources.command_line() == line
    sources.texts["/e"] = "A=--b\n"
    assert [argument.value for argument in sources.command_line().arguments[2:]] == ["--b"]
    assert [argument.value for argument in sources._replace(texts={UNIT: "[Service]\nExecStart=/k --c\n"}).command_line().arguments] == ["/k", "--c"]
