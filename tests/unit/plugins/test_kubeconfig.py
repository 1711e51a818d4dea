# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig that detection takes from a control plane: a loopback server is replaced with the host's address."""

from __future__ import annotations

import base64
import pathlib

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("address", "server", "expected"), [
    ("fd00::11", "https://127.0.0.1:6443", "https://[fd00::11]:6443"),
    ("[fd00::11]", "https://localhost:6443", "https://[fd00::11]:6443"),
    ("10.0.0.11", "https://[::1]:6443", "https://10.0.0.11:6443"),
    ("cp-1", "https://127.0.0.1:6443", "https://cp-1:6443"),
    ("fd00::11", "https://[fd00::99]:6443", "https://[fd00::99]:6443"),
])
def test_a_kubeconfig_of_the_host_itself_leads_to_its_address(address: str, server: str, expected: str) -> None:
    tasks = yaml.safe_load((REPOSITORY / "roles" / "ccm_install" / "tasks/detect/cluster.yml").read_text())
    task = next(task for task in tasks if task["name"] == "Keep the kubeconfig in memory")
    text = yaml.safe_dump({"clusters": [{"cluster": {"server": server}}]})
    given = {"ansible_host": address, "inventory_hostname": "cp-1",
             "__ccm_install_admin_file": {"content": base64.b64encode(text.encode()).decode()}}
    expressions = {**task["vars"], "config": task["ansible.builtin.set_fact"]["__ccm_install_admin_config"]}
    try:
        from ansible.template import trust_as_template  # ansible-core 2.19 and later
        expressions = {name: trust_as_template(value) for name, value in expressions.items()}
    except ImportError:
        pass
    found = Templar(loader=DataLoader(), variables={**given, **expressions}).template(expressions["config"])
    assert found["clusters"][0]["cluster"]["server"] == expected
