# SPDX-License-Identifier: Apache-2.0
"""The rollback's plan: it restores bytes if nobody else wrote, flags if somebody did, and names what it cannot restore."""

from __future__ import annotations

import base64
import shutil
from typing import Any, Optional

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import flags_after
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import draft
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import rollback, undo
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.cluster_steps import KUBEADM_CONFIG
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback import make_rollback_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback_verdict import judge

KCM = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
DEFAULT = "/etc/default/kubelet"
K3S = "/etc/rancher/k3s/config.yaml"
CLOUD = "    - --cloud-config=/etc/kubernetes/cloud.conf\n    - --cloud-provider=\n"


@pytest.fixture
def control_plane(fixture_text: Any, host_facts: Any, machine: Any) -> Any:
    """Return a function that builds a kubeadm control plane of a release, with in-tree flags."""

    def build(release: str = "v1.29.9", provider: str = "aws") -> Any:
        text = fixture_text("kubeadm-1.36/kube-controller-manager.yaml").replace("v1.36.3", release)
        text = text.replace("--cloud-provider=\n", f"--cloud-provider={provider}\n")
        files = {KCM: text, FLAGS_ENV: f'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1 --cloud-provider={provider}"\n', DEFAULT: None}
        return machine(lambda texts: host_facts("cp-1", {path: text for path, text in texts.items() if text is not None}), files)

    return build


@pytest.fixture
def worker(host_facts: Any, machine: Any) -> Any:
    def build(flags_env: str = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n', default: str | None = None) -> Any:
        texts = {FLAGS_ENV: flags_env, DEFAULT: default}
        return machine(lambda now: host_facts("w-1", {path: text for path, text in now.items() if text is not None}), texts)

    return build


def migrate(host: Any, cluster: dict[str, Any], name: str) -> None:
    host.version = cluster["version"]
    plan = make_plan({name: host.facts()}, cluster, [name] if name.startswith("cp") else [])
    assert plan["go"], plan["problems"]
    host.carry_out(plan["hosts"][name])


def back(host: Any, cluster: dict[str, Any], name: str, **options: Any) -> dict[str, Any]:
    """Plan the rollback, and carry it out if the plan says go; return the plan."""
    host.version = cluster["version"]
    plan = make_rollback_plan({name: host.facts()}, cluster, [name] if name.startswith("cp") else [], **options)
    if plan["go"]:
        host.carry_out(plan["hosts"][name])
    return plan


def modes(plan: dict[str, Any]) -> dict[str, str]:
    return {item["file"]: item["mode"] for item in plan["files"]}


def at(cluster_facts: Any, version: str, *names: str) -> dict[str, Any]:
    cluster: dict[str, Any] = cluster_facts(*((name, "initialized") for name in names), version=version, kubeadm="")
    return cluster


def test_what_nobody_else_wrote_goes_back_byte_for_byte(control_plane: Any, cluster_facts: Any) -> None:
    host, cluster = control_plane(), at(cluster_facts, "v1.29.9", "cp-1")
    before = dict(host.texts)
    migrate(host, cluster, "cp-1")
    assert host.texts != before
    plan = back(host, cluster, "cp-1")
    assert plan["go"] and host.texts == before and modes(plan) == {KCM: "bytes", FLAGS_ENV: "bytes"}
    rows = [(row["component"], row["flag"], row["now"], row["then"]) for row in plan["edits"]]
    assert ("kubelet", "--cloud-provider", "external", "aws") in rows
    assert any(line.startswith("why 1: bytes: nobody else changed") for line in plan["table"])
    lines = judge(plan, {"cp-1": host.facts()}, ["cp-1"])["lines"]
    assert "Running now: kube-controller-manager with the in-tree provider aws." in lines
    assert plan["kept"] == [] and lines[0] == "Every file that the migration changed has its original content again."
    assert back(host, cluster, "cp-1")["table"][0].startswith("Nothing to restore")


def test_an_upgrade_and_an_operators_flag_stay(control_plane: Any, cluster_facts: Any) -> None:
    host = control_plane()
    migrate(host, at(cluster_facts, "v1.29.9", "cp-1"), "cp-1")
    upgraded = host.texts[KCM].replace("v1.29.9", "v1.30.4").replace("    - --leader-elect=true\n", "    - --leader-elect=true\n    - --v=2\n")
    host.texts[KCM] = upgraded
    plan = back(host, at(cluster_facts, "v1.30.4", "cp-1"), "cp-1")
    assert plan["go"] and modes(plan)[KCM] == "flags"
    said = "\n".join(judge(plan, {"cp-1": host.facts()}, ["cp-1"])["lines"])
    assert "Every file" not in said and f"cp-1: {KCM}" in said
    text = host.texts[KCM]
    assert "v1.30.4" in text and "v1.29" not in text and "    - --v=2\n" in text
    assert "--cloud-provider=aws" in text and "--cloud-config=/etc/kubernetes/cloud.conf" in text and "external" not in text
    # The file of the cloud's configuration is mounted again; without the mount, the component would not start.
    assert text.count("cloud-config") == control_plane().texts[KCM].count("cloud-config")


def test_two_runs_with_an_upgrade_between_them_do_not_bring_the_old_image_back(control_plane: Any, cluster_facts: Any) -> None:
    """The rollback once restored the bytes with the image of 1.29 over the image of 1.31, without `force`."""
    host = control_plane()
    migrate(host, at(cluster_facts, "v1.29.9", "cp-1"), "cp-1")
    patched = host.texts[KCM].replace("v1.29.9", "v1.31.4").replace("--cloud-provider=external", "--cloud-provider=aws")
    host.texts[KCM] = patched
    migrate(host, at(cluster_facts, "v1.31.4", "cp-1"), "cp-1")
    plan = back(host, at(cluster_facts, "v1.31.4", "cp-1"), "cp-1")
    assert plan["go"] and "v1.31.4" in host.texts[KCM] and "v1.29" not in host.texts[KCM]
    assert "--cloud-provider" not in host.texts[KCM]
    assert any("--cloud-provider=aws is not restored: kube-controller-manager 1.31 does not start with it" in line for line in plan["warnings"])


def test_a_flag_that_somebody_else_has_set_since_is_theirs(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker('KUBELET_KUBEADM_ARGS="--cloud-provider=aws"\n'), at(cluster_facts, "v1.29.9", "w-1")
    migrate(host, cluster, "w-1")
    host.texts[FLAGS_ENV] = 'KUBELET_KUBEADM_ARGS="--cloud-provider=gce"\n'
    plan = back(host, cluster, "w-1")
    assert plan["go"] and host.texts[FLAGS_ENV] == 'KUBELET_KUBEADM_ARGS="--cloud-provider=gce"\n'
    assert any("--cloud-provider stays gce, because it was set after the migration" in line for line in plan["warnings"])
    assert journal.Journal(str(host.directory)).files == {}


def test_other_flags_in_the_same_line_stay(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    host.texts[FLAGS_ENV] = '# ours\r\nKUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1 --cloud-provider=external --node-labels=a=b"\n'
    assert modes(back(host, cluster, "w-1")) == {FLAGS_ENV: "flags"}
    assert host.texts[FLAGS_ENV] == '# ours\r\nKUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1 --node-labels=a=b"\n'


def test_two_flags_come_back_into_a_line_that_somebody_else_wrote(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker('KUBELET_KUBEADM_ARGS="--cloud-provider=aws --cloud-config=/x"\n'), at(cluster_facts, "v1.29.9", "w-1")
    migrate(host, cluster, "w-1")
    assert host.texts[FLAGS_ENV] == 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'
    host.texts[FLAGS_ENV] = 'KUBELET_KUBEADM_ARGS="--v=2 --cloud-provider=external"\n'
    assert back(host, cluster, "w-1")["go"]
    assert host.texts[FLAGS_ENV] == 'KUBELET_KUBEADM_ARGS="--v=2 --cloud-provider=aws --cloud-config=/x"\n'


def test_ours_among_somebody_elses_values_is_a_problem(worker: Any, cluster_facts: Any) -> None:
    """If the migration's value stayed, the kubelet would wait for a controller that is about to be removed."""
    host, cluster = worker('KUBELET_KUBEADM_ARGS="--cloud-provider=aws"\n'), at(cluster_facts, "v1.29.9", "w-1")
    migrate(host, cluster, "w-1")
    host.texts[FLAGS_ENV] = 'KUBELET_KUBEADM_ARGS="--cloud-provider=gce --cloud-provider=external"\n'
    plan = back(host, cluster, "w-1")
    assert "--cloud-provider was aws, the migration set it to external, and somebody else then set it to gce external" in plan["problems"][0]


def test_what_is_expected_is_what_the_restored_files_say(worker: Any, cluster_facts: Any) -> None:
    """The old process ran with a flag that its files do not set. The rollback does not wait for this flag, because no restart brings it back."""
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    facts = host.facts()
    facts["kubelet"].update(flags=["--cloud-provider="], started=100.0)
    facts["files"][FLAGS_ENV]["changed"] = 100.5  # explains why process and file differ
    forward = make_plan({"w-1": facts}, cluster, [])["hosts"]["w-1"]
    assert forward["kubelet"]["flags_before"] == []
    host.carry_out(forward)
    plan = make_rollback_plan({"w-1": host.facts()}, cluster, [])
    assert plan["hosts"]["w-1"]["kubelet"]["flags"] == []
    assert plan["hosts"]["w-1"]["kubelet"]["flags_before"] == ["--cloud-provider=external"]


def test_files_that_were_changed_in_different_runs_are_expected_together(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    host.texts[DEFAULT] = "KUBELET_EXTRA_ARGS=--cloud-config=/x\n"
    migrate(host, cluster, "w-1")
    plan = back(host, cluster, "w-1")
    assert plan["hosts"]["w-1"]["kubelet"]["flags"] == ["--cloud-config=/x"] and plan["go"]
    assert host.texts[DEFAULT] == "KUBELET_EXTRA_ARGS=--cloud-config=/x\n"


def test_a_lost_journal_is_named_before_anything_is_taken_away(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    cluster["runtime"].update(exists=True, managed=True)
    shutil.rmtree(host.directory)
    plan = back(host, cluster, "w-1")
    assert not plan["go"] and "w-1: its kubelet has --cloud-provider=external, but the journal on this host has no record" in plan["problems"][0]
    forced = back(host, cluster, "w-1", force=True)
    assert forced["go"] and forced["unrestored"][0]["host"] == "w-1"
    verdict = judge(forced, {"w-1": host.facts()}, ["w-1"])
    assert verdict["restored"] and not verdict["complete"] and "w-1: its kubelet has" in verdict["unrestored"][0]
    cluster["others"] = [{"paused": True}]  # the other controller will run again, and initialise the Node
    assert back(host, cluster, "w-1")["go"]
    cluster.update(others=[], runtime={"exists": False, "managed": False})
    assert back(host, cluster, "w-1")["go"]  # there is no controller to remove


def test_a_lost_journal_of_k3s_is_found_in_its_configuration(tree_facts: Any, cluster_facts: Any) -> None:
    cluster = at(cluster_facts, "v1.33.4", "w-1")
    cluster["runtime"].update(exists=True, managed=True)
    texts: dict[str, str | None] = {K3S: "kubelet-arg: cloud-provider=external\n", K3S + ".d/90-cloud.yaml": None}
    facts = tree_facts("k3s/agent", "w-1", changed=texts)
    assert "w-1: its kubelet has --cloud-provider=external, but the journal" in make_rollback_plan({"w-1": facts}, cluster, [])["problems"][0]
    facts = tree_facts("k3s/agent", "w-1", changed={K3S: None})
    assert make_rollback_plan({"w-1": facts}, cluster, [])["problems"] == []


def test_an_original_that_is_missing_is_named_before_anything_is_taken_away(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    shutil.rmtree(host.directory / "originals")
    plan = back(host, cluster, "w-1")
    assert not plan["go"] and "w-1: /var/lib/kubelet/kubeadm-flags.env cannot be restored: the copy" in plan["problems"][0]
    assert "is missing" in plan["problems"][0]


def test_an_unreadable_journal_is_a_problem(worker: Any, cluster_facts: Any) -> None:
    host = worker()
    host.directory.mkdir()
    facts = host.facts(journal_problem="cannot read it", problems=["cannot read it", "the kubelet does not run"])
    plan = make_rollback_plan({"w-1": facts}, at(cluster_facts, "v1.33.4", "w-1"), [])
    assert plan["problems"] == ["w-1: cannot read it"] and plan["warnings"] == ["w-1: the kubelet does not run"]


def test_a_host_whose_kubelet_does_not_run_stops_nothing_unless_it_is_to_be_restored(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    plan = make_rollback_plan({"w-1": host.facts(node_name="", problems=["the kubelet does not run"])}, cluster, [])
    assert plan["go"] and plan["warnings"] == ["w-1: the kubelet does not run"]
    migrate(host, cluster, "w-1")
    dead = host.facts(node_name="", problems=["the kubelet does not run"])
    assert "w-1: could not be inspected: the kubelet does not run" in make_rollback_plan({"w-1": dead}, cluster, [])["problems"][0]
    # Without root, nothing is known about the host, which does not mean that the host needs no rollback.
    blind = {**dead, "kubelet": {}, "files": {}, "journal": {}, "manifests": [], "problems": ["root is needed"]}
    plan = make_rollback_plan({"w-1": blind}, cluster, [])
    assert "root is needed" in plan["problems"][0] and not judge(plan, {"w-1": blind}, ["w-1"])["restored"]


def test_a_dead_kubelet_with_a_lost_journal_is_judged_by_its_files(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    shutil.rmtree(host.directory)
    cluster["runtime"].update(exists=True, managed=True)
    facts = host.facts(node_name="")
    facts["kubelet"]["flags"] = []
    assert "w-1: its kubelet has --cloud-provider=external" in make_rollback_plan({"w-1": facts}, cluster, [])["problems"][0]


@pytest.mark.parametrize("entry", [{"component": "kubelet", "state": "written"}, {"component": "no such thing", "state": "", "baselines": []}])
def test_a_journal_that_says_too_little_is_named(worker: Any, cluster_facts: Any, entry: dict[str, Any]) -> None:
    """A hostile host, or one with an older journal, may report such an entry. No entry is deleted before its file is restored."""
    facts = worker().facts(journal={FLAGS_ENV: entry})
    cluster = at(cluster_facts, "v1.33.4", "w-1")
    plan = make_rollback_plan({"w-1": facts}, cluster, [])
    assert f"w-1: {FLAGS_ENV} cannot be restored: the journal does not have its original" in plan["problems"][0]
    assert make_rollback_plan({"w-1": facts}, cluster, [], force=True)["unrestored"][0]["file"] == FLAGS_ENV
    facts["journal"] = {"/elsewhere": entry}
    assert "the file '/elsewhere' of the journal is missing" in make_rollback_plan({"w-1": facts}, cluster, [])["problems"][0]


def test_a_host_that_is_left_out_keeps_the_controller(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1", "w-2")
    migrate(host, at(cluster_facts, "v1.33.4", "w-1"), "w-1")
    cluster["runtime"].update(exists=True, managed=True)
    plan = back(host, cluster, "w-1", excluded_hosts=["w-2"])
    assert plan["go"] and "w-2: --limit excludes the host, which is not restored, so the controller stays" in plan["warnings"]
    verdict = judge(plan, {"w-1": host.facts()}, ["w-1", "w-2"])
    assert not verdict["restored"] and verdict["waiting"] == ["w-2: --limit excludes the host"] and verdict["unrestored"] == []
    for answer in ({"unreachable": True, "msg": "no route"}, {"msg": "no route", "kubelet": {"version": ""}, "journal": {}}):
        gone = make_rollback_plan({"w-1": host.facts(), "w-2": answer}, cluster, [])
        assert "w-2: could not be inspected: no route. Fix this, or exclude the host" in gone["problems"][0]


def test_a_host_that_is_not_restored_keeps_the_controller(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    plan = make_rollback_plan({"w-1": host.facts()}, cluster, [])
    verdict = judge(plan, {"w-1": host.facts()}, ["w-1"])
    assert verdict["waiting"] == [f"w-1: {FLAGS_ENV} is not restored"]
    assert not any(line.startswith("Every file") for line in verdict["lines"])
    assert judge(plan, {"w-1": host.facts()}, ["w-1"], predicted=True)["complete"]
    assert judge(plan, {"w-1": {"msg": "gone"}}, ["w-1"])["waiting"] == ["w-1: could not be inspected again: gone"]
    host.carry_out(plan["hosts"]["w-1"])
    assert judge(plan, {"w-1": host.facts()}, ["w-1"])["complete"]


def test_what_cannot_be_told_apart_is_a_problem_and_force_keeps_a_copy(control_plane: Any, cluster_facts: Any) -> None:
    host, cluster = control_plane(), at(cluster_facts, "v1.29.9", "cp-1")
    before = host.texts[KCM]
    migrate(host, cluster, "cp-1")
    host.texts[KCM] = "{"
    plan = back(host, cluster, "cp-1")
    assert not plan["go"] and f"cp-1: {KCM} cannot be restored: line" in plan["problems"][0]
    forced = back(host, cluster, "cp-1", force=True)
    assert forced["go"] and host.texts[KCM] == before and modes(forced)[KCM] == "bytes"
    assert any("replaces it with its original and keeps a copy" in line for line in forced["warnings"])


@pytest.mark.parametrize("later", ["{", None])
def test_force_undoes_every_run_not_the_last_one_alone(later: Optional[str], control_plane: Any, cluster_facts: Any) -> None:
    """After two runs with somebody's change between them, the file that the second run began with lacks what the first run removed.

    `later`: a text in which nothing can be undone, and that force replaces; None for the file as the second run left it.
    """
    host = control_plane()
    cluster = at(cluster_facts, "v1.29.9", "cp-1")
    migrate(host, cluster, "cp-1")
    # Somebody added a flag, and brought back one of two flags that the first run removed.
    between = host.texts[KCM].replace("    - --leader-elect=true\n", "    - --leader-elect=true\n    - --v=2\n")
    host.texts[KCM] = between.replace("--cloud-provider=external", "--cloud-provider=aws")
    migrate(host, cluster, "cp-1")
    host.texts[KCM] = later or host.texts[KCM]
    plan = back(host, cluster, "cp-1", force=True)
    text = host.texts[KCM]
    assert plan["go"] and modes(plan)[KCM] == "flags"
    assert "--cloud-provider=aws" in text and "--cloud-config=/etc/kubernetes/cloud.conf" in text and "--v=2" in text


def test_a_file_that_the_migration_made_goes_and_what_others_added_to_it_stays(worker: Any, cluster_facts: Any, host_facts: Any) -> None:
    host, cluster = worker(default=None), at(cluster_facts, "v1.33.4", "w-1")
    host.texts[FLAGS_ENV] = None
    migrate(host, cluster, "w-1")
    (made,) = [path for path, text in host.texts.items() if text]
    written = host.texts[made]
    assert modes(back(host, cluster, "w-1")) == {made: "bytes"} and host.texts[made] is None
    migrate(host, cluster, "w-1")
    host.texts[made] = written + "OTHER=1\n"
    assert modes(back(host, cluster, "w-1")) == {made: "flags"} and host.texts[made] == "OTHER=1\n"


def test_a_file_that_somebody_else_has_removed_stays_removed(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker(), at(cluster_facts, "v1.33.4", "w-1")
    migrate(host, cluster, "w-1")
    host.texts[FLAGS_ENV] = None
    plan = back(host, cluster, "w-1")
    assert plan["go"] and host.texts[FLAGS_ENV] is None and any("removed after the migration and stays removed" in line for line in plan["warnings"])


def test_k3s_keeps_what_others_added_and_loses_what_the_migration_did(tree_facts: Any, machine: Any, cluster_facts: Any) -> None:
    texts = {path: base64.b64decode(entry["content"]).decode() for path, entry in tree_facts("k3s/server")["files"].items()}
    host = machine(lambda texts: tree_facts("k3s/server", "cp-1", changed=texts), texts)
    before, cluster = host.texts[K3S], at(cluster_facts, "v1.33.4", "cp-1")
    migrate(host, cluster, "cp-1")
    host.texts[K3S] = host.texts[K3S].replace("  - k3s.example.com\n", "  - k3s.example.com\n  - second.example.com\n")
    plan = back(host, cluster, "cp-1")
    assert plan["go"], plan["problems"]
    assert modes(plan)[K3S] == "flags"
    expected = before.replace("  - k3s.example.com\n", "  - k3s.example.com\n  - second.example.com\n")
    # A plugin with which this release does not start is not restored, and the plan says so.
    assert host.texts[K3S] == expected.replace("NodeRestriction,PersistentVolumeLabel", "NodeRestriction")
    assert any("PersistentVolumeLabel is not restored" in line for line in plan["warnings"])


# -- kubeadm's configuration --------------------------------------------------------------------------------------------


V1BETA3 = """apiServer:
  timeoutForControlPlane: 4m0s
apiVersion: kubeadm.k8s.io/v1beta3
controllerManager:
  extraArgs:
    cloud-config: /etc/kubernetes/cloud.conf
    cloud-provider: aws
  extraVolumes:
  - hostPath: /etc/kubernetes/cloud.conf
    mountPath: /etc/kubernetes/cloud.conf
    name: cloud
kind: ClusterConfiguration
kubernetesVersion: v1.29.9
"""


def kubeadm_journal(host: Any, before: str, cluster_facts: Any) -> str:
    """Record the ConfigMap in the journal as a migration does; return the migrated text."""
    after = kubeadm.edit(before, (1, 29))[0]
    journal.Journal(str(host.directory)).record(
        KUBEADM_CONFIG, "kubeadm-config", "run-1", before.encode(), after.encode(), 0o600, (0, 0), [])
    return after


def config(cluster_facts: Any, text: str, version: str) -> dict[str, Any]:
    cluster: dict[str, Any] = cluster_facts(("cp-1", "initialized"), ("cp-2", "initialized"), version=version, kubeadm=text)
    cluster["kubeadm_config"]["sha256"] = journal.digest(text.encode())
    return cluster


def test_kubeadms_configuration_comes_from_any_control_plane_that_knows_it(control_plane: Any, cluster_facts: Any) -> None:
    new, old = control_plane(), control_plane()
    after = kubeadm_journal(old, V1BETA3, cluster_facts)
    hosts = {"cp-1": new.facts(), "cp-2": old.facts()}
    plan = make_rollback_plan(hosts, config(cluster_facts, after, "v1.29.9"), ["cp-1", "cp-2"])
    assert plan["go"] and _rollback_text(plan) == V1BETA3 and plan["forget"] == ["cp-2"]
    assert {"host": "(cluster)", "file": "ConfigMap kube-system/kubeadm-config", "component": "kubeadm-config", "mode": "bytes"} in plan["files"]
    rows = [(row["file"], row["flag"], row["then"]) for row in plan["edits"] if row["component"] == "kubeadm-config"]
    assert ("ConfigMap kube-system/kubeadm-config", "--cloud-config", "/etc/kubernetes/cloud.conf") in rows


def test_the_journal_that_wrote_kubeadms_configuration_last_restores_it(control_plane: Any, cluster_facts: Any) -> None:
    earlier, last = control_plane(), control_plane()
    kubeadm_journal(earlier, V1BETA3.replace("4m0s", "9m0s"), cluster_facts)
    after = kubeadm_journal(last, V1BETA3, cluster_facts)
    plan = make_rollback_plan({"cp-1": earlier.facts(), "cp-2": last.facts()}, config(cluster_facts, after, "v1.29.9"), ["cp-1", "cp-2"])
    assert _rollback_text(plan) == V1BETA3 and modes(plan)["ConfigMap kube-system/kubeadm-config"] == "bytes"


def _rollback_text(plan: dict[str, Any]) -> str:
    return base64.b64decode(plan["kubeadm_config"]["content"]).decode()


@pytest.mark.parametrize("version", ["v1.30.4", "v1.31.4"])
def test_kubeadms_configuration_keeps_the_version_and_form_of_an_upgrade(control_plane: Any, cluster_facts: Any, version: str) -> None:
    host = control_plane()
    after = kubeadm_journal(host, V1BETA3, cluster_facts)
    upgraded = after.replace("v1.29.9", version)
    if version == "v1.31.4":
        upgraded = upgraded.replace("v1beta3", "v1beta4").replace(
            "  extraArgs:\n    cloud-provider: external\n", "  extraArgs:\n  - name: cloud-provider\n    value: external\n")
        assert "- name: cloud-provider" in upgraded
    plan = make_rollback_plan({"cp-1": host.facts()}, config(cluster_facts, upgraded, version), ["cp-1"])
    assert plan["go"], plan["problems"]
    text = _rollback_text(plan)
    flags = {flag.name: flag.value for flag in kubeadm.managed_flags(text)["kube-controller-manager"]}
    assert f"kubernetesVersion: {version}" in text
    assert flags["cloud-config"] == "/etc/kubernetes/cloud.conf"


# -- single decisions ---------------------------------------------------------------------------------------------------

API = "/etc/kubernetes/manifests/kube-apiserver.yaml"


def manifest(*flags: str, image: str = "kube-apiserver:v1.33.4") -> str:
    head = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    image: {0}\n    command:\n    - kube-apiserver\n"
    return head.format(image) + "".join(f"    - {flag}\n" for flag in flags)


def baseline(original: str | None, written: str, copied: bool = True) -> dict[str, Any]:
    """Return a journal's entry about a file. In these tests, the digest of a text is the text itself."""
    return {"original": draft.encoded(original or ""), "existed": original is not None, "sha256": original or "", "written_sha256": [written],
            "written": draft.encoded(written), "copied": copied}


KIND = undo.Manifest("kube-apiserver")
PLUGINS = "--enable-admission-plugins=NodeRestriction,PersistentVolumeLabel"
OLD, NEW = manifest(PLUGINS, "--v=1"), manifest("--enable-admission-plugins=NodeRestriction", "--v=1")


@pytest.mark.parametrize(("kind", "baselines", "now", "mode", "after"), [
    pytest.param(None, [baseline("a", "b")], "a", "done", "a", id="it-is-so-already"),
    pytest.param(None, [baseline("a", "b")], "b", "bytes", "a", id="nobody-else-wrote"),
    pytest.param(None, [baseline(None, "b")], "b", "bytes", None, id="it-was-not-there"),
    pytest.param(KIND, [baseline(None, NEW)], NEW, "bytes", None, id="a-manifest-that-was-not-there"),
    pytest.param(None, [baseline("b", "c"), baseline("a", "b")], "c", "bytes", "a", id="two-runs"),
    pytest.param(None, [baseline("b", "c"), baseline("a", "b")], "b", "bytes", "a", id="two-runs-the-last-one-undone-already"),
    pytest.param(KIND, [baseline("no manifest", NEW)], NEW, "bytes", "no manifest", id="what-it-was-is-not-ours-to-judge"),
    pytest.param(KIND, [baseline(manifest("--v=1"), NEW)], NEW, "bytes", manifest("--v=1"), id="no-flag-that-is-fatal"),
    pytest.param(KIND, [baseline(OLD, NEW)], NEW, "done", NEW, id="a-plugin-with-which-it-does-not-start"),
    pytest.param(KIND, [baseline(manifest("--v=1"), NEW)], NEW.replace("v=1", "v=2"), "flags", manifest("--v=2"), id="somebody-else-wrote-too"),
])
def test_how_a_file_goes_back(kind: Any, baselines: list[dict[str, Any]], now: str, mode: str, after: str | None) -> None:
    found = rollback.restore(kind, API, baselines, now, now, (1, 33))
    assert (found.mode, found.after, found.before) == (mode, after, now)


@pytest.mark.parametrize(("kind", "copied", "reason"), [
    (KIND, False, "the journal has no copy of what the migration wrote"),
    (None, True, "flags in a file of this kind cannot be told apart"),
])
def test_a_file_that_somebody_else_wrote_and_that_cannot_go_back(kind: Any, copied: bool, reason: str) -> None:
    with pytest.raises(undo.CannotUndo, match=reason):
        rollback.restore(kind, API, [baseline(OLD, NEW, copied)], "other", "other", (1, 33))


@pytest.mark.parametrize(("component", "text", "running", "expected"), [
    ("kubelet", None, "v1.30.1", (1, 30)),
    ("kubelet", None, "", (1, 33)),
    ("kube-apiserver", manifest(image="registry:5000/api:v1.31.2@sha256:01"), "v1.30.1", (1, 31)),
    ("kube-apiserver", manifest(image="api"), "v1.30.1", (1, 30)),
    ("kube-apiserver", None, "v1.30.1", (1, 30)),
    ("kube-apiserver", "[", "", (1, 33)),
])
def test_the_release_that_is_going_to_read_a_file(component: str, text: str | None, running: str, expected: tuple[int, int]) -> None:
    facts = {"kubelet": {"version": running}, "components": {"kube-apiserver": {"version": running}}}
    assert rollback._version(facts, component, text, (1, 33)) == expected


@pytest.mark.parametrize(("name", "is_manifest"), [("kube-apiserver.yaml", True), ("kube-apiserver+json.yaml", False), ("notes.txt", False)])
def test_which_patches_have_flags_that_can_be_told_apart(name: str, is_manifest: bool) -> None:
    kind = rollback._kind({}, "/etc/kubernetes/patches/" + name, {"component": "kubeadm-patches"})
    assert isinstance(kind, undo.Manifest) is is_manifest


def test_flags_come_from_the_components_own_manifest(host_facts: Any) -> None:
    folder = "/etc/kubernetes/manifests/"
    facts = host_facts("cp-1", {folder + "a.yaml": "spec: [", folder + "b.yaml": manifest().replace("kube-apiserver", "other"), API: NEW})
    assert rollback._flags(facts, "kube-apiserver", {}) == ["--enable-admission-plugins=NodeRestriction"]
    assert rollback._flags(facts, "kube-apiserver", {API: None}) == [] == rollback._flags(facts, "kube-controller-manager", {})


@pytest.mark.parametrize(("original", "running", "rows"), [
    pytest.param("--cloud-provider=aws", ["--cloud-provider=external"], [("--cloud-provider=external", "--cloud-provider=aws")], id="runs-otherwise"),
    pytest.param("--cloud-provider=aws", [], [(None, "--cloud-provider=aws")], id="runs-with-none"),
    pytest.param("--v=2", ["--cloud-provider=external"], [("--cloud-provider=external", None)], id="is-to-run-with-none"),
    pytest.param("--cloud-provider=aws", ["--cloud-provider=aws"], [], id="runs-so-already"),
])
def test_restored_files_that_a_kubelet_has_not_read_yet(
        worker: Any, cluster_facts: Any, original: str, running: list[str], rows: list[tuple[str | None, str | None]]) -> None:
    host, cluster = worker(f'KUBELET_KUBEADM_ARGS="{original}"\n'), at(cluster_facts, "v1.29.9", "w-1")
    before = dict(host.texts)
    migrate(host, cluster, "w-1")
    restored = make_rollback_plan({"w-1": host.facts()}, cluster, [])
    assert [row["file"] for row in restored["edits"]] == [FLAGS_ENV] and "restarts" in restored["edits"][0]["risk"]
    host.texts.update(before)
    facts = host.facts()
    facts["kubelet"]["flags"] = running
    plan = make_rollback_plan({"w-1": facts}, cluster, [])
    assert [(row["now"], row["then"]) for row in plan["edits"] if row["file"] == "(the running process)"] == rows
    step = plan["hosts"]["w-1"]["kubelet"]
    assert [item["keep"] for item in step["files"]] == [True] and step["restart"] is False


def test_a_kubelet_with_a_file_that_is_not_restored_yet_is_not_called_restored(worker: Any, cluster_facts: Any) -> None:
    host, cluster = worker('KUBELET_KUBEADM_ARGS="--cloud-provider=aws"\n', 'KUBELET_EXTRA_ARGS="--cloud-config=/c"\n'), at(cluster_facts, "v1.29.9", "w-1")
    before = dict(host.texts)
    migrate(host, cluster, "w-1")
    assert host.texts[DEFAULT] != before[DEFAULT]
    host.texts[FLAGS_ENV] = before[FLAGS_ENV]
    facts = host.facts()
    facts["kubelet"]["flags"] = ["--cloud-provider=external"]
    assert {row["file"] for row in make_rollback_plan({"w-1": facts}, cluster, [])["edits"]} == {DEFAULT}


def test_the_service_of_a_unit_is_the_one_that_the_journal_knows(tree_facts: Any, machine: Any, cluster_facts: Any) -> None:
    texts = {path: base64.b64decode(entry["content"]).decode() if entry["exists"] else None
             for path, entry in tree_facts("systemd/control-plane")["files"].items()}
    host = machine(lambda now: tree_facts("systemd/control-plane", "cp-1", changed=now), texts)
    cluster = at(cluster_facts, "v1.29.9", "cp-1")
    migrate(host, cluster, "cp-1")
    plan = make_rollback_plan({"cp-1": host.facts()}, cluster, ["cp-1"])
    assert {step["component"]: step["service"]["unit"] for step in plan["hosts"]["cp-1"]["control_plane"]} == {
        name: name + ".service" for name in ("kube-controller-manager", "kube-apiserver")}
    host.texts.update(texts)
    facts = host.facts()
    facts["components"].pop("kube-apiserver")
    facts["components"]["kube-controller-manager"]["flags"] = []
    rows = [(row["component"], row["now"]) for row in make_rollback_plan({"cp-1": facts}, cluster, ["cp-1"])["edits"]]
    assert rows == [("kube-controller-manager", None)]


def test_what_is_known_of_hosts_and_nodes(worker: Any, cluster_facts: Any) -> None:
    cluster = at(cluster_facts, "odd", "w-1", "w-2", "w-3", "stranger")
    cluster["services"] = [{"namespace": "shop", "name": "web", "finalizer": True}, {"namespace": "shop", "name": "db", "finalizer": False}]
    cluster["nodes"][0]["uninitialized"] = True
    detected = {"w-1": worker().facts(), "w-2": {"msg": "no route " * 100}}
    assert not [text for text in make_rollback_plan(detected, cluster, [], ["w-3"])["warnings"] if "not in the inventory" in text]
    cluster["runtime"].update(exists=True, managed=True)
    plan = make_rollback_plan(detected, cluster, [], ["w-3"])
    assert [text.split(" is ")[0] for text in plan["warnings"] if "not in the inventory" in text] == ["Node stranger"]
    assert (plan["held"], plan["tainted"]) == (["shop/web"], ["w-1"])
    assert plan["problems"][0].startswith("w-2: could not be inspected: " + ("no route " * 100)[:300].rstrip() + ". Fix this")


def test_one_journal_is_enough_to_ask_every_kubelet_why_it_waits(worker: Any, cluster_facts: Any) -> None:
    known, lost = worker(), worker('KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n')
    cluster = at(cluster_facts, "v1.33.4", "w-1", "w-2")
    migrate(known, at(cluster_facts, "v1.33.4", "w-1"), "w-1")
    detected = {"w-1": known.facts(), "w-2": lost.facts(node_name="w-2")}
    assert "w-2: its kubelet has --cloud-provider=external" in make_rollback_plan(detected, cluster, [])["problems"][0]
    forced = make_rollback_plan(detected, cluster, [], force=True)
    assert forced["go"] and any("no controller initialises its Node any more" in text for text in forced["warnings"])


def test_force_is_offered_with_what_it_does(control_plane: Any, worker: Any, cluster_facts: Any) -> None:
    facts, cluster = worker().facts(journal={FLAGS_ENV: {"component": "kubelet", "state": "written"}}), at(cluster_facts, "v1.33.4", "w-1")
    assert make_rollback_plan({"w-1": facts}, cluster, [])["problems"][0].endswith("the file then stays as it is")
    assert any(text.endswith("It stays as it is") for text in make_rollback_plan({"w-1": facts}, cluster, [], force=True)["warnings"])
    host, cluster = control_plane(), at(cluster_facts, "v1.29.9", "cp-1")
    migrate(host, cluster, "cp-1")
    host.texts[KCM] = "{"
    assert "the rollback then replaces it with its original" in make_rollback_plan({"cp-1": host.facts()}, cluster, ["cp-1"])["problems"][0]
    forced = make_rollback_plan({"cp-1": host.facts()}, cluster, ["cp-1"], force=True)
    assert [(row["flag"], row["then"]) for row in forced["edits"] if row["file"] == KCM] == [("(the file)", "as it was before")]


def test_a_configuration_of_kubeadm_without_an_original(control_plane: Any, cluster_facts: Any) -> None:
    facts, cluster = control_plane().facts(), at(cluster_facts, "v1.29.9", "cp-1")
    cluster["kubeadm_config"].update(exists=True, content=V1BETA3)
    facts["journal"] = {KUBEADM_CONFIG: {"component": "kubeadm-config", "state": "written"}}
    (problem,) = make_rollback_plan({"cp-1": facts}, cluster, ["cp-1"])["problems"]
    assert "cannot be restored: no journal has its original. Edit it with" in problem
    forced = make_rollback_plan({"cp-1": facts}, cluster, ["cp-1"], force=True)
    assert [(item["host"], item["reason"]) for item in forced["unrestored"]] == [("(cluster)", "no journal has its original")]
    assert any(text.endswith("It stays as it is") for text in forced["warnings"]) and forced["go"]
    facts["journal"][KUBEADM_CONFIG]["problem"] = "the copy is missing"
    assert "cannot be restored: the copy is missing" in make_rollback_plan({"cp-1": facts}, cluster, ["cp-1"])["problems"][0]
    cluster["kubeadm_config"]["exists"] = False
    assert make_rollback_plan({"cp-1": facts}, cluster, ["cp-1"])["problems"] == []


OTHER = {"kind": "DaemonSet", "namespace": "kube-system", "name": "other-ccm"}
IN_TREE = {"component": "kube-controller-manager", "flag": "--cloud-provider", "now": "external", "then": "aws"}


def last_words(predicted: bool = False, **values: Any) -> str:
    empty = {"files": [], "kept": [], "unrestored": [], "edits": [], "held": [], "paused": [], "serving": [], "controller": True}
    return "\n".join(judge(empty | values, {}, [], predicted)["lines"])


@pytest.mark.parametrize(("values", "expected"), [
    ({}, "At risk now: no cloud-controller-manager runs."),
    ({"edits": [IN_TREE | {"then": ""}]}, "At risk now: no cloud-controller-manager runs."),
    ({"edits": [IN_TREE]}, "Running now: kube-controller-manager with the in-tree provider aws."),
    ({"paused": [OTHER]}, "Running now: DaemonSet kube-system/other-ccm, which the migration had paused."),
    ({"serving": ["DaemonSet a/b"], "controller": False}, "Running now: DaemonSet a/b."),
])  # fmt: skip
def test_the_last_words_say_which_controller_runs_now(values: dict[str, Any], expected: str) -> None:
    assert expected in last_words(**values)
    # Only a Service that no controller serves hangs when somebody deletes it.
    assert ("shop/web" in last_words(**values, held=["shop/web"])) is expected.startswith("At risk")
    assert "keep the finalizer" not in last_words(**values)


def test_a_rollback_with_nothing_to_undo_raises_no_alarm_and_check_mode_claims_nothing() -> None:
    assert "At risk" not in last_words(controller=False) and "Nodes keep their providerID" in last_words(controller=False)
    assert last_words(predicted=True).startswith("Check mode: nothing was changed.")
    assert "Check mode" not in last_words()


def test_what_was_given_up_or_is_the_clusters_keeps_no_controller(worker: Any) -> None:
    entry = {"component": "kubelet", "state": "written"}
    facts = worker().facts(journal={FLAGS_ENV: entry, DEFAULT: entry, KUBEADM_CONFIG: entry})
    plan = {"files": [], "kept": [], "unrestored": [{"host": "w-1", "file": FLAGS_ENV, "reason": "lost"}], "edits": [], "held": [], "paused": [], "serving": [],
            "controller": True}
    assert judge(plan, {"w-1": facts}, ["w-1"])["waiting"] == [f"w-1: {DEFAULT} is not restored"]
    facts["journal_problem"] = "the journal cannot be read"
    assert judge(plan, {"w-1": facts}, ["w-1"])["waiting"] == ["w-1: the journal cannot be read"]


# -- what an undo does not change ---------------------------------------------------------------------------------------

POD = """kind: Pod
spec:
  containers:
  - name: kube-apiserver
    command: [kube-apiserver, --v=2, --cloud-provider=aws]
    args: [--secure-port=6443]
    volumeMounts: [{mountPath: /a}, {mountPath: /b}]
  - name: other
    command: [other, --cloud-provider=gce]
  volumes: [{name: a}, {name: b}]
"""
V1BETA4 = """kind: ClusterConfiguration
apiServer:
  extraArgs: [{name: v, value: "2"}, {name: cloud-provider, value: aws}]
  extraVolumes: [{name: a}, {name: b}]
clusterName: one
"""
SERVICE = "[Service]\nExecStart=/usr/bin/kubelet --v=2 --cloud-provider=aws\n"
CONFIG = "token: x\nkubelet-arg: [v=2, cloud-provider=aws]\nkube-apiserver-arg+: [v=2, cloud-provider=aws]\ndisable: [a]\n"


def unit_kind(path: str, *files: tuple[str, str]) -> undo.Unit:
    """Return the kind of a file, with all files of the kubelet's command line: units first, then environment files."""
    units = tuple(name for name, unused in files if unit.is_unit_file(name))
    return undo.Unit("kubelet", path, unit.Sources(units, tuple(name for name, unused in files if name not in units), dict(files)))


KINDS = {
    "manifest": (KIND, POD),
    "mapping": (undo.ClusterConfiguration("kubeadm"), V1BETA3),
    "list": (undo.ClusterConfiguration("kubeadm"), V1BETA4),
    "unit": (unit_kind("/etc/kubelet.service", ("/etc/kubelet.service", SERVICE)), SERVICE),
    "k3s": (undo.Rancher("k3s"), CONFIG),
}


@pytest.mark.parametrize(("name", "old", "new", "same"), [
    pytest.param("manifest", "=aws", "=external", True, id="a-flag-of-a-manifest"),
    pytest.param("manifest", ", --cloud-provider=aws", "", True, id="a-flag-of-a-manifest-that-goes"),
    pytest.param("manifest", "{mountPath: /a}, {mountPath: /b}", "{mountPath: /b}, {mountPath: /a}", True, id="the-order-of-mounts"),
    pytest.param("manifest", "{name: a}, {name: b}", "{name: b}, {name: a}", True, id="the-order-of-volumes"),
    pytest.param("manifest", "--v=2", "--v=3", False, id="another-flag-of-a-manifest"),
    pytest.param("manifest", "6443", "6444", False, id="an-argument-of-a-manifest"),
    pytest.param("manifest", "=gce", "=external", False, id="a-flag-of-another-container"),
    pytest.param("manifest", "/a}", "/c}", False, id="a-mount"),
    pytest.param("manifest", "{name: a}", "{name: c}", False, id="a-volume"),
    pytest.param("mapping", ": aws", ": external", True, id="a-flag-in-a-mapping"),
    pytest.param("mapping", "    cloud-provider: aws\n", "", True, id="a-flag-in-a-mapping-that-goes"),
    pytest.param("mapping", "    cloud-provider: aws\n", "    cloud-provider: aws\n    v: 2\n", False, id="another-flag-in-a-mapping"),
    pytest.param("mapping", "4m0s", "5m0s", False, id="a-setting-beside-a-mapping"),
    pytest.param("list", "value: aws", "value: external", True, id="a-flag-in-a-list"),
    pytest.param("list", ", {name: cloud-provider, value: aws}", "", True, id="a-flag-in-a-list-that-goes"),
    pytest.param("list", "{name: a}, {name: b}", "{name: b}, {name: a}", True, id="the-order-of-extra-volumes"),
    pytest.param("list", '"2"', '"3"', False, id="another-flag-in-a-list"),
    pytest.param("list", "{name: a}", "{name: c}", False, id="an-extra-volume"),
    pytest.param("list", "one", "two", False, id="a-setting-beside-a-list"),
    pytest.param("unit", "=aws", "=external", True, id="a-flag-of-a-unit"),
    pytest.param("unit", "--v=2", "--v=3", False, id="another-flag-of-a-unit"),
    pytest.param("k3s", "kubelet-arg: [v=2, cloud-provider=aws]", "kubelet-arg+: [v=2]", True, id="a-flag-of-k3s"),
    pytest.param("k3s", "arg+: [v=2, cloud-provider=aws]", "arg: [cloud-provider=external, v=2]", True, id="a-flag-that-k3s-adds"),
    pytest.param("k3s", "disable: [a]", "disable-cloud-controller: true", True, id="a-key-of-k3s"),
    pytest.param("k3s", "kubelet-arg: [v=2", "kubelet-arg: [v=3", False, id="another-flag-of-k3s"),
    pytest.param("k3s", "arg+: [v=2", "arg+: [v=3", False, id="another-flag-that-k3s-adds"),
    pytest.param("k3s", "token: x", "token: y", False, id="another-key-of-k3s"),
])
def test_what_is_compared_when_flags_go_back(name: str, old: str, new: str, same: bool) -> None:
    kind, text = KINDS[name]
    assert old in text
    assert (kind.rest(text) == kind.rest(text.replace(old, new, 1))) is same


def test_a_file_of_k3s_that_says_nothing_has_nothing_to_compare() -> None:
    assert undo.Rancher("k3s").rest("# empty\n") == {}


@pytest.mark.parametrize(("data", "left"), [
    pytest.param({"a": [1, 2], "b": 3}, {"a": [1], "b": 3}, id="an-item"),
    pytest.param({"a": {"b": [2]}, "c": 1}, {"c": 1}, id="what-it-leaves-empty"),
    pytest.param([{"a": [2, 1]}, 2], [{"a": [1]}], id="at-every-depth"),
])
def test_volumes_that_may_come_back_are_not_compared(data: Any, left: Any) -> None:
    assert undo._without(data, [2]) == left


@pytest.mark.parametrize(("first", "second", "same"), [
    pytest.param(["--enable-admission-plugins=A,B"], ["--enable-admission-plugins=B, A"], True, id="items-of-a-list"),
    pytest.param(["--cloud-config=/a,b"], ["--cloud-config=b,/a"], False, id="a-value-that-is-no-list"),
    pytest.param(["--cloud-provider=a", "--cloud-config=/b"], ["--cloud-config=/b", "--cloud-provider=a"], True, id="different-flags"),
    pytest.param(["--cloud-provider=a", "--cloud-provider=b"], ["--cloud-provider=b", "--cloud-provider=a"], False, id="one-flag-twice"),
])
def test_which_order_counts_when_flags_are_compared(first: list[str], second: list[str], same: bool) -> None:
    assert (undo._plain({"kubelet": find_flags(first)}) == undo._plain({"kubelet": find_flags(second)})) is same


@pytest.mark.parametrize("merged", ["[", "kind: Pod\n", "spec: {containers: 1}\n"])
def test_merged_lines_that_are_no_manifest_any_more_are_not_used(merged: str) -> None:
    assert not undo._agrees(KIND, merged, NEW, {}, [])


MOUNTS = "    volumeMounts:\n    - mountPath: /a\n      name: a\n  volumes:\n  - hostPath:\n      path: /a\n    name: a\n"
VOLUMES = "  extraVolumes:\n  - hostPath: /a\n    mountPath: /a\n    name: a\n"


def test_a_volume_comes_back_with_the_flag_that_needs_it() -> None:
    """Lines that others did not change come back at their old place; an edit would add them at the end."""
    before = manifest("--cloud-config=/a", "--v=1", "--cloud-provider=aws", "--v=2") + MOUNTS
    ours = manifest("--v=1", "--cloud-provider=external", "--v=2")
    undone = undo.undo(KIND, before, ours, ours.replace("v1.33.4", "v1.29.9"), (1, 29)).text
    assert undone == before.replace("v1.33.4", "v1.29.9")
    head = "clusterName: one\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n"
    before = head + "    cloud-config: /a\n    v: '1'\n    cloud-provider: aws\n    w: '1'\n" + VOLUMES
    ours = head + "    v: '1'\n    cloud-provider: external\n    w: '1'\n"
    undone = undo.undo(undo.ClusterConfiguration("kubeadm"), before, ours, ours.replace("one", "two"), (1, 29)).text
    assert undone == before.replace("one", "two")


def test_a_volume_stays_away_where_somebody_else_has_put_the_flag_back() -> None:
    before = manifest("--cloud-config=/a", "--v=1", "--cloud-provider=aws") + MOUNTS
    ours = manifest("--v=1", "--cloud-provider=external")
    now = manifest("--cloud-config=/a", "--v=1", "--cloud-provider=external")
    assert undo.undo(KIND, before, ours, now, (1, 29)).text == manifest("--cloud-config=/a", "--v=1", "--cloud-provider=aws")


UNIT, DROPIN = "/etc/kubelet.service", "/etc/kubelet.service.d/10.conf"


@pytest.mark.parametrize(("path", "exec_start", "before", "now", "after"), [
    pytest.param(DEFAULT, "$A $B", "A=-a\nB=--cloud-provider=aws\n", "A=-a\nB=-b\n", "A=-a\nB=-b --cloud-provider=aws\n", id="the-variable-it-was-in"),
    pytest.param(DEFAULT, "$A $B", "A=--cloud-provider=aws\nB=-b\n", "A=-a\nB=-b\n", "A=-a --cloud-provider=aws\nB=-b\n", id="and-no-other"),
    pytest.param(DEFAULT, "$A $B", "A=--cloud-config=/x\nB=--cloud-provider=aws\n", "A=--cloud-config=/x\nB=-b\n",
                 "A=--cloud-config=/x\nB=-b --cloud-provider=aws\n", id="whatever-flag-another-one-has"),
    pytest.param(DEFAULT, "$A $B", "A=-a\nB=--cloud-provider=aws\n", "A=-a\n", "A=-a --cloud-provider=aws\n", id="the-variable-that-is-left"),
    pytest.param(UNIT, "", f"{SERVICE}Environment=A=-a\n", "[Service]\nEnvironment=A=-a\nExecStart=/usr/bin/kubelet $A\n",
                 "[Service]\nEnvironment=A=-a\nExecStart=/usr/bin/kubelet $A --cloud-provider=aws\n", id="the-command-itself"),
    pytest.param(UNIT, "$A", f"{SERVICE}Environment=A=-a\n", '[Service]\nExecStart=/other\nEnvironment="A=-a"\n',
                 '[Service]\nExecStart=/other\nEnvironment="A=-a --cloud-provider=aws"\n', id="a-command-that-a-drop-in-replaces"),
    pytest.param(DROPIN, "$A", f"[Service]\nExecStart=\n{SERVICE}", '[Service]\nEnvironment="A=-a"\n',
                 '[Service]\nEnvironment="A=-a --cloud-provider=aws"\n', id="a-command-that-is-elsewhere-by-now"),
])
def test_where_a_flag_comes_back_that_went(path: str, exec_start: str, before: str, now: str, after: str) -> None:
    other = f"[Service]\nExecStart=\nExecStart=/usr/bin/kubelet {exec_start}\n"
    files = [(UNIT, other), (path, now)] if path in (DEFAULT, DROPIN) else [(UNIT, now), *([(DROPIN, other)] if exec_start else [])]
    kind = unit_kind(path, *files)
    changes = {"kubelet": [undo.Change("cloud-provider", None, "aws", undo.WHY, "")]}
    assert kind.edit(before, "", now, changes, (1, 29)) == after


def test_a_flag_has_no_place_in_a_file_that_the_unit_does_not_use() -> None:
    kind = unit_kind(DEFAULT, (UNIT, SERVICE), (DEFAULT, "A=-a\n"))
    with pytest.raises(undo.CannotUndo, match="no place for --cloud-provider"):
        kind.edit("A=--cloud-provider=aws\n", "", "A=-a\n", {"kubelet": [undo.Change("cloud-provider", None, "aws", undo.WHY, "")]}, (1, 29))


def test_a_flag_has_no_place_where_its_variable_is_gone() -> None:
    kind = unit_kind(UNIT, (UNIT, SERVICE))
    before = "[Service]\nEnvironment=A=--cloud-provider=aws\nExecStart=/usr/bin/kubelet $A\n"
    with pytest.raises(undo.CannotUndo, match="no place for --cloud-provider"):
        kind.edit(before, "", SERVICE, {"kubelet": [undo.Change("cloud-provider", None, "aws", undo.WHY, "")]}, (1, 29))


def test_lines_of_ours_that_nothing_reads_any_more_go_back_too() -> None:
    kind = unit_kind(DEFAULT, (UNIT, SERVICE), (DEFAULT, ""))
    assert undo.undo(kind, "A=-a\nB=1\n", "A=--cloud-provider=external\nB=1\n", "A=--cloud-provider=external\nB=1\nC=1\n", (1, 29)).text == "A=-a\nB=1\nC=1\n"


# -- flags and lines that are restored ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "ours", "now", "expected", "kept"), [
    pytest.param(["--cloud-provider=aws"], [], [], ["--cloud-provider=aws"], 0, id="a-flag-that-went"),
    pytest.param([], ["--cloud-provider=external"], ["--cloud-provider=external"], [], 0, id="a-flag-that-came"),
    pytest.param(["--cloud-provider=aws"], ["--cloud-provider=external"], ["--cloud-provider=external"], ["--cloud-provider=aws"], 0, id="a-value"),
    pytest.param(["--cloud-provider=aws"], ["--cloud-provider=external"], ["--cloud-provider=aws"], ["--cloud-provider=aws"], 0, id="so-already"),
    pytest.param(["--cloud-provider=aws"], ["--cloud-provider=aws"], ["--cloud-provider=gce"], ["--cloud-provider=gce"], 0, id="not-ours"),
    pytest.param(["--cloud-provider=aws"], [], ["--cloud-provider=gce"], ["--cloud-provider=gce"], 1, id="somebody-elses"),
    pytest.param(["--cloud-config=/a", "--cloud-provider=aws"], [], [], ["--cloud-config=/a", "--cloud-provider=aws"], 0, id="two"),
    pytest.param(["--cloud-provider=a", "--cloud-provider=b"], [], [], ["--cloud-provider=a", "--cloud-provider=b"], 0, id="twice"),
    pytest.param(["--cloud-config=/a"], ["--cloud-provider=external", "--cloud-config=/b"], ["--cloud-provider=external", "--cloud-config=/b"],
                 ["--cloud-config=/a"], 0, id="in-their-order"),
    pytest.param(["--enable-admission-plugins=A,B"], ["--enable-admission-plugins=A"], ["--enable-admission-plugins=A,C"],
                 ["--enable-admission-plugins=A,C,B"], 0, id="an-item-that-went"),
    pytest.param(["--enable-admission-plugins=A"], ["--enable-admission-plugins=A,B"], ["--enable-admission-plugins=C,B"],
                 ["--enable-admission-plugins=C"], 0, id="an-item-that-came"),
    pytest.param([], ["--enable-admission-plugins=A"], ["--enable-admission-plugins=A"], [], 0, id="a-list-that-came"),
    pytest.param(["--enable-admission-plugins=A,B"], [], ["--enable-admission-plugins=C"], ["--enable-admission-plugins=C,A,B"], 0, id="a-list-that-went"),
    pytest.param(["--feature-gates=A=true,B=true"], ["--feature-gates=A=true"], ["--feature-gates=B=false"],
                 ["--feature-gates=B=false"], 0, id="a-gate-that-somebody-else-has-set"),
    pytest.param(["--cloud-config=/a", "--cloud-provider=aws"], ["--cloud-config=/a"], ["--cloud-config=/a"],
                 ["--cloud-config=/a", "--cloud-provider=aws"], 0, id="the-second-alone"),
    pytest.param(["--cloud-config=/a", "--cloud-provider=aws"], [], ["--cloud-config=/b"],
                 ["--cloud-config=/b", "--cloud-provider=aws"], 1, id="the-first-is-somebody-elses"),
    pytest.param(["--feature-gates=A=true"], ["--feature-gates=B=true"], ["--feature-gates=B=true,C=true"],
                 ["--feature-gates=C=true,A=true"], 0, id="gates-of-all-three"),
    pytest.param(["--enable-admission-plugins=A,PersistentVolumeLabel"], ["--enable-admission-plugins=A"], ["--enable-admission-plugins=A"],
                 ["--enable-admission-plugins=A"], 1, id="an-item-with-which-it-does-not-start"),
    pytest.param(["--enable-admission-plugins=PersistentVolumeLabel"], [], [], [], 1, id="a-list-with-which-it-does-not-start"),
    pytest.param(["--feature-gates=A=true"], [], ["--feature-gates=C=true", "--feature-gates=D=true"],
                 ["--feature-gates=C=true", "--feature-gates=D=true"], 1, id="a-list-that-somebody-else-gives-twice"),
    pytest.param(["--controllers=*,-route,-service"], ["--controllers=*"], ["--controllers=*,-ttl"], ["--controllers=*,-ttl,-route,-service"], 0,
                 id="cloud-controllers"),
    pytest.param(["--controllers=service"], ["--controllers="], ["--controllers="], ["--controllers=service"], 0, id="a-cloud-controller-alone"),
])
def test_how_flags_go_back(before: list[str], ours: list[str], now: list[str], expected: list[str], kept: int) -> None:
    found = find_flags(now, whole=True)
    changes, told = undo.reversal("kube-apiserver", find_flags(before, whole=True), find_flags(ours, whole=True), found,
                                  (1, 33) if "PersistentVolumeLabel" in str(before) else (1, 29))
    assert [f"--{name}={value}" for name, value in flags_after(found, changes, whole=True)] == expected and len(told) == kept
    assert all(change.why == undo.WHY for change in changes)


def test_ours_among_other_values_cannot_be_told_apart() -> None:
    ours, now = ["--cloud-provider=external"], ["--cloud-provider=external", "--cloud-provider=''"]
    with pytest.raises(undo.CannotUndo, match=r"--cloud-provider was not set, the migration set it to external, and somebody else then set it"):
        undo.reversal("kubelet", [], find_flags(ours), find_flags(now), (1, 33))


@pytest.mark.parametrize(("base", "first", "second", "expected"), [
    pytest.param("abcd", "abXcd", "abcdY", "abXcdY", id="far-apart"),
    pytest.param("abcd", "acd", "abcdY", "acdY", id="one-goes-and-one-comes"),
    pytest.param("abcd", "Abcd", "Abcd", "Abcd", id="the-same-on-both-sides"),
    pytest.param("abcd", "Abcd", "Bbcd", None, id="one-line-two-ways"),
    pytest.param("abcd", "abXcd", "abYcd", None, id="two-insertions-in-one-place"),
    pytest.param("abcd", "abXcd", "abXcd", "abXcd", id="one-insertion-twice"),
    pytest.param("abcd", "abXcd", "ad", None, id="an-insertion-in-what-went"),
    pytest.param("abcd", "ad", "abXcd", None, id="what-went-around-an-insertion"),
    pytest.param("abcd", "aXbcd", "acd", "aXcd", id="an-insertion-before-what-went"),
    pytest.param("abcd", "abXcd", "acd", "aXcd", id="an-insertion-after-what-went"),
    pytest.param("abcd", "acd", "aXbcd", "aXcd", id="what-went-after-an-insertion"),
    pytest.param("abcd", "acd", "abXcd", "aXcd", id="what-went-before-an-insertion"),
    pytest.param("abcd", "cd", "abc", "c", id="both-ends"),
    pytest.param("abcd", "acd", "abd", "ad", id="neighbours"),
    pytest.param("abcd", "ad", "bcd", "d", id="neighbours-the-other-way"),
    pytest.param("abcd", "ad", "ab", None, id="what-overlaps"),
    pytest.param("x" * 150 + "a" + "x" * 150, "x" * 150 + "A" + "x" * 150, "x" * 100 + "b" + "x" * 50 + "a" + "x" * 150,
                 "x" * 100 + "b" + "x" * 50 + "A" + "x" * 150, id="long-with-many-equal-lines"),
])
def test_lines_of_two_sides_are_merged_unless_they_touch(base: str, first: str, second: str, expected: str | None) -> None:
    merged = undo.merge(*("".join(line + "\n" for line in text) for text in (base, first, second)))
    assert (None if merged is None else merged.replace("\n", "")) == expected


@pytest.mark.parametrize("texts", [
    pytest.param(("--cloud-provider=aws", "--cloud-provider=external"), id="value"),
    pytest.param(("--v=2\n    - --cloud-provider=aws", "--v=2"), id="gone"),
    pytest.param(("--controllers=*,bootstrapsigner,-route", "--controllers=*,bootstrapsigner"), id="an-item"),
])
def test_a_manifest_that_others_changed_keeps_what_they_wrote(texts: tuple[str, str]) -> None:
    before, ours = (manifest(text) for text in texts)
    for image in ("kube-apiserver:v1.29.9", "elsewhere/kube-apiserver:v1.29.10"):
        assert undo.undo(KIND, before, ours, ours.replace("kube-apiserver:v1.33.4", image), (1, 29)).text == before.replace("kube-apiserver:v1.33.4", image)
    undone = undo.undo(KIND, before, ours, before + "    - --v=9\n", (1, 29))
    assert (undone.text, undone.kept) == (before + "    - --v=9\n", [])
    with pytest.raises(undo.CannotUndo):
        undo.undo(KIND, before, ours, "{", (1, 29))


@pytest.mark.parametrize(("before", "ours"), [
    pytest.param("kubelet-arg:\n- v=2\n- cloud-provider=aws\n", "kubelet-arg:\n- v=2\n- cloud-provider=external\n", id="an-items-value"),
    pytest.param("kubelet-arg:\n- v=2\n", "kubelet-arg:\n- v=2\n- cloud-provider=external\n", id="an-item-that-came"),
    pytest.param("kubelet-arg:\n- v=2\n- cloud-provider=aws\n", "kubelet-arg:\n- v=2\n", id="an-item-that-went"),
    pytest.param("token: x\n", "token: x\ndisable-cloud-controller: true\n", id="a-key-that-came"),
    pytest.param("token: x\ndisable-cloud-controller: false\n", "token: x\ndisable-cloud-controller: true\n", id="a-keys-value"),
    pytest.param("token: x\ndisable:\n- a\n", "token: x\ndisable:\n- a\n- servicelb\n", id="an-item-of-disable"),
    pytest.param("token: x\ndisable:\n- a\n- b\n", "token: x\ndisable:\n- a\n", id="an-item-of-disable-that-went"),
    pytest.param("cloud-provider-config: /x\ntoken: x\n", "token: x\n", id="a-key-that-went"),
])
def test_a_configuration_of_k3s_goes_back_to_what_it_said(before: str, ours: str) -> None:
    kind = undo.Rancher("k3s")
    changes = {part: undo.reversal(part, kind.flags(before).get(part, []), kind.flags(ours).get(part, []), found, (1, 29))[0]
               for part, found in kind.flags(ours).items()}
    text = kind.edit(before, ours, ours, changes, (1, 29))
    assert undo._plain(kind.flags(text)) == undo._plain(kind.flags(before)) and kind.rest(text) == kind.rest(before)
    assert undo.undo(kind, before, ours, ours + "debug: true\n", (1, 29)).text == before + "debug: true\n"
