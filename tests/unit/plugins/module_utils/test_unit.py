# SPDX-License-Identifier: Apache-2.0
"""Command lines as systemd reads them: comments inside a continued line, and names with underscores."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils import _flags, _kubelet, _unit

UNIT = "/etc/systemd/system/kubelet.service"


def sources(text: str) -> _unit.Sources:
    return _unit.Sources((UNIT,), (), {UNIT: text})


def arguments(text: str) -> list[str]:
    return [argument.value for argument in sources(text).command_line().arguments]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("comment", ["# not --cloud-provider=aws", "  ; a comment", "# it ends in a backslash \\", "#a\n#b"])
@pytest.mark.parametrize("after", ["", "  --config=/c \\\n"])
def test_the_flag_is_never_written_into_a_comment(comment: str, after: str, end: str) -> None:
    """systemd.syntax(7): a comment after a line that ends in a backslash is left out, and the line goes on behind it."""
    before = f"[Service]\nExecStart=/usr/bin/kubelet \\\n  --v=2 \\\n{comment}\n{after}  --node-ip=10.0.0.1\n".replace("\n", end)
    words = ["/usr/bin/kubelet", "--v=2", *(["--config=/c"] if after else []), "--node-ip=10.0.0.1"]
    assert arguments(before) == words
    edit = _kubelet.plan(sources(before), (1, 33))
    edited = sources(before).edited(edit.spans)
    assert arguments(edited.texts[UNIT] or "") == [*words, "--cloud-provider=external"]
    assert edited.texts[UNIT] == before.replace("--node-ip=10.0.0.1", "--node-ip=10.0.0.1 --cloud-provider=external")


def test_a_comment_before_the_last_argument_hides_no_flag() -> None:
    text = "[Service]\nExecStart=/usr/bin/kubelet --v=2 \\\n# the cloud\n  --cloud-provider=aws \\\n  --config=/c\n"
    edit = _kubelet.plan(sources(text), (1, 33))
    assert [(change.now, change.then) for change in edit.changes] == [("aws", "external")]
    assert sources(text).edited(edit.spans).texts[UNIT] == text.replace("=aws", "=external")
    gone = _unit.flags(sources(text).command_line())
    spans: dict[str, list[_unit.Span]] = {}
    _unit.remove(spans, sources(text).command_line(), _unit.occurrences(sources(text).command_line())[gone[0].index], {UNIT: text})
    assert arguments(sources(text).edited(spans).texts[UNIT] or "") == ["/usr/bin/kubelet", "--v=2", "--config=/c"]


def test_an_environment_file_has_no_comments_inside_a_value() -> None:
    """systemd reads these files by other rules: only a line of its own may be a comment."""
    values = _unit.parse_environment_file("/etc/default/kubelet", 'A="--v=2 \\\n#no-comment"\n# B=1\nC=2\n')
    assert "".join(char.char for char in values["A"].chars) == "--v=2  #no-comment"
    assert set(values) == {"A", "C"}


def test_a_shell_that_starts_the_kubelet_is_refused_with_its_file() -> None:
    text = "[Service]\nExecStart=/bin/sh -c 'exec /usr/bin/kubelet --v=2'\n"
    with pytest.raises(_unit.UnitRefused, match=f"{UNIT}.*shell.*/bin/sh -c"):
        _kubelet.plan(sources(text), (1, 33))


@pytest.mark.parametrize("lead", ["", "-", "@", "+", "!!"])
def test_a_shell_is_known_by_its_name(lead: str) -> None:
    assert _flags.shell([lead + "/usr/bin/bash", "-ec", "exec kubelet"]) == "/usr/bin/bash -ec"
    assert _flags.shell([lead + "/usr/bin/env", "sh", "-c", "exec kubelet"]) == "sh -c"
    assert _flags.shell([lead + "/usr/bin/kubelet", "--v=2"]) == ""
    assert _flags.shell([lead + "/bin/sh", "/opt/start-kubelet", "--v=2"]) == "", "a script may pass its arguments on"


DROP_IN = "/etc/systemd/system/kubelet.service.d/20-ours.conf"
DEFAULT = "/etc/default/kubelet"


@pytest.mark.parametrize(("path", "before", "after"), [
    pytest.param(DROP_IN, "Environment=A=--v=2", 'Environment="A=--v=2 --x=1 --y=2"', id="white-space-would-end-it"),
    pytest.param(DROP_IN, "Environment=B=1 A=--v=2 C=3", 'Environment=B=1 "A=--v=2 --x=1 --y=2" C=3', id="one-of-three"),
    pytest.param(DROP_IN, "Environment=A=", 'Environment="A=--x=1 --y=2"', id="empty"),
    pytest.param(DROP_IN, "Environment='A=--v=2'", "Environment='A=--v=2 --x=1 --y=2'", id="in-quotes"),
    pytest.param(DROP_IN, "Environment=A='--v=2'", "Environment=A='--v=2 --x=1 --y=2'", id="its-value-in-quotes"),
    pytest.param(DROP_IN, 'Environment="A="', 'Environment="A=--x=1 --y=2"', id="empty-in-quotes"),
    pytest.param(DEFAULT, "A=--v=2", "A=--v=2 --x=1 --y=2", id="to-the-end-of-the-line"),
    pytest.param(DEFAULT, "A=", 'A="--x=1 --y=2"', id="an-empty-line"),
    pytest.param(DEFAULT, 'A=""', 'A="--x=1 --y=2"', id="empty-quotes"),
    pytest.param(DEFAULT, 'A="--v=2 "', 'A="--v=2 --x=1 --y=2"', id="a-space-is-there"),
])
def test_flags_are_added_to_a_variable_as_systemd_reads_it(path: str, before: str, after: str) -> None:
    """systemd.exec(5): in Environment=, white space ends an assignment; in a file that EnvironmentFile= names, the line does."""
    unit = "[Service]\nExecStart=/usr/bin/kubelet $A\n"
    lead = "[Service]\n" if path == DROP_IN else ""
    texts = {UNIT: unit, path: f"{lead}{before}\n"}
    found = _unit.Sources((UNIT, *([DROP_IN] if path == DROP_IN else [])), (DEFAULT,), dict(texts))
    spans: dict[str, list[_unit.Span]] = {}
    assert [_unit.append(spans, found.command_line(), "A", flag) for flag in ("--x=1", "--y=2")] == [path, path]
    edited = found.edited(spans)
    assert edited.texts == {UNIT: unit, path: f"{lead}{after}\n"}
    assert [argument.value for argument in edited.command_line().arguments][-2:] == ["--x=1", "--y=2"]


def test_the_flag_is_not_lost_in_an_assignment_without_quotes() -> None:
    found = _unit.Sources((UNIT, DROP_IN), (), {UNIT: "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
                                                DROP_IN: "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=2\n"})
    edit = _kubelet.plan(found, (1, 33))
    assert found.edited(edit.spans).texts[DROP_IN] == '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external"\n'
    assert edit.after == [("cloud-provider", "external")]


@pytest.mark.parametrize("value", ["--a='b c'", 'x"y"', r"a\b"])
def test_quotes_inside_a_value_are_not_put_in_quotes_again(value: str) -> None:
    """They would come to mean something else."""
    found = _unit.Sources((UNIT, DROP_IN), (), {UNIT: "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
                                                DROP_IN: f"[Service]\nEnvironment=KUBELET_EXTRA_ARGS={value}\n"})
    with pytest.raises(_unit.UnitRefused, match=f"{DROP_IN} has quotes inside the value of KUBELET_EXTRA_ARGS, and --cloud-provider cannot"):
        _kubelet.plan(found, (1, 33))


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
