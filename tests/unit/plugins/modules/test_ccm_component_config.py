# SPDX-License-Identifier: Apache-2.0
"""Writing, gating, restoring and rolling back the files of one component, on a folder instead of a host."""

from __future__ import annotations

import base64
import errno
import json
import os
import pathlib
import subprocess
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    commands,
    probes,
    processes,
    secrets,
    systemd,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    component as _component,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    journal as _journal,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    logs as _logs,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal import digest
from ansible_collections.outoftree.ccm.plugins.modules import ccm_component_config as subject

BEFORE, AFTER = b"# mine\r\n- --cloud-config=/x\n", b"# mine\r\n"


class Host:
    """A host with one static Pod: the fake kubelet starts a process whenever the manifest's content changes."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
        self._run_module = run_module
        self.manifest = root / "manifests" / "kcm.yaml"
        self.manifest.parent.mkdir()
        self.manifest.write_bytes(BEFORE)
        self.manifest.chmod(0o600)
        self.state = root / "state"
        self.broken: set[bytes] = set()
        self._seen, self._pid = BEFORE, 1
        monkeypatch.setattr(processes, "of_static_pod", lambda name, logs: self._processes())
        monkeypatch.setattr(processes, "of_unit", lambda unit, name="": None)
        monkeypatch.setattr(probes, "component_health", lambda name, argv: "")
        monkeypatch.setattr(probes, "api_server_answer", lambda argv, path: self._lease(), raising=False)
        monkeypatch.setattr(_logs, "pod_log", lambda name, since, lines=12, logs="": ["Error: unknown flag"])
        monkeypatch.setattr(_component, "POLL", 0.01)
        monkeypatch.setattr(_component.time, "sleep", lambda seconds: None)
        self.listed: list[list[str]] = []
        self.looks = 0
        self.others = self.others_after = ["--bind-address=127.0.0.1", "--v=2"]

    def _lease(self) -> tuple[int, str]:
        """Answer a request for the Lease: the holder is always the same, and renewTime is later at each request."""
        self.looks += 1
        return 200, json.dumps({"spec": {"holderIdentity": "cp-1_6f1a", "renewTime": str(self.looks)}})

    def _processes(self) -> list[processes.Process]:
        self.listed.append(sorted(path.name for path in self.manifest.parent.iterdir()))
        content = self.manifest.read_bytes() if self.manifest.exists() else b""
        if content != self._seen:
            self._seen, self._pid = content, self._pid + 1
        if content in self.broken:
            return []
        flags = ["--cloud-config=/x"] if b"--cloud-config" in content else []
        others = self.others_after if content == AFTER else self.others
        return [processes.Process(self._pid, self._pid, ["kube-controller-manager", *others[:1], *flags, *others[1:]])]

    def run(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        arguments = {"component": "kube-controller-manager", "state_directory": str(self.state), "timeout": 1, **arguments,
                     "_ansible_check_mode": check, "_ansible_diff": True, "_ansible_remote_tmp": str(self.state.parent)}
        result: dict[str, Any] = self._run_module(subject, arguments)
        return result

    def present(self, check: bool = False, sha256: str = "", run_id: str = "run-1") -> dict[str, Any]:
        return self.run(check, run_id=run_id, flags=[], flags_before=["--cloud-config=/x"], files=[
            {"path": str(self.manifest), "content": base64.b64encode(AFTER).decode(), "sha256": sha256 or digest(BEFORE)}])


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> Host:
    return Host(tmp_path, monkeypatch, run_module)


def test_check_mode_shows_the_same_difference_and_writes_nothing(host: Host) -> None:
    predicted = host.present(check=True)
    assert host.manifest.read_bytes() == BEFORE and not host.state.exists()
    done = host.present()
    assert predicted["changed"] and done["changed"] and predicted["diff"] == done["diff"]
    assert host.manifest.read_bytes() == AFTER and host.manifest.stat().st_mode & 0o777 == 0o600
    assert pathlib.Path(done["files"][0]["backup"]).read_bytes() == BEFORE
    assert not host.present()["changed"]


def test_the_kubelet_never_sees_a_temporary_file(host: Host) -> None:
    host.present()
    assert all(not [name for name in names if not name.startswith(".") and name != "kcm.yaml"] for names in host.listed)
    assert [path.name for path in host.manifest.parent.iterdir()] == ["kcm.yaml"]


def test_a_component_that_does_not_come_up_is_restored_and_its_log_told(host: Host) -> None:
    host.broken.add(AFTER)
    result = host.present()
    assert result["failed"] and result["restored"] and not result["changed"]
    assert "Error: unknown flag" in result["msg"] and "restored and is healthy" in result["msg"]
    assert host.manifest.read_bytes() == BEFORE and not (host.state / "journal.json").exists()
    assert "warnings" not in result and "deprecations" not in result


def test_a_journal_that_cannot_be_written_after_a_failed_change_is_a_warning(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(journal: Any, path: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/outoftree-ccm/journal.json")

    warnings: list[str] = []
    host.broken.add(AFTER)
    monkeypatch.setattr(_journal.Journal, "undo", full)
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda module, text: warnings.append(text))
    result = host.present()
    assert result["failed"] and result["restored"]
    (warning,) = warnings
    assert warning.startswith("The journal still lists the change, because /var/lib/outoftree-ccm/journal.json cannot be written")


def test_a_restored_component_that_does_not_serve_is_called_that(host: Host) -> None:
    host.broken.update((AFTER, BEFORE))
    result = host.present()
    assert not result["restored"] and "is not healthy yet" in result["msg"]
    assert host.manifest.read_bytes() == BEFORE


@pytest.mark.parametrize(("after", "words"), [
    (["--bind-address=127.0.0.1"], "does not have the argument '--v=2'"),
    (["--bind-address=127.0.0.1", "--v=2", "--x"], "one more argument, '--x'"),
    (["--bind-address=127.0.0.1", "--v=3"], "argument 2 of the process is '--v=3' instead of '--v=2'"),
    (["--v=2", "--bind-address=127.0.0.1"], "argument 1 of the process is '--v=2'"),
])
def test_a_process_that_loses_another_argument_has_its_old_file_back(host: Host, after: list[str], words: str) -> None:
    """The managed flags are as planned and the process is healthy, so no other check would report the difference."""
    host.others_after = after
    result = host.present()
    assert result["failed"] and result["restored"] and words in result["msg"] and "also have changed other arguments" in result["msg"]
    assert host.manifest.read_bytes() == BEFORE and not (host.state / "journal.json").exists()


def test_a_rollback_that_would_lose_another_argument_is_undone_unless_forced(host: Host) -> None:
    host.present()
    host.others = host.others[:1]
    result = host.run(state="restored", flags=["--cloud-config=/x"])
    assert result["failed"] and "'--v=2'" in result["msg"] and host.manifest.read_bytes() == AFTER
    assert host.run(state="restored", flags=["--cloud-config=/x"], force=True)["changed"] and host.manifest.read_bytes() == BEFORE


def test_a_wrapper_is_not_judged_before_it_starts_the_component(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments differ from those of the component, and it has no cloud flags, like the component after the change."""
    wrapper = [processes.Process(2, 2, ["/bin/sh", "/usr/local/bin/start"])]
    looks: list[int] = []

    def seen() -> list[processes.Process]:
        new = host._processes()
        looks.append(1)
        return wrapper if host.manifest.read_bytes() == AFTER and len(looks) < 8 else new

    monkeypatch.setattr(processes, "of_static_pod", lambda name, logs: seen())
    assert host.present()["changed"] and len(looks) >= 8


def test_the_old_process_is_not_taken_for_the_new_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "of_static_pod", lambda name, logs: [processes.Process(1, 1, ["kube-controller-manager"])])
    assert "no new process" in host.present()["msg"]


def test_a_file_that_changed_after_the_plan_is_refused(host: Host) -> None:
    result = host.present(sha256="0" * 64)
    assert result["failed"] and "changed after the plan" in result["msg"] and host.manifest.read_bytes() == BEFORE


def test_a_symbolic_link_stays_one(host: Host, tmp_path: pathlib.Path) -> None:
    real = tmp_path / "real.yaml"
    host.manifest.rename(real)
    host.manifest.symlink_to(real)
    host.present()
    assert host.manifest.is_symlink() and real.read_bytes() == AFTER


def test_rollback_restores_bytes_and_mode_of_the_first_state_and_is_idempotent(host: Host) -> None:
    host.present()
    host.manifest.chmod(0o644)
    assert host.run(check=True, state="restored")["changed"] and host.manifest.read_bytes() == AFTER
    assert host.run(state="restored")["changed"]
    assert host.manifest.read_bytes() == BEFORE and host.manifest.stat().st_mode & 0o777 == 0o600
    assert not host.run(state="restored")["changed"]


def test_the_selinux_label_of_a_file_survives_a_change_a_failed_change_and_the_rollback(host: Host, label: str) -> None:
    value = b"system_u:object_r:kubernetes_file_t:s0\0"
    os.setxattr(host.manifest, label, value)
    host.broken.add(AFTER)
    assert host.present()["restored"] and os.getxattr(host.manifest, label) == value
    host.broken.clear()
    assert host.present()["changed"] and os.getxattr(host.manifest, label) == value
    assert host.run(state="restored")["changed"] and os.getxattr(host.manifest, label) == value


def test_a_file_that_the_rollback_creates_again_has_its_owner_and_its_mode(host: Host) -> None:
    given = (1234, 1235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())  # only root may give files to others
    os.chown(host.manifest, *given)
    host.present()
    owner = host.manifest.stat()
    assert (owner.st_uid, owner.st_gid) == given
    host.manifest.unlink()
    assert host.run(state="restored", force=True)["changed"]
    found = host.manifest.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (*given, 0o600)


def test_a_new_file_has_the_selinux_label_of_its_path(host: Host, monkeypatch: pytest.MonkeyPatch, label: str) -> None:
    real = os.setxattr
    monkeypatch.setattr(os, "setxattr", lambda path, name, value: real(path, label, value))
    monkeypatch.setattr(basic.AnsibleModule, "selinux_default_context", lambda module, path, mode=0: ["system_u", "object_r", "etc_t", "s0"])
    new = host.state.parent / "new.env"
    monkeypatch.setattr(subject, "settle", lambda component, work, *rest: [component.write(w[0], w[2], w[3], w[4]) for w in work] and 0.0)
    host.run(files=[{"path": str(new), "content": base64.b64encode(b"X=1\n").decode(), "sha256": ""}])
    assert os.getxattr(new, label) == b"system_u:object_r:etc_t:s0\0"


def test_rollback_removes_a_file_that_was_not_there(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    new = tmp_path / "new.env"
    files = [{"path": str(new), "content": base64.b64encode(b"X=1\n").decode(), "sha256": ""}]
    monkeypatch.setattr(subject, "settle", lambda component, work, *rest: [component.write(w[0], w[2], w[3], w[4]) for w in work] and 0.0)
    host.run(files=files)
    assert new.read_bytes() == b"X=1\n"
    host.run(state="restored")
    assert not new.exists()


def test_someone_elses_later_change_is_not_overwritten_unless_forced(host: Host) -> None:
    host.present()
    host.manifest.write_bytes(b"theirs\n")
    refused = host.run(state="restored")
    assert refused["failed"] and "set 'force'" in refused["msg"] and host.manifest.read_bytes() == b"theirs\n"
    assert host.run(state="restored", force=True)["changed"] and host.manifest.read_bytes() == BEFORE


class Service:
    """A host with one systemd service, which reads its file at a restart. C(broken): contents with which the service does not start."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any, component: str) -> None:
        self._run_module = run_module
        self.file, self.state, self.component = root / "config.yaml", root / "state", component
        self.file.write_bytes(BEFORE)
        self.commands: list[list[str]] = []
        self.broken: set[bytes] = set()
        self._pid, self._running = 1, BEFORE
        self._at_limit = False
        monkeypatch.setattr(commands, "run", self._run)
        monkeypatch.setattr(processes, "of_static_pod", lambda name, logs: [])
        monkeypatch.setattr(processes, "of_unit", lambda unit, name="": (self._processes() or [None])[0])
        monkeypatch.setattr(probes, "component_health", lambda name, argv: "")
        monkeypatch.setattr(probes, "rancher_health", lambda unit, folder, port: "" if folder == "/data" else f"no data in {folder}")
        monkeypatch.setattr(_component, "POLL", 0.01)
        monkeypatch.setattr(_component.time, "sleep", lambda seconds: None)

    def _run(self, argv: list[str], timeout: float = 60) -> Any:
        self.commands.append(argv)
        if argv[:2] == ["systemctl", "reset-failed"]:
            self._at_limit = False
        elif argv[:2] == ["systemctl", "restart"] and self._at_limit:
            return commands.subprocess.CompletedProcess(argv, 1, "", "Start request repeated too quickly.")
        elif argv[:2] == ["systemctl", "restart"]:
            self._pid, self._running = self._pid + 1, self.file.read_bytes()
            self._at_limit = self._running in self.broken  # it crashed too often: systemd refuses the next start
        out = "the last words\n" if argv[0] == "journalctl" else ""
        return commands.subprocess.CompletedProcess(argv, 0, out, "")

    def _processes(self) -> list[processes.Process]:
        if self._running in self.broken:
            return []
        flags = ["--cloud-config=/x"] if b"--cloud-config" in self._running and self.component == "kube-apiserver" else []
        return [processes.Process(self._pid, self._pid, [self.component, *flags])]

    @property
    def is_new(self) -> bool:
        """Return whether the running process was started with the present content of the file."""
        return self._running == self.file.read_bytes()

    @property
    def restarts(self) -> list[str]:
        return [argv[2] for argv in self.commands if argv[:2] == ["systemctl", "restart"]]

    def run(self, **arguments: Any) -> dict[str, Any]:
        return Host.run(self, component=self.component, **arguments)  # type: ignore[arg-type]

    def present(self, service: dict[str, str]) -> dict[str, Any]:
        before = [] if self.component == "k3s" else ["--cloud-config=/x"]
        return self.run(run_id="run-1", flags=[], flags_before=before, service=service, files=[
            {"path": str(self.file), "content": base64.b64encode(AFTER).decode(), "sha256": digest(BEFORE)}])


SERVICES = [("kube-apiserver", {"unit": "kube-apiserver.service"}), ("k3s", {"unit": "k3s.service", "data_directory": "/data"})]


@pytest.mark.parametrize(("component", "service"), SERVICES)
def test_a_service_is_restarted_and_the_journal_knows_which_to_restart_on_the_way_back(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any, component: str, service: dict[str, str],
) -> None:
    host = Service(tmp_path, monkeypatch, run_module, component)
    done = host.present(service)
    assert done["changed"] and done["restarted_at"] and host.file.read_bytes() == AFTER, done
    assert host.restarts == [service["unit"]]
    assert not host.present(service)["changed"]
    back = host.run(state="restored")
    assert back["changed"] and host.file.read_bytes() == BEFORE and host.restarts == [service["unit"]] * 2


@pytest.mark.parametrize(("component", "service"), SERVICES)
def test_a_service_that_does_not_come_up_is_put_back_with_its_own_log(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any, component: str, service: dict[str, str],
) -> None:
    host = Service(tmp_path, monkeypatch, run_module, component)
    host.broken.add(AFTER)
    result = host.present(service)
    assert result["failed"] and result["restored"] and "the last words" in result["msg"]
    assert host.file.read_bytes() == BEFORE and host.restarts == [service["unit"]] * 2
    assert any(argv[0] == "journalctl" and service["unit"] in argv for argv in host.commands)


def test_patches_of_kubeadm_are_written_and_nothing_is_waited_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    host = Service(tmp_path, monkeypatch, run_module, "kubeadm-patches")
    assert host.present({})["changed"] and host.file.read_bytes() == AFTER and host.restarts == []
    assert host.run(state="restored")["changed"] and host.file.read_bytes() == BEFORE


def test_secrets_of_k3s_are_in_the_file_and_nowhere_else(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    host = Service(tmp_path, monkeypatch, run_module, "k3s")
    secret = "server: https://x:6443\ntoken: 'K10::server:s3cr3t' # ours\nagent-token+:   other-s3cr3t\r\netcd-s3-secret-key: \"s3cr3t\"\n"
    host.file.write_text(secret, newline="")
    hidden = secrets.hide(secret)
    assert "s3cr3t" not in hidden and hidden.startswith("server: https://x:6443\ntoken: ")
    assert secrets.reveal(hidden, secret) == secret
    result = host.run(service=SERVICES[1][1], files=[
        {"path": str(host.file), "content": base64.b64encode((hidden + "kubelet-arg: a=b\n").encode()).decode(),
         "sha256": digest(secret.encode())}])
    assert result["changed"] and "s3cr3t" not in json.dumps(result) and "+kubelet-arg" not in secret
    assert host.file.read_bytes().decode() == secret + "kubelet-arg: a=b\n"
    assert secrets.public_arguments(["server", "--token", "s3cr3t", "--disable", "traefik", "--disable-cloud-controller", "--kubelet-arg=a=b"]) == [
        "--disable=traefik", "--disable-cloud-controller", "--kubelet-arg=a=b"]


class Killed(BaseException):
    """The equivalent of SIGKILL for a module: no handler of the module runs any more."""


def kill_at(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> Any:
    """Kill the module where it calls a function; return a function that undoes this."""
    real = getattr(where, name)

    def end(*arguments: Any, **options: Any) -> None:
        raise Killed

    monkeypatch.setattr(where, name, end)
    return lambda: monkeypatch.setattr(where, name, real)


def test_the_half_file_of_a_killed_run_goes_with_the_next_change_and_with_a_rollback(host: Host) -> None:
    half = host.manifest.parent / ".outoftree-ccm.kcm.yaml"
    half.write_bytes(b"- --clo")
    host.present()
    assert host.manifest.read_bytes() == AFTER and not half.exists()
    half.write_bytes(b"- --clo")
    host.run(state="restored")
    assert host.manifest.read_bytes() == BEFORE and not half.exists()


@pytest.mark.parametrize(("component", "service"), SERVICES)
def test_a_rollback_that_was_killed_before_its_restart_is_made_up_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any, component: str, service: dict[str, str],
) -> None:
    host = Service(tmp_path, monkeypatch, run_module, component)
    monkeypatch.setattr(processes, "started_at", lambda process: host.file.stat().st_mtime + (1 if host.is_new else -1))
    host.present(service)
    live = kill_at(monkeypatch, subject.Component, "take_up")
    with pytest.raises(Killed):
        host.run(state="restored")
    live()
    assert host.file.read_bytes() == BEFORE and host.restarts == [service["unit"]]
    assert host.run(state="restored", check=True)["changed"] and host.restarts == [service["unit"]]
    assert host.run(state="restored")["changed"] and host.restarts == [service["unit"]] * 2
    assert ["systemctl", "daemon-reload"] in host.commands  # the file may have been a unit
    assert not host.run(state="restored")["changed"] and host.restarts == [service["unit"]] * 2


def test_a_rollback_waits_for_a_static_pod_that_is_just_starting_with_the_old_manifest(host: Host) -> None:
    host.present()
    host.manifest.write_bytes(BEFORE)  # a rollback wrote this, and was killed
    host.broken.add(BEFORE)
    result = host.run(state="restored")
    assert result["failed"] and "Its old files are restored" in result["msg"], result
    host.broken.clear()
    host.run(state="restored")
    assert not (host.state / "journal.json").exists()


def test_a_record_without_its_change_needs_no_restart(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    host = Service(tmp_path, monkeypatch, run_module, "kube-apiserver")
    live = kill_at(monkeypatch, subject, "settle")
    with pytest.raises(Killed):
        host.present(SERVICES[0][1])
    live()
    assert host.file.read_bytes() == BEFORE and (host.state / "journal.json").exists()
    assert not host.run(state="restored")["changed"] and host.restarts == []
    assert not (host.state / "journal.json").exists()


def test_a_host_that_another_run_is_changing_is_left_to_it(host: Host) -> None:
    host.state.mkdir()
    with _journal.alone(str(host.state), 0):
        result = host.present()
    assert result["failed"] and "another run is changing this host" in result["msg"] and host.manifest.read_bytes() == BEFORE
    assert host.present()["changed"]


@pytest.mark.parametrize(("calls", "argument", "name", "error"), [
    pytest.param(["open"], 0, ".outoftree-ccm.kubelet", errno.EROFS, id="a read-only file system"),
    pytest.param(["rename", "replace"], 1, "kubelet", errno.EPERM, id="chattr +i"),
])
def test_a_place_that_becomes_read_only_in_the_middle_leaves_every_file_as_it_was(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any, calls: list[str], argument: int, name: str, error: int,
) -> None:
    host = Service(tmp_path, monkeypatch, run_module, "kubelet")
    second = tmp_path / "ro" / "kubelet"
    second.parent.mkdir()
    second.write_bytes(BEFORE)
    for call in calls:
        def refuse(*arguments: Any, real: Any = getattr(os, call), **options: Any) -> Any:
            if os.fsdecode(arguments[argument]) == str(second.parent / name):
                raise OSError(error, os.strerror(error), *arguments[:1])
            return real(*arguments, **options)

        monkeypatch.setattr(os, call, refuse)
    monkeypatch.setattr(probes, "kubelet_health", lambda settings: "")
    files = [{"path": str(path), "content": base64.b64encode(AFTER).decode(), "sha256": digest(BEFORE)} for path in (host.file, second)]
    result = host.run(flags=[], flags_before=[], files=files)
    assert result["failed"] and result["restored"] and os.strerror(error) in result["msg"], result
    assert host.file.read_bytes() == second.read_bytes() == BEFORE and not (host.state / "journal.json").exists()


def test_without_space_for_the_backup_nothing_is_written(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, content: bytes) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(_journal, "_write", full)
    result = host.present()
    assert result["failed"] and "No space left on device" in result["msg"] and "nothing else was changed" in result["msg"]
    assert host.manifest.read_bytes() == BEFORE


# -- a rollback by its plan -----------------------------------------------------------------------------------------------


def test_what_a_rollback_overwrites_is_kept_and_reported(host: Host) -> None:
    host.present()
    host.manifest.write_bytes(b"theirs\n")
    done = host.run(state="restored", force=True, run_id="back")
    assert pathlib.Path(done["files"][0]["backup"]).read_bytes() == b"theirs\n" and host.manifest.read_bytes() == BEFORE


def test_a_file_that_somebody_else_wrote_gets_the_planned_content_and_keeps_its_mode(host: Host) -> None:
    host.present()
    theirs, planned = AFTER + b"- --v=2\n", BEFORE + b"- --v=2\n"
    host.manifest.write_bytes(theirs)
    host.manifest.chmod(0o640)
    item = {"path": str(host.manifest), "sha256": digest(theirs), "content": base64.b64encode(planned).decode()}
    stale = host.run(state="restored", flags=["--cloud-config=/x"], files=[{**item, "sha256": digest(AFTER)}])
    assert "changed after the plan" in stale["msg"] and host.manifest.read_bytes() == theirs
    done = host.run(state="restored", flags=["--cloud-config=/x"], run_id="back", files=[item])
    assert done["changed"] and host.manifest.read_bytes() == planned and host.manifest.stat().st_mode & 0o777 == 0o640, done
    assert pathlib.Path(done["files"][0]["backup"]).read_bytes() == theirs
    assert not (host.state / "journal.json").exists()


def test_a_file_with_nothing_to_undo_in_it_is_forgotten(host: Host) -> None:
    host.present()
    host.manifest.write_bytes(b"theirs\n")
    item = {"path": str(host.manifest), "sha256": digest(b"theirs\n"), "keep": True}
    done = host.run(state="restored", files=[item])
    assert not done.get("failed") and host.manifest.read_bytes() == b"theirs\n" and not (host.state / "journal.json").exists(), done


def test_the_flags_that_are_expected_are_those_of_the_plan(host: Host) -> None:
    """The journal has the flags with which the process once ran, but the process will get the flags of the restored file."""
    host.run(flags=[], flags_before=["--cloud-provider="], files=[
        {"path": str(host.manifest), "content": base64.b64encode(AFTER).decode(), "sha256": digest(BEFORE)}])
    item = {"path": str(host.manifest), "sha256": digest(AFTER)}
    done = host.run(state="restored", flags=["--cloud-config=/x"], flags_before=[], files=[item])
    assert done["changed"] and host.manifest.read_bytes() == BEFORE, done


def test_without_a_plan_the_flags_are_those_from_before_the_first_run(tmp_path: pathlib.Path) -> None:
    """The flags of the path that sorts first would be wrong, because a later run may have been the first to change that file."""
    directory = str(tmp_path / "state")
    _journal.Journal(directory).record("/z", "kubelet", "run-1", b"z", b"Z", 0o600, (0, 0), ["--cloud-provider=aws"])
    _journal.Journal(directory).record("/a", "kubelet", "run-2", b"a", b"A", 0o600, (0, 0), ["--cloud-provider=external"])
    assert subject.noted_flags(_journal.Journal(directory), "kubelet") == ["--cloud-provider=aws"]


def test_without_a_content_nothing_can_be_written(host: Host) -> None:
    assert "'content' is missing" in host.run(files=[{"path": str(host.manifest), "sha256": digest(BEFORE)}])["msg"]


def test_a_full_disk_at_the_last_step_of_a_restore_is_told_as_that(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message once said that nothing else was changed, although file and process were restored."""
    host.present()

    def full(journal: Any, name: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_journal.Journal, "forget", full)
    told = host.run(state="restored")
    assert told["failed"] and host.manifest.read_bytes() == BEFORE
    assert "No space left on device" in told["msg"] and "the files are restored" in told["msg"] and "run again" in told["msg"]
    assert "nothing else was changed" not in told["msg"]


@pytest.mark.parametrize(("path", "needed", "reloaded"), [
    ("usr/local/lib/systemd/system/kubelet.service", "no", True), ("etc/systemd/system/kubelet.service.d/20-cloud.conf", "no", True),
    ("opt/units/kubelet.service", "no", True), ("etc/default/kubelet", "no", False),
    ("etc/default/kubelet", "yes", True),  # somebody changed the unit earlier, and systemd still has the old one
])
def test_systemd_reads_units_again_before_a_restart(
        path: str, needed: str, reloaded: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    """Otherwise systemd starts the component with the old arguments, and the change is reverted."""
    host = Service(tmp_path, monkeypatch, run_module, "kubelet")
    monkeypatch.setattr(probes, "kubelet_health", lambda settings: "")
    monkeypatch.setattr(systemd, "unit_properties", lambda unit, names: {"NeedDaemonReload": needed, "NRestarts": "0"})
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_bytes(BEFORE)
    item = {"path": str(file), "content": base64.b64encode(AFTER).decode(), "sha256": digest(BEFORE)}
    host.run(flags=[], flags_before=[], files=[item])
    assert (["systemctl", "daemon-reload"] in host.commands) is reloaded
    assert ["systemctl", "restart", "kubelet"] in host.commands


def test_a_reload_that_systemd_refuses_is_the_reason(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    host = Service(tmp_path, monkeypatch, run_module, "kubelet")
    real = commands.run

    def refused(argv: list[str], timeout: float = 60) -> Any:
        done = real(argv, timeout)
        return subprocess.CompletedProcess(argv, 1, "", "Access denied") if argv[1:] == ["daemon-reload"] else done

    monkeypatch.setattr(commands, "run", refused)
    told = host.run(flags=[], flags_before=[], restart=True)
    assert told["failed"] and "'systemctl daemon-reload' failed: Access denied" in told["msg"]
