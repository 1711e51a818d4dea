# SPDX-License-Identifier: Apache-2.0
"""Providers read the values of their configurations as they were written, and as Go's libraries read them."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bed import go_programs
from bed.progress import Progress
from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit import gcfg
from ccm.cloud.toolkit.located_yaml import Problems, read
from ccm.providers.aws.settings import Settings as Aws
from ccm.providers.azure.settings import Settings as Azure
from ccm.providers.cloudstack.settings import Settings as CloudStack
from ccm.providers.gce.settings import Settings as Gce
from ccm.providers.hetzner.settings import Settings as Hetzner
from ccm.providers.libcloud.settings import Settings as Libcloud
from ccm.providers.openstack.settings import Settings as OpenStack
from ccm.providers.static.settings import Settings as Static
from ccm.providers.vsphere.settings import Settings as VSphere

#: Plain scalars that YAML or some reader takes for another type, and secrets from bug reports.
WORDS = (
    *("0123456", "007", "0o17", "0x1F", "0b101", "1_000", "1.10", "1e3", ".5", "+12", "-0", "12:30:45", "1e999"),
    *("yes", "No", "on", "OFF", "y", "n", "true", "False", "null_", "2026-02-30", "2026-02-03", "99999999999999999999"),
    *("[7x}2;ab", "password$n#1", "'pa#ss'", "}sso!#x", "a\\b", "LAB\\nadmin", "}sso\\d$2!UsO", "%", "${x}", '"', "="),
)
SIGNS = "aZ09#;\"'\\$%[]{}=:,&*!|>@`~^?<-_. "


def secrets(dice: random.Random, count: int, more: str = "") -> Iterator[str]:
    """Yield WORDS and random texts without blanks at their ends."""
    yield from (word for word in WORDS)
    for _ in range(count):
        if text := "".join(dice.choice(SIGNS + more) for _ in range(dice.randrange(1, 12))).strip():
            yield text


@pytest.fixture(scope="module")
def go() -> Iterator[Callable[[str, str], str | None]]:
    """Yield a function that returns the value that Go's library reads from a text, or None if it refuses the text."""
    program = go_programs.ensure("cloud-configs", Progress())
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def answer(format: str, text: str) -> str | None:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps({"format": format, "text": text}) + "\n")
            process.stdin.flush()
            reply = json.loads(process.stdout.readline())
            return None if reply["error"] else str(reply["value"])

        yield answer
        process.stdin.close()
        assert process.wait(60) == 0


def test_ini_means_what_gcfg_says(go: Callable[[str, str], str | None]) -> None:
    dice = random.Random(34)
    alphabet = [*SIGNS, *"ntb\t\r\0\u00a0\u3000é☃", "\\\n", "\\\r\n", '\\"', "\\\\", '"', '"']
    values = 0
    for raw in (*WORDS, *("".join(dice.choices(alphabet, k=dice.randrange(9))) for _ in range(6000))):
        text = f"[global]\nvalue = {raw}\n"
        document = gcfg.read(text)
        value = None if document.problems else document.entries[0].value
        assert value == go("gcfg", text), raw
        values += value is not None
    assert values > 1000


def test_yaml_means_what_yaml_v2_says(go: Callable[[str, str], str | None]) -> None:
    dice = random.Random(34)
    alphabet = [*"aynofes019_.:-+xXb eE", "é", "\t"]
    plain = ("".join(dice.choices(alphabet, k=dice.randrange(1, 8))) for _ in range(4000))
    same = 0
    for raw in (
        *WORDS,
        "",
        "~",
        "null",
        "!!str 7",
        "!!binary aGk=",
        "!vault x",
        "|\n    a\n    b",
        ">-\n    a\n    b",
        *plain,
    ):
        text = f"global:\n  value: {raw}\n"
        problems = Problems("")
        top = read(text, problems)
        theirs = go("yaml", text)
        if problems.reported or theirs is None:
            continue  # our reader or Go's refuses the text
        value = top.value["global"].value["value"]
        ours = "" if value.value is None else value.text
        assert ours is None or ours == theirs, raw
        same += ours is not None
    assert same > 2000


def ini(value: str) -> Iterator[str]:
    """Yield the spellings of a value in gcfg's files."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    yield f'"{escaped}"'
    yield f'"{escaped}"   # a comment'
    yield f'\\\n"{escaped}"'
    if not set(value) & set('#;\\"\n'):
        yield value
        yield f"  {value} \t\r"


def yaml_forms(value: str) -> Iterator[str]:
    yield json.dumps(value)
    yield "'" + value.replace("'", "''") + "'"
    yield "|-\n      " + value
    yield "!!str " + json.dumps(value)
    if value in WORDS and value[0] not in "\"'[]{}%`@&*!|>" and "#" not in value and value != "=":
        yield value  # plain


def vsphere_ini(key: str) -> Callable[[str], str]:
    others = {"user": "u", "password": "p"}
    lines = "\n".join(f"{name} = {value}" for name, value in others.items() if name != key)
    return lambda form: f'[VirtualCenter "vc"]\n{lines}\n{key} = {form}\n'


def vsphere_yaml(key: str) -> Callable[[str], str]:
    others = {"server": "vc", "user": "u", "password": "p"}
    lines = "".join(f"    {name}: {value}\n" for name, value in others.items() if name != key)
    return lambda form: f"vcenter:\n  one:\n{lines}    {key}: {form}\n"


OS = "[Global]\nauth-url = http://k/v3\nuser-id = u\ntenant-id = t\npassword = p\n"
AZURE = (
    'tenantId: t\nsubscriptionId: "12345678-1234-1234-1234-123456789abc"\nresourceGroup: g\naadClientId: c\n'
    "aadClientCertPath: p\n"
)
GUIDS = ("12345678-1234-1234-1234-123456789012",)
ONE_LINE = "".join(chr(each) for each in range(32, 127))
CLOUDSTACK = "[Global]\napi-url = https://c.example/client/api\napi-key = k\nsecret-key = {}\n"
#: Provider and key -> five things in this order.
#: - `parse`: reads a file, as the provider does.
#: - `around`: puts a spelling of the value into a whole file.
#: - `forms`: yields the spellings of a value.
#: - `place`: takes the value out of what `parse` returned.
#: - `more`: further characters that values may contain.
KEYS: dict[str, tuple[Any, Callable[[str], str], Callable[[str], Iterator[str]], Callable[[Any], Any], str]] = {
    "openstack password": (
        lambda config: OpenStack.parse(config, {}),
        lambda form: OS.replace("password = p", f"password = {form}"),
        ini,
        lambda read: read.auth.password,
        "\t\né☃",
    ),
    "openstack tenant": (
        lambda config: OpenStack.parse(config, {}),
        lambda form: OS.replace("tenant-id = t", f"tenant-id = {form}"),
        ini,
        lambda read: read.auth.tenant_id,
        "é☃",
    ),
    "vsphere password": (VSphere.parse, vsphere_ini("password"), ini, lambda read: read.vcenters[0].password, "\té☃"),
    "vsphere user": (VSphere.parse, vsphere_ini("user"), ini, lambda read: read.vcenters[0].user, "é☃"),
    "vsphere password in YAML": (
        VSphere.parse,
        vsphere_yaml("password"),
        yaml_forms,
        lambda read: read.vcenters[0].password,
        "é☃",
    ),
    "vsphere zone in YAML": (
        VSphere.parse,
        lambda form: vsphere_yaml("port")("443") + f"labels:\n  region: r\n  zone: {form}\n",
        yaml_forms,
        lambda read: read.labels.zone,
        "é☃",
    ),
    "cloudstack": (CloudStack.parse, CLOUDSTACK.format, ini, lambda read: read.common.secret_key, ""),
    "azure": (
        Azure.parse,
        lambda form: AZURE + f"aadClientSecret: {form}\n",
        yaml_forms,
        lambda read: read.secret,
        "",
    ),
    "libcloud": (
        Libcloud.parse,
        lambda form: f"driver: vultr\ntoken: {form}\n",
        yaml_forms,
        lambda read: next(iter(read.arguments.values())),
        "",
    ),
    "static": (
        lambda config: Static.parse(config.text, config.source),
        lambda form: f"cluster: {form}\nmachines: [{{name: a, addresses: [10.0.0.1]}}]\n",
        yaml_forms,
        lambda read: read.cluster,
        "",
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_value_is_read_as_it_was_written_or_refused_with_its_line(name: str) -> None:
    parse, around, forms, place, more = KEYS[name]
    dice = random.Random(name)
    read_back = 0
    for value in secrets(dice, 100, more):
        for form in forms(value):
            text = around(form)
            try:
                settings = parse(ProviderConfig(text, "cloud.conf", {}))
            except ConfigError as error:
                assert all(problem.startswith("cloud.conf: line ") for problem in error.problems), error.problems
                assert len(error.problems) == 1, (text, error.problems)
                assert re.search("expected|a key has only|a template", str(error)), (text, error.problems)
                continue
            assert place(settings) == value, text
            read_back += 1
    assert read_back > 10


@pytest.mark.parametrize(
    ("parse", "text", "line"),
    [
        (lambda config: OpenStack.parse(config, {}), OS.replace("= p\n", "= x#y\n"), "line 5: [Global] password"),
        (CloudStack.parse, CLOUDSTACK.format("b#c"), "line 4: [Global] secret-key"),
        (VSphere.parse, vsphere_ini("password")("}sso!;x"), 'line 3: [VirtualCenter "vc"] password'),
    ],
)
def test_a_comment_that_may_cut_a_secret_is_reported_and_none_behind_quotes(parse: Any, text: str, line: str) -> None:
    [sentence] = parse(ProviderConfig(text, "cloud.conf", {})).ignored
    assert sentence.startswith(f"{line}: the text after ") and "double quotes" in sentence
    quoted = text.replace("= x#y", '= "x#y" # c').replace("= b#c", '= "b#c"').replace("= }sso!;x", '= "}sso!;x"')
    assert parse(ProviderConfig(quoted, "cloud.conf", {})).ignored == ()


BAD = {
    "a backslash": "a\\b",
    "an open quote": '"a',
    "an escape": '"a\\b"',
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (lambda config: OpenStack.parse(config, {}), OS.replace("= p\n", "= {}\n")),
        (CloudStack.parse, CLOUDSTACK),
        (VSphere.parse, vsphere_ini("password")("{}")),
        (VSphere.parse, '[Global]\nuser = u\npassword = {}\n[VirtualCenter "vc"]\n'),
        (Aws.parse, "[Global]\nRoleARN = {}\nSourceARN = arn:aws:iam::123456789012:role/x\n"),
        (Gce.parse, "[global]\nproject-id = {}\n"),
    ],
    ids=["openstack", "cloudstack", "vsphere", "vsphere's Global", "aws", "gce"],
)
def test_no_untrue_problem_follows_a_value_that_cannot_be_read(parse: Any, text: str, bad: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(ProviderConfig(text.format(bad), "cloud.conf", {}))
    assert len(error.value.problems) == 1 and bad not in str(error.value), error.value.problems


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (VSphere.parse, vsphere_yaml("password")("[a, {b: c}]")),
        (VSphere.parse, vsphere_yaml("password")("!vault x")),
        (VSphere.parse, vsphere_yaml("datacenters")("['a,b']")),
        (Azure.parse, AZURE.replace("aadClientCertPath: p", "aadClientSecret: [x]")),
        (Azure.parse, AZURE.replace("tenantId: t", "tenantId: {}")),
        (Libcloud.parse, "driver: vultr\ntoken: [x]\n"),
        (Hetzner.parse, "HCLOUD_TOKEN: x\n"),
    ],
)
def test_no_untrue_problem_follows_what_is_no_text(parse: Any, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(ProviderConfig(text, "cloud.conf", {}))
    assert len(error.value.problems) == 1 and ": line " in error.value.problems[0], error.value.problems


@pytest.mark.parametrize("value", ["s3cret", "a=b", "a#b", "'x'y", "0123", "yes"])
@pytest.mark.parametrize("form", ["{}", '"{}"', "'{}'", "  {}  "])
def test_a_variable_of_hetzner_is_read_as_it_was_written(value: str, form: str) -> None:
    text = f"HCLOUD_TOKEN={form.format(value)}\n"
    assert Hetzner.parse(ProviderConfig(text, "hetzner.env", {})).variables.hcloud_token == value
