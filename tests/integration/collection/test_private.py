# SPDX-License-Identifier: Apache-2.0
"""A private registry and a private CA: what the role checks, with a real API server, before its first change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..cluster import ApiServer
from .ansible import Run, playbook
from .test_render import VARIABLES, render


async def refuse(apiserver: ApiServer, **variables: Any) -> Run:
    """Run the role's checks, which come before its first change."""
    check = {"ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_runtime", "tasks_from": "validate/refuse"}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [check]}
    known = VARIABLES | {"ccm_install_kubeconfig": str(apiserver.kubeconfig())} | variables
    return await playbook("/dev/stdin", "-e", json.dumps(known), stdin=json.dumps([play]))


async def test_secrets_for_a_registry_must_exist_and_are_not_shown(apiserver: ApiServer):
    names = ("registry-of-ours", "of-another-type")
    kubectl = ("-n", "kube-system")
    login = ("--docker-server=registry.example", "--docker-username=ccm", "--docker-password=n0b0dy-may-see-this")
    apiserver.kubectl(*kubectl, "create", "secret", "docker-registry", names[0], *login)
    apiserver.kubectl(*kubectl, "create", "secret", "generic", names[1], "--from-literal=a=b")
    try:
        good = await refuse(apiserver, ccm_runtime_image_pull_secrets=[names[0]])
        bad = await refuse(apiserver, ccm_runtime_image_pull_secrets=[names[0], names[1], "nowhere"])
    finally:
        apiserver.kubectl(*kubectl, "delete", "secret", *names)
    assert good.status == 0, good.output[-3000:]
    assert bad.status != 0
    (message,) = bad.failures
    assert "names nowhere, of-another-type, but kube-system has no such Secret" in message
    assert "n0b0dy-may-see-this" not in good.output + bad.output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"ccm_runtime_ca_bundle": "/etc/ssl/ours.pem"}, "no certificate in PEM. It is the text itself, not a path"),
        (
            {
                "ccm_runtime_ca_bundle": "-----BEGIN CERTIFICATE-----\n",
                "ccm_runtime_credentials": {"ca-bundle.crt": "another"},
            },
            "ccm_runtime_credentials has the key ca-bundle.crt",
        ),
    ],
    ids=["a-path", "a-taken-key"],
)
async def test_a_bundle_that_cannot_be_used_is_refused(tmp_path: Path, variables: dict[str, Any], words: str):
    told = await render(tmp_path / "ccm", **variables)
    assert told.status != 0
    assert "Traceback" not in told.output
    assert words in told.failures[0]
    assert not (tmp_path / "ccm").exists()
