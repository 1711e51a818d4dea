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
