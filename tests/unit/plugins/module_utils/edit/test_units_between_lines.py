# SPDX-License-Identifier: Apache-2.0
"""Edits of flags between joined lines and comments of a unit, and their rollback, as systemd's own library reads them.

systemd skips comment lines inside a continued command. A backslash joins the next line that is not a comment, whatever it is. So a line that
an edit leaves may swallow the next setting, and a flag may end up in a comment.
"""

from __future__ import annotations

import random
import re

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubelet, unit_edits
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import undo

from tests import drawn, systemd

NAME = "kubelet.service"
UNIT = f"/etc/systemd/system/{NAME}"
JOINTS = [" ", " \\\n  ", " \\\n# c\n  ", " \\\n# c \\\n ; d\n\t", "  \\\r\n"]
ENDS = ["\nRestart=always\n", " \\\n\nRestart=always\n", "", " \\\n# e\n\nRestart=always\n", "\r\nRestart=always\r\n"]
FLAGS = [["--cloud-config=/c"], ["--cloud-config", "/c"], ["--cloud-config=/c", "--cloud-config=/d"], ["--cloud-provider=aws", "--cloud-config=/c"],
         ["--cloud-config", "/c", "--cloud-provider=aws"], ["--cloud-provider", "aws", "--cloud-config", "/c"], ["--cloud-provider=aws"]]
PLACES = ["ExecStart=/usr/bin/kubelet{}", 'ExecStart=/usr/bin/kubelet $A\nEnvironment="A={}"', "ExecStart=/usr/bin/kubelet $A\nEnvironment='A={}'"]
#: A backslash that joins only comments or an empty line.
NOTHING = re.compile(r"\\\r?\n(?:[ \t]*[#;].*\n)*[ \t]*(\r?\n|$)")


def argv(text: str) -> tuple[list[str], list[str]]:
    """Return the arguments without the cloud's flags, in order, and the cloud's flags, sorted."""
    words = re.sub("(--cloud-(provider|config)) ", r"\1=", "\0".join(systemd.command_line(NAME, [text], {})[1:]).replace("\0", " ")).split()
    return [word for word in words if not word.startswith("--cloud-")], sorted(word for word in words if word.startswith("--cloud-"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("flags", FLAGS)
def test_a_flag_between_lines_goes_and_comes_back_alone(place: str, flags: list[str]) -> None:
    rand = random.Random(f"{place} {flags}")
    for unused in range(drawn.number(400) // 40):
        arguments = [*rand.choice([["--v=2"], []]), *flags, *rand.choice([["--x=1"], []])]
        body = "".join(rand.choice(JOINTS) + word for word in arguments)
        text = f"[Service]\n{place.format(body)}{rand.choice(ENDS)}"
        version, before = rand.choice([(1, 30), (1, 33)]), argv(text)
        sources = _unit.Sources((UNIT,), (), {UNIT: text})
        written = sources.edited(kubelet.plan(sources, version).spans).texts[UNIT] or ""
        assert argv(written) == (before[0], ["--cloud-provider=external"]), (text, written)
        assert NOTHING.search(text) or not NOTHING.search(written), (text, written)
        assert systemd.unit_settings(text)[-1][1:] == systemd.unit_settings(written)[-1][1:] or "Restart" not in text
        assert re.findall(r"[#;] \w", written) == re.findall(r"[#;] \w", text), "a comment is somebody else's"
        for now in (written, written.replace("--v=2", "--v=7"), written.replace("external", "external --y=1")):
            others = argv(now)[0]
            back = undo.undo(undo.Unit("kubelet", UNIT, sources._replace(texts={UNIT: now})), text, written, now, version)
            found = argv(back.text)
            assert sorted(found[0]) == sorted(others) and (back.kept or found[1] == before[1]), (text, now, back)


def test_a_flag_behind_the_last_line_of_a_variable_is_in_no_comment() -> None:
    """The place after a joined line is after the comments that follow the line."""
    text = '[Service]\nExecStart=/usr/bin/kubelet $A\nEnvironment="A=--v=2 \\\n# c \\\n ; d\n"\n'
    sources = _unit.Sources((UNIT,), (), {UNIT: text})
    spans = {}  # type: ignore[var-annotated]
    unit_edits.append(spans, sources.command_line(), "A", "--x=1")
    assert sources.edited(spans).texts[UNIT] == text.replace('\n"', '\n--x=1"')
    assert argv(sources.edited(spans).texts[UNIT] or "")[0] == ["--v=2", "--x=1"]
