# SPDX-License-Identifier: Apache-2.0
"""The sample inventories set only variables that the roles know."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
INVENTORIES = sorted((REPOSITORY / "docs" / "inventories").glob("*.yml"))


def options(role: str) -> set[str]:
    specs = yaml.safe_load((REPOSITORY / "roles" / role / "meta" / "argument_specs.yml").read_text())
    return {name for entry in specs["argument_specs"].values() for name in entry.get("options", {})}


def variables(group: dict[str, Any]) -> set[str]:
    found = set(group.get("vars") or {})
    for host in (group.get("hosts") or {}).values():
        found |= set(host or {})
    for child in (group.get("children") or {}).values():
        found |= variables(child)
    return found


def test_there_is_one_for_each_layout() -> None:
    assert {path.stem for path in INVENTORIES} == {"kubeadm", "kubespray", "systemd", "k3s", "rke2"}


@pytest.mark.parametrize("path", INVENTORIES, ids=lambda path: path.stem)
def test_every_variable_is_one_that_a_role_documents(path: pathlib.Path) -> None:
    inventory = yaml.safe_load(path.read_text())["all"]
    known = options("ccm_install") | options("ccm_runtime") | {"ansible_user", "ansible_become", "ansible_host", "ip"}
    assert variables(inventory) <= known
    assert inventory["children"]["kube_control_plane"]["hosts"] and inventory["children"]["kube_node"]["hosts"]
