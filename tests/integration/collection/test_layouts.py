# SPDX-License-Identifier: Apache-2.0
"""The playbooks on hosts of every layout: what they detect, refuse, predict, write and restore."""

from __future__ import annotations

import base64
import binascii
import contextlib
import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..cluster import ApiServer
from .ansible import REPOSITORY, Run, playbook
from .machine import Machine

pytestmark = pytest.mark.timeout(600)  # several plays in each test; each takes seconds on an idle machine
FIXTURES = REPOSITORY / "tests" / "unit" / "plugins" / "fixtures"
MANIFESTS = "/etc/kubernetes/manifests/"


def tree(name: str) -> dict[str, str]:
    root = FIXTURES / name
    return {f"/{path.relative_to(root)}": path.read_bytes().decode() for path in root.rglob("*") if path.is_file()}


def kubeadm(control_plane: bool) -> dict[str, str]:
    units = "/usr/lib/systemd/system/"
    files = {
        f"{units}kubelet.service": (FIXTURES / "kubelet" / "kubelet.service").read_text(),
        f"{units}kubelet.service.d/10-kubeadm.conf": (FIXTURES / "kubelet" / "10-kubeadm.conf").read_text(),
        "/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n',
        "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--cloud-provider=\n",
    }
    if control_plane:
        for name in ("kube-apiserver", "kube-controller-manager"):
            files[f"{MANIFESTS}{name}.yaml"] = (FIXTURES / "kubeadm-1.36" / f"{name}.yaml").read_text()
    return files


def static_pods() -> dict[str, list[str]]:
    names = ("kube-apiserver", "kube-controller-manager")
    pods = {name: yaml.safe_load((FIXTURES / "kubeadm-1.36" / f"{name}.yaml").read_text()) for name in names}
    return {name: pod["spec"]["containers"][0]["command"] for name, pod in pods.items()}


#: The hosts of every layout. A name is the layout that the role must detect, a hyphen, and the host's part.
HOSTS: dict[str, dict[str, str]] = {
    "kubeadm-cp": kubeadm(True),
    "kubeadm-worker": kubeadm(False),
    "systemd-cp": tree("systemd/control-plane"),
    "systemd-worker": tree("systemd/worker"),
    "kubespray-worker": tree("kubespray/worker"),
    "k3s-server": tree("k3s/server"),
    "k3s-agent": tree("k3s/agent"),
    "rke2-server": tree("rke2/server"),
    "rke2-agent": tree("rke2/agent"),
}
CONTROL_PLANES = ("kubeadm-cp", "systemd-cp", "k3s-server", "rke2-server")


class Cluster:
    """Hosts in an inventory. Each machine has a Node in the API server of the tests."""

    def __init__(self, apiserver: ApiServer, folder: Path) -> None:
        self.apiserver = apiserver
        self.folder = folder
        self.machines: dict[str, Machine] = {}
        #: Host -> its variables, for hosts without a machine, and for hosts whose machine has other variables.
        self.strangers: dict[str, str] = {}
        #: Variables of the group `all`.
        self.settings = ["ccm_install_worker_serial=100%"]

    def add(self, name: str, files: dict[str, str], initialized: bool = True) -> Machine:
        pods = static_pods() if any(path.startswith(MANIFESTS) for path in files) else {}
        machine = self.machines[name] = Machine(self.folder / "hosts" / name, files, pods)
        label = {"node-role.kubernetes.io/control-plane": "" if name in ("kubeadm-cp", "systemd-cp") else "true"}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2099-01-01T00:00:00Z"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": label if name in CONTROL_PLANES else {}},
            "spec": {"providerID": f"sim://north/{name}"} if initialized else {},
        }
        self.apiserver.kubectl("create", "-f", "-", input=json.dumps(node))
        status = json.dumps({"status": {"conditions": [ready]}})
        self.apiserver.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
        return machine

    def arguments(self, variables: dict[str, Any]) -> list[str]:
        """Write the inventory of the current hosts. Return ansible-playbook's arguments for it and the variables."""
        groups = {"kube_control_plane": [], "kube_node": []}
        for name, said in {**{name: each.variables for name, each in self.machines.items()}, **self.strangers}.items():
            group = "kube_control_plane" if name in CONTROL_PLANES else "kube_node"
            groups[group].append(f"{name} {said}")
        groups["all:vars"] = self.settings
        inventory = self.folder / "inventory.ini"
        inventory.write_text("".join(f"[{group}]\n" + "\n".join(hosts) + "\n" for group, hosts in groups.items()))
        values = {
            "ccm_install_kubeconfig": str(self.apiserver.kubeconfig()),
            "ccm_install_provider_id_prefix": "sim://",
            "ccm_install_report_file": str(self.folder / "report.json"),
            "ccm_install_gate_timeout": 20,
            "ccm_runtime_cloud_provider": "sim",
        } | variables
        return ["-i", str(inventory), "-e", json.dumps(values)]

    async def play(self, path: str, *arguments: str, stdin: str = "", seconds: float = 480, **variables: Any) -> Run:
        return await playbook(path, *self.arguments(variables), *arguments, stdin=stdin, seconds=seconds)

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return found

    def close(self) -> None:
        for name in self.machines:
            self.apiserver.kubectl("delete", "node", name, "--ignore-not-found", "--wait=false")


@pytest.fixture
def cluster(apiserver: ApiServer, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(apiserver, tmp_path)
    yield made
    made.close()
    apiserver.kubectl("delete", "nodes", "--all", "--wait=false")
    forget_copies(apiserver)


def forget_copies(apiserver: ApiServer) -> None:
    """Delete the copies of journals, because hosts of several tests have the same name."""
    apiserver.kubectl("-n", "kube-system", "delete", "secrets", "-l", "ccm.outoftree.dev/journal-copy")


def edited(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(edit["host"], edit["file"]) for edit in report["edits"] if edit["file"].startswith("/")}


def layouts_of(hosts: str) -> dict[str, Any]:
    """Return a play that shows what was detected. The results themselves are hidden, because they contain files."""
    text = "{{ __ccm_install_detected.node_name }} has the layout {{ __ccm_install_detected.layout }}"
    return {"hosts": hosts, "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": text}}]}


#: A proxy's password, which is in a file of some hosts. The output must not contain it.
PROXY = "s3cr3t-of-the-proxy"
DEFAULT = "/etc/default/kubelet"
WITH_PROXY = {DEFAULT: f"KUBELET_EXTRA_ARGS=--cloud-provider=\nHTTPS_PROXY=http://user:{PROXY}@proxy:3128\n"}


async def test_every_layout_is_detected_planned_and_foretold_file_by_file(cluster: Cluster):
    for name, files in HOSTS.items():
        cluster.add(name, files | (WITH_PROXY if DEFAULT in files else {}))
    before = {name: machine.files() for name, machine in cluster.machines.items()}
    plays = [
        *play("all", "detect/host"),
        *play("kubeadm-cp", "plan/migration"),
        *play("kube_control_plane", "apply/control_plane"),
        *play("all", "apply/kubelet"),
        layouts_of("all"),
    ]
    run = await cluster.play("/dev/stdin", "--check", "--diff", stdin=json.dumps(plays))
    token = "K10abc"  # in config.yaml of k3s' agent: the token stays on the host
    for secret in (token, PROXY):
        assert secret not in run.output and not any(secret.encode() in content for content in encoded(run.results))
    assert "HTTPS_PROXY=http://hidden@proxy:3128" in run.output
    assert run.status == 0, run.output[-6000:]
    layouts = dict(result["msg"].split(" has the layout ") for result in run if " has the layout " in str(result))
    assert layouts == {name: name.rpartition("-")[0] for name in HOSTS}
    report = cluster.report
    assert report["go"] and report["problems"] == []
    told = edited(report)
    assert {host for host, _ in told} == set(HOSTS)
    diffs = [diff for result in run for diff in all_diffs(result) if diff.get("after_header", "").startswith("/")]
    # Diffs and table have the same files, each once, and each changed line has a row of the table.
    assert sorted(diff["after_header"] for diff in diffs) == sorted(path for _, path in told)
    for diff in diffs:
        rows = [edit for edit in report["edits"] if edit["file"] == diff["after_header"]]
        names = {part.lstrip("-") for edit in rows for part in [*edit["flag"].split(": "), str(edit["then"])]}
        mounts = "cloud-config" in names  # the volume is removed with the flag, and the row says so
        old, new = diff["before"].splitlines(), diff["after"].splitlines()
        for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new).get_opcodes():
            hunk = " ".join(old[i:j] + new[k:m])
            assert (
                kind == "equal" or any(name in hunk for name in names) or (mounts and "cloud-config" in diff["before"])
            ), hunk
    assert {name: machine.files() for name, machine in cluster.machines.items()} == before
    table = next(result["msg"] for result in run if "why 1: " in str(result.get("msg")))
    for edit in report["edits"]:
        block = table.partition(f"{edit['host']}: {edit['component']}, {edit['file']} (risk ")[2]
        assert edit["flag"] in block, (edit, table)


def encoded(data: Any) -> Iterator[bytes]:
    """Yield the decoded content of all base64 in the results."""
    if isinstance(data, dict):
        for value in data.values():
            yield from encoded(value)
    elif isinstance(data, list):
        for value in data:
            yield from encoded(value)
    elif isinstance(data, str) and len(data) % 4 == 0:
        with contextlib.suppress(binascii.Error, ValueError):
            yield base64.b64decode(data, validate=True)


def all_diffs(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for one in [result, *result.get("results", [])]:
        diff = one.get("diff", [])
        found += [item for item in (diff if isinstance(diff, list) else [diff]) if isinstance(item, dict)]
    return found


def play(hosts: str, *entries: str) -> list[dict[str, Any]]:
    """Return a list of one play that runs these entry points of the role."""
    roles = [
        {"name": entry, "ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_install", "tasks_from": entry}}
        for entry in entries
    ]
    return [{"hosts": hosts, "gather_facts": False, "any_errors_fatal": True, "tasks": roles}]


async def test_what_is_written_is_what_was_foretold_and_comes_back_byte_for_byte(cluster: Cluster):
    workers = [name for name in HOSTS if name not in CONTROL_PLANES]
    for name in ("kubeadm-cp", *workers):
        cluster.add(name, HOSTS[name] | (WITH_PROXY if DEFAULT in HOSTS[name] else {}))
    before = {name: cluster.machines[name].files() for name in workers}
    plays = [*play("all", "detect/host"), *play("kubeadm-cp", "plan/migration"), *play("kube_node", "apply/kubelet")]
    run = await cluster.play("/dev/stdin", stdin=json.dumps(plays))
    assert run.status == 0, run.output[-6000:]
    # Without --diff, the run's output contains no host's file.
    assert "KUBELET_EXTRA_ARGS" not in run.output and not any(all_diffs(result) for result in run)
    assert not any(b"KUBELET_" in content or b"apiVersion" in content for content in encoded(run.results))
    after = {name: cluster.machines[name].files() for name in workers}
    written = {(name, path) for name in workers for path in after[name] if after[name][path] != before[name].get(path)}
    assert written == {(host, path) for host, path in edited(cluster.report) if host in workers}
    running = {name: json.loads(cluster.machines[name].text("running.json")) for name in workers}
    for name in ("kubeadm-worker", "systemd-worker", "kubespray-worker"):
        assert running[name]["kubelet"].count("--cloud-provider=external") == 1, running[name]
    again = await cluster.play("/dev/stdin", stdin=json.dumps(plays))
    assert again.status == 0 and not {host for host, _ in edited(cluster.report)} & set(workers)
    way = [*play("all", "detect/host"), *play("kubeadm-cp", "rollback/plan"), *play("kube_node", "rollback/host")]
    back = await cluster.play("/dev/stdin", stdin=json.dumps(way))
    assert back.status == 0, back.output[-6000:]
    # A kubelet of the cluster's release does not start with these two flags, so the run does not restore them, and
    # reports that.
    drop_in = before["systemd-worker"]["/etc/systemd/system/kubelet.service.d/20-cloud.conf"]
    dead = b"--cloud-provider=openstack --cloud-config=/etc/kubernetes/cloud.conf "
    before["systemd-worker"]["/etc/systemd/system/kubelet.service.d/20-cloud.conf"] = drop_in.replace(dead, b"")
    assert "--cloud-provider=openstack is not restored" in back.output
    assert {name: cluster.machines[name].files() for name in workers} == before


async def test_a_unit_that_does_not_come_up_is_put_back(cluster: Cluster):
    """The host's kube-controller-manager is healthy only with its old flags."""
    machine = cluster.add("systemd-cp", HOSTS["systemd-cp"])
    machine.needs("kube-controller-manager", "--cloud-provider")
    before = machine.files()
    plays = [*play("all", "detect/host"), *play("systemd-cp", "plan/migration", "apply/control_plane")]
    run = await cluster.play("/dev/stdin", stdin=json.dumps(plays), ccm_install_gate_timeout=2)
    assert run.status != 0
    message = " ".join(str(item.get("msg")) for result in run for item in result.get("results", []))
    assert "kube-controller-manager on systemd-cp did not become healthy" in message, run.failures
    assert "/healthz" in message, run.failures
    assert machine.files() == before


async def test_hosts_that_cannot_be_changed_are_refused_before_the_first_change(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"]).mount("--bind", "{}/etc/kubernetes", "/etc/kubernetes")
    cluster.machines["kubeadm-cp"].mount("-o", "remount,bind,ro", "/etc/kubernetes")
    cluster.add("full", HOSTS["kubeadm-worker"]).mount("-t", "tmpfs", "-o", "size=1m", "none", "/var/lib/outoftree-ccm")
    (cluster.machines["full"].folder / "var/lib/outoftree-ccm").mkdir()
    cluster.add("two", HOSTS["kubeadm-worker"] | HOSTS["k3s-agent"])
    cluster.add("none", {"/etc/hosts": ""})
    linked = cluster.add("linked", HOSTS["kubeadm-worker"])
    (linked.folder / "etc/default/kubelet").rename(linked.folder / "etc/kubelet.real")
    (linked.folder / "etc/default/kubelet").symlink_to("/etc/kubelet.real")
    broken = HOSTS["k3s-agent"] | {"/etc/rancher/k3s/config.yaml": "kubelet-arg: [\n"}
    cluster.add("k3s-broken", broken)
    packaged = tree("systemd/worker")
    unit = packaged.pop("/etc/systemd/system/kubelet.service").replace(" $KUBELET_EXTRA_ARGS", "")
    packaged.pop("/etc/systemd/system/kubelet.service.d/20-cloud.conf")
    cluster.add("packaged", packaged | {"/usr/lib/systemd/system/kubelet.service": unit})
    kubelet = "[Service]\nEnvironmentFile=-/run/kubelet.env\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
    in_memory = {"/etc/systemd/system/kubelet.service": kubelet}
    cluster.add("volatile", in_memory)
    before = {name: machine.files() for name, machine in cluster.machines.items()}
    run = await cluster.play("playbooks/preflight.yml")
    assert run.status != 0 and "Traceback" not in run.output
    problems = cluster.report["problems"]
    assert not cluster.report["go"]

    def told(host: str, *words: str) -> None:
        mine = [problem for problem in problems if problem.startswith(host + ":")]
        assert any(all(word in problem for word in words) for problem in mine), (host, words, problems)

    told("kubeadm-cp", "cannot change /etc/kubernetes/manifests/", "is mounted read-only at /etc/kubernetes")
    told("volatile", "/run/kubelet.env would lose the change", "/run is empty after each start")
    told("full", "/var/lib/outoftree-ccm would lose the journal", "in memory (tmpfs)")
    told("full", "/var/lib/outoftree-ccm has less than 16 MiB of free space for backups")
    told("two", "k3s-agent.service and kubelet.service each run a kubelet")
    told("none", "the kubelet's layout is unknown")
    told("k3s-broken", "/etc/rancher/k3s/config.yaml", "line 2")
    told("packaged", "/usr/lib/systemd/system/kubelet.service", "drop-in")
    assert ("linked", "/etc/default/kubelet") in edited(cluster.report)
    assert {name: machine.files() for name, machine in cluster.machines.items()} == before
