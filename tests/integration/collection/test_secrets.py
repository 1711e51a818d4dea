# SPDX-License-Identifier: Apache-2.0
"""Which secrets a killed run would leave on the Ansible controller: the files are read while a module waits."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from ..cluster import Authority
from .ansible import Run, playbook
from .conftest import kubeconfig_for

TOKEN = "token-of-nobody"
CREDENTIALS = "endpoint: http://cloud.example.com\ntoken: secret-of-the-cloud\n"


def entry(role: str, name: str) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.import_role": {"name": f"outoftree.ccm.{role}", "tasks_from": name}}


async def looked_at(tmp_path: Path, role: str, name: str) -> dict[Path, set[str]]:
    """Run an entry point until a module cannot call the API server. Return the secrets that files contain during its
    calls, by file. As by default in Ansible, there is no pipelining."""
    folders = [tmp_path / kind for kind in ("local", "remote", "tmp")]
    for folder in folders:
        folder.mkdir()
    authority = Authority(tmp_path)
    certificate, key = authority.issue("admin", ["system:masters"])
    secrets = {"token": TOKEN.encode(), "key": key, "credentials": CREDENTIALS.encode()}
    looks: list[dict[Path, set[str]]] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # the client begins with TLS, so it has read its credentials
        texts = {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
        looks.append(
            {
                path: {what for what, it in secrets.items() if it in text or base64.b64encode(it) in text}
                for path, text in texts.items()
            }
        )
        writer.close()

    server = await asyncio.start_server(look, "127.0.0.1", 0)
    conf = kubeconfig_for(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", TOKEN)
    user, cluster = conf["users"][0]["user"], conf["clusters"][0]["cluster"]
    user["client-key-data"] = base64.b64encode(key).decode()
    user["client-certificate-data"] = base64.b64encode(certificate).decode()
    cluster["certificate-authority-data"] = base64.b64encode(authority.file.read_bytes()).decode()
    admin = tmp_path / "admin.conf"
    admin.write_text(yaml.safe_dump(conf))
    values = {
        "ansible_python_interpreter": sys.executable,
        "__ccm_install_detected": {"admin_conf": str(admin), "node_name": "cp-1"},
        "__ccm_runtime_kubeconfig": conf,
        "ccm_runtime_cloud_provider": "sim",
        "ccm_runtime_cloud_config": CREDENTIALS,
    }
    play = {"hosts": "kube_control_plane", "gather_facts": False, "tasks": [entry(role, name)]}
    (tmp_path / "hosts").write_text("[kube_control_plane]\ncp-1 ansible_connection=local ansible_host=127.0.0.1\n")
    settings = {
        "ANSIBLE_PIPELINING": "false",
        "ANSIBLE_LOCAL_TEMP": str(folders[0]),
        "ANSIBLE_REMOTE_TEMP": str(folders[1]),
        "TMPDIR": str(folders[2]),
    }
    arguments = ["--inventory", str(tmp_path / "hosts"), "--extra-vars", json.dumps(values)]
    async with server:
        run: Run = await playbook("/dev/stdin", *arguments, stdin=json.dumps([play]), settings=settings)
    assert run.status != 0 and looks, run.output[-3000:]
    assert CREDENTIALS not in run.output
    # The output has all arguments of modules. kubernetes.core 6.2 does not mask a kubeconfig there (its issue 782); our
    # modules do.
    assert role != "ccm_install" or TOKEN not in run.output
    return {path: found for each in looks for path, found in each.items() if found}


async def test_our_modules_leave_the_keys_of_the_cluster_nowhere(tmp_path: Path):
    assert await looked_at(tmp_path, "ccm_install", "plan/migration") == {}


async def test_modules_of_others_leave_neither_their_options_nor_the_clouds_credentials(tmp_path: Path):
    """The files contain no secrets except keys: kubernetes.core passes these to the library 'kubernetes', which writes
    them to files."""
    found = await looked_at(tmp_path, "ccm_runtime", "rollout/controller")
    assert all(path.parent == tmp_path / "tmp" and secret == {"key"} for path, secret in found.items())
