# SPDX-License-Identifier: Apache-2.0
"""Generated units and environment files, as systemd's own library reads them before and after the migration, and after the rollback.

A seed determines each host. The product edits the host's files, somebody else changes them, and the product undoes its edit. systemd
(tests/systemd.py) decides whether an argument was lost, added or changed, never the product's own reader.
"""

from __future__ import annotations

import base64
import random
import re
from collections import Counter
from typing import Any, NamedTuple

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubelet, unit_edits
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import undo

from tests import drawn, systemd

NAME = "kubelet.service"
UNIT = f"/etc/systemd/system/{NAME}"
DROP_INS = (f"/etc/systemd/system/{NAME}.d/10-kubeadm.conf", f"/etc/systemd/system/{NAME}.d/20-ours.conf")
FLAGS_ENV, DEFAULT = "/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"
#: The number of texts of each kind, and of the parts in which they are generated, so that processes can share the work.
TEXTS, PARTS = drawn.number(4000), 8
#: The maximum refusals per hundred texts. More are a fault, because an ordinary file must never be refused.
REFUSED = {"one environment file": 8, "two environment files": 11, "units and drop-ins": 11}

OTHERS = ["--v=2", "--node-ip=10.0.0.1", "--max-pods=200", "--root-dir=/data/kubelet", "--config=/etc/kubelet.yaml", "--eviction-hard=memory.available<5%",
          "--node-labels=tier=db,zone=a", "--x=a b", "--y=it's", '--z="q"', "--b=c\\d", "--node-status-update-frequency", "10s", "--e="]
CLOUD = ["--cloud-provider=vsphere", "--cloud-provider=", "--cloud_provider=aws", "--cloud-config=/etc/c", "--cloud-provider=external", "--cloud-config=",
         "--feature-gates=X=true, DisableCloudProviders=true", "--feature-gates=DisableCloudProviders=true"]
MANAGED = re.compile("--(cloud[-_]provider|cloud[-_]config|feature-gates)(=|$)")
#: Messages of the proof after an edit. The proof exists for faults of the product, so it may refuse at most one of a hundred edits.
PROOF = re.compile("an edit there would also|after the edit, its flags would be|could not be read again|would still change")


class Host(NamedTuple):
    """The texts of a host's files. Environment files that are None do not exist."""

    units: dict[str, str]
    environment: dict[str, str | None]

    def argv(self) -> list[str]:
        return systemd.command_line(NAME, list(self.units.values()), {path: text for path, text in self.environment.items() if text is not None})

    def sources(self) -> _unit.Sources:
        """Return the unit's sources as detection returns them. Raises UnitRefused."""
        files = {path: {"exists": text is not None, "content": base64.b64encode((text or "").encode()).decode(), "sha256": "", "problem": ""}
                 for path, text in {**self.units, **self.environment}.items()}
        return _unit.sources(files, {"unit": NAME, "unit_files": list(self.units), "environment_files": list(self.environment)})  # type: ignore[arg-type]

    def with_texts(self, texts: dict[str, Any]) -> Host:
        return Host({path: texts[path] for path in self.units}, {path: texts[path] for path in self.environment})


# -- hosts --------------------------------------------------------------------------------------------------------------


def words(rand: random.Random, most: int = 4) -> list[str]:
    chosen = [rand.choice(OTHERS) for unused in range(rand.randrange(most))]
    for flag in rand.sample(CLOUD, rand.choice([0, 0, 1, 1, 2])):
        chosen.insert(rand.randrange(len(chosen) + 1), flag)
    if rand.random() < 0.1:
        chosen += ["--cloud-provider", "openstack"]
    if rand.random() < 0.1:
        chosen += ["--cloud-config", "/etc/cloud.conf"]
    return chosen


def shell_word(rand: random.Random, word: str) -> str:
    """Return a spelling of a word as part of a variable's value: systemd expands $VARIABLE to the word itself."""
    if not re.search(r"""[\s"'\\]""", word) and rand.random() < 0.9:
        return word
    return rand.choice([
        '"' + re.sub(r'(["\\])', r"\\\1", word) + '"',
        re.sub(r"""([\s"'\\])""", r"\\\1", word),
        word.partition("=")[0] + '="' + re.sub(r'(["\\])', r"\\\1", word.partition("=")[2]) + '"' if "=" in word else
        "'" + re.sub(r"(['\\])", r"\\\1", word) + "'",
    ])


def joined(rand: random.Random, parts: list[str], blanks: list[str]) -> str:
    return "".join(part + rand.choice(blanks) for part in parts[:-1]) + (parts[-1] if parts else "")


def value(rand: random.Random, parts: list[str]) -> str:
    """Return a spelling of words as the value of a variable in an environment file.

    One style leaves out words with an apostrophe, and one never closes its quote.
    """
    style = rand.randrange(9)
    if style < 2:
        return joined(rand, [re.sub(r"""(["'\\])""", r"\\\1", part) for part in parts], [" ", "  ", " \\\n", " \\\n  "])
    double = [re.sub(r'(["\\`$])', r"\\\1", part) for part in parts]
    single = [part for part in parts if "'" not in part]
    if style < 4:
        return '"' + joined(rand, double, [" ", " \\\n", " \\\n  "]) + '"' + rand.choice(["", " ", " \\\n"])
    if style == 4:
        return '"\n  ' + joined(rand, double, ["\n  ", " "]) + '\n"'
    if style == 5:
        return "'" + joined(rand, single, [" ", "\n"]) + "'"
    if style == 6:
        return rand.choice([" ", "\t"]) + '"' + joined(rand, double, [" "]) + '"'
    if style == 7:
        cut = rand.randrange(len(parts) + 1)
        return '"' + joined(rand, double[:cut], [" "]) + ' "' + rand.choice(["", " ", "\\\n"]) + '"' + joined(rand, double[cut:], [" "]) + '"'
    return '"' + joined(rand, double, [" "])  # never closed


def environment(rand: random.Random, name: str) -> str:
    lines = [rand.choice(["# a note", "; --cloud-provider=aws", "#KUBELET_EXTRA_ARGS=--v=9", "", "OTHER=1", "OTHER='x y'", "no assignment"])
             for unused in range(rand.randrange(3))]
    lines.append(name + rand.choice(["=", "=", "=", " = ", "= "]) + value(rand, [shell_word(rand, word) for word in words(rand)]))
    if rand.random() < 0.1:
        lines.insert(0, f"{name}=--v=1")
    if rand.random() < 0.03:
        lines.insert(0, "# it goes on \\")
    text = "\n".join(lines) + rand.choice(["\n", "\n", "\n\n# the end\n", "", "\nLAST=1\n"])
    return text.replace("\n", "\r\n") if rand.random() < 0.1 else text


def unit_word(rand: random.Random, word: str) -> str:
    """Return a spelling of a word that systemd reads in a unit as the word."""
    word = word.replace("%", "%%").replace("$", "$$")
    if not re.search(r"""[\s"'\\]""", word) and rand.random() < 0.9:
        return word
    return rand.choice(['"' + re.sub(r'(["\\])', r"\\\1", word) + '"', re.sub(r"""(["'\\])""", r"\\\1", word).replace(" ", r"\x20")])


def assignment(rand: random.Random, name: str, chosen: list[str]) -> str:
    text = " ".join(re.sub(r"""([\s"'\\])""", r"\\\1", word) for word in chosen).replace("%", "%%")
    c_escaped = re.sub(r'(["\\])', r"\\\1", text)
    return rand.choice([f'Environment="{name}={c_escaped}"', f'Environment={name}="{c_escaped}"', f'Environment=B=1 "{name}={c_escaped}" C=2',
                        f"Environment={name}=" + re.sub(r"""(["'\\])""", r"\\\1", text).replace(" ", r"\x20"),
                        f'Environment="{name}={c_escaped}" \\\n  # a comment\n  "D=3"'])


def one_file(rand: random.Random) -> Host:
    unit = f"[Service]\nEnvironmentFile=-{DEFAULT}\nExecStart=/usr/bin/kubelet --kubeconfig=/k $KUBELET_EXTRA_ARGS\n"
    return Host({UNIT: unit}, {DEFAULT: environment(rand, "KUBELET_EXTRA_ARGS")})


def two_files(rand: random.Random) -> Host:
    unit = f"[Service]\nEnvironmentFile=-{FLAGS_ENV}\nEnvironmentFile=-{DEFAULT}\nExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n"
    kubeadm = f'KUBELET_KUBEADM_ARGS="{" ".join(word for word in words(rand, 3) if not re.search(" |[^-./:=,a-z0-9A-Z]", word))}"\n'
    return Host({UNIT: unit}, {FLAGS_ENV: None if rand.random() < 0.1 else kubeadm,
                               DEFAULT: None if rand.random() < 0.1 else environment(rand, "KUBELET_EXTRA_ARGS")})


def units(rand: random.Random) -> Host:
    parts = [unit_word(rand, word) for word in words(rand)] + rand.choice([[], ["$KUBELET_EXTRA_ARGS"], ["$A", "$KUBELET_EXTRA_ARGS"], ["${B}"],
                                                                          ["--hostname-override=%N-x"], ["--cloud-provider=${CLOUD}"]])
    command = joined(rand, [rand.choice(["", "", "-", "@"]) + "/usr/bin/kubelet", *parts], [" ", "  ", " \\\n  ", " \\\n# a comment\n  ", " \\\n\t"])
    if "@/" in command:
        command = command.replace("kubelet", "kubelet kubelet", 1)
    provider = rand.choice(["aws", "external", ""])
    unit = f"[Unit]\nDescription=kubelet\n[Service]\nEnvironment=CLOUD={provider}\nExecStart={command}\nRestart=always\n[Install]\nX=1\n"
    found = {UNIT: unit}
    if rand.random() < 0.7:
        found[DROP_INS[0]] = "[Service]\n" + assignment(rand, rand.choice(["A", "KUBELET_EXTRA_ARGS"]), words(rand)) + "\n"
    if rand.random() < 0.4:
        found[DROP_INS[1]] = (f"[Service]\n{rand.choice(['', 'Environment=', 'EnvironmentFile='])}\nExecStart=\nExecStart=/usr/bin/kubelet "
                              + joined(rand, [*(unit_word(rand, word) for word in words(rand)), "$KUBELET_EXTRA_ARGS"], [" ", " \\\n "]) + "\n")
    extra: dict[str, str | None] = {}
    if rand.random() < 0.3:
        found[UNIT] = found[UNIT].replace("[Service]\n", f"[Service]\nEnvironmentFile=-{DEFAULT}\n")
        if all("EnvironmentFile=\n" not in text for text in found.values()):
            extra[DEFAULT] = environment(rand, "KUBELET_EXTRA_ARGS")
    text = {path: text.replace("\n", "\r\n") if rand.random() < 0.05 else text for path, text in found.items()}
    return Host(text, extra)


KINDS = {"one environment file": one_file, "two environment files": two_files, "units and drop-ins": units}


# -- the edits and their results ----------------------------------------------------------------------------------------


def cloud(argv: list[str]) -> tuple[list[str], Counter[str]]:
    """Return the arguments that the product does not manage, in order, and the managed flags with their values."""
    others, managed, rest = [], Counter[str](), argv[1:]
    while rest:
        word = rest.pop(0)
        match = MANAGED.match(word)
        if not match:
            others.append(word)
            continue
        given = word[match.end():] if match.group(2) else (rest.pop(0) if rest else "")
        managed[match.group(1).replace("_", "-") + "=" + given] += 1
    return others, managed


def other_people(rand: random.Random, path: str, text: str) -> str:
    """Change a file as somebody else would. The same change can be made in the original and in the migrated text."""
    changes = [lambda text: "# a note of somebody else\n" + text, lambda text: text.replace("--v=2", "--v=7"),
               lambda text: text.replace("--max-pods=200", "--max-pods=250"), lambda text: text.replace("10.0.0.1", "10.0.0.99")]
    return rand.choice(changes)(text)


def judge(rand: random.Random, host: Host) -> tuple[str, str]:
    """Return a verdict and its reason.

    "refused": the product does not edit this host. "stopped": its check after the edit failed (PROOF), or it could not undo its edit.
    "wrong": systemd reads other arguments than it should. Otherwise "right".
    """
    version = rand.choice([(1, 29), (1, 30), (1, 30), (1, 32), (1, 33), (1, 35)])
    before = cloud(host.argv())
    try:
        edit = kubelet.plan(host.sources(), version)
    except _unit.UnitRefused as exc:
        # A kubelet with such a file gets an argument that is only a carriage return, and does not start, so the proof may refuse the edit.
        escaped = any("\\\r" in (text or "") for text in host.environment.values())
        return "stopped" if PROOF.search(str(exc)) and not escaped else "refused", str(exc)
    edited = host.with_texts(host.sources().edited(edit.spans).texts)
    after = cloud(edited.argv())
    if after[0] != before[0]:
        return "wrong", "other arguments changed: {} -> {}".format(before[0], after[0])
    if after[1]["cloud-provider=external"] < 1 or any(name.startswith("cloud") and name != "cloud-provider=external" for name in after[1]):
        return "wrong", f"its flags are {after[1]}"
    if version >= (1, 32) and any("DisableCloudProviders" in name for name in after[1]):
        return "wrong", f"its gates are {after[1]}"
    untouched, now, kept = host, edited, False
    for path in edit.spans:
        seed = rand.random()
        texts = [{**other.units, **other.environment} for other in (untouched, now)]
        if texts[0][path] is None or texts[1][path] is None:
            continue
        new = [other_people(random.Random(seed), path, text[path]) for text in texts]  # type: ignore[arg-type]
        untouched, now = (other.with_texts({**text, path: mine}) for other, text, mine in zip((untouched, now), texts, new, strict=True))
    expected = cloud(untouched.argv())
    for path in edit.spans:
        original, written = (({**other.units, **other.environment}[path] or "") for other in (host, edited))
        there = {**now.units, **now.environment}
        try:
            back = undo.undo(undo.Unit("kubelet", path, now.sources()), original, written, there[path] or "", version)
        except undo.CannotUndo as exc:
            return "stopped", f"way back: {exc}"
        now = now.with_texts({**there, path: back.text})
        kept = kept or bool(back.kept)
    found = cloud(now.argv())
    if found[0] != expected[0] or not kept and found[1] != expected[1]:  # kept: a flag with which this release does not start
        return "wrong", f"after the way back: {found}, not {expected}"
    return "right", ""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_what_systemd_reads_is_what_was_planned(kind: str, part: int, record_property: Any) -> None:
    rand = random.Random(f"{kind} {part}")
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    while counts.total() < TEXTS // PARTS:
        host = KINDS[kind](rand)
        try:
            host.argv()
        except systemd.Refused:
            continue  # systemd would not start it, so no such kubelet runs
        verdict, why = judge(rand, host)
        assert verdict != "wrong", f"{why}\n{host}"
        if verdict == "refused":
            assert any(path in why for path in (*host.units, *host.environment)), f"no file is named: {why}\n{host}"
            reasons[re.sub(r"/\S+|'[^']*'|\d+", "*", why)[:90]] += 1
        if verdict == "stopped":
            reasons[why] += 1
        counts[verdict] += 1
    record_property("counts", dict(counts))
    print(f"{kind}, part {part}: {dict(counts)}, systemd {systemd.version()}", *reasons.most_common(), sep="\n  ")
    assert counts["stopped"] * 100 <= counts.total(), reasons
    if drawn.enough(4000):
        assert counts["refused"] * 100 <= REFUSED[kind] * counts.total(), reasons.most_common()


def test_the_reader_agrees_with_systemd_on_any_text() -> None:
    """The texts consist of characters that are special in some place; most texts are nonsense."""
    rand = random.Random(33)
    letters = ["a", "b", " ", "\t", "\n", "\r\n", "\r", '"', "'", "\\", "\\\n", "=", "#", ";", "A=", "B=", "$", "`", "--x", "\n#", "%", "é"]
    for unused in range(drawn.number(2000)):
        text = rand.choice(["", "A="]) + "".join(rand.choice(letters) for unused in range(rand.randrange(25)))
        found = {name: _unit.text_of(value.chars) for name, value in _unit.env_file.parse("/e", text, systemd.version() < 254).items()}
        assert found == systemd.environment_file(text), repr(text)


def test_each_character_of_an_environment_file_knows_its_place() -> None:
    """An edit of one place changes only the character there, and text that is inserted at the end of a value comes last."""
    rand = random.Random(35)
    letters = ["a", "b", " ", "\t", "\n", "\r", '"', "'", "\\", "\\", "\\\n", "#", "$", "`", "--x", "\nB=", "é"]
    texts = ['A="ab\\"cd"', 'A="ab\\$cd" ', "A='ab\"cd'", 'A="ab\\xcd"', "A=ab\\cd", "A=ab\\\ncd", "A= \\abc", 'A=a b "c" ', "A= 'a' \"b\" c"]
    texts += ["A=" + "".join(rand.choice(letters) for unused in range(rand.randrange(14))) for unused in range(drawn.number(2000))]
    for text in texts:
        found = _unit.env_file.parse("/e", text, systemd.version() < 254)
        for name, value in found.items():
            old = _unit.text_of(value.chars)
            for index, char in enumerate(value.chars):
                assert systemd.environment_file(text[:char.start] + "Z" + text[char.end:])[name] == old[:index] + "Z" + old[index + 1:], (text, char)
            at, new = value.inside.at, "Z" if value.chars or value.inside.quote else '"Z"'
            assert systemd.environment_file(text[:at] + new + text[at:])[name] == old + "Z", repr(text)


def test_units_agree_with_systemd_on_any_text() -> None:
    rand = random.Random(34)
    letters = ["a", " ", "\t", '"', "'", "\\", "\\\n", "\\\r\n", "=", "#", "\n#c\n", "\n;d\\\n", " ; ", " \\; ", ";",
               "$A", "${A}", "$$", "%n", "%%", "%", "%i", "%z", "\\x41", "\\s",
               "\\n", "\\q", "\\101", "\\u00e9", "--x=", "@", "\n", "$", "{", "}", "\\u", "\\x", "\\400", "\\ud800", "\\U0001f600", "é"]
    values = ['A=1 "2 3"', "A=", '"A=x  y\\\\z"', "A=%n$$", "B=", "A='q' \"A=z", "A=1 \\q A=2"]
    for unused in range(drawn.number(2000)):
        command = rand.choice(["", "-", "@", "+", "!!", ":"]) + "/k b " + "".join(rand.choice(letters) for unused in range(rand.randrange(18)))
        text = f"[Service]\nEnvironment={rand.choice(values)}\nExecStart={command}\n"
        found: list[str] | None = None
        try:
            line = _unit.command_line(_unit.parse_unit([("/etc/systemd/system/kubelet@i.service", text)]), [])
            found = [argument.value for argument in line.given]
        except _unit.UnitRefused:
            pass
        try:
            expected = systemd.command_line("kubelet@i.service", [text], {})[1:]
        except systemd.Refused:
            assert found is None, repr(text)
        else:
            assert found == expected, repr(text)


def test_each_character_of_a_unit_knows_its_place() -> None:
    """An edit of the place of a character in a variable or an argument changes that character, and nothing else."""
    rand = random.Random(36)
    letters = ["a", " ", '"', "'", "\\", "\\\n", "\\\r\n", "$A", "${A}", "$$", "%n", "%%", "%", "%z", "\\x41", "\\s", "\\n", "\\q", "\\101",
               "\\u00e9", "--x=", "é"]
    values = ['A=1 "2 3"', '"A=x  y\\\\z"', "A=%n$$", "'A=q \\x41' B=2", "A=\\x2d\\s1", 'A=1 "A=z\\"y"']
    for unused in range(drawn.number(1000)):
        command = "/k b " + "".join(rand.choice(letters) for unused in range(rand.randrange(14)))
        text = f"[Service]\nEnvironment={rand.choice(values)}\nExecStart={command}\n"
        try:
            given = _unit.command_line(_unit.parse_unit([("/etc/systemd/system/kubelet@i.service", text)]), []).given
        except _unit.UnitRefused:
            continue
        places = {(char.start, char.end) for argument in given for char in argument.chars}
        for start, end in places:
            if "\n" in text[start:end] or text[start:end] == "\\":
                continue  # the new character would end the line, or change an escape
            expected = ["".join("Z" if (char.start, char.end) == (start, end) else char.char for char in argument.chars) for argument in given]
            found = systemd.command_line("kubelet@i.service", [text[:start] + "Z" + text[end:]], {})[1:]
            assert found == expected, (text, text[start:end])


@pytest.mark.parametrize("escape", [
    "\\x41", "\\x00", "\\x01", "\\xff", "\\xfg", "\\x4", "\\101", "\\000", "\\001", "\\377", "\\400", "\\18", "\\108", "\\0081",
    "\\u0000", "\\u00e9", "\\ud7ff", "\\ud800", "\\udfff", "\\ue000", "\\u00e", "\\uffff", "\\U0001f600", "\\U0001f60", "\\U00000000",
    "\\U0000d7ff", "\\U0000d800", "\\U0000dfff", "\\U0000e000", "\\U0000fdcf", "\\U0000fdd0", "\\U0000fdef", "\\U0000fdf0",
    "\\U0000fffd", "\\U0000fffe", "\\U0001ffff", "\\U0010fffd", "\\U0010ffff", "\\U00110000", "\\U7fffffff", "\\U0001f6009", "\\s", "\\z", "\\", "\\\\",
])
@pytest.mark.parametrize("around", ["{}", "a{}b", '"{}"', '"a{} b"', "'{}'", "{} x", "x{}"])
def test_an_escape_is_that_of_systemd(escape: str, around: str) -> None:
    text = f"[Service]\nExecStart=/k {around.format(escape)}\n"
    try:
        expected: list[str] | None = systemd.command_line("kubelet.service", [text], {})[1:]
    except systemd.Refused:
        expected = None
    try:
        found: list[str] | None = [argument.value for argument in _unit.command_line(_unit.parse_unit([("/kubelet.service", text)]), []).given]
    except _unit.UnitRefused:
        found = None
    assert found == expected


#: Places of a word ({}) in ExecStart and in variables, in every kind of quotes. In EMPTY, its quotes are empty before the edit.
PLACES = ["ExecStart=/k {} z", "ExecStart=/k \"{}\" z", "ExecStart=/k '{}' z", 'Environment="A={} z"', "Environment='A={} z'", "Environment=A={}"]
EMPTY = ['ExecStart=/k "{}" z', "ExecStart=/k '{}' z", "Environment='A=\"{}\" z'", "Environment=\"A='{}' z\"", 'A=z "{}"', "A='\"{}\" z'", "A=\"'{}' z\""]
FILES = ["A={} z", 'A="{} z"', "A='{} z'", "A=z {}", 'A="z {}"', 'A= "{}"  "  z"']


@pytest.mark.parametrize(("place", "empty"), [(place, False) for place in PLACES + FILES] + [(place, True) for place in EMPTY])
def test_systemd_reads_what_is_written_in_place_of_a_word(place: str, empty: bool) -> None:
    """This holds for any overlap with the old word, and for any characters, but some places cannot hold a quote or a line break."""
    rand = random.Random(place)
    letters = ["a", "b", "--x=", " ", "\t", '"', "'", "\\", "%", "$", "`", "#", ";", "é", ",", "\n"]
    unit, written = "/etc/systemd/system/kubelet.service", 0
    for unused in range(drawn.number(200)):
        old = "" if empty else "".join(rand.choice(["a", "b", "--x=", ",", "c"]) for unused in range(1 + rand.randrange(4)))
        new = "".join(rand.choice(letters) for unused in range(1 + rand.randrange(6)))
        line = place.format(old)
        start = "" if line.startswith("ExecStart") else "ExecStart=/k $A\n"
        text = f"[Service]\nEnvironmentFile=/e\n{start}{'' if line.startswith('A=') else line}\n"
        sources = _unit.Sources((unit,), ("/e",), {unit: text, "/e": line + "\n" if line.startswith("A=") else ""})
        command = sources.command_line()
        number, part = next((number, part) for number, part in enumerate(command.given) if part.value == old)
        try:
            spans = _unit.words.rewritten(part.chars, part.inside, new, bool(part.variable), not part.variable)
        except _unit.words.CannotWrite:
            assert place in ("A='{} z'", "A={} z", "A=z {}", "A='\"{}\" z'", 'A=z "{}"') and ("'" in new or "\n" in new)
            continue
        expected = [argument.value for argument in command.given]
        expected[number] = new
        texts = sources.edited(spans).texts
        assert systemd.command_line("kubelet.service", [texts[unit] or ""], {"/e": texts["/e"] or ""})[1:] == expected, (sources.texts, new, texts)
        written += 1
    assert written > drawn.number(200) / 4


@pytest.mark.parametrize("quote", ['"', "'"])
def test_text_between_empty_quotes_needs_no_escaped_blank(quote: str) -> None:
    text = f"[Service]\nExecStart=/k {quote}{quote} z\n"
    sources = _unit.Sources((UNIT,), (), {UNIT: text})
    word = sources.command_line().given[0]
    assert word.inside
    texts = sources.edited(_unit.words.rewritten(word.chars, word.inside, "a b", False, True)).texts
    assert texts[UNIT] == text.replace(quote * 2, f"{quote}a b{quote}")


@pytest.mark.parametrize("command", [
    "/k --cloud-provider=aws ;", "/k --cloud-provider=aws --v=2 ; ", "/bin/true ; /k --v=2 --cloud-provider aws", "/bin/true --cloud-provider=gce ; /k ;",
    "/bin/true --cloud-provider=gce ; /k", "/k \\; --cloud-provider=aws", "/k --cloud-provider=aws \\;", "/k ';' --cloud-provider=aws",
    "/k --cloud-provider \\; --v=2",
    "/k ;x --cloud-provider=aws", "/bin/true \\\n  ; /k --cloud-provider=aws \\\n  ;", "/k --x=\\; --cloud-provider=aws", "; /k --cloud-provider=aws",
])
def test_a_flag_of_one_of_several_commands(command: str) -> None:
    """A semicolon ends a command, and text after the semicolon would be another program."""
    text = f"[Service]\nType=oneshot\nExecStart={command}\n"
    before = cloud(systemd.command_line(NAME, [text], {}))
    edit = kubelet.plan(Host({UNIT: text}, {}).sources(), (1, 30))
    after = Host({UNIT: text}, {}).sources().edited(edit.spans).texts[UNIT] or ""
    assert cloud(systemd.command_line(NAME, [after], {})) == (before[0], Counter({"cloud-provider=external": 1})), after
    assert "/bin/true" not in command or "gce" not in command or "gce" in after


@pytest.mark.parametrize("value", [
    'A=""', "A=''", '"A"=""', "'A'=\"\"", '"A"=', '"A"=x', 'A"="', "A'='\"\"",
    '"A="', "'A='", "A=", 'A="x"', "A=x", '"A=x"', "B=1 A=x C=2", "A=\\x41", 'A="x y" B=""', 'B="" A=""', "A=x\\x20", "'A=x '", 'B="1" A=x',
])
@pytest.mark.parametrize("where", ["Environment", "EnvironmentFile"])
def test_a_flag_at_the_end_of_a_variable_is_one_more_argument(value: str, where: str) -> None:
    unit, file = "/etc/systemd/system/kubelet.service", where == "EnvironmentFile"
    text = f"[Service]\nEnvironmentFile=/e\n{'' if file else 'Environment=' + value}\nExecStart=/k $A $B\n"
    sources = _unit.Sources((unit,), ("/e",), {unit: text, "/e": value + "\n" if file else ""})
    before, spans = systemd.command_line("kubelet.service", [text], {"/e": sources.texts["/e"] or ""}), {}  # type: ignore[var-annotated]
    line = sources.command_line()
    if "A" not in line.variables:
        assert file and value.partition("=")[0] != "A"  # systemd ignores such a line, or the line sets B
        return
    unit_edits.append(spans, line, "A", "--cloud-provider=external")
    texts = sources.edited(spans).texts
    after = systemd.command_line("kubelet.service", [texts[unit] or ""], {"/e": texts["/e"] or ""})
    at = 1 + len(_unit.split_words(line.variables["A"].chars))
    assert after == [*before[:at], "--cloud-provider=external", *before[at:]], texts
