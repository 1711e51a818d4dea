# SPDX-License-Identifier: Apache-2.0
"""`-e name=value` and INI files set strings: roles convert a variable wherever they need a number or a boolean.

argument_specs only check that a string can be converted. Without a conversion, 'false' is true, and '120' + '60' is
'12060'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PLACES = ("playbooks/*.yml", "roles/*/tasks/**/*.yml", "roles/*/vars/**/*.yml", "roles/*/templates/*.j2")


def variables(*kinds: str) -> dict[str, str]:
    """Return the type of each variable that has one of these types in the argument_specs of a role's `main`."""
    found = {}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        options = yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
        found |= {name: option["type"] for name, option in options.items() if option["type"] in kinds}
    return found


TYPED = variables("bool", "int")


EXPRESSION = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|^ *(?:when|that|until): [^\n]*$|^ *- (?:not )?ccm_[^\n]*$",
    re.DOTALL | re.MULTILINE,
)


def bare(text: str, name: str) -> Iterator[str]:
    """Yield each line that uses a variable in an expression without converting the variable to its type. A variable
    that becomes text, or that is the whole value of a module's option, needs no conversion."""
    filtered = rf"\b{name}\b(?! *(\| *default\([^)]*\) *)?\| *{TYPED[name]}\b)"
    for match in EXPRESSION.finditer(text):
        used = match.group(0)
        if re.fullmatch(rf"\{{\{{ *{name} *\}}\}}", used):  # a module's option, or text
            continue
        used = re.sub(rf"'[^'\n]*'|~ *{name}\b|hostvars\[\w+\]\.\w+", "", used)  # a sentence, text, a name
        for line in used.splitlines():
            if re.search(filtered, line):
                yield line.strip()


@pytest.mark.parametrize("name", TYPED)
def test_a_string_of_the_command_line_means_what_it_says(name: str):
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for place in PLACES
        for path in sorted(ROOT.glob(place))
        for line in bare(path.read_text(), name)
    ]
    assert not found, f"add `| {TYPED[name]}`:\n" + "\n".join(found)


def test_what_it_looks_for_is_found():
    lines = ["  when: not ccm_install_rollback_force", "{% if ccm_runtime_monitoring_rules %}"]
    lines += ['wait: "{{ ccm_install_gate_timeout + 1 }}"', "x: \"{{ 'a' if ccm_runtime_volume_webhook else 'b' }}\""]
    names = ["ccm_install_rollback_force", "ccm_runtime_monitoring_rules", "ccm_install_gate_timeout"]
    for line, name in zip(lines, [*names, "ccm_runtime_volume_webhook"], strict=True):
        assert list(bare(line, name)), line
    assert not list(bare("x: >-\n  {{ ['as ccm_install_rollback_force allowed:'] + lines }}", names[0]))
