# SPDX-License-Identifier: Apache-2.0
"""Machines from an Ansible inventory: groups, variables, ranges of hosts, and reported mistakes."""

from __future__ import annotations

import pytest

from ccm.cloud import Address, AddressType, ConfigError, Instance
from ccm.providers.static.inventory import expanded
from ccm.providers.static.settings import Settings


def ip(text: str) -> Address:
    return Address(AddressType.INTERNAL_IP, text)


INVENTORY = """\
all:
  vars: {ccm_zone: outer, ccm_region: home, ansible_user: root, secret: !vault "$ANSIBLE_VAULT"}
  hosts:
    bastion: {ansible_host: 10.0.0.99}
  children:
    k8s:
      vars: {ccm_zone: middle}
      children: {workers: , masters: }
workers:
  vars: {ccm_type: big}
  hosts:
    node-[01:02]:
    node-01: {ansible_host: 10.0.0.1}
    node-02: {ccm_addresses: [10.0.0.2, {type: ExternalIP, address: 192.0.2.2}], ccm_zone: inner, ccm_id: SN2}
masters:
  hosts:
    master-a: {ansible_host: 10.0.0.3, ccm_labels: {disk: ssd}, ccm_name: master-a.example.org}
"""


def from_inventory(text: str, group: str = "k8s") -> tuple[Instance, ...]:
    return Settings.parse(f"cluster: c\ninventory_file: /inv\ninventory_group: {group}\n", "conf").read_file(text)


def test_an_inventory_s_group_with_the_variables_of_outer_groups() -> None:
    found = {machine.name: machine for machine in from_inventory(INVENTORY)}
    assert found.keys() == {"node-01", "node-02", "master-a.example.org"}
    one, two, master = found["node-01"], found["node-02"], found["master-a.example.org"]
    assert (one.zone, one.region, one.type, one.addresses[0]) == ("middle", "home", "big", ip("10.0.0.1"))
    assert (two.zone, two.provider_id) == ("inner", "static://c/SN2")
    assert [address.address for address in two.addresses] == ["10.0.0.2", "192.0.2.2", "node-02"]
    assert (master.type, master.zone, master.labels) == ("", "middle", {"disk": "ssd"})
    assert {machine.name for machine in from_inventory(INVENTORY, "all")} == found.keys() | {"bastion"}


@pytest.mark.parametrize(
    ("text", "group", "problem"),
    [
        pytest.param("all:\n  hosts:\n    a: {ansible_host: a.example.org}\n", "all",
                     "line 3: machine 'a': addresses: 'a.example.org' is not an IP address", id="no-address"),
        pytest.param("all:\n  hosts:\n    a:\n      ansible_host: '{{ x }}'\n", "all",
                     "line 4: machine 'a': addresses: '{{ x }}' is not an address; templates are not evaluated",
                     id="template"),
        pytest.param("all:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n", "k8s",
                     "line 1: inventory_group: there is no group 'k8s'; known are all", id="no-group"),
        pytest.param("k8s:\n  a:\n", "k8s", "line 1: group 'k8s': expected hosts, children and vars", id="no-groups"),
        pytest.param("k8s:\n  hosts: [a]\n", "k8s", "line 2: group 'k8s': hosts: expected keys and values, not a list",
                     id="list-of-hosts"),
        pytest.param("k8s:\n  hosts:\n", "k8s", "line 1: lists no machine at all", id="nobody"),
        pytest.param("- a\n", "all", "line 1: expected an Ansible inventory in YAML", id="a-list"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_inventory(text: str, group: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_inventory(text, group)
    assert [found.startswith(f"/inv: {problem}") for found in caught.value.problems].count(True) == 1, caught.value


def test_a_file_that_is_no_yaml_is_one_problem() -> None:
    for machines in ("machines_file", "inventory_file"):
        with pytest.raises(ConfigError) as caught:
            Settings.parse(f"cluster: c\n{machines}: /f\n", "conf").read_file("- {name: a")
        (problem,) = caught.value.problems
        assert problem.startswith("/f: line 1: not YAML")


def test_variables_of_inner_groups_win_whatever_their_names() -> None:
    text = """\
outer:
  vars: {ccm_zone: outer, ccm_region: outer, ccm_type: outer}
  children:
    between:
      vars: {ccm_zone: between, ccm_region: between}
      children: {a-inner: }
    a-inner: {vars: {ccm_zone: inner}, hosts: {n: {ansible_host: 10.0.0.1}}}
"""
    (machine,) = from_inventory(text, "outer")
    assert (machine.zone, machine.region, machine.type) == ("inner", "between", "outer")


@pytest.mark.parametrize(
    ("pattern", "hosts"),
    [
        ("a", ["a"]),
        ("n[1:3]", ["n1", "n2", "n3"]),
        ("n[08:10].x", ["n08.x", "n09.x", "n10.x"]),
        ("n[9:11]", ["n9", "n10", "n11"]),
        ("n[1:5:2]", ["n1", "n3", "n5"]),
        ("n[1:3:0]", ["n1", "n2", "n3"]),
        ("[a:b]-[1:2]", ["a-1", "a-2", "b-1", "b-2"]),
        ("n[x:1]", ["n[x:1]"]),
    ],
)
def test_ranges_of_hosts(pattern: str, hosts: list[str]) -> None:
    assert expanded(pattern) == hosts
