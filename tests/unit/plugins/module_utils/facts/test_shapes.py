# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The typed shapes agree with the modules that return and accept them, and with the journal on a host."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, nodes
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts, NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts, HostSteps, Step, StepFile
from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal import Journal, JournalEntry
from ansible_collections.outoftree.ccm.plugins.modules import (
    ccm_cluster_info, ccm_component_config, ccm_component_flags_info, ccm_node_info,
)


def test_a_type_is_data_for_the_check() -> None:
    shape = host_facts.shape_of(HostFacts)
    assert shape["node_name"] is str and shape["journal_found?"] == {"*": object} and shape["manifests"] == [str]
    assert shape["units"] == {"*": {"unit": str, "unit_files": [str], "environment_files": [str]}}
    assert shape["kubelet"]["unread_files?"] == [{"path": str, "flag": str}] and "node_name?" not in shape
    assert shape["components"]["*"] == {"pid": int, "flags": [str], "version": str, "arguments?": [str], "difference?": str, "started?": float,
                                        "health?": str}


def test_host_facts_are_what_the_module_says_it_returns() -> None:
    returned = yaml.safe_load(ccm_component_flags_info.RETURN)
    shape = host_facts.shape_of(HostFacts)
    assert set(returned) == {key.rstrip("?") for key in shape}
    for key, item in returned.items():
        inner = shape.get(key, shape.get(key + "?"))
        assert host_facts._misfit(item["sample"], inner, key) == ""


def test_cluster_facts_are_what_the_module_says_it_returns() -> None:
    returned = yaml.safe_load(ccm_cluster_info.RETURN)
    shape = host_facts.shape_of(ClusterFacts)
    assert set(returned) == {key.rstrip("?") for key in shape} and {key for key in shape if key.endswith("?")} == {"images?"}
    misfits = [host_facts._misfit(item["sample"], shape.get(key, shape.get(key + "?")), key) for key, item in returned.items()]
    assert misfits == [""] * len(returned)


def test_node_facts_are_what_the_modules_say_and_return() -> None:
    returned = yaml.safe_load(ccm_node_info.RETURN)["nodes"]
    shape = host_facts.shape_of(NodeFacts)
    assert set(returned["contains"]) == {key for key in shape if not key.endswith("?")} and "lease_renewed?" in shape
    assert set(nodes.summary({}, "")) == set(returned["contains"])
    assert [host_facts._misfit(node, shape, "") for node in [*returned["sample"], nodes.summary({}, "")]] == ["", ""]


@pytest.mark.parametrize(("kind", "place"), [(Step, ()), (StepFile, ("files", "suboptions"))])
def test_a_step_has_options_of_the_module(kind: Any, place: tuple[str, ...]) -> None:
    options = yaml.safe_load(ccm_component_config.DOCUMENTATION)["options"]
    for key in place:
        options = options[key]
    assert {key.rstrip("?") for key in host_facts.shape_of(kind)} <= set(options)
    assert {key for key, option in options.items() if option.get("required")} <= set(host_facts.shape_of(kind))


def test_steps_of_a_host() -> None:
    assert set(host_facts.shape_of(HostSteps)) == {"control_plane", "kubelet"}


def test_a_journal_on_a_host_has_entries_of_that_shape(tmp_path: pathlib.Path) -> None:
    journal = Journal(str(tmp_path))
    journal.record("/etc/a", "kubelet", "1", b"theirs\n", b"ours\n", 0o644, (0, 0), ["--cloud-provider=aws"], {"unit": "kubelet"})
    journal.record("/etc/a", "kubelet", "2", b"theirs again\n", b"ours again\n", 0o644, (0, 0), [])
    journal.record("/etc/new", "k3s", "2", None, b"ours\n", 0o644, (0, 0), [])
    entries = json.loads((tmp_path / "journal.json").read_text())["files"]
    shape = host_facts.shape_of(JournalEntry)
    assert [host_facts._misfit(entry, shape, name) for name, entry in entries.items()] == ["", ""]
    assert set(entries["/etc/a"]) == {key.rstrip("?") for key in shape}
    assert [set(each) for each in entries["/etc/a"]["earlier"]] == [{"original", "written"}]
