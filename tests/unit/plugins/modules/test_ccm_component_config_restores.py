# SPDX-License-Identifier: Apache-2.0
"""The message about a failed change says of each file whether it was restored, and agrees with the disk."""

from __future__ import annotations

import base64
import errno
import json
import os
import pathlib
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    commands,
    probes,
    processes,
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

OLD, NEW = b"--cloud-provider=aws\n", b"--cloud-provider=external\n"


class Kubelet:
    """A host whose kubelet has two files. C(ill): the kubelet is not healthy with new files. C(refused): folders below which nothing can be
    written; C(after_restart): folders to which a restart adds this fault."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
        self.root, self._run_module = root, run_module
        self.files = [root / "a" / "kubelet.env", root / "b" / "kubelet.conf"]
        for path in self.files:
            path.parent.mkdir()
            path.write_bytes(OLD)
        self.restarts = 0
        self.ill = False
        self.refused: list[pathlib.Path] = []
        self.after_restart: list[pathlib.Path] = []
        real = os.open
        written: list[str] = []

        def guarded(path: Any, flags: int, *more: Any, **options: Any) -> int:
            if flags & os.O_WRONLY and any(str(path).startswith(str(folder) + "/") for folder in self.refused):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            written.append(str(path))
            return real(path, flags, *more, **options)

        monkeypatch.setattr(os, "open", guarded)
        monkeypatch.setattr(processes, "of_unit", lambda unit, name="": processes.Process(7 + self.restarts, 7, ["kubelet"]))
        monkeypatch.setattr(probes, "kubelet_health", lambda settings: "no answer" if self.ill and self._new() else "")
        monkeypatch.setattr(systemd, "restarts", lambda unit: 0)
        monkeypatch.setattr(systemd, "unit_properties", lambda unit, names: {})
        monkeypatch.setattr(commands, "run", self._command)
        monkeypatch.setattr(_logs, "kubelet_log", lambda *arguments, **options: [])
        monkeypatch.setattr(_component, "POLL", 0.01)
        monkeypatch.setattr(_component.time, "sleep", lambda seconds: None)

    def _new(self) -> bool:
        return any(path.read_bytes() == NEW for path in self.files)

    def _command(self, argv: list[str], **options: Any) -> Any:
        if argv[:2] == ["systemctl", "restart"]:
            self.restarts += 1
            self.refused += self.after_restart
        return type("Done", (), {"returncode": 0, "stdout": "", "stderr": ""})

    def change(self, diff: bool = False, more: bytes = b"") -> dict[str, Any]:
        files = [{"path": str(path), "content": base64.b64encode(NEW + more).decode(), "sha256": digest(OLD)} for path in self.files]
        result: dict[str, Any] = self._run_module(subject, {
            "component": "kubelet", "state_directory": str(self.root / "state"), "timeout": 1, "run_id": "run-1", "files": files,
            "_ansible_diff": diff, "_ansible_remote_tmp": str(self.root)})
        return result


@pytest.fixture
def kubelet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> Kubelet:
    return Kubelet(tmp_path, monkeypatch, run_module)


def test_a_file_that_cannot_be_restored_is_named_with_the_place_of_its_old_content(kubelet: Kubelet) -> None:
    """The file system becomes read-only after the restart, below the first of two files."""
    kubelet.ill, kubelet.after_restart = True, [kubelet.files[0].parent]
    result = kubelet.change()
    first, second = kubelet.files
    assert (first.read_bytes(), second.read_bytes()) == (NEW, OLD) and kubelet.restarts == 1
    assert result["failed"] and not result["restored"] and result["changed"]
    assert f"{first} was not restored: Read-only file system (its old content is in {result['files'][0]['backup']})" in result["msg"]
    assert f"{second} has its old content." in result["msg"] and "The old configuration was restored" not in result["msg"]
    assert [item["action"] for item in result["files"]] == ["written", "restored"]
    assert pathlib.Path(result["files"][0]["backup"]).read_bytes() == OLD
    # The journal lists what a rollback must still restore, and nothing else.
    assert list(_journal.opened(str(kubelet.root / "state")).files) == [str(first)]


def test_a_write_that_fails_is_the_reason_and_not_the_health(kubelet: Kubelet) -> None:
    kubelet.refused = [kubelet.files[0].parent]
    result = kubelet.change()
    assert result["failed"] and result["restored"] and not result["changed"] and kubelet.restarts == 0
    assert f"was not changed: cannot write {kubelet.files[0]}: Read-only file system. Every file has its old content." in result["msg"]
    assert "become healthy" not in result["msg"] and "logged nothing" not in result["msg"]


def test_a_second_write_that_fails_restores_the_first_file(kubelet: Kubelet) -> None:
    kubelet.refused = [kubelet.files[1].parent]
    result = kubelet.change()
    assert result["restored"] and f"cannot write {kubelet.files[1]}: Read-only file system" in result["msg"]
    assert all(path.read_bytes() == OLD for path in kubelet.files) and kubelet.restarts == 1


def test_a_file_that_somebody_else_writes_meanwhile_is_not_called_restored(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet.ill = True
    real = _component.Component.write

    def write(self: Any, path: str, content: Any, mode: int, owner: Any) -> None:
        real(self, path, content, mode, owner)
        if content == OLD and path == str(kubelet.files[1]):
            pathlib.Path(path).write_bytes(b"theirs")

    monkeypatch.setattr(_component.Component, "write", write)
    result = kubelet.change()
    assert f"{kubelet.files[1]} was not restored: its content is different" in result["msg"] and not result["restored"]


def test_a_journal_that_cannot_be_written_does_not_hide_what_became_of_the_files(kubelet: Kubelet) -> None:
    """Journal and files are on one file system, which becomes read-only after the restart."""
    kubelet.ill, kubelet.after_restart = True, [kubelet.root]
    result = kubelet.change()
    assert all(f"{path} was not restored: Read-only file system" in result["msg"] for path in kubelet.files), result["msg"]
    assert "nothing else was changed" not in result["msg"]


@pytest.mark.parametrize("diff", [False, True])
def test_a_result_has_files_only_if_a_difference_is_asked_for_and_never_a_password(kubelet: Kubelet, diff: bool) -> None:
    secret = b"HTTPS_PROXY=http://user:s3cr3t@proxy:3128\n"
    result = kubelet.change(diff, secret)
    assert result["changed"] and all(path.read_bytes() == NEW + secret for path in kubelet.files)
    assert ("diff" in result) is diff and "s3cr3t" not in json.dumps(result)
    assert base64.b64encode(NEW + secret).decode() not in json.dumps(result)
    assert not diff or result["diff"][0]["after"] == NEW.decode() + "HTTPS_PROXY=http://hidden@proxy:3128\n"


def test_restored_files_are_reported_even_if_the_journal_cannot_be_written(kubelet: Kubelet) -> None:
    kubelet.ill, kubelet.after_restart = True, [kubelet.root / "state"]
    result = kubelet.change()
    assert "The old configuration was restored and is healthy." in result["msg"] and result["restored"], result
    assert all(path.read_bytes() == OLD for path in kubelet.files)
