# SPDX-License-Identifier: Apache-2.0
"""Simulates many workers in one process: each has its own files and its own /proc, and answers modules as a host does.

A worker's Python is a small client, which Ansible starts where it would start ssh. It hands the module to the farm. The
farm forks, gives the child the worker's /etc, /var/lib and /proc, and runs the module there. `systemctl` is answered in
the child: a restart gives the kubelet the command line that the unit's files have now, and is recorded for the
simulator, which then reports the Node's heartbeat. `--version` of any program gets a fixed answer, and all other
programs are "not installed". Everything else in the modules is real.

It is a program: `python -m tools.bench_collection.farm FOLDER COLLECTIONS`.
"""

from __future__ import annotations

import ctypes
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from tests.integration.collection.machine import BINDS, command_line, unit_files

CLIENT = """#!{python} -IS
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect({socket!r})
payload = b"" if sys.argv[1:] else sys.stdin.buffer.read()
s.sendall(({host!r} + chr(10) + chr(0).join(sys.argv[1:]) + chr(10)).encode() + payload)
s.shutdown(socket.SHUT_WR)
answer = b""
while more := s.recv(1 << 20):
    answer += more
text, _, status = answer.rpartition(chr(0).encode())
os.write(1, text) if len(text) < 65536 else sys.stdout.buffer.write(text)
sys.stdout.flush()
os._exit(int(status or 1))
"""
CLONE_NEWNS, CLONE_NEWUTS = 0x20000, 0x4000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PID = 812
UNITS = "/usr/lib/systemd/system/"
LIBC = ctypes.CDLL(None, use_errno=True)


def boot_time() -> int:
    return int(
        next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")).split()[1]
    )


def build(folder: Path, name: str, files: dict[str, str], sockets: Path) -> Path:
    """Write a worker's folder with a running kubelet; return the path of its Python."""
    for place in (*BINDS, "proc/1/ns", "proc/net"):
        (folder / place).mkdir(parents=True)
    for known in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "localtime"):
        if Path("/etc", known).exists():
            (folder / "etc" / known).write_bytes(Path("/etc", known).read_bytes())
    program = folder / "var/lib/programs/kubelet"
    for path, text in {**files, "/etc/machine-id": f"{name}\n", "/var/lib/programs/kubelet": "kubelet\n"}.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    program.chmod(0o755)
    (folder / "proc/stat").write_text(f"cpu 0\nbtime {boot_time()}\n")
    (folder / "proc/net/fib_trie").write_text("")
    (folder / "proc/1/cgroup").write_text("0::/init.scope\n")
    write_process(folder / "proc/1", 1, 1, ["/sbin/init"])
    start_kubelet(folder, folder)
    python = folder / "python"
    python.write_text(CLIENT.format(python=sys.executable, socket=str(sockets), host=name))
    python.chmod(0o755)
    return python


def write_process(folder: Path, pid: int, start: int, argv: list[str]) -> None:
    """Write a process's files of /proc. `start`: when it started, in ticks since the boot."""
    (folder / "ns").mkdir(parents=True, exist_ok=True)
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    fields = ["S", "1" if pid != 1 else "0", *["0"] * 17, str(start), *["0"] * 10]
    (folder / "stat").write_text(f"{pid} ({os.path.basename(argv[0])[:15]}) {' '.join(fields)}\n")
    for kind in ("pid", "mnt"):
        link = folder / "ns" / kind
        if not link.is_symlink():
            link.symlink_to(f"{kind}:[1]")


def start_kubelet(root: Path, folder: Path, pid: int = PID) -> None:
    """Start the kubelet with the arguments that its unit has now. `root`: the folder with the unit's files."""
    place = folder / "proc" / str(pid)
    ticks = int((time.time() - boot_time_of(folder)) * os.sysconf("SC_CLK_TCK"))
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup").write_text("0::/system.slice/kubelet.service\n")
    write_process(place, pid, ticks, command_line(root, "kubelet"))
    if not (place / "exe").is_symlink():
        (place / "exe").symlink_to("/var/lib/programs/kubelet")
    (folder / "kubelet.pid").write_text(str(pid))


def boot_time_of(folder: Path) -> int:
    return int((folder / "proc/stat").read_text().rpartition("btime ")[2])


# -- inside a forked child ---------------------------------------------------------------------------------------------


def mount(source: str, target: str, flags: int) -> None:
    if LIBC.mount(source.encode(), target.encode(), None, flags, None):
        raise OSError(ctypes.get_errno(), f"cannot mount {source} on {target}")


def enter(folder: Path) -> int:
    """Give this process the worker's files and host name, and return a descriptor of the worker's folder."""
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", MS_REC | MS_PRIVATE)
    socket.sethostname(folder.name)
    for place in (*BINDS, "proc"):
        mount(str(folder / place), f"/{place}", MS_BIND)
    return os.open(folder, os.O_RDONLY)


def systemctl(folder: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Answer as systemd does about the worker's units, and restart its kubelet."""
    verb, *rest = argv[1:]
    out = ""
    if verb == "show":
        unit = rest[0].removesuffix(".service")
        files, active = unit_files(Path("/"), unit), unit == "kubelet"
        shown = {
            "LoadState": "loaded" if files else "not-found",
            "ActiveState": "active" if active else "inactive",
            "FragmentPath": str(files[0]) if files else "",
            "DropInPaths": " ".join(map(str, files[1:])),
            "NeedDaemonReload": "no",
            "MainPID": (folder / "kubelet.pid").read_text() if active else "0",
            "ControlGroup": f"/system.slice/{unit}.service" if active else "",
            "ExecStart": "{ path=/var/lib/programs/kubelet ; argv[]=kubelet ; }" if active else "",
            "NRestarts": "0",
        }
        out = "\n".join(f"{name}={value}" for name, value in shown.items()) + "\n"
    elif verb == "restart":
        pid = int((folder / "kubelet.pid").read_text())
        start_kubelet(Path("/"), folder, pid + 1)
        for path in sorted((folder / "proc" / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (folder / "proc" / str(pid)).rmdir()
        with open(folder.parent / "restarted", "a") as handle:
            handle.write(f"{folder.name} {time.time()}\n")
    return subprocess.CompletedProcess(argv, 0, out, "")


def answer(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Answer as a program on the worker does; a program that is not simulated is "not installed"."""
    if os.path.basename(argv[0]) == "systemctl":
        return systemctl(folder, argv)
    if argv[-1] == "--version":
        return subprocess.CompletedProcess(argv, 0, "Kubernetes v1.36.3\n", "")
    return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} is not installed")


def serve(connection: socket.socket, root: Path) -> int:
    """Run the module that was sent, and return its exit status."""
    with connection.makefile("rb") as stream:
        host, arguments = (stream.readline().decode().rstrip("\n") for _ in range(2))
        payload = stream.read()
    words = arguments.split("\0") if arguments else []
    if words:
        payload = Path(words[0]).read_bytes()
    for descriptor in (1, 2):
        os.dup2(connection.fileno(), descriptor)
    folder = root / host
    # The module starts no programs: `answer` replaces the function that runs them.
    import ansible_collections.outoftree.ccm.plugins.module_utils.host.commands as commands

    held = enter(folder)
    del held
    commands.run = lambda argv, timeout=60: answer(argv, folder)  # type: ignore[assignment]
    sys.argv = [words[0] if words else "<stdin>"]
    sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    status = 0
    try:
        exec(compile(payload, "<module>", "exec"), {"__name__": "__main__", "__file__": "<module>"})
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return status


# -- the farm ----------------------------------------------------------------------------------------------------------


class Health(http.server.BaseHTTPRequestHandler):
    """Answers /healthz for every kubelet."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        pass


def health_server() -> http.server.ThreadingHTTPServer:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def preload(collections: str) -> None:
    """Import what modules import, once. On a real host, these imports take no time of the machine that runs Ansible."""
    sys.path.insert(0, collections)
    import ansible.module_utils.basic  # noqa: F401

    package = Path(collections) / "ansible_collections/outoftree/ccm/plugins/module_utils"
    for room in ("cluster", "edit", "facts", "host"):
        for path in sorted((package / room).glob("*.py")):
            name = f"ansible_collections.outoftree.ccm.plugins.module_utils.{room}.{path.stem}"
            if room != "cluster":
                __import__(name.removesuffix(".__init__"))


def main() -> None:
    folder, collections = Path(sys.argv[1]), sys.argv[2]
    preload(collections)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "farm"))
    listening.listen(200)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listening.close()
        status = 1
        try:
            status = serve(connection, folder)
        except BaseException as exc:
            connection.sendall(json.dumps({"failed": True, "msg": f"the farm: {exc!r}"}).encode())
        connection.sendall(b"\0" + str(status).encode())
        os._exit(0)


if __name__ == "__main__":
    main()
