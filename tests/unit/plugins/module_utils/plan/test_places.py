# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be changed, or whose change would not last, are problems only if the plan changes them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import places
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

ENV = "/var/lib/kubelet/kubeadm-flags.env"
IMMUTABLE = {"obstacle": ENV + " has the attribute i (immutable). Remove it with 'chattr -i " + ENV + "'"}
VOLATILE = {"volatile": "/run is empty after each start of the host"}


@pytest.fixture
def plan(host_facts: Any, cluster_facts: Any) -> Any:
    def build(flags: str, entry: dict[str, str]) -> list[str]:
        facts = host_facts("w-1", {ENV: f'KUBELET_KUBEADM_ARGS="{flags}"\n'}, [flags] if "cloud" in flags else [])
        facts["files"][ENV].update(entry)
        found: list[str] = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), kubeadm=""), [])["problems"]
        return found

    return build


def test_a_file_that_cannot_be_changed_is_a_problem_before_the_change(plan: Any) -> None:
    assert plan("--v=2", {}) == []
    assert plan("--v=2", IMMUTABLE) == [f"w-1: cannot change {ENV}: {IMMUTABLE['obstacle']}"]
    (problem,) = plan("--v=2", VOLATILE)
    assert problem.startswith(f"w-1: {ENV} would lose the change at the next start of the host: /run is empty")
    assert plan("--v=2", {**VOLATILE, **IMMUTABLE}) == plan("--v=2", IMMUTABLE)


@pytest.mark.parametrize("entry", [IMMUTABLE, VOLATILE])
def test_a_file_that_stays_as_it_is_may_be_anything(plan: Any, entry: dict[str, str]) -> None:
    assert plan("--cloud-provider=external", entry) == []


def test_a_rollback_restores_what_a_reboot_removes_but_not_what_it_cannot_change() -> None:
    steps = {"control_plane": [{"files": [{"path": "/a"}, {"path": "/kept", "keep": True}]}], "kubelet": {"files": [{"path": "/b"}]}}
    files = {"/a": IMMUTABLE, "/b": VOLATILE, "/kept": IMMUTABLE}
    plan: dict[str, Any] = {"problems": [], "hosts": {"w-1": steps}}
    places.check(plan, "w-1", {"files": files}, lasting=False)
    assert plan["problems"] == [f"w-1: cannot change /a: {IMMUTABLE['obstacle']}"]
    places.check(plan, "w-1", {"files": {}})
    assert len(plan["problems"]) == 1


# -- what only the restart shows ---------------------------------------------------------------------------------------

OWN, SYSCONFIG = "/etc/systemd/system/kubelet.service", "/etc/sysconfig/kubelet"


@pytest.fixture
def warnings(host_facts: Any, cluster_facts: Any) -> Any:
    """Return a function that returns the warnings about a worker with its own unit."""

    def build(unit: str, flags: str = "--v=2") -> list[str]:
        facts = host_facts("w-1", {OWN: unit, SYSCONFIG: f'KUBELET_EXTRA_ARGS="{flags}"\n'}, [flags] if "cloud" in flags else [])
        facts["kubelet"].update(unit_files=[OWN], environment_files=[SYSCONFIG])
        plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), kubeadm=""), [])
        assert plan["go"], plan["problems"]
        return [text for text in plan["warnings"] if text.startswith("w-1: ")]

    return build


RUN = "ExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"


@pytest.mark.parametrize("before", [
    "ExecStartPre=/bin/sh -c 'echo KUBELET_EXTRA_ARGS=--v=2 > /etc/sysconfig/kubelet'\n",
    "ExecStartPre=-/usr/bin/install -m 0644 \\\n  /usr/share/kubelet.env /etc/sysconfig/kubelet\n",
    "ExecCondition=/opt/make-env --to=/etc/sysconfig/kubelet\n",
])
def test_a_command_that_may_write_a_changed_file_is_named_with_its_line(warnings: Any, before: str) -> None:
    """The restart that should activate the new flag would run the command, which removes the flag."""
    (warning,) = warnings(f"[Service]\nEnvironmentFile={SYSCONFIG}\n{before}{RUN}")
    assert warning.startswith(f"w-1: {OWN} line 3: {before.partition('=')[0]} names {SYSCONFIG}, and runs before each start")
    assert warnings(f"[Service]\nEnvironmentFile={SYSCONFIG}\n{before}{RUN}", "--cloud-provider=external") == []


@pytest.mark.parametrize("before", ["ExecStartPre=/bin/mkdir -p /etc/kubernetes/manifests\n", "ExecStopPost=/bin/rm /etc/sysconfig/kubelet\n", ""])
def test_another_command_writes_nothing_that_counts(warnings: Any, before: str) -> None:
    assert warnings(f"[Service]\nEnvironmentFile={SYSCONFIG}\n{before}{RUN}") == []


@pytest.mark.parametrize(("tree", "server", "path", "external"), [
    ("k3s/agent", "k3s-agent", "/etc/rancher/k3s/config.yaml", False), ("k3s/agent", "k3s-agent", "/etc/other.yaml", True),
])
def test_a_command_that_may_write_the_configuration_of_k3s_is_named(
    tree_facts: Any, cluster_facts: Any, tree: str, server: str, path: str, external: bool
) -> None:
    facts = tree_facts(tree)
    facts["service"]["before"] = {path: "/etc/systemd/system/k3s-agent.service line 18: ExecStartPre"}
    plan = make_plan({server: facts}, cluster_facts((server, "initialized"), kubeadm=""), [])
    found = [text for text in plan["warnings"] if "ExecStartPre" in text]
    assert plan["hosts"][server]["kubelet"] and bool(found) is not external
    assert all(text.startswith(f"{server}: /etc/systemd/system/k3s-agent.service line 18: ExecStartPre names {path}, and runs before") for text in found)


@pytest.mark.parametrize(("command", "wrapped"), [
    ("/usr/local/bin/start-kubelet.sh $KUBELET_EXTRA_ARGS", True),
    ("-/opt/run $KUBELET_EXTRA_ARGS", True),
    ("/usr/bin/env GOGC=50 /usr/bin/kubelet $KUBELET_EXTRA_ARGS", False),
    ("@/usr/bin/hyperkube kubelet $KUBELET_EXTRA_ARGS", False),
    ("/usr/bin/hyperkube $KUBELET_EXTRA_ARGS", False),
    ("/usr/bin/podman run --net=host quay.io/own/kubelet:v1.36.3 $KUBELET_EXTRA_ARGS", False),
    ("-/usr/bin/kubelet $KUBELET_EXTRA_ARGS", False),
])
def test_a_program_that_may_ignore_its_arguments_is_named(warnings: Any, command: str, wrapped: bool) -> None:
    found = warnings(f"[Service]\nEnvironmentFile={SYSCONFIG}\nExecStart={command}\n")
    assert len(found) == wrapped and all(f"{OWN} starts kubelet with {command.split()[0].lstrip('-')}, which may ignore" in text for text in found)
