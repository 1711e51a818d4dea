# SPDX-License-Identifier: Apache-2.0
"""Secrets of k3s and RKE2 stay on the host: they leave it as placeholders, and come back into the text."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import secrets

TEXT = 'token: one\n"agent-token" : two  \r\ntokens: public\n# token: x\ndatastore-endpoint+: three four\ntoken: # none\n'
HIDDEN = ('token: outoftree-ccm-hidden-0\n"agent-token" : outoftree-ccm-hidden-1  \r\ntokens: public\n# token: x\n'
          "datastore-endpoint+: outoftree-ccm-hidden-2\ntoken: # none\n")


def test_secrets_are_hidden_and_come_back() -> None:
    assert secrets.hide(TEXT) == HIDDEN
    assert secrets.reveal(HIDDEN, TEXT) == TEXT


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
    (["--kubelet-arg", "v=2", "--kubelet-arg", "--node-ip=1"], ["--kubelet-arg=v=2", "--kubelet-arg"]),
    (["--disable-cloud-controller", "x"], ["--disable-cloud-controller"]),
    (["--disable-cloud-controller=false"], ["--disable-cloud-controller=false"]),
    (["--disable"], ["--disable"]),
    (["--disable", ""], ["--disable"]),
    (["--disable="], ["--disable="]),
    (["xxdisable", "traefik"], []),
    ([], []),
])
def test_of_a_command_line_only_what_is_asked_about_is_told(arguments: list[str], public: list[str]) -> None:
    assert secrets.public_arguments(arguments) == public
