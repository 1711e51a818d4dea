# SPDX-License-Identifier: Apache-2.0
"""An image is looked for and imported where the node's kubelet has its images, and no copy of its archive stays."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common.text.converters import to_bytes
from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands
from ansible_collections.outoftree.ccm.plugins.modules import ccm_image as subject

NAME, IMAGE = "localhost/ccm:1", "sha256:abc"


class Node:
    """A node with a containerd: what it was asked, and which images it has."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, socket: str = "", programs: tuple[str, ...] = ()) -> None:
        self.root, self.images = root, set[str]()
        self.commands: list[list[str]] = []
        monkeypatch.setattr(commands, "run", self._run)
        if socket:
            (root / "k3s.sock").write_text("")
        monkeypatch.setattr(subject, "RANCHER_SOCKET", str(root / "k3s.sock"))
        monkeypatch.setattr(subject, "installed", lambda name: name in programs)

    def _run(self, argv: list[str], timeout: float = 60) -> Any:
        self.commands.append(argv)
        words, out = argv[argv.index("-n") + 2:], ""
        if words[:2] == ["images", "import"]:
            self.images.add(NAME)
        elif words[:2] == ["images", "ls"]:
            out = "REF TYPE DIGEST\n" + "".join(f"{name} type sha256:m\n" for name in self.images)
        elif words[:2] == ["content", "get"]:
            out = json.dumps({"config": {"digest": IMAGE}})
        return commands.subprocess.CompletedProcess(argv, 0, out, "")

    def run(self, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> dict[str, Any]:
        arguments = {"name": NAME, "archive": "/x.tar", "image_id": IMAGE, "_ansible_remote_tmp": str(self.root / "tmp"), **arguments}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": arguments})))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        out = io.StringIO()
        monkeypatch.setattr("sys.stdout", out)
        with pytest.raises(SystemExit):
            subject.main()
        result: dict[str, Any] = json.loads(out.getvalue())
        return result


@pytest.mark.parametrize(("socket", "programs", "lead"), [
    ("", ("k3s", "ctr"), ["ctr"]),
    ("k3s", ("k3s", "ctr"), ["k3s", "ctr", "--address"]),
    ("k3s", ("/usr/local/bin/k3s",), ["/usr/local/bin/k3s", "ctr", "--address"]),
    ("k3s", ("/var/lib/rancher/rke2/bin/ctr", "ctr"), ["/var/lib/rancher/rke2/bin/ctr", "--address"]),
])
def test_the_containerd_of_the_kubelet_is_asked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, socket: str, programs: tuple[str, ...], lead: list[str],
) -> None:
    node = Node(tmp_path, monkeypatch, socket, programs)
    archive = tmp_path / "tmp" / "ansible-tmp-1" / subject.COPY
    archive.parent.mkdir(parents=True)
    archive.write_text("")
    assert node.run(monkeypatch)["present"] is False
    archive.parent.mkdir(parents=True)
    archive.write_text("")
    done = node.run(monkeypatch, node_archive=str(archive))
    assert done["changed"] and done["present"] and archive.exists()
    assert not node.run(monkeypatch)["changed"]
    assert all(command[:len(lead)] == lead for command in node.commands), node.commands
    assert all((tmp_path / "k3s.sock").as_posix() in command for command in node.commands) is bool(socket)


def test_copies_that_killed_runs_left_go(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    node.images.add(NAME)
    left, other = (tmp_path / "tmp" / f"ansible-tmp-{number}" / name for number, name in ((1, subject.COPY), (2, "theirs.tar")))
    for path in (left, other):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    node.run(monkeypatch, _ansible_check_mode=True)
    assert left.exists()
    node.run(monkeypatch)
    assert not left.parent.exists() and other.exists()
