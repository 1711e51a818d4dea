# SPDX-License-Identifier: Apache-2.0
"""Every layout, from its files: what changes where, nothing changes in the second run, and only the table decides what changes."""

from __future__ import annotations

import base64
import difflib
import re
import shlex
from collections import Counter
from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import rancher
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS, find_flags, render
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import verify

VERSION = "v1.33.4"


def rows(plan: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(e["component"], e["file"], e["flag"], e["now"], e["then"]) for e in plan["edits"] if e["component"] != "node"]


def texts(plan: dict[str, Any], host: str) -> dict[str, str]:
    steps = plan["hosts"][host]
    return {item["path"]: base64.b64decode(item["content"]).decode() for step in [*steps["control_plane"], steps["kubelet"]] if step
            for item in step["files"]}


def changed(facts: dict[str, Any], plan: dict[str, Any], host: str) -> dict[str, list[str]]:
    """Return the removed and added lines of each file."""
    result = {}
    for path, after in texts(plan, host).items():
        before = base64.b64decode(facts["files"][path]["content"]).decode()
        diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        result[path] = [line for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return result


def single(facts: dict[str, Any], cluster_facts: Any, server: bool = True, version: str = VERSION) -> dict[str, Any]:
    """Return the plan of a cluster of one host."""
    name = facts["node_name"]
    cluster = cluster_facts((name, "unmanaged"), version=version, kubeadm="")
    cluster["nodes"][0]["control_plane"] = server
    plan = make_plan({name: facts}, cluster, [name] if server else [])
    assert plan["go"], plan["problems"]
    return plan


def again(tree_facts: Any, cluster_facts: Any, tree: str, plan: dict[str, Any], server: bool) -> dict[str, Any]:
    """Return the plan of the same host after the first plan was carried out."""
    facts = tree_facts(tree, changed=texts(plan, tree.replace("/", "-")))
    return single(facts, cluster_facts, server)


# -- the user's own units ----------------------------------------------------------------------------------------------


def test_systemd_control_plane(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/control-plane")
    plan = single(facts, cluster_facts)
    unit = "/etc/systemd/system/kube-apiserver.service"
    assert changed(facts, plan, "systemd-control-plane") == {
        unit: [
            "-  --cloud-provider=openstack \\", "-  --cloud-config=/etc/kubernetes/cloud.conf \\",
            "-  --enable-admission-plugins=NamespaceLifecycle,NodeRestriction,PersistentVolumeLabel,ServiceAccount \\",
            "+  --enable-admission-plugins=NamespaceLifecycle,NodeRestriction,ServiceAccount \\",
            "-  --feature-gates=DisableCloudProviders=false,CustomCPUCFSQuotaPeriod=true \\",
            "+  --feature-gates=CustomCPUCFSQuotaPeriod=true \\"],
        "/etc/kubernetes/controller-manager": [
            '-KUBE_CONTROLLER_MANAGER_ARGS="--bind-address=127.0.0.1 --cloud-provider=openstack '
            '--cloud-config=/etc/kubernetes/cloud.conf --cluster-cidr=10.200.0.0/16"',
            '+KUBE_CONTROLLER_MANAGER_ARGS="--bind-address=127.0.0.1 --cluster-cidr=10.200.0.0/16"'],
        "/etc/systemd/system/kubelet.service": [
            "-ExecStart=/usr/local/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/var/lib/kubelet/kubeconfig --v=2",
            "+ExecStart=/usr/local/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/var/lib/kubelet/kubeconfig --v=2 "
            "--cloud-provider=external"],
    }
    steps = plan["hosts"]["systemd-control-plane"]["control_plane"]
    assert [(step["component"], step["service"], step["restart"]) for step in steps] == [
        ("kube-controller-manager", {"unit": "kube-controller-manager.service"}, False),
        ("kube-apiserver", {"unit": "kube-apiserver.service"}, False)]
    assert steps[1]["flags"] == ["--enable-admission-plugins=NamespaceLifecycle,NodeRestriction,ServiceAccount",
                                 "--feature-gates=CustomCPUCFSQuotaPeriod=true"]
    reasons = " ".join(edit["why"] for edit in plan["edits"])
    assert "1.33 does not start with it" in reasons and "kubernetes/cloud-provider-openstack" in reasons
    assert rows(again(tree_facts, cluster_facts, "systemd/control-plane", plan, True)) == []


def test_a_unit_that_was_not_restarted_after_its_change_is_restarted(tree_facts: Any, cluster_facts: Any) -> None:
    first = single(tree_facts("systemd/control-plane"), cluster_facts)
    facts = tree_facts("systemd/control-plane", changed=texts(first, "systemd-control-plane"))
    facts["components"]["kube-controller-manager"]["flags"] = ["--cloud-provider=openstack"]
    facts["files"]["/etc/kubernetes/controller-manager"]["changed"] = 0.5
    (step,) = single(facts, cluster_facts)["hosts"]["systemd-control-plane"]["control_plane"]
    assert (step["component"], step["files"], step["restart"], step["flags"]) == ("kube-controller-manager", [], True, [])


def test_before_1_31_a_unit_of_kube_controller_manager_is_told_external(tree_facts: Any, cluster_facts: Any) -> None:
    empty = 'KUBE_CONTROLLER_MANAGER_ARGS="--v=2"\n'
    facts = tree_facts("systemd/control-plane", version="v1.30.4", changed={"/etc/kubernetes/controller-manager": empty})
    after = texts(single(facts, cluster_facts, version="v1.30.4"), "systemd-control-plane")
    assert after["/etc/kubernetes/controller-manager"] == 'KUBE_CONTROLLER_MANAGER_ARGS="--v=2 --cloud-provider=external"\n'


def test_a_unit_of_a_package_is_refused_with_a_way_out(tree_facts: Any, cluster_facts: Any, fixture_text: Any) -> None:
    text = fixture_text("systemd/control-plane/etc/systemd/system/kube-apiserver.service")
    facts = tree_facts("systemd/control-plane", changed={
        "/etc/systemd/system/kube-apiserver.service": None, "/usr/lib/systemd/system/kube-apiserver.service": text})
    name = facts["node_name"]
    plan = make_plan({name: facts}, cluster_facts((name, "unmanaged"), version=VERSION, kubeadm=""), [name])
    assert any("/usr/lib/systemd/system/kube-apiserver.service" in problem and "drop-in" in problem for problem in plan["problems"])


def test_systemd_worker_with_a_drop_in_and_gates_in_the_kubelets_file(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/worker")
    plan = single(facts, cluster_facts, server=False)
    drop_in = "/etc/systemd/system/kubelet.service.d/20-cloud.conf"
    assert changed(facts, plan, "systemd-worker") == {drop_in: [
        '-Environment="KUBELET_EXTRA_ARGS=--cloud-provider=openstack --cloud-config=/etc/kubernetes/cloud.conf --node-labels=role=worker"',
        '+Environment="KUBELET_EXTRA_ARGS=--cloud-provider=external --node-labels=role=worker"']}
    (warning,) = [text for text in plan["warnings"] if "feature gate" in text]
    assert "/var/lib/kubelet/config.yaml" in warning and "InTreePluginOpenStackUnregister=true" in warning and "1.33 does not start" in warning
    assert rows(again(tree_facts, cluster_facts, "systemd/worker", plan, False)) == []


# -- kubespray ---------------------------------------------------------------------------------------------------------


def test_kubespray_reads_its_own_environment_file_and_no_other(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("kubespray/worker", name="kubespray-worker")
    facts["kubelet"]["unread_files"] = [{"path": "/var/lib/kubelet/kubeadm-flags.env", "flag": "--cloud-provider=openstack"}]
    plan = single(facts, cluster_facts, server=False)
    assert changed(facts, plan, "kubespray-worker") == {"/etc/kubernetes/kubelet.env": [
        '-KUBELET_CLOUDPROVIDER=""', '+KUBELET_CLOUDPROVIDER="--cloud-provider=external"']}
    assert any("kubeadm-flags.env sets --cloud-provider=openstack, but the kubelet's unit does not read" in w for w in plan["warnings"])
    assert any("external_cloud_provider" in line for line in plan["new_nodes"])
    assert rows(again(tree_facts, cluster_facts, "kubespray/worker", plan, False)) == []


# -- k3s and RKE2 ------------------------------------------------------------------------------------------------------


def test_k3s_server(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("k3s/server")
    plan = single(facts, cluster_facts)
    main, drop_in = "/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/config.yaml.d/90-cloud.yaml"
    assert changed(facts, plan, "k3s-server") == {
        main: ["+  - servicelb", '-  - "enable-admission-plugins=NodeRestriction,PersistentVolumeLabel"',
               '+  - "enable-admission-plugins=NodeRestriction"'],
        drop_in: ["-disable-cloud-controller: false", "+disable-cloud-controller: true", '+- "cloud-provider=external"'],
    }
    assert rows(plan) == [
        ("k3s", drop_in, "disable-cloud-controller", "false", "true"),
        ("k3s", main, "disable", None, "servicelb"),
        ("k3s", main, "kube-apiserver-arg: enable-admission-plugins", "NodeRestriction,PersistentVolumeLabel", "NodeRestriction"),
        ("k3s", drop_in, "kubelet-arg: cloud-provider", None, "external"),
    ]
    step = plan["hosts"]["k3s-server"]["kubelet"]
    assert (step["component"], step["service"]) == ("k3s", {"unit": "k3s.service", "data_directory": "/var/lib/rancher/k3s"})
    assert plan["hosts"]["k3s-server"]["control_plane"] == []
    assert rows(again(tree_facts, cluster_facts, "k3s/server", plan, True)) == []


def test_k3s_agent_gets_the_kubelet_flag_alone(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("k3s/agent")
    plan = single(facts, cluster_facts, server=False)
    assert changed(facts, plan, "k3s-agent") == {"/etc/rancher/k3s/config.yaml": ["+kubelet-arg:", "+- cloud-provider=external"]}
    assert rows(again(tree_facts, cluster_facts, "k3s/agent", plan, False)) == []


def test_rke2_server_and_agent(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("rke2/server")
    plan = single(facts, cluster_facts)
    assert changed(facts, plan, "rke2-server") == {"/etc/rancher/rke2/config.yaml": [
        "-cloud-provider-name: openstack", "-cloud-provider-config: /etc/rancher/rke2/cloud.conf",
        "-kube-controller-manager-arg: [bind-address=127.0.0.1, cloud-config=/etc/rancher/rke2/cloud.conf]",
        "+cloud-provider-name: external", "+kube-controller-manager-arg: [bind-address=127.0.0.1]"]}
    assert plan["hosts"]["rke2-server"]["kubelet"]["service"]["unit"] == "rke2-server.service"
    assert rows(again(tree_facts, cluster_facts, "rke2/server", plan, True)) == []
    agent = single(tree_facts("rke2/agent"), cluster_facts, server=False)
    assert texts(agent, "rke2-agent") == {
        "/etc/rancher/rke2/config.yaml": "# nothing of its own yet\nkubelet-arg:\n- cloud-provider=external\n"}
    assert rows(again(tree_facts, cluster_facts, "rke2/agent", agent, False)) == []


K3S = "/etc/rancher/k3s/config.yaml"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "disable-cloud-controller: true\ndisable:\n- servicelb\nkubelet-arg:\n- cloud-provider=external\n"),
        ("node-ip: 10.0.0.1\r\n", "node-ip: 10.0.0.1\r\ndisable-cloud-controller: true\r\ndisable:\r\n- servicelb\r\n"
                                  "kubelet-arg:\r\n- cloud-provider=external\r\n"),
        ("disable-cloud-controller: true\ndisable: servicelb\nkubelet-arg: max-pods=9",
         "disable-cloud-controller: true\ndisable: servicelb\nkubelet-arg: [max-pods=9, cloud-provider=external]"),
        ("disable-cloud-controller: true\ndisable: [traefik]\nkubelet-arg: []\n",
         "disable-cloud-controller: true\ndisable: [traefik, servicelb]\nkubelet-arg: [cloud-provider=external]\n"),
        ("disable-cloud-controller: true\ndisable: 'traefik,servicelb'\nkubelet-arg:\n- cloud-provider=aws # old\n- cloud-config=/c\n",
         "disable-cloud-controller: true\ndisable: 'traefik,servicelb'\nkubelet-arg:\n- cloud-provider=external # old\n"),
        ("disable-cloud-controller: true\ndisable: servicelb\nkubelet-arg:\n- cloud-config=/c\n",
         "disable-cloud-controller: true\ndisable: servicelb\nkubelet-arg:\n- cloud-provider=external\n"),
        ("disable-cloud-controller:\ndisable: servicelb\nkubelet-arg: cloud-provider=external\n",
         "disable-cloud-controller: true\ndisable: servicelb\nkubelet-arg: cloud-provider=external\n"),
    ],
)
def test_k3s_keys_are_added_wherever_lists_and_single_values_stand(before: str | None, after: str) -> None:
    edit = rancher.plan("k3s", True, [(K3S, before)], ["server"], (1, 33))
    assert edit.texts == {K3S: after}
    assert rancher.plan("k3s", True, [(K3S, after)], ["server"], (1, 33)) == ({}, [])


def test_arguments_of_the_command_line_replace_the_lists_of_files() -> None:
    settled = ["server", "--disable-cloud-controller", "--disable=traefik,servicelb", "--kubelet-arg", "cloud-provider=external"]
    assert rancher.plan("k3s", True, [(K3S, None)], settled, (1, 33)) == ({}, [])
    with pytest.raises(rancher.RancherRefused, match="--kubelet-arg on the command line.*" + K3S):
        rancher.plan("k3s", False, [(K3S, None)], ["agent", "--kubelet-arg=max-pods=9"], (1, 33))
    with pytest.raises(rancher.RancherRefused, match=K3S + " is not YAML: line 2"):
        rancher.plan("k3s", False, [(K3S, "a: [\n")], ["agent"], (1, 33))
    with pytest.raises(rancher.RancherRefused, match=K3S + ": .*by hand"):
        rancher.plan("k3s", False, [(K3S, "kubelet-arg: &a [cloud-provider=aws]\nother: *a\n")], ["agent"], (1, 33))
    with pytest.raises(rancher.RancherRefused, match="not a mapping"):
        rancher.plan("k3s", False, [(K3S, "- a\n")], ["agent"], (1, 33))


MERGED = "shared: &shared\n  disable: [a]\n  cloud-provider-name: aws\n<<: *shared\n"


@pytest.mark.parametrize("edit", [
    lambda file: file.set(file.items("cloud-provider-name")[0], "external"),
    lambda file: file.remove(file.items("cloud-provider-name")),
    lambda file: file.remove(file.items("disable")[:1]),
    lambda file: file.add_item("disable", "b"),
])
def test_a_merge_key_of_k3s_is_named_with_its_file(edit: Any) -> None:
    with pytest.raises(rancher.RancherRefused, match=r"^/f: line 1: '(disable|cloud-provider-name)' comes from a merge key \(<<\). Write it out there$"):
        edit(rancher.File("/f", MERGED))


@pytest.mark.parametrize(("text", "after"), [("", ""), ("token: x", "token: x\n"), ("token: x\r\na: b", "token: x\r\na: b\r\n")])
def test_a_key_is_added_on_a_line_of_its_own(text: str, after: str) -> None:
    file = rancher.File("/f", text)
    file.refuse_merged("disable-cloud-controller")
    file.add_key("disable-cloud-controller", "true")
    assert file.render() == after + "disable-cloud-controller: true" + ("\r\n" if "\r" in text else "\n")


@pytest.mark.parametrize(("arguments", "values"), [
    (["server", "--disable"], ["true"]),
    (["--disable", "--v=2"], ["--v=2"]),
    (["--disable", "--disable", "--disable=b"], ["--disable", "b"]),
    (["--disable", "a", "--disable=b"], ["a", "b"]),
    (["--disable=a=b=c"], ["a=b=c"]),
    (["--disable-other=a", "disable"], []),
])
def test_values_of_an_option_on_the_command_line(arguments: list[str], values: list[str]) -> None:
    assert rancher.command_line_values(arguments, "disable") == values


@pytest.mark.parametrize(("name", "text", "external"), [
    ("k3s", "kubelet-arg: [cloud-provider=external]\n", True),
    ("k3s", "kubelet-arg: [--cloud-provider=external]\n", True),
    ("k3s", "kubelet-arg: [cloud-provider=aws]\n", False),
    ("k3s", "cloud-provider-name: external\n", False),
    ("rke2", "cloud-provider-name: external\n", True),
    ("rke2", "cloud-provider-name: [aws, other, external]\n", True),
    ("rke2", "cloud-provider-name: [external, other, aws]\n", False),
    ("rke2", "cloud-provider-name: [aws, external, gce]\n", False),
    ("rke2", "kubelet-arg: [cloud-provider=external]\n", True),
    ("rke2", "cloud-provider-name: aws\n", False),
    ("rke2", "", False),
])
def test_whether_a_kubelet_waits_for_an_external_controller(name: str, text: str, external: bool) -> None:
    assert rancher.is_external(name, [("/f", text)], []) is external


@pytest.mark.parametrize(("name", "arguments", "key"), [
    ("k3s", ["--disable-cloud-controller=false"], "disable-cloud-controller"),
    ("k3s", ["--kubelet-arg=cloud-provider=aws"], "kubelet-arg"),
    ("k3s", ["--disable=traefik"], "disable"),
    ("rke2", ["--cloud-provider-name=aws"], "cloud-provider-name"),
    ("rke2", ["--cloud-provider-config=/c"], "cloud-provider-config"),
])
def test_an_option_of_the_command_line_that_has_to_change_is_refused(name: str, arguments: list[str], key: str) -> None:
    with pytest.raises(rancher.RancherRefused, match=f"its unit passes --{key} on the command line"):
        rancher.plan(name, True, [("/f", "token: x\n")], arguments, (1, 33))


def test_every_key_of_rke2_that_changes_is_noted() -> None:
    text = "cloud-provider-name: aws\ncloud-provider-config: /c\n"
    edit = rancher.plan("rke2", True, [("/f", text)], [], (1, 33))
    assert [(change.path, change.key, change.now, change.then) for change in edit.changes] == [
        ("/f", "node-name-from-cloud-provider-metadata", None, "true"), ("/f", "cloud-provider-name", "aws", "external"),
        ("/f", "cloud-provider-config", "/c", None)]
    edit = rancher.plan("rke2", True, [("/f", "token: x\n")], [], (1, 33))
    assert [(change.key, change.now, change.then) for change in edit.changes] == [
        ("disable-cloud-controller", None, "true"), ("kubelet-arg: cloud-provider", None, "external")]


def test_a_changed_service_that_was_not_restarted_is_restarted(tree_facts: Any, cluster_facts: Any) -> None:
    path = "/etc/rancher/k3s/config.yaml"
    facts = tree_facts("k3s/agent", changed={path: "kubelet-arg: cloud-provider=external\n"})
    facts["service"]["stale"] = True
    assert single(facts, cluster_facts, server=False)["hosts"]["k3s-agent"]["kubelet"] is None, "someone else's change"
    facts["journal"] = {path: {"component": "k3s", "state": "written"}}
    step = single(facts, cluster_facts, server=False)["hosts"]["k3s-agent"]["kubelet"]
    assert step["restart"] and step["files"] == []


def test_one_file_that_a_run_changed_explains_why_a_service_is_restarted(tree_facts: Any, cluster_facts: Any) -> None:
    """A run that was killed before the restart may have changed only one of several configuration files."""
    done = texts(single(tree_facts("k3s/server"), cluster_facts), "k3s-server")
    assert len(done) == 2
    facts = tree_facts("k3s/server", changed=done)
    facts["service"]["stale"] = True
    facts["journal"] = {K3S: {"component": "k3s", "state": "written"}}
    assert single(facts, cluster_facts)["hosts"]["k3s-server"]["kubelet"]["restart"]


@pytest.mark.parametrize(("release", "kept"), [("v1.29.4", True), ("v1.31.2", False)])
def test_what_an_agent_of_k3s_keeps_depends_on_its_own_release(tree_facts: Any, cluster_facts: Any, release: str, kept: bool) -> None:
    """A cluster of 1.31 may have agents of 1.29, which start with a feature gate that 1.31 refuses."""
    gate = "InTreePluginOpenStackUnregister=true"
    facts = tree_facts("k3s/agent", version=release, changed={K3S: f"kubelet-arg:\n- feature-gates={gate}\n"})
    after = texts(single(facts, cluster_facts, server=False, version="v1.31.2"), "k3s-agent")[K3S]
    assert (gate in after) is kept and "cloud-provider=external" in after


def test_verification_of_k3s_judges_files_and_start(tree_facts: Any, cluster_facts: Any) -> None:
    health = {"reasons": [], "unjudged": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "x"}}
    cluster = cluster_facts(("k3s-agent", "initialized"), version=VERSION, kubeadm="")
    cluster["nodes"][0]["control_plane"] = False
    assert "flags" in verify({"k3s-agent": tree_facts("k3s/agent")}, cluster, health, [])["failures"][0]
    done = tree_facts("k3s/agent", changed={K3S: "kubelet-arg: cloud-provider=external\n"})
    good = verify({"k3s-agent": done}, cluster, health, [])
    assert good["ok"], good["lines"]
    done["service"]["stale"] = True
    done["journal"] = {K3S: {"component": "k3s", "state": "written"}}
    assert "not restarted" in make_plan({"k3s-agent": done}, cluster, [])["edits"][0]["why"]
    assert not verify({"k3s-agent": done}, cluster, health, [])["ok"]


# -- the table is all that changes -------------------------------------------------------------------------------------


def flags_in(path: str, text: str) -> Counter[tuple[str, str]]:
    """Return every managed flag in a file, read with PyYAML and shlex instead of the product's readers."""
    words: list[str] = []
    if path.endswith(".yaml"):
        def scalars(data: Any, key: str = "") -> None:
            if isinstance(data, dict):
                for name, value in data.items():
                    scalars(value, str(name))
            elif isinstance(data, list):
                for value in data:
                    scalars(value, key)
            else:
                words.append(str(data))
        scalars(yaml.safe_load(text))
    else:
        joined = re.sub(r"\\\r?\n", " ", text)
        for line in joined.splitlines():
            if "=" in line and not line.lstrip().startswith("#"):
                for word in shlex.split(line.split("=", 1)[1]):
                    words += word.split()
    found = [word.lstrip("-").partition("=") for word in words]
    found += [(word.partition("=")[2].lstrip("-").partition("=")) for word in words if word.startswith("KUBELET")]
    return Counter((name, value) for name, equals, value in found if name in MANAGED_FLAGS and equals)


TREES = ["systemd/control-plane", "systemd/worker", "kubespray/worker", "k3s/server", "k3s/agent", "rke2/server", "rke2/agent"]


@pytest.mark.parametrize("tree", TREES)
def test_the_table_and_the_files_agree(tree: str, tree_facts: Any, cluster_facts: Any) -> None:
    server = tree.endswith(("control-plane", "server"))
    facts = tree_facts(tree)
    plan = single(facts, cluster_facts, server)
    edited = texts(plan, facts["node_name"])
    assert {row[1] for row in rows(plan)} == set(edited)
    for path, after in edited.items():
        before = base64.b64decode(facts["files"][path]["content"]).decode()
        gone, come = flags_in(path, before), flags_in(path, after)
        told = [(row[2].replace("--", "").rpartition(": ")[2], row[3], row[4]) for row in rows(plan) if row[1] == path]
        told = [row for row in told if row[0] in MANAGED_FLAGS]
        assert gone - come == Counter((flag, now) for flag, now, unused in told if now is not None)
        assert come - gone == Counter((flag, then) for flag, unused, then in told if then is not None)
    for row in rows(plan):
        title = "{}: {}, {} (risk ".format(facts["node_name"], row[0], row[1])
        assert any(line.startswith(title) for line in plan["table"])


# -- every layout, every release (kubeadm's: test_kubeadm_releases.py) --------------------------------------------------


MANIFESTS = {f"/etc/kubernetes/manifests/{name}.yaml": name for name in ("kube-apiserver", "kube-controller-manager")}


def kubespray_control_plane(tree_facts: Any, fixture_text: Any, minor: int, texts: dict[str, str]) -> dict[str, Any]:
    """Return a control plane of kubespray: kubeadm's static Pods, and a kubelet with kubespray's own unit."""
    manifests = {path: fixture_text(f"kubeadm-1.36/{name}.yaml").replace("v1.36.3", f"v1.{minor}.4") for path, name in MANIFESTS.items()}
    facts: dict[str, Any] = tree_facts("kubespray/worker", name="kubespray-cp", version=f"v1.{minor}.4", changed=manifests | texts)
    for path, name in MANIFESTS.items():
        argv = yaml.safe_load((manifests | texts)[path])["spec"]["containers"][0]["command"]
        flags = [render(flag.name, flag.value) for flag in find_flags(argv)]
        facts["components"][name] = {"pid": 1, "flags": flags, "version": f"v1.{minor}.4"}
    return facts


@pytest.mark.parametrize("minor", range(versions.SUPPORTED[0][1], versions.SUPPORTED[1][1] + 1))
@pytest.mark.parametrize("tree", [*TREES, "kubespray/control-plane"])
def test_every_layout_of_every_release(tree: str, minor: int, tree_facts: Any, cluster_facts: Any, fixture_text: Any) -> None:
    """The plan says go, leaves no flag with which this release or the next does not start, and a second run has nothing to do."""
    server = tree.endswith(("control-plane", "server"))
    version = f"v1.{minor}.4"

    def facts(texts: dict[str, str]) -> dict[str, Any]:
        if tree == "kubespray/control-plane":
            return kubespray_control_plane(tree_facts, fixture_text, minor, texts)
        found: dict[str, Any] = tree_facts(tree, version=version, changed=texts)
        return found

    before = facts({})
    host = before["node_name"]
    plan = single(before, cluster_facts, server, version)
    after = texts(plan, host)
    assert after and {row[1] for row in rows(plan)} == set(after)
    whole = {path: base64.b64decode(entry["content"]).decode() for path, entry in before["files"].items() if entry["exists"]} | after
    for fact in versions.FACTS:
        if fact.fatal_in is None or fact.fatal_in > (1, minor + 1) or fact.value is not None or fact.component == "kubeadm":
            continue
        # Only files that are named after their component. Files of k3s and RKE2 name components in their keys.
        for path, text in whole.items():
            if f"/{fact.component}." in path:
                assert fact.flag not in {name for name, unused in flags_in(path, text)}, (path, fact)
    kubelet = [path for path, text in whole.items() if flags_in(path, text)["cloud-provider", "external"] and "manifests" not in path]
    assert kubelet or (tree == "rke2/server" and "cloud-provider-name: external" in whole["/etc/rancher/rke2/config.yaml"])
    second = single(facts(after), cluster_facts, server, version)
    assert rows(second) == [], "a second run has nothing to do"
    if minor <= 30 and tree.endswith("control-plane"):
        places = [path for path in whole if "controller-manager" in path]
        assert any(flags_in(path, whole[path])["cloud-provider", "external"] for path in places), "in-tree loops would go on"
