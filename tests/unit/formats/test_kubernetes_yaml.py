# SPDX-License-Identifier: Apache-2.0
"""Our YAML reader agrees with Kubernetes' own parser, on hand-written and on generated documents."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubernetes_yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.kubernetes_yaml import (
    CHARACTERS,
    LEVELS,
    VALUES,
    NotYaml,
    compose,
    load,
)

from tests import drawn

from .conftest import Kubernetes, Refused
from .generated import Tally

TEXTS = {
    "nothing": "",
    "a comment": "# nothing\n",
    "a trailing marker": "a: 1\n---\n",
    "a second document": "a: 1\n---\na: 2\n",
    "a second document that is broken": "a: 1\n---\n[ broken",
    "an end marker": "a: 1\n...\nb\n",
    "an empty first document": "---\n---\na: 1\n",
    "a duplicate key": "a: 1\nb: 2\na: 3\n",
    "a date that is none": "updated: 2024-31-12\n",
    "a date": "updated: 2024-12-31\nat: 2001-12-14t21:59:43.10-05:00\n",
    "a custom tag": "a: !vault x\nb: !map {c: d}\nc: !list [1]\n",
    "known tags": "a: !!str 1\nb: !!int 2\nc: !!float 3\nd: !!bool yes\ne: !!null ~\n",
    "rare tags": "a: !!binary aGVsbG8=\nb: !!set {a: b}\n",
    "a tag that does not fit": "a: !!int x\n",
    "the tag of nothing": "a: ! 12\nb: ! '12'\n",
    "null": "port: null\nb: ~\nc:\nd: Null\n",
    "words": "a: y\nb: N\nc: on\nd: Off\ne: yes\nf: 'yes'\ng: nO\n",
    "numbers": "a: 010\nb: 08\nc: 0x1F\nd: 0b101\ne: 0o17\nf: 1_000\ng: 12:30\nh: 1e3\ni: .5\n",
    "more numbers": "a: -0x10\nb: +12\nc: 1.\nd: 18446744073709551615\ne: 1e999\nf: _1\n",
    "a number beyond all": "a: 99999999999999999999999\nb: -99999999999999999999\n",
    "a number that JSON has not": "a: .nan\n",
    "keys that are no text": "1: a\ntrue: b\non: c\n",
    "a key that is nothing": "~: a\n",
    "a key that is a list": "? [a]\n: b\n",
    "a blank before the colon": "key : value\n",
    "block values": "a: |\n  b\n  c\nb: >-\n  d\n  e\nc:\n  f\n  g\n",
    "indicators of block values": "a: |2-\n   b\nc: >+1\n  d\n\ne: |-\n  f\n",
    "an indicator too many": "a: |2-+\n   b\n",
    "tabs around words": "a:\tb\t# c\nc: d\te\t\nd: [1,\t2]\n",
    "JSON with tabs": '{\n\t"a": [1,\n\t2],\t"b": null\n}\n',
    "a tab as indentation": "a:\n\tb: c\n",
    "a tab behind a dash": "a:\n-\tb\n",
    "a merge key": "x: &x {a: 1, b: 2}\ny:\n  a: 3\n  <<: *x\nz:\n  <<: *x\n  a: 3\nw:\n  <<: [{a: 1}, {a: 2}]\n",
    "a merge key of text": "a:\n  <<: b\n",
    "an anchor that is used again": "a: &x 1\nb: &x 2\nc: *x\n",
    "an alias without anchor": "a: *x\n",
    "an anchor that contains itself": "a: &x [*x]\n",
    "a byte order mark": "\ufeffa: b\n",
    "line ends of Windows": "a: b\r\nc:\r\n- d\r\n",
    "escapes": 'a: "\\x41\\u00e9\\/\\t\\\n  b"\n',
    "a control character": "a: \x01\n",
    "an old directive": "%YAML 1.1\n---\na: b\n",
    "a new directive": "%YAML 1.2\n---\na: b\n",
    "an unknown directive": "%FOO bar\n---\na: b\n",
    "colons in one line": "[--bind=:8080, http://x, a:b]\n",
    "a text over lines": "a: b\n  c\n\n  d\ne: 'f\n  g'\n",
    "prose": "These manifests belong to the installer: do not edit\nthem.\n\n* one\n* two\n",
    "a README": "# Manifests\n\nSee `make help`: it lists all.\n",
}


def ours(text: str) -> Any:
    try:
        return load(text)
    except NotYaml as exc:
        return exc


def theirs(kubernetes: Kubernetes, text: str) -> Any:
    try:
        return kubernetes.load(text)
    except Refused as exc:
        return exc


def same(mine: Any, other: Any) -> bool:
    """Return whether both refuse the text, or read the same data; 1 and true differ."""
    if isinstance(mine, Exception) or isinstance(other, Exception):
        return isinstance(mine, Exception) and isinstance(other, Exception)
    if isinstance(mine, dict) and isinstance(other, dict):
        return mine.keys() == other.keys() and all(same(mine[key], other[key]) for key in mine)
    if isinstance(mine, list) and isinstance(other, list):
        return len(mine) == len(other) and all(map(same, mine, other))
    return mine == other and isinstance(mine, bool) == isinstance(other, bool)


@pytest.fixture(params=["libyaml", "PyYAML alone"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use PyYAML with and without libyaml."""
    assert kubernetes_yaml.LIBYAML is not None, "this PyYAML was built without libyaml"
    if request.param != "libyaml":
        monkeypatch.setattr(kubernetes_yaml, "LIBYAML", None)
    compose.cache_clear()


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_means_what_it_means_to_kubernetes(kubernetes: Kubernetes, text: str) -> None:
    mine, other = ours(text), theirs(kubernetes, text)
    assert same(mine, other), (mine, other)


NUMBERS = """
0 00 -0 +0 01 08 -010 +017 0o 0o7 0o8 -0o17 0O17 0x 0x0 0xg +0x1 -0x1F 0X1f 0b 0b1 0b2 -0b101 +0b1 0B1 1_0 1__0 0_1
_1 1_ 0x_1 0x1_0 - + -- _ . .. .5 -.5 +.5 .5e3 ._5 5. 5.e1 -5.5 1e3 1e+3 1E-3 1e 1e+ e1 1.2.3 1e999 -1e999 1_0.5 1,0
12:30 0.0 -0.0 1e400 .e1 0x1.8p1 inf nan .inf -.inf .NaN +.nan ~ ~1
.5_0 .5__0 .5_ .5e1_0 .5e_1 .5_e1 .5e+1_0 .5e999 .5e-999 -.5_0 1_e3 1e_3 1_0e1_0 5_. 5._0
0b+1 0b-1 0b-+1 -0b-1 0B+1 0b_1 0b+ 0b+2
9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 36893488147419103231
-9223372036854775808 -9223372036854775809 -18446744073709551615 -18446744073709551616
+9223372036854775807 +9223372036854775808 +18446744073709551615 +18446744073709551616
0x7fffffffffffffff 0x8000000000000000 0xffffffffffffffff 0x10000000000000000
-0x8000000000000000 -0x8000000000000001 +0x8000000000000000
0777777777777777777777 01777777777777777777777 02000000000000000000000
-01000000000000000000000 -01000000000000000000001
"""


def rounded(data: Any) -> Any:
    """Return the data with a large number as a float: Go writes a large number with a fraction as an integer."""
    value = data["a"] if isinstance(data, dict) else None
    return {"a": float(value)} if isinstance(value, int | float) and abs(value) > 2**53 else data


@pytest.mark.parametrize("tag", ["", "!!int ", "!!str ", "!!float ", "!!timestamp "])
@pytest.mark.parametrize("number", NUMBERS.split())
def test_a_number_means_what_it_means_to_kubernetes(kubernetes: Kubernetes, number: str, tag: str) -> None:
    mine, other = ours(f"a: {tag}{number}\n"), theirs(kubernetes, f"a: {tag}{number}\n")
    assert same(mine, other) or (isinstance(mine["a"], float) and same(rounded(mine), rounded(other)))


KEYS = """
1 1.0 1.5 1.2345678 1.23456789012 100000.0 1000000.0 1e5 1e21 123456.7 1234567.5 0.0001 0.00001 -0.0 0.1
99999.95 16777217.0 1e38 3.4028235e38 3.5e38 -4e38 1e-45 1e-50 .nan .inf -.inf true no ~ 0x10 010 .5_0
2024-01-01 9223372036854775807 9223372036854775808 18446744073709551615 -9223372036854775808
-9223372036854775809 18446744073709551616 +9223372036854775807 +9223372036854775808
"""


@pytest.mark.parametrize("key", KEYS.split())
def test_a_key_has_the_text_that_it_has_for_kubernetes(kubernetes: Kubernetes, key: str) -> None:
    mine, other = ours(f"{key}: a\n"), theirs(kubernetes, f"{key}: a\n")
    assert same(mine, other), (mine, other)


TIMES = """
2024-01-01 2024-1-1 2024-02-30 2024-02-29 2023-02-29 2024-13-01 2024-00-01 2024-01-00 2024-01-32 0000-02-29
02024-1-1 2024-001-1 2024-1-1T1:2:3Z 2024-1-1t1:2:3+01:00 2024-1-1T1:2:3 2024-1-1_1:2:3 2024-1-1___1:2:3.5
2024-1-1_1:2:3Z 2024-1-1T1:2:3,5Z 2024-1-1T1:2:3.Z 2024-1-1T24:00:00Z 2024-1-1T23:60:00Z 2024-1-1T23:59:60Z
2024-1-1T1:2:3+24:60 2024-1-1T1:2:3+25:00 2024-1-1T1:2:3+24:61 2024-1-1T1:2:3+1:00 2024-1-1T 2024-1-1_
2024-1-1_1:2 2001-12-14_21:59:43.10_-5 2024-1-1T01:02:03.12345678901234567890Z x 2024
"""


@pytest.mark.parametrize("text", TIMES.split())
def test_a_time_means_what_it_means_to_kubernetes(kubernetes: Kubernetes, text: str) -> None:
    for tag in ("", "!!timestamp ", "!!timestamp '"):
        whole = f"a: {tag}{text.replace('_', ' ')}{tag[-1:].strip()}\n"
        mine, other = ours(whole), theirs(kubernetes, whole)
        assert same(mine, other), (whole, mine, other)


BEHIND = ["2", "+", "-", "2+", "+2", "-2", "2-", "2+-", "+2-", "-2+", "22", "0", "10", "9", "#", "+#", "2#", "+2#"]
BEHIND += ["++", "+-", "-+", "--", "2++", "+2+"]
BEHIND += ["+2x", "x", " ", "+ # c", "2 # c", "2# c", "+\t", "2\t# c", " # c", "\t", "2 2", "+ 2"]
INNER = ["\n  b\n", "\n   b\n  c\n", "\n\n\n  b\n\n\n", "\n    b\n   c\n", "\n\t b\n", "\n  \tb\n", "\n", "\r\n  b\r\n"]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("behind", BEHIND)
def test_what_stands_behind_a_block_indicator_means_what_it_means_to_kubernetes(
    kubernetes: Kubernetes, behind: str
) -> None:
    for text in [f"a: {sign}{behind}{lines}d: 1\n" for sign in "|>" for lines in INNER]:
        mine, other = ours(text), theirs(kubernetes, text)
        assert same(mine, other), (text, mine, other)


PIECES = (
    "a",
    "b: ",
    "c",
    ": ",
    " :",
    ":",
    "- ",
    "-",
    "\n",
    "\n",
    "\n  ",
    "\n    ",
    "\n- ",
    "\nd: ",
    " ",
    "\t",
    "#",
    " # e",
    "'",
    '"',
    "[",
    "]",
    "{",
    "}",
    ", ",
    ",",
    "&x ",
    "*x",
    "!t ",
    "!!str ",
    "|",
    ">",
    "\n---\n",
    "\n...\n",
    "?",
    "? ",
    "1",
    "0x",
    "y",
    "~",
    "null",
    ".5",
    "\r\n",
    "%",
    "<<: ",
    "--f=g",
    "h=i,j=k",
    "\\",
)


MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, annotations: {updated: 2024-31-12}}
spec:
  containers:
  - command: &args  # é 𝄞
    - kube-apiserver
    - "--cloud-provider=aws"
    - '--v=2'
    name: kube-apiserver
    args: []
  priority: 10
  volumes:
  - hostPath:
      path: /etc/kubernetes/pki
    name: |-
      certs
"""


def odd(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(1, 12)))


def damaged(chance: random.Random) -> str:
    """Return a manifest in which a piece was inserted, replaced or repeated."""
    at, length = chance.randrange(len(MANIFEST)), chance.choice([0, 0, 1, 3])
    return MANIFEST[:at] + chance.choice([*PIECES, MANIFEST[at : at + 9]]) + MANIFEST[at + length :]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("texts", "number"), [(odd, 6000), (damaged, 700)])
def test_an_odd_text_means_what_it_means_to_kubernetes(kubernetes: Kubernetes, texts: Any, number: int) -> None:
    """Our reader may refuse one of 3,000 texts that Kubernetes reads: an empty list or mapping with text after it."""
    chance, number = random.Random(33), drawn.number(number)
    tally = Tally(f"YAML, {texts.__name__} texts")
    for _ in range(number):
        text = texts(chance)
        mine, other = ours(text), theirs(kubernetes, text)
        if same(mine, other):
            tally.add("not YAML to either" if isinstance(mine, Exception) else "read")
        else:
            tally.add("refused" if isinstance(mine, Exception) else "wrong", text, mine, other)
    assert tally.ways["read"] > number // 5
    tally.judge(number, 1 / 3000)


ALIASES = "\n".join(
    f"k{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 12) if level else '1'}]" for level in range(10)
)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(ALIASES, f"line 5: it has more than {VALUES} values, with every alias followed", id="aliases"),
        pytest.param("a: " + "[" * 500 + "]" * 500, f"line 1: it has more than {LEVELS} levels", id="brackets"),
        pytest.param(
            "\n".join(" " * level + "a:" for level in range(500)),
            f"line {LEVELS}: it has more than {LEVELS} levels",
            id="indentation",
        ),
        pytest.param("- a\n" * (VALUES + 1), f"line {VALUES}: it has more than {VALUES} values", id="items"),
        pytest.param(
            "#" * (CHARACTERS + 1), f"it has {CHARACTERS + 1} characters, more than the {CHARACTERS}", id="characters"
        ),
        pytest.param("a: \udcff\n", r"line 1: the character U\+DCFF is not allowed", id="bytes that are no text"),
        pytest.param("a:\n- \0\n", r"line 2: the character U\+0000 is not allowed", id="bytes of a program"),
        pytest.param("\n\0", r"line 2: the character U\+0000 is not allowed", id="bytes behind an empty line"),
    ],
)
@pytest.mark.threat("worker-cannot-change-others")
def test_a_text_that_grows_is_refused_at_once(text: str, words: str) -> None:
    with pytest.raises(NotYaml, match=words):
        load(text)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text",
    [
        "#" * CHARACTERS,
        "- a\n" * (VALUES - 1),
        "[" * LEVELS + "]" * LEVELS,
        "- &x [" + "a, " * (VALUES // 2 - 2) + "]\n- *x\n",
        "- [1]\n" * (LEVELS + 1),
    ],
    ids=["characters", "items", "levels", "aliases", "levels side by side"],
)
def test_a_text_of_the_largest_size_is_read(kubernetes: Kubernetes, text: str) -> None:
    assert same(load(text), kubernetes.load(text))


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: *x\n", "line 2: the alias 'x' has no anchor"),
        ("\na: &x [*x]\n", "line 2: the anchor 'x' contains itself"),
        ("# c\n%FOO bar\n---\na: b\n", "line 2: the directive %FOO is unknown"),
        ("a: b\n\tc\n", "line 2, column 1: a tab is used for indentation"),
        ("a:\n  - |\n \tb\n", "line 3, column 2: a tab is used for indentation"),
        ("a:\n  <<: b\n", "line 2: a merge key (<<) needs a mapping"),
        ("b: 1\n~: a\n", "line 2: a key is neither text nor a number"),
        ("b: 1\n9223372036854775808: a\n", "line 2: the number 9223372036854775808 is too large for a key"),
        ("b: 1\na: !!int x\n", "line 2: 'x' is not a !!int"),
        ("b: 1\na: .nan\n", "line 2: JSON has no number .nan"),
        ("b: 1\na: !!binary '!'\n", "line 2: a !!binary value is not base64"),
        ("b: 1\na: [\n", "line 3, column 1: "),
    ],
)
def test_what_kubernetes_cannot_read_is_named_with_its_line(kubernetes: Kubernetes, text: str, words: str) -> None:
    with pytest.raises(NotYaml) as caught:
        load(text)
    assert str(caught.value).startswith(words)
    assert isinstance(theirs(kubernetes, text), Refused)


def test_an_error_without_a_place_is_told_by_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> Any:
        raise yaml.YAMLError("what is wrong\nand where the library noticed it")

    monkeypatch.setattr(kubernetes_yaml, "LIBYAML", None)
    monkeypatch.setattr(kubernetes_yaml, "_Parser", fail)
    with pytest.raises(NotYaml, match=r"^what is wrong$"):
        compose("a text of this test: 1\n")
