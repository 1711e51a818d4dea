# SPDX-License-Identifier: Apache-2.0
"""Which files k3s and RKE2 read, and which options their units set (findConfigFileFlag and dotDFiles in k3s's pkg/configfilearg/parser.go)."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import detect, secrets, settings


def files_of(arguments: list[str], environment: dict[str, str] | None = None, kind: str = "k3s") -> list[str]:
    result: dict[str, Any] = {"problems": []}
    found: list[str] = detect.rancher_files(result, kind, settings.long_options(arguments), environment or {})
    assert result["problems"] == []
    return found


def test_every_file_of_the_folder_that_ends_in_yaml_counts(tmp_path: pathlib.Path) -> None:
    """A cloud provider set in a dotfile, or in a file whose extension is in capitals, was once missed."""
    config = tmp_path / "config.yaml"
    folder = tmp_path / "config.yaml.d"
    (folder / "inner.yaml").mkdir(parents=True)
    (folder / "inner.yaml" / "50.yaml").touch()
    for name in ("10.yaml", "20.yml", ".30.yaml", "40.YAML", "B.yaml", "a.yaml", "50.yaml.bak", "60.json", "yaml", "70.yaml~"):
        (folder / name).touch()
    names = [pathlib.Path(path).name for path in files_of(["server", "--config", str(config)])]
    assert names == ["config.yaml", ".30.yaml", "10.yaml", "20.yml", "40.YAML", "B.yaml", "a.yaml"]


@pytest.mark.parametrize(("arguments", "environment", "expected"), [
    (["server"], {}, "/etc/rancher/k3s/config.yaml"),
    (["server", "--config=/a"], {}, "/a"),
    (["server", "-c", "/a"], {}, "/a"),
    (["server", "-c=/a"], {}, "/a"),
    (["server", "-config", "/a"], {}, "/a"),
    (["server", "--config=/a"], {"K3S_CONFIG_FILE": "/b"}, "/b"),
    (["server", "--config=/a"], {"K3S_CONFIG_FILE": "", "RKE2_CONFIG_FILE": "/c"}, "/a"),
])
def test_the_environment_names_the_configuration_before_the_command_line(arguments: list[str], environment: dict[str, str], expected: str) -> None:
    assert files_of(arguments, environment) == [expected]


@pytest.mark.parametrize(("argument", "expected"), [
    ("-kubelet-arg=cloud-provider=aws", "--kubelet-arg=cloud-provider=aws"), ("-disable", "--disable"), ("--disable", "--disable"), ("-d", "--data-dir"),
    ("-d=/x", "--data-dir=/x"), ("-t", "--t"), ("-", "-"), ("--", "--"), ("-=a", "-=a"), ("", ""), ("server", "server"), ("a-b", "a-b"),
    ("cloud-provider-=x", "cloud-provider-=x"),
])
def test_one_dash_is_as_good_as_two(argument: str, expected: str) -> None:
    assert settings.long_options([argument]) == [expected]


def test_an_option_with_one_dash_is_told_and_a_secret_is_not() -> None:
    arguments = settings.long_options(["server", "-t", "s3cr3t", "-token", "s3cr3t", "-kubelet-arg", "cloud-provider=aws",
                                       "-disable-cloud-controller", "-disable=x"])
    assert secrets.public_arguments(arguments) == ["--kubelet-arg=cloud-provider=aws", "--disable-cloud-controller", "--disable=x"]


@pytest.mark.parametrize("text", ["t: s3cr3t\n", '"t": s3cr3t\n', "  t: s3cr3t\n", "# t: s3cr3t\n", "a: b # t: s3cr3t\n", '{"t": "s3cr3t"}\n'])
def test_a_token_under_its_name_of_one_letter_stays_on_the_host(text: str) -> None:
    hidden = secrets.hide(text)
    assert "s3cr3t" not in hidden and secrets.reveal(hidden, text) == text


@pytest.mark.parametrize("text", ["start: x\n", "set-t: x\n", '{"kubelet-port": "x", "start": 1}\n', "a: t\n", "# as it: was\n", "a_t: x\n"])
def test_other_keys_that_end_in_this_letter_are_no_secrets(text: str) -> None:
    assert secrets.hide(text) == text
