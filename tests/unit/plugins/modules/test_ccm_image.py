# SPDX-License-Identifier: Apache-2.0
"""An image is looked up and imported where the node's kubelet has its images, and no copy of the archive stays."""

from __future__ import annotations

import hashlib
import json
import pathlib
import socketserver
import threading
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, images, processes
from ansible_collections.outoftree.ccm.plugins.modules import ccm_image as subject

NAME, IMAGE = "localhost/ccm:1", "sha256:abc"
#: What skopeo prints about an image.
CONFIG = '{"os": "linux"}'
CONFIG_DIGEST = hashlib.sha256(CONFIG.encode()).hexdigest()


class Node:
    """A node with a containerd: the commands that it got, and the images that it has."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, socket: str = "", programs: tuple[str, ...] = ()) -> None:
        self.root, self.images = root, set[str]()
        self.commands: list[list[str]] = []
        monkeypatch.setattr(commands, "run", self._run)
        monkeypatch.setattr(processes, "of_unit", lambda unit, name: None)
        if socket:
            (root / "k3s.sock").write_text("")
        monkeypatch.setattr(images, "RANCHER_SOCKET", str(root / "k3s.sock"))
        monkeypatch.setattr(images, "installed", lambda name: name in programs)

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

    def run(self, run_module: Any, **arguments: Any) -> dict[str, Any]:
        given = {"name": NAME, "archive": "/x.tar", "image_id": IMAGE, "_ansible_remote_tmp": str(self.root / "tmp"), **arguments}
        result: dict[str, Any] = run_module(subject, given)
        return result


@pytest.mark.parametrize(("socket", "programs", "lead"), [
    ("", ("k3s", "ctr"), ["ctr"]),
    ("k3s", ("k3s", "ctr"), ["k3s", "ctr", "--address"]),
    ("k3s", ("/usr/local/bin/k3s",), ["/usr/local/bin/k3s", "ctr", "--address"]),
    ("k3s", ("/var/lib/rancher/rke2/bin/ctr", "ctr"), ["/var/lib/rancher/rke2/bin/ctr", "--address"]),
])
def test_the_containerd_of_the_kubelet_is_asked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any, socket: str, programs: tuple[str, ...], lead: list[str],
) -> None:
    node = Node(tmp_path, monkeypatch, socket, programs)
    archive = tmp_path / "tmp" / "ansible-tmp-1" / subject.COPY
    archive.parent.mkdir(parents=True)
    archive.write_text("")
    assert node.run(run_module)["present"] is False
    archive.parent.mkdir(parents=True)
    archive.write_text("")
    done = node.run(run_module, node_archive=str(archive))
    assert done["changed"] and done["present"] and archive.exists()
    assert not node.run(run_module)["changed"]
    assert all(command[:len(lead)] == lead for command in node.commands), node.commands
    assert all((tmp_path / "k3s.sock").as_posix() in command for command in node.commands) is bool(socket)


class CriONode(Node):
    """A node whose kubelet uses CRI-O: CRI-O reports where its storage is, and skopeo reads one image there."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...]) -> None:
        super().__init__(root, monkeypatch, programs=programs)
        self.info: dict[str, str] = {"storage_driver": "overlay", "storage_root": "/data/images"}
        argv = ["kubelet", f"--config={root}/none", f"--container-runtime-endpoint=unix://{root}/crio.sock"]
        monkeypatch.setattr(processes, "of_unit", lambda unit, name: processes.Process(1, 1, argv))
        server = socketserver.UnixStreamServer(str(root / "crio.sock"), self._handler())
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.close = lambda: (server.shutdown(), server.server_close())

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        node = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                asked = self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                status = b"200 OK" if asked.startswith(b"GET /info ") else b"404 Not Found"
                self.wfile.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n\r\n" + json.dumps(node.info).encode())

        return Handler

    def _run(self, argv: list[str], timeout: float = 60) -> Any:
        self.commands.append(argv)
        if argv[1] == "copy":
            self.images.add(NAME)
        elif not self.images:
            return commands.subprocess.CompletedProcess(argv, 1, "", "does not resolve to an image ID")
        return commands.subprocess.CompletedProcess(argv, 0, CONFIG, "")


def test_the_storage_of_the_kubelets_cri_o_gets_the_image(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    node = CriONode(tmp_path, monkeypatch, ("skopeo", "ctr"))
    archive = tmp_path / "copy.tar"
    archive.write_text("")
    wanted = {"image_id": f"sha256:{CONFIG_DIGEST}", "node_archive": str(archive)}
    try:
        assert node.run(run_module, **{**wanted, "node_archive": None})["present"] is False
        done = node.run(run_module, **wanted)
        assert done["changed"] and done["present"], done
        copy = ["skopeo", "copy", "--quiet", f"docker-archive:{archive}:{NAME}", f"containers-storage:[overlay@/data/images]{NAME}"]
        assert copy in node.commands
        assert not node.run(run_module, **wanted)["changed"]
        assert "it has no image named" in node.run(run_module, **{**wanted, "image_id": IMAGE})["msg"]
    finally:
        node.close()


def test_what_hinders_an_import_into_cri_o_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    node = CriONode(tmp_path, monkeypatch, ())
    try:
        assert node.run(run_module)["msg"].endswith("Install skopeo on the node")
        monkeypatch.setattr(images, "installed", lambda name: name == "skopeo")
        node.info = {}
        assert "CRI-O does not report at" in node.run(run_module)["msg"]
    finally:
        node.close()
    (tmp_path / "crio.sock").unlink()
    assert "Check 'crio status info' on the node" in node.run(run_module)["msg"]


def test_copies_that_killed_runs_left_go(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
    node = Node(tmp_path, monkeypatch)
    node.images.add(NAME)
    left, other = (tmp_path / "tmp" / f"ansible-tmp-{number}" / name for number, name in ((1, subject.COPY), (2, "theirs.tar")))
    for path in (left, other):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    node.run(run_module, _ansible_check_mode=True)
    assert left.exists()
    node.run(run_module)
    assert not left.parent.exists() and other.exists()
