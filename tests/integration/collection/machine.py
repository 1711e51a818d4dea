# SPDX-License-Identifier: Apache-2.0
"""A host for Ansible without a container: this machine with separate /etc, /var/lib, processes, network and systemctl.

`Machine` writes a folder and a program that Ansible uses as the host's Python. That program enters new namespaces,
mounts the folder's `etc`, `var/lib` and others (BINDS) over the real ones, and starts the host's components: processes
with the arguments of their units or static Pods, which serve little but health endpoints. Then it runs the module.
Everything ends with the module; `running.json` lists what was running, and the next module starts that again.

This file is also a script: `machine.py enter FOLDER python arguments` and `machine.py systemctl FOLDER arguments`.
"""

from __future__ import annotations

import datetime
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
UNIT_FOLDERS = ("etc/systemd/system", "usr/lib/systemd/system")
BINDS = ("etc", "var/lib", "var/log", "usr/lib/systemd/system")
#: Programs that the modules run. The modules look for them in the system's folders, not in PATH.
PROGRAMS = ("systemctl", "journalctl")
#: The health ports of each component, and whether they use TLS. k3s and RKE2 are a kubelet and an API server in one.
PORTS = {
    "kubelet": [(10248, False)],
    "kube-apiserver": [(6443, True)],
    "kube-controller-manager": [(10257, True)],
    "k3s": [(10248, False), (6443, True)],
    "rke2": [(10248, False), (6443, True)],
}
#: Where clients of an API server look for its certificate, or for the authority behind it.
CERTIFICATES = (
    "etc/kubernetes/pki/apiserver.crt",
    "var/lib/kubernetes/ca.crt",
    *(
        f"var/lib/rancher/{name}/server/tls/{file}"
        for name in ("k3s", "rke2")
        for file in ("server-ca.crt", "client-admin.crt")
    ),
)
KEYS = tuple(f"var/lib/rancher/{name}/server/tls/client-admin.key" for name in ("k3s", "rke2"))
# The component does not use http.server, whose import would take longer than everything else: every call of a module
# starts up to four components.
COMPONENT = """
import _thread, os, socket, sys, time
def ill():
    needed = f"needed-by-{NAME}.txt"
    return os.path.exists(needed) and not any(open(needed).read() in word for word in sys.argv)
def answer(connection, context):
    if context:
        connection = context.wrap_socket(connection, server_side=True)
    with connection:
        request = b""
        while b"\\r\\n\\r\\n" not in request and (more := connection.recv(65536)):
            request += more
        status = "500 Internal Server Error" if ill() else "200 OK"
        # The machine's API server answers each read of a Lease with a holder, as if the component led.
        lease = '{"spec": {"holderIdentity": "cp_1", "renewTime": "%s"}}' % time.monotonic()
        body = lease if b"/leases/" in request else "ok"
        connection.sendall(f"HTTP/1.0 {status}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
def serve(listening, context):
    while True:
        _thread.start_new_thread(answer, (listening.accept()[0], context))
for port, encrypted in PORTS:
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError:  # another component of the host has the port
        continue
    context = None
    if encrypted:
        import ssl
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("tls.crt", "tls.key")
    _thread.start_new_thread(serve, (listening, context))
time.sleep(3600)
"""


@functools.cache
def certificate() -> tuple[bytes, bytes]:
    """Return a self-signed certificate for the name `kubernetes`, and its key, as PEM."""
    from cryptography import x509  # not at the top: this file also runs as the program that enters a host
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("kubernetes")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


class Machine:
    """A host made of a tree of files, named after its folder. Its units and its static Pods run whenever a module does.

    `pods`: name of a static Pod -> its arguments.
    """

    def __init__(self, folder: Path, files: dict[str, str], pods: dict[str, list[str]] | None = None) -> None:
        self.folder = folder
        for place in BINDS:
            (folder / place).mkdir(parents=True)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "localtime"):
            if Path("/etc", name).exists():
                shutil.copy(f"/etc/{name}", folder / "etc" / name)
        for path, text in files.items():
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
        crt, key = certificate()
        for places, content in ((("tls.crt", *CERTIFICATES), crt), (("tls.key", *KEYS), key)):
            for place in places:
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                (folder / place).write_bytes(content)
        units = [Path(path).stem for path in files if path.endswith(".service")]
        running = {unit: command_line(folder, unit) for unit in units} | (pods or {})
        (folder / "running.json").write_text(json.dumps(running))
        (folder / "mounts.json").write_text("[]")
        self._script(
            "python", f'enter {folder} {sys.executable} "$@"', "unshare --mount --pid --fork --mount-proc --uts --net"
        )
        for name in PROGRAMS:
            self._script(f"bin/{name}", f'{name} {folder} "$@"')
        # The folder that the kubelet creates for a static Pod's containers.
        for name in pods or {}:
            (folder / "var/log/pods" / f"kube-system_{name}-{folder.name}_{uid(name)}" / name).mkdir(parents=True)

    def _script(self, name: str, arguments: str, lead: str = "") -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\nexec {lead} {sys.executable} {Path(__file__).resolve()} {arguments}\n")
        path.chmod(0o755)

    @property
    def variables(self) -> str:
        return f"ansible_connection=local ansible_python_interpreter={self.folder / 'python'}"

    def mount(self, *arguments: str) -> None:
        """Add a mount that is made when the host is entered: arguments of mount(8), with `{}` for the folder."""
        mounts = json.loads((self.folder / "mounts.json").read_text())
        (self.folder / "mounts.json").write_text(json.dumps([*mounts, [a.format(self.folder) for a in arguments]]))

    def refuse(self, *verbs: str) -> None:
        """Let systemctl fail for these verbs, until the next call of this method."""
        (self.folder / "refused.json").write_text(json.dumps(verbs))

    def needs(self, component: str, flag: str) -> None:
        """Make a component unhealthy if it is started without this flag."""
        (self.folder / f"needed-by-{component}.txt").write_text(flag)

    def text(self, path: str) -> str:
        return (self.folder / path.lstrip("/")).read_bytes().decode()

    def files(self) -> dict[str, bytes]:
        """Return the host's configuration files: path -> content."""
        found = {}
        for place in (
            "etc/default",
            "etc/kubernetes",
            "etc/rancher",
            "etc/sysconfig",
            "etc/systemd",
            "var/lib/kubelet",
        ):
            for path in sorted((self.folder / place).rglob("*")):
                if path.is_file():
                    found["/" + str(path.relative_to(self.folder))] = path.read_bytes()
        return found


# -- units, read by systemd's own library -----------------------------------------------------------------------------


def unit_files(root: Path, unit: str) -> list[Path]:
    """Return a unit's file and its drop-ins in systemd's order: by name; a file in /etc hides one of the same name in
    /usr/lib."""
    for folder in UNIT_FOLDERS:
        path = root / folder / f"{unit}.service"
        if path.exists():
            drop_ins: dict[str, Path] = {}
            for other in UNIT_FOLDERS:
                for drop_in in (root / other / f"{unit}.service.d").glob("*.conf"):
                    drop_ins.setdefault(drop_in.name, drop_in)
            return [path, *(drop_ins[name] for name in sorted(drop_ins))]
    return []


def command_line(root: Path, unit: str) -> list[str]:
    """Return the arguments with which systemd starts a unit."""
    if str(REPOSITORY) not in sys.path:  # if this file runs as a script
        sys.path.append(str(REPOSITORY))
    from tests import systemd

    name = f"{unit}.service"
    texts = [path.read_bytes().decode() for path in unit_files(root, unit)]
    settings = [setting for text in texts for setting in systemd.unit_settings(text)]
    patterns = [systemd.specified(value, name) for _, key, value in settings if key == "EnvironmentFile" and value]
    paths = [path for pattern in patterns for path in root.glob(pattern.lstrip("-/"))]
    files = {"/" + str(path.relative_to(root)): path.read_bytes().decode() for path in paths}
    return systemd.command_line(name, texts, files)


def uid(pod: str) -> str:
    """Return the UID of a static Pod, which is a digest; other Pods have a UUID."""
    return hashlib.md5(pod.encode(), usedforsecurity=False).hexdigest()


# -- inside the host --------------------------------------------------------------------------------------------------


def start(folder: Path, unit: str, argv: list[str]) -> None:
    """Start a component under its own name, and record unit and process ID for systemctl."""
    # Python looks for its library beside argv[0] when that is a path.
    name = Path(argv[0]).name
    python = [name, "-c", f"NAME = {name!r}; PORTS = {PORTS.get(name, [])}{COMPONENT}", *argv[1:]]
    process = subprocess.Popen(
        python,
        executable=sys.executable,
        cwd=folder,  # In / it would find another Python's library.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (folder / f"{unit}.pid").write_text(str(process.pid))
    # The component's own arguments, without those of the Python process behind it.
    arguments = folder / f"{unit}-{process.pid}.cmdline"
    arguments.write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    subprocess.run(["mount", "--bind", str(arguments), f"/proc/{process.pid}/cmdline"], check=True)
    if not unit_files(Path("/"), unit):
        # A static Pod's control group, as the kernel would show it.
        group = folder / f"{unit}.cgroup"
        group.write_text(f"0::/kubepods/burstable/pod{uid(unit)}/{'0' * 64}\n")
        subprocess.run(["mount", "--bind", str(group), f"/proc/{process.pid}/cgroup"], check=True)


def enter(folder: Path, command: list[str]) -> int:
    binds = [["--bind", str(folder / place), f"/{place}"] for place in BINDS]
    # Modules run only programs in the system's folders: replace those that exist here, and add those that are missing.
    binds += [
        ["--bind", str(folder / "bin" / name), f"/usr/bin/{name}"]
        for name in PROGRAMS
        if Path("/usr/bin", name).exists()
    ]
    binds.append(["--bind", str(folder / "bin"), "/usr/local/sbin"])
    for arguments in [["--make-rprivate", "/"], *binds, *json.loads((folder / "mounts.json").read_text())]:
        subprocess.run(["mount", *arguments], check=True)
    socket.sethostname(folder.name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interface:  # ip link set lo up
        fcntl.ioctl(interface, 0x8914, struct.pack("16sH14s", b"lo", 0x1, b""))
    for unit, argv in json.loads((folder / "running.json").read_text()).items():
        start(folder, unit, argv)
    if len(command) == 1:  # a module on standard input
        command = [*command, str(Path(__file__).with_name("interpreter.py")), "module"]
    return subprocess.run(command).returncode


def kill(pid: int) -> None:
    """Kill a process, and wait until it is gone or a zombie, so that its ports are free."""
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.005)


def systemctl(folder: Path, arguments: list[str]) -> int:
    running = json.loads((folder / "running.json").read_text())
    refused = folder / "refused.json"
    if refused.exists() and arguments[0] in json.loads(refused.read_text()):
        print("Job failed. See 'journalctl -xe' for details.", file=sys.stderr)
        return 1
    if arguments[0] == "show":
        unit = arguments[1].removesuffix(".service")
        files, active, pid = unit_files(Path("/"), unit), unit in running, folder / f"{unit}.pid"
        shown = {
            "LoadState": "loaded" if files else "not-found",
            "ActiveState": "active" if active else "inactive",
            "FragmentPath": files[0] if files else "",
            "DropInPaths": " ".join(map(str, files[1:])),
            "NeedDaemonReload": "no",
            "MainPID": pid.read_text() if active and pid.exists() else 0,
            "NRestarts": 0,
        }
        print("\n".join(f"{name}={value}" for name, value in shown.items()))
    elif arguments[0] == "restart":
        unit = arguments[1].removesuffix(".service")
        kill(int((folder / f"{unit}.pid").read_text()))
        running[unit] = command_line(Path("/"), unit)
        (folder / "running.json").write_text(json.dumps(running))
        start(folder, unit, running[unit])
    return 0


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    sys.exit({"enter": enter, "systemctl": systemctl}.get(verb, lambda *_: 0)(Path(place), rest))
