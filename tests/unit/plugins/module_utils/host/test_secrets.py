# SPDX-License-Identifier: Apache-2.0
"""Secrets of k3s and RKE2 stay on the host: texts that leave the host have placeholders, which the host replaces on restore."""

from __future__ import annotations

import base64
import pathlib

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import detect, secrets

TEXT = 'token: one\n"agent-token" : two  \r\ntokens: public\n# token: old\ndatastore-endpoint+: three four\ntoken: # none\n'
HIDDEN = ('token: outoftree-ccm-hidden-0\n"agent-token" : outoftree-ccm-hidden-1  \r\ntokens: public\n# token: outoftree-ccm-hidden-2\n'
          "datastore-endpoint+: outoftree-ccm-hidden-3\ntoken: # none\n")


@pytest.mark.parametrize(("text", "shown"), [
    ("HTTPS_PROXY=http://user:pass@proxy:3128", "HTTPS_PROXY=http://hidden@proxy:3128"),
    ('Environment="http_proxy=https://u:p@w@[fd00::1]:1" "NO_PROXY=a,b"', 'Environment="http_proxy=https://hidden@[fd00::1]:1" "NO_PROXY=a,b"'),
    ("proxy='user:pass@proxy:3128'", "proxy='hidden@proxy:3128'"),
    ("HTTP_PROXY=user:pass@proxy", "HTTP_PROXY=hidden@proxy"),
    ("http://u:p%40/x@h/a,socks5://:p@h", "http://hidden@h"),
    ("  image: registry.example.org:5000/kube-apiserver:v1.30@sha256:abc", None),
    ("image: kube-apiserver:v1.30@sha256:abc", None),
    ("- --etcd-servers=https://10.0.0.1:2379,https://10.0.0.2:2379", None),
    ("# write to me@example.org: thanks", None),
    ("git@example.org:repository", None),
])
def test_credentials_of_proxies_are_hidden_from_people(text: str, shown: str) -> None:
    assert secrets.hide_credentials(text) == (text if shown is None else shown)


def test_secrets_are_hidden_and_come_back() -> None:
    assert secrets.hide(TEXT) == HIDDEN
    assert secrets.reveal(HIDDEN, TEXT) == TEXT


@pytest.mark.parametrize("text", [
    "#token:K10s3cr3t\n", "  ## token: K10s3cr3t\r\n", "disable: a # was token: K10s3cr3t\n", "# the old token=K10s3cr3t\n",
    "token: |\n  K10s3cr3t\n\n  s3cr3t\ndisable: a\n", "token: >-  \r\n   K10s3cr3t\r\ndisable: a\r\n", "token:\n  K10s3cr3t\n",
    "token: # none\n\n  K10s3cr3t\n", "token: 'K10\n  s3cr3t'\n", "# token: |\n#   s3cr3t\n# more\n", " token: K10\n   s3cr3t\n",
])
@pytest.mark.parametrize("lead", ["", "server: https://x:6443\ntoken: s3cr3t\n"])
def test_a_secret_is_hidden_in_comments_and_in_values_of_several_lines(text: str, lead: str) -> None:
    hidden = secrets.hide(lead + text)
    assert "s3cr3t" not in hidden and not secrets.unclear(lead + text)
    assert ("disable: a" in hidden) == ("disable: a" in text) and ("\n# more" in hidden) == ("\n# more" in text)
    assert secrets.reveal(hidden, lead + text) == lead + text


@pytest.mark.parametrize("text", [
    "{token: s3cr3t}\n", "# mine\n---\n{server: x,\n  'token': s3cr3t\n}\n", '{"disable": ["a"], "agent-token" : "s3cr3t"}',
    "server: x\n<<: {token: s3cr3t}\n", "? token\n: s3cr3t\n",
])
def test_a_text_whose_secrets_have_no_clear_end_is_hidden_as_a_whole(text: str) -> None:
    assert secrets.hide(text) == "outoftree-ccm-hidden-0" and secrets.unclear(text)
    assert secrets.reveal("outoftree-ccm-hidden-0", text) == text


@pytest.mark.parametrize("text", ["{disable: [a], node-label: [b]}\n", "# {token: s}\ndisable: [a, token]\n", "tokens: {a: b}\n", ""])
def test_a_text_without_such_secrets_is_clear(text: str) -> None:
    assert not secrets.unclear(text)


def test_a_file_with_unclear_secrets_is_a_problem_of_the_host(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("{token: s3cr3t, disable: [servicelb]}\n")
    found = detect.read_file(str(path), secret=True)
    assert found["problem"].startswith(f"{path} has secrets") and "s3cr3t" not in base64.b64decode(found["content"]).decode()
    path.write_text("token: s3cr3t\n")
    assert detect.read_file(str(path), secret=True)["problem"] == ""


@pytest.mark.parametrize(("text", "original", "expected"), [
    pytest.param("a: outoftree-ccm-hidden-0", "token: x\n", "a: x", id="wherever-it-stands"),
    pytest.param("outoftree-ccm-hidden-1", "token: x\n", "outoftree-ccm-hidden-1", id="one-that-is-not-known"),
    pytest.param("outoftree-ccm-hidden-10", "token: x\ntoken: y\n", "outoftree-ccm-hidden-10", id="a-longer-number"),
    pytest.param("outoftree-ccm-hidden-0", "", "outoftree-ccm-hidden-0", id="none-is-known"),
])
def test_a_placeholder_without_a_secret_stays(text: str, original: str, expected: str) -> None:
    assert secrets.reveal(text, original) == expected


@pytest.mark.parametrize(("arguments", "public"), [
    (["server", "--token", "secret", "--disable", "traefik"], ["--disable=traefik"]),
    (["--disable=traefik", "x", "--token=secret"], ["--disable=traefik"]),
    (["--kubelet-arg", "v=2", "--kubelet-arg", "--node-ip=1"], ["--kubelet-arg=v=2", "--kubelet-arg=--node-ip=1"]),
    (["--kubelet-arg", "--disable=x", "--disable", "--token"], ["--kubelet-arg=--disable=x", "--disable=--token"]),
    (["--node-name-from-cloud-provider-metadata", "--disable", "a"], ["--node-name-from-cloud-provider-metadata", "--disable=a"]),
    (["--disable-cloud-controller", "x"], ["--disable-cloud-controller"]),
    (["--disable-cloud-controller=false"], ["--disable-cloud-controller=false"]),
    (["--disable"], ["--disable"]),
    (["--disable", ""], ["--disable="]),
    (["--disable="], ["--disable="]),
    (["xxdisable", "traefik"], []),
    ([], []),
])
def test_of_a_command_line_only_what_is_asked_about_is_told(arguments: list[str], public: list[str]) -> None:
    assert secrets.public_arguments(arguments) == public
