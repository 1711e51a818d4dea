# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A component is a process that root started as one. A process that only has the name is reported, and its program is never run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files, processes

UUID = "0f3b5b1e-9a55-4a3e-8d0b-6a1f0e7d2c11"
STATIC = "abed5f2f79e13da9006c1faf3b6e4b0a"
OTHER = "d41bb42f351049123c767b0e567b99eb"
KUBELET = "/system.slice/kubelet.service"

pytestmark = pytest.mark.threat("pod-cannot-steer-the-collection")


def hybrid(path):
    return "9:name=systemd:{0}\n8:pids:{0}\n7:blkio:/\n0::{0}\n".format(path)


def unified(path):
    return "0::{0}\n".format(path)


def cgroupfs(uid, tier="/burstable"):
    return "/kubepods{0}/pod{1}/{2}".format(tier, uid, "c" * 64)


def by_systemd(uid, tier="-besteffort"):
    escaped = uid.replace("-", "_")
    return "/kubepods.slice/kubepods{0}.slice/kubepods{0}-pod{1}.slice/cri-containerd-{2}.scope".format(tier, escaped, "c" * 64)


@pytest.mark.parametrize("form", [hybrid, unified])
@pytest.mark.parametrize("driver", [cgroupfs, by_systemd])
@pytest.mark.parametrize("uid", [UUID, STATIC])
def test_the_pod_of_a_process(form, driver, uid):
    for tier in ("/burstable", "/besteffort", "") if driver is cgroupfs else ("-burstable", "-besteffort", ""):
        assert processes.pod_of(form(driver(uid, tier))) == uid
    for root in ("/kubelet", "/kubelet.slice"):  # a cgroupRoot, as kind has one
        assert processes.pod_of(form(root + driver(uid))) == uid


@pytest.mark.parametrize("path", [
    "/", KUBELET, "/init.scope", "/kubepods/burstable", "/machine.slice/machine-libpod_pod_{0}.slice".format("a" * 64),
    # In a control group that systemd delegates to a user's session, the user may choose any name.
    "/user.slice/user-1000.slice/user@1000.service/kubepods/burstable/pod" + STATIC,
    "/system.slice/theirs.service/kubepods-burstable-pod{0}.slice".format(STATIC),
])
def test_groups_that_are_no_pods(path):
    assert processes.pod_of(hybrid(path)) == ""


def test_a_pod_cannot_pass_for_another_by_groups_below_its_own():
    assert processes.pod_of(unified(cgroupfs(UUID) + "/kubepods/burstable/pod" + STATIC)) == UUID
    assert processes.pod_of(unified(by_systemd(UUID) + "/kubepods-pod{0}.slice".format(STATIC))) == UUID
    assert processes.pod_of("2:pids:{0}\n1:name=systemd:{1}\n".format(cgroupfs(UUID), cgroupfs(STATIC))) == "?"


def test_a_host_that_is_itself_a_container():
    outer = "/system.slice/docker-{0}.scope".format("d" * 64)
    assert processes.pod_of(unified(outer + cgroupfs(STATIC)), outer) == STATIC
    assert processes.pod_of(unified(cgroupfs(STATIC)), outer) == STATIC, "only a group below that of the host is cut"


class Host:
    """A host that is only files: a /proc, systemd's answers, and the kubelet's folders of logs."""

    def __init__(self, root, monkeypatch):
        self.proc, self.logs, self.units = root / "proc", root / "pods", {}
        self.proc.mkdir()
        self.logs.mkdir()
        self.ran = []
        monkeypatch.setattr(processes, "PROC", str(self.proc))
        monkeypatch.setattr(commands, "run", self._run)
        self.start(1, ["/sbin/init"], "/init.scope", parent=0)

    def start(self, pid, argv, group, parent=1, namespaces="host", began=None, state="S", name=None, file=""):
        folder = self.proc / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        fields = [state, str(parent)] + ["0"] * 17 + [str(began or pid)]
        (folder / "stat").write_text("{0} ({1}) {2}\n".format(pid, name or os.path.basename(argv[0])[:15], " ".join(fields)))
        (folder / "cgroup").write_text(hybrid(group))
        for kind in ("pid", "mnt"):
            (folder / "ns" / kind).symlink_to("{0}:[{1}]".format(kind, namespaces))
        if file:
            (folder / "exe").symlink_to(file)

    def unit(self, name, pid, group, state="active", program=""):
        self.units[name] = {"ActiveState": state, "MainPID": str(pid), "ControlGroup": group,
                            "ExecStart": "{{ path={0} ; argv[]={0} $ARGS ; ignore_errors=no ; pid={1} }}".format(program, pid)}

    def pod_log(self, folder, container):
        (self.logs / folder / container).mkdir(parents=True)

    def _run(self, argv, timeout=60):
        self.ran.append(argv)
        found = self.units.get(argv[2], {}) if argv[:2] == ["systemctl", "show"] else {}
        out = "".join("{0}={1}\n".format(*item) for item in found.items())
        return subprocess.CompletedProcess(argv, 0, out or "Kubernetes v1.36.3\n", "")


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


def test_the_kubelet_is_the_units_main_process_whatever_else_bears_its_name(host):
    host.start(100, ["kubelet", "--hostname-override=impostor", "--config=/trap"], cgroupfs(UUID), namespaces="pod")
    host.start(101, ["/usr/bin/kubelet"], "/user.slice/user-1000.slice/session-1.scope")
    host.start(647, ["/usr/bin/kubelet", "--v=2"], KUBELET)
    host.unit("kubelet", 647, KUBELET)
    host.pod_log("team-a_web-0_" + UUID, "kubelet")
    found = processes.of_unit("kubelet", "kubelet")
    assert (found.pid, found.argv) == (647, ["/usr/bin/kubelet", "--v=2"])
    assert processes.impostors([found], str(host.logs)) == [
        "process 100 calls itself kubelet but belongs to Pod team-a/web-0. It is ignored",
        "process 101 calls itself kubelet but is in the control group /user.slice/user-1000.slice/session-1.scope, which belongs to no "
        "unit of this component. It is ignored"]


def test_a_pid_that_went_to_a_pod_is_not_the_units(host):
    """After systemd's answer and before the read of /proc, the kubelet may have ended, and another process may have its PID."""
    host.start(647, ["kubelet"], cgroupfs(UUID))
    host.unit("kubelet", 647, KUBELET)
    assert processes.of_unit("kubelet", "kubelet") is None


@pytest.mark.parametrize(("group", "parent", "namespaces", "there"), [
    (KUBELET, 1, "host", True), (KUBELET + "/inner", 1, "host", True), (KUBELET, 1, "private", True),  # PrivateTmp and the like
    ("/podruntime.slice", 1, "host", True), ("/", 1, "host", True),  # a kubelet with kubeletCgroups
    ("/podruntime.slice", 1, "other", False), ("/podruntime.slice", 99, "host", False), (KUBELET + "-not", 99, "host", False),
])
def test_the_units_group_decides_or_being_systemds_own_child(host, group, parent, namespaces, there):
    host.start(647, ["kubelet"], group, parent, namespaces)
    host.unit("kubelet", 647, KUBELET)
    found = processes.of_unit("kubelet", "kubelet")
    assert bool(found) is there
    assert len(processes.impostors([found], str(host.logs))) == (0 if there else 1)


@pytest.mark.parametrize(("state", "pid"), [("inactive", "0"), ("failed", "647"), ("activating", "647"), ("active", "0"), ("active", "x")])
def test_a_unit_that_does_not_run_has_no_process(host, state, pid):
    host.start(647, ["kubelet"], KUBELET)
    host.unit("kubelet", pid, KUBELET, state)
    assert processes.of_unit("kubelet", "kubelet") is None and processes.of_unit("not-there") is None


def test_a_kubelet_behind_a_wrapper_is_found_in_its_units_group(host):
    host.start(500, ["/bin/sh", "/usr/local/bin/start-kubelet"], KUBELET)
    host.start(400, ["kubelet"], cgroupfs(UUID))
    host.start(501, ["/usr/bin/kubelet", "--v=2"], KUBELET, parent=500)
    host.unit("kubelet", 500, KUBELET)
    found = processes.of_unit("kubelet", "kubelet")
    assert found.pid == 501 and processes.impostors([found], str(host.logs))[0].startswith("process 400 ")


def test_a_main_process_that_has_the_name_itself_counts_before_its_helpers(host):
    host.start(600, ["/usr/bin/kubelet", "--helper"], KUBELET, parent=647)
    host.start(647, ["/usr/bin/kubelet"], KUBELET)
    host.unit("kubelet", 647, KUBELET)
    assert processes.of_unit("kubelet", "kubelet").pid == 647


@pytest.mark.parametrize(("argv", "file", "there"), [
    (["(kubelet)", "", ""], "/usr/lib/systemd/systemd", False),  # systemd's child names itself so before it executes the program
    (["(kubelet)", "", ""], "/usr/lib/systemd/systemd (deleted)", False),  # systemd was upgraded
    (["/usr/lib/systemd/systemd-executor", "--deserialize", "60"], "/usr/lib/systemd/systemd-executor", False),
    ([], "/usr/bin/kubelet", False),  # the kernel has not written the arguments yet
    (["/usr/bin/kubelet"], "/usr/bin/kubelet", True),
    (["/usr/bin/kubelet"], "/usr/bin/kubelet (deleted)", True),
    (["/usr/bin/kubelet"], "", True),
])
def test_a_unit_whose_program_is_not_executed_yet_has_no_process(host, argv, file, there):
    """The unit is active meanwhile, if its Type is simple."""
    host.start(647, argv, KUBELET, name="(kubelet)", file=file)
    host.unit("kubelet", 647, KUBELET)
    assert bool(processes.of_unit("kubelet", "kubelet")) is there


def test_a_process_that_has_ended_and_waits_for_its_parent_is_none(host):
    host.start(646, ["/usr/bin/kubelet"], KUBELET, state="Z")
    host.unit("kubelet", 646, KUBELET)
    assert processes.of_unit("kubelet", "kubelet") is None
    assert [seen.process.pid for seen in processes.everything()] == [1]


def test_names_with_brackets_and_blanks_move_no_field(host):
    """Every process may choose the name that /proc shows in brackets."""
    host.start(647, ["/usr/bin/kubelet"], KUBELET, began=4711, name="a) Z 9 (b")
    seen = processes.look(647)
    assert (seen.name, seen.parent, seen.process.start) == ("a) Z 9 (b", 1, 4711)


@pytest.mark.parametrize("part", ["cmdline", "stat", "cgroup"])
def test_links_in_proc_are_not_followed(host, tmp_path, part):
    """The kernel creates no such link: a link there is a trap."""
    host.start(647, ["/usr/bin/kubelet"], KUBELET)
    (host.proc / "647" / part).rename(tmp_path / part)
    (host.proc / "647" / part).symlink_to(tmp_path / part)
    (host.proc / "648").symlink_to(host.proc / "1")
    assert processes.look(647) is None and processes.look(648) is None


def test_a_look_at_every_process_leaves_no_file_open(host):
    for pid in range(100, 110):
        host.start(pid, ["/bin/true"], "/")
    (host.proc / "105" / "stat").unlink()
    before = len(os.listdir("/proc/self/fd"))
    assert len(processes.everything()) == 10 and len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("init", "root"), [
    ("/init.scope", ""), ("/", ""), ("/docker/ddd/init.scope", "/docker/ddd"), ("/docker/ddd", "/docker/ddd"),
    ("/system.slice/d.scope/", "/system.slice/d.scope"),
])
def test_the_group_below_which_systemd_runs_everything(host, init, root):
    (host.proc / "1" / "cgroup").write_text(hybrid(init))
    host.start(77, ["kube-apiserver"], root + cgroupfs(STATIC))
    assert processes.root_group() == root and processes.look(77).pod == STATIC
    assert processes.everything()[1].pod == STATIC
    (host.proc / "1" / "cgroup").unlink()
    assert processes.root_group() == ""


@pytest.mark.parametrize(("text", "group"), [
    ("0::/system.slice/my:own.service\n", "/system.slice/my:own.service"),
    ("1:name=systemd:/kubepods-pod1.slice:cri-containerd:abc\n0::/\n", "/kubepods-pod1.slice:cri-containerd:abc"),
    ("no group\n1:pids\n0::/a\n", "/a"), ("2:pids:/a\n", ""), ("", ""),
])
def test_the_group_in_systemds_hierarchy(text, group):
    """Names of control groups may have colons: containerd's have two."""
    assert processes.control_group(text) == group


def test_static_pods_are_those_whose_uid_no_user_can_get(host):
    host.pod_log("kube-system_kube-apiserver-cp-1_" + STATIC, "kube-apiserver")
    host.pod_log("kube-system_kube-apiserver-cp-1_" + UUID, "kube-apiserver")  # a Pod of a DaemonSet in kube-system
    host.pod_log("team-a_kube-apiserver-cp-1_" + OTHER, "kube-apiserver")
    host.pod_log("kube-system_kube-scheduler-cp-1_" + OTHER, "kube-scheduler")
    host.pod_log("kube-system_kube-apiserver-cp-1_" + STATIC + "0", "kube-apiserver")
    (host.logs / ("kube-system_linked_" + "e" * 32)).symlink_to(host.logs / ("team-a_kube-apiserver-cp-1_" + OTHER))
    assert list(processes.static_pods("kube-apiserver", str(host.logs))) == [STATIC]
    assert processes.static_pods("kube-apiserver", str(host.logs / "none")) == {}


@pytest.mark.parametrize("driver", [cgroupfs, by_systemd])
def test_a_static_pods_component_is_found_by_its_group(host, driver):
    host.start(50, ["kube-apiserver", "--cloud-provider=impostor"], driver(UUID))
    host.start(200, ["/pause"], driver(STATIC))
    host.start(300, ["kube-apiserver", "--v=2"], driver(STATIC), namespaces="pod", began=9)
    host.start(250, ["kube-apiserver", "--v=3"], driver(OTHER), namespaces="pod", began=10)
    host.pod_log("kube-system_kube-apiserver-cp-1_" + STATIC, "kube-apiserver")
    host.pod_log("kube-system_kube-apiserver-cp-1_" + OTHER, "kube-apiserver")
    found = processes.of_static_pod("kube-apiserver", str(host.logs))
    assert [process.pid for process in found] == [300, 250], "oldest first"
    assert [line.split()[1] for line in processes.impostors(found, str(host.logs))] == ["50"]


def test_a_thousand_impostors_are_not_named_one_by_one(host):
    for pid in range(1000, 2000):
        host.start(pid, ["kubelet"], cgroupfs(UUID))
    told = processes.impostors([], str(host.logs))
    assert len(told) == processes.NAMED + 1 and told[-1].startswith("995 more processes")
    assert "the Pod with the UID " + UUID in told[0]


def test_impostors_by_the_thousand_cost_one_look_at_the_pods(host, monkeypatch):
    """A Pod may start any number of processes, and a node has a hundred folders of logs. Reading all folders for each process would stop
    preflight."""
    for pid in range(1000, 1500):
        host.start(pid, ["kubelet"], cgroupfs(UUID))
    looks, real = [], files.listing
    monkeypatch.setattr(files, "listing", lambda path, **named: looks.append(path) or real(path, **named))
    processes.impostors([], str(host.logs))
    assert looks == [str(host.logs)]


def test_as_many_as_are_named_are_all_named(host):
    for pid in range(1000, 1000 + processes.NAMED):
        host.start(pid, ["kubelet"], cgroupfs(UUID))
    told = processes.impostors([], str(host.logs))
    assert [line.split()[1] for line in told] == [str(pid) for pid in range(1000, 1000 + processes.NAMED)]


def test_helpers_of_a_component_are_no_impostors(host):
    """A helper is in the control group of the component's unit or static Pod; a process of another unit or Pod is no helper."""
    host.start(647, ["/usr/bin/kubelet"], KUBELET)
    host.start(648, ["/usr/bin/kubelet", "--helper"], KUBELET + "/inner", parent=647)
    host.start(300, ["kube-apiserver"], by_systemd(STATIC), namespaces="pod")
    host.start(301, ["kubelet"], by_systemd(STATIC), namespaces="pod")
    host.start(302, ["kubelet"], by_systemd(OTHER), namespaces="pod")
    host.unit("kubelet", 647, KUBELET)
    host.pod_log("kube-system_kube-apiserver-cp-1_" + STATIC, "kube-apiserver")
    gone = processes.Process(4242, 1, ["kubelet"])
    identified = [processes.of_unit("kubelet", "kubelet"), *processes.of_static_pod("kube-apiserver", str(host.logs)), None, gone]
    assert [line.split()[1] for line in processes.impostors(identified, str(host.logs))] == ["302"]
    assert [line.split()[1] for line in processes.impostors(identified[1:], str(host.logs))] == ["302", "647", "648"]
    assert [line.split()[1] for line in processes.impostors(identified[:1], str(host.logs))] == ["300", "301", "302"]


def test_a_kubelet_in_the_group_of_everything_vouches_for_nobody(host):
    """With `kubeletCgroups: /`, every process is below the kubelet's control group."""
    host.start(647, ["/usr/bin/kubelet"], "/")
    host.start(700, ["kube-scheduler"], "/system.slice/other.service")
    host.unit("kubelet", 647, KUBELET)
    assert [line.split()[1] for line in processes.impostors([processes.of_unit("kubelet")], str(host.logs))] == ["700"]


def test_the_kernels_name_of_a_process_counts_like_its_own(host):
    """The kernel keeps 15 characters of the name."""
    host.start(77, ["innocent"], "/a/b", name="kube-controller")
    host.start(78, ["innocent"], "/a/b", name="kube-control")
    (told,) = processes.impostors([], str(host.logs))
    assert told.startswith("process 77 calls itself kube-controller-manager but is in the control group /a/b, ")


@pytest.mark.parametrize(("group", "shown"), [("", "(unknown)"), ("/a b\x1b[2J", "/a?b??2J"), ("/" + "a" * 400, "/" + "a" * (processes.GROUP_SHOWN - 1))])
def test_a_message_shows_a_group_that_anybody_may_have_named(host, group, shown):
    host.start(77, ["kubelet"], "/")
    seen = processes.look(77)._replace(group=group)
    assert processes.whereabouts(seen, []) == "is in the control group {0}, which belongs to no unit of this component".format(shown)


def test_processes_that_end_meanwhile_are_passed_over(host):
    (host.proc / "77").mkdir()
    (host.proc / "78").write_text("no process")
    assert [seen.process.pid for seen in processes.everything()] == [1]


# -- versions, with real processes -----------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path):
    """Return a function that starts a copy of `sleep` under a name, in a folder."""
    started = []

    def start(name, folder):
        path = folder / name
        shutil.copy(shutil.which("sleep") or "/bin/sleep", str(path))
        path.chmod(0o755)
        process = subprocess.Popen([name, "60"], executable=str(path))
        started.append(process)
        seen = processes.look(process.pid)
        return path, processes.Process(process.pid, seen.process.start if seen else 0, [name])

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def asked(monkeypatch):
    """Return a list that gets each command. No command runs."""
    ran = []

    def run(argv, timeout=60):
        ran.append(argv)
        return subprocess.CompletedProcess(argv, 0, "Kubernetes v1.36.3\n", "")

    monkeypatch.setattr(commands, "run", run)
    return ran


def test_the_version_is_asked_of_roots_own_program_which_is_the_one_that_runs(tmp_path, running, asked):
    path, process = running("kubelet", tmp_path)
    assert processes.version_of(process, str(path)) == ("v1.36.3", "")
    assert processes.version_of(process, "/usr/local/bin/wrapper") == ("v1.36.3", ""), "k3s unpacks what it runs"
    assert asked == [[str(path), "--version"]] * 2


def test_a_program_of_others_and_a_replaced_one_are_never_run(tmp_path, running, asked):
    path, process = running("kubelet", tmp_path)
    path.chmod(0o777)
    version, reason = processes.version_of(process, str(path))
    assert version == "" and "users other than root may change" in reason
    path.unlink()
    path.write_text("#!/bin/sh\necho v9.9.9\n")
    path.chmod(0o755)
    version, reason = processes.version_of(process, str(path))
    assert version == "" and ("replaced" in reason or "no longer exists" in reason)
    assert asked == []


def test_a_real_process_with_the_name_of_a_component_is_reported(tmp_path, running):
    unused, process = running("kube-apiserver", tmp_path)
    told = [line for line in processes.impostors([]) if line.startswith("process {0} ".format(process.pid))]
    assert len(told) == 1 or len(processes.impostors([])) > processes.NAMED


def test_a_process_is_younger_than_a_file_that_was_written_just_before_its_start(tmp_path, running):
    changed = time.time()
    time.sleep(0.02)  # the kernel counts the start of a process in hundredths of a second
    process = running("kubelet", tmp_path)[1]
    assert changed < processes.started_at(process) < time.time() + 0.01


def test_the_program_of_a_unit(host):
    host.unit("kubelet", 1, KUBELET, program="/opt/my kubelet/kubelet")
    assert processes.program_of("kubelet") == "/opt/my kubelet/kubelet" and processes.program_of("none") == ""


# -- what root started under another unit or container -------------------------------------------------------------------


KCM = ["kube-controller-manager", "--cloud-provider=aws"]


@pytest.mark.parametrize(("group", "namespaces"), [("/system.slice/kcm.service", "host"), (by_systemd(STATIC), "pod"), (cgroupfs(STATIC), "pod")])
def test_a_component_under_another_name_of_roots_is_seen(host, group, namespaces):
    host.start(77, KCM, group, namespaces=namespaces)
    host.pod_log("kube-system_kcm-cp-1_" + STATIC, "controller-manager")
    (seen,) = processes.unrecognised([], [KCM[0]], str(host.logs))
    assert seen.process.pid == 77
    assert processes.unrecognised([seen.process], [KCM[0]], str(host.logs)) == []
    assert processes.impostors([seen.process], str(host.logs)) == []


@pytest.mark.parametrize(("group", "namespaces"), [
    (cgroupfs(UUID), "pod"), (by_systemd(UUID), "host"),  # a tenant's control plane (Kamaji), and a Pod in the host's PID namespace
    ("/docker/" + "d" * 64 + cgroupfs(STATIC), "kind"),  # a cluster in containers (kind), with Docker's drivers cgroupfs and systemd
    ("/system.slice/docker-{0}.scope".format("d" * 64) + cgroupfs(STATIC), "kind"),
    ("/system.slice/nested.service", "container"),
    ("/user.slice/user-1000.slice/user@1000.service/app.slice/kcm.service", "host"),
])
def test_a_control_plane_of_a_tenant_or_a_user_is_none_of_this_hosts(host, group, namespaces):
    """Such a control plane is not taken for the host's own component, and does not prevent the host's migration."""
    host.start(77, KCM, group, namespaces=namespaces)
    host.pod_log("tenants_kcm_" + UUID, "kube-controller-manager")
    assert processes.of_static_pod(KCM[0], str(host.logs)) == []
    assert processes.unrecognised([], [KCM[0]], str(host.logs)) == []
    (told,) = processes.impostors([], str(host.logs))
    assert told.startswith("process 77 calls itself kube-controller-manager but ") and told.endswith("It is ignored")
