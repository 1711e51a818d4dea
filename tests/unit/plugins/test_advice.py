# SPDX-License-Identifier: Apache-2.0
"""The next run accepts all advice: what messages say to set exists, and a plan that follows the advice no longer has the problem."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Any, Callable

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.outoftree.ccm.plugins.filter import former_variables
from ansible_collections.outoftree.ccm.plugins.filter.whole_run import whole_run
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import registration
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices, NewController

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENV = "/var/lib/kubelet/kubeadm-flags.env"


def options() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            found.update(entry.get("options") or {})
    return found


def messages() -> list[tuple[str, str]]:
    """Return (place, text) of every text that a person may read: constants of the plug-ins except documentation, and messages of the tasks."""
    found = []
    for path in sorted(ROOT.glob("plugins/**/*.py")):
        docs = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
        tree = ast.parse(path.read_text())
        skipped = {id(node.value) for node in tree.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in docs}
        found += [(path.name, node.value) for node in ast.walk(tree)
                  if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped]
    for path in sorted([*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")]):
        found += [(path.name, text) for text in re.findall(r"(?:fail_msg|msg): (?:>-\n)?((?:.+\n?)(?: {6,}.+\n)*)", path.read_text())]
    return found


OPTIONS, MESSAGES = options(), messages()
#: Names that are no options: the statistics that a run leaves for programs, and deprecated names.
NO_OPTIONS = {"ccm_install_summary", *former_variables.FORMER}
NAMED = sorted({(name, word) for name, text in MESSAGES for word in re.findall(r"(?<![\w.])ccm_(?:install|runtime)_[a-z0-9_]*[a-z0-9]", text)
                if word not in NO_OPTIONS})
SET_TO = sorted({(name, option, value) for name, text in MESSAGES
                 for option, value in re.findall(r"(ccm_(?:install|runtime)_\w+)(?:: | to |=)'?([A-Za-z0-9][\w.%/-]*)", text)
                 if value not in ("a", "an", "its", "the", "one", "their", "pause", "use", "or", "leave")})


def test_the_catalogue_of_messages_is_there() -> None:
    assert len(NAMED) > 30 and ("takeover.py", "ccm_install_takeover", "adopt") in SET_TO


@pytest.mark.parametrize(("file", "option"), NAMED)
def test_every_variable_that_a_message_names_is_an_option(file: str, option: str) -> None:
    assert option in OPTIONS


@pytest.mark.parametrize(("file", "option", "value"), SET_TO)
def test_every_value_that_a_message_names_is_accepted(file: str, option: str, value: str) -> None:
    known = {key: item for key, item in OPTIONS[option].items() if key in ("type", "choices", "elements")}
    result = ArgumentSpecValidator({option: known}).validate({option: yaml.safe_load(value.rstrip(".,"))})
    assert not result.error_messages


def test_every_playbook_and_tag_that_a_message_names_exists() -> None:
    text = "\n".join(text for unused, text in MESSAGES)
    for name in re.findall(r"playbooks/(\w+)\.yml", text):
        assert (ROOT / "playbooks" / f"{name}.yml").exists(), name
    assert whole_run("all", ["all"], []) == "all"


# -- a plan that follows the advice ------------------------------------------------------------------------------------


class Situation:
    """A cluster of a control plane and two workers, and the settings that a person may change for the next run."""

    def __init__(self, host_facts: Any, cluster_facts: Any) -> None:
        self.hosts = {name: host_facts(name, {ENV: 'KUBELET_KUBEADM_ARGS="--v=2"\n'}) for name in ("cp-1", "w-1", "w-2")}
        self.cluster = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"), ("w-2", "unmanaged"), kubeadm="")
        self.cluster["ignored"] = []
        self.names: dict[str, list[str]] | None = None
        self.choices = Choices()
        self.controller = NewController()

    def problems(self) -> list[str]:
        made = make_plan(self.hosts, self.cluster, ["cp-1"], self.names, self.choices, self.controller)
        return [problem for problem in made["problems"] if not problem.startswith("cp-1: ")]


OTHER = {"kind": "DaemonSet", "namespace": "kube-system", "name": "acme-ccm", "image": "acme/ccm:1", "managed": "", "pods": 1, "paused": False,
         "active": True, "cloud_provider": "acme", "cluster_name": "prod", "lease": {"namespace": "kube-system", "name": "acme"}, "holder": "x",
         "keeper": "", "port": 0}


def another(now: Situation) -> None:
    now.cluster["others"] = [dict(OTHER)]


def another_name(now: Situation) -> None:
    another(now)
    now.choices, now.controller = Choices(takeover=True), NewController("kubernetes")


def lease(now: Situation) -> None:
    now.cluster["leases"] = [{"namespace": "kube-system", "name": "acme-ccm", "holder": "cp-1_x"}]


def taken(now: Situation) -> None:
    now.cluster["taken"] = ["DaemonSet kube-system/cloud-controller-manager"]


def away(now: Situation) -> None:
    now.hosts["w-2"] = {"unreachable": True, "msg": "ssh: connect to host w-2 port 22: No route to host"}


def renamed(now: Situation) -> None:
    now.hosts["w-2"]["registers"] = registration.of_kubelet("vm-2", "vm-2")


def unknown(now: Situation) -> None:
    now.hosts["w-2"].update(node_name="vm-2")


def claims(now: Situation) -> None:
    now.names = {"cp-1": ["cp-1"], "w-1": ["w-1"], "w-2": ["somebody"]}


def set_variable(now: Situation, name: str, value: str) -> None:
    """Set a variable as the role passes it to the plan."""
    if name == "ccm_install_takeover":
        now.choices = now.choices._replace(takeover=value == "adopt")
        now.controller = now.controller._replace(cluster_name="prod")
    elif name == "ccm_runtime_cluster_name":
        now.controller = now.controller._replace(cluster_name=value)
    elif name == "ccm_install_ignore":
        now.cluster["ignored"] = [value]
        now.cluster["others"] = [other for other in now.cluster["others"] if "{namespace}/{name}".format(**other) != value]
        now.cluster["leases"] = [found for found in now.cluster.get("leases", []) if "{namespace}/{name}".format(**found) != value]
    elif name == "ccm_runtime_name":
        now.cluster["taken"] = []
    elif name == "ccm_install_node_name":
        now.hosts["w-2"].update(node_name="w-2")
        now.names = {}
    else:
        raise AssertionError(f"no test knows how to set {name}")


def follow(now: Situation, problem: str, way: str) -> None:
    """Do what `problem` advises with the words that match `way`."""
    match = re.search(way, problem)
    assert match, (way, problem)
    if "--limit" in match.group(0):
        del now.hosts[match.group(1)]
        now.choices = now.choices._replace(excluded_hosts=[match.group(1)])
    elif "hostname-override" in match.group(0):
        now.hosts["w-2"]["registers"] = registration.of_kubelet(match.group(1), "vm-2")
    else:
        set_variable(now, match.group(1), match.group(2) if match.lastindex and match.lastindex > 1 else "")


@pytest.mark.parametrize(("spoil", "way"), [
    (another, r"(ccm_install_takeover): (adopt)"), (another, r"add it to (ccm_install_ignore)"),
    (another_name, r"Set (ccm_runtime_cluster_name): (\S+)"), (lease, r"add (\S+) to (ccm_install_ignore)"),
    (taken, r"Set (ccm_runtime_name) to an unused name, such as (\S+)"), (away, r"--limit 'all:!([^']+)'"),
    (renamed, r"Set --hostname-override=([^,\s]+)"), (unknown, r"[Ss]et (ccm_install_node_name) for this host"),
    (claims, r"set (ccm_install_node_name) for this host"),
])
def test_a_plan_that_follows_the_advice_has_the_problem_no_more(
        host_facts: Any, cluster_facts: Any, spoil: Callable[[Situation], None], way: str) -> None:
    now = Situation(host_facts, cluster_facts)
    good = now.problems()
    spoil(now)
    (problem,) = [problem for problem in now.problems() if problem not in good]
    if "add " in way:
        set_variable(now, "ccm_install_ignore", "kube-system/acme-ccm")
        assert re.search(way, problem)
    else:
        follow(now, problem, way)
    assert [problem for problem in now.problems() if problem not in good] == []
