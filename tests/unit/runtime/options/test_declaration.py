# SPDX-License-Identifier: Apache-2.0
"""An option is declared once: a new flag needs only one more field."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ccm.options.command_line import Options, OptionsError, parse, parse_as, parser
from ccm.options.config_file import API_VERSION, KIND, load
from ccm.options.declaration import Flag, flags_of, option
from ccm.options.flags import FLAGS
from ccm.options.restrictions import not_negative
from ccm.options.values import DURATION

SIM = "--cloud-provider=sim"


@dataclass(frozen=True)
class More(Options):
    """All existing flags, and one new flag in a single line."""

    tea_break: float = option("general", DURATION, 300.0, "rest so long", "Generic.TeaBreak", check=not_negative)


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that generates the pages of docs/reference."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4] / "tools" / "docs"))
    return importlib.import_module("reference")


def test_the_declaration_is_a_flag():
    assert flags_of(More) == (*FLAGS, flags_of(More)[-1])
    assert (flags_of(More)[-1].name, flags_of(More)[-1].field) == ("tea-break", "tea_break")


def test_the_parser_knows_it_and_the_other_one_does_not():
    assert parse_as(More, [SIM]).tea_break == 300.0
    assert parse_as(More, [SIM, "--tea-break=1m30s"]).tea_break == 90.0
    with pytest.raises(OptionsError, match="unknown argument '--tea-break=1m30s'"):
        parse([SIM, "--tea-break=1m30s"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "--tea-break: 'soon' is not a duration such as 10s, 5m or 1h30m"),
        ("-1s", "--tea-break must be 0 or more, not -1s"),
    ],
)
def test_its_values_are_checked(text: str, problem: str):
    with pytest.raises(OptionsError) as caught:
        parse_as(More, [SIM, f"--tea-break={text}"])
    assert caught.value.problems == [problem]


def test_help_shows_it_in_its_group():
    text = parser(flags_of(More)).format_help()
    assert re.search(r"--tea-break DURATION\s+rest so long \(default: 5m0s\)\n", text)
    assert text.index("\ngeneral:\n") < text.index("--tea-break") < text.index("\naccepted and ignored:\n")


def test_a_file_sets_it_and_its_value_there_is_checked_too(tmp_path: Path):
    config = {"apiVersion": API_VERSION, "kind": KIND, "Generic": {"TeaBreak": "7s"}}
    file = tmp_path / "ccm.yaml"
    file.write_text(yaml.safe_dump(config))
    assert parse_as(More, [SIM, f"--config={file}"]).tea_break == 7.0
    assert parse_as(More, [SIM, f"--config={file}", "--tea-break=1s"]).tea_break == 1.0
    [problem] = load(file.read_text(), "c.yaml")[1]
    assert problem.startswith("c.yaml, line 2: Generic.TeaBreak: unknown key; known keys: ")
    file.write_text(yaml.safe_dump({**config, "Generic": {"TeaBreak": "-7s"}}))
    with pytest.raises(OptionsError, match="--tea-break must be 0 or more, not -7s"):
        parse_as(More, [SIM, f"--config={file}"])


def test_configz_shows_it_and_a_file_of_that_reads_it_back():
    shown = parse_as(More, [SIM, "--tea-break=90s"]).configz()
    assert shown["Generic"].pop("TeaBreak") == "1m30s"
    assert shown == parse([SIM]).configz()
    shown["Generic"]["TeaBreak"] = "1m30s"
    values, problems = load(json.dumps(shown), "c.yaml", flags_of(More))
    assert (values["tea_break"], problems) == (90.0, [])


def test_docs_tell_of_it(reference: ModuleType):
    assert "| `--tea-break` | `5m0s` | rest so long |  |" in "\n".join(reference._flags(flags_of(More)))
    configuration = "\n".join(reference._configuration(More))
    assert "  TeaBreak: 5m0s\n" in configuration
    assert "| `Generic.TeaBreak` | `--tea-break` | duration |" in configuration


def test_every_field_is_declared_as_a_flag():
    """Fields without a flag come only from the configuration file or are derived from flags."""
    declared = {flag.field for flag in flags_of(Options)}
    assert {item.name for item in fields(Options)} - declared == {"leader_migration", "sections", "division"}


VERBS = {
    *("accept", "also", "audit", "cache", "check", "connect", "count", "create", "delete", "do", "keep", "let", "log"),
    *("look", "mark", "migrate", "offer", "overwrite", "read", "refresh", "renew", "require", "run", "send", "serve"),
    *("add", "assign", "set", "stop", "switch", "take", "use", "wait", "work", "write"),
}


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_help_begins_with_a_verb(flag: Flag):
    assert flag.help.split()[0] in VERBS


def test_groups_stand_together():
    """`--help` and the reference page show each group once, at its first flag."""
    groups = [flag.group for flag in FLAGS]
    assert [a for a, b in itertools.pairwise(groups) if a != b] == list(dict.fromkeys(groups))[:-1]


def test_no_two_flags_have_one_place_in_the_file():
    places = [flag.place for flag in FLAGS if flag.place]
    assert len(places) == len(set(places))
