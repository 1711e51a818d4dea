# SPDX-License-Identifier: Apache-2.0
"""A real etcd and kube-apiserver as two processes on loopback, for integration tests and benchmarks.

They are ready in about two seconds. No scheduler, controllers or kubelets run; Nodes are plain objects.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.objects import PartialObject
from tests.ports import free_port

VERSION = "v1.37.2"
ADMIN_TOKEN = "admin-token-of-the-tests"  # no secret: its server runs for minutes, on loopback
MEMORY = Path("/dev/shm")
ROOM = 2 << 30  # bytes that must be free; etcd needs at most a few hundred MiB in the tests
#: Time limit of a command: no command of the tests takes this long unless something is wrong.
KUBECTL_SECONDS = 300


class MissingBinaries(Exception):
    pass


def binaries() -> Path:
    """Return the folder with etcd, kube-apiserver and kubectl. Raises MissingBinaries."""
    cache = os.environ.get("OUTOFTREE_CACHE") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "outoftree.ccm"
    )
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or f"{cache}/kubernetes/{VERSION}")
    missing = [name for name in ("etcd", "kube-apiserver", "kubectl") if not os.access(folder / name, os.X_OK)]
    if missing:
        raise MissingBinaries(
            f"{', '.join(missing)} not found in {folder}: run `make binaries`, or set KUBEBUILDER_ASSETS"
        )
    return folder


def data_folder(beside: Path, memory: Path = MEMORY, room: int = ROOM) -> Path:
    """Return an empty folder for etcd's data, in memory if there is room. Folders that killed processes left in
    memory are removed first."""
    for folder in memory.glob("outoftree-etcd-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)
    if not memory.is_dir() or shutil.disk_usage(memory).free < room:
        return Path(tempfile.mkdtemp(prefix="data-", dir=beside))
    return Path(tempfile.mkdtemp(prefix=f"outoftree-etcd-{os.getpid()}-", dir=memory))


class Authority:
    """A certificate authority that lives in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self._cert = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.crt"
        self.file.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> tuple[bytes, bytes]:
        """Return certificate and key, both PEM, for a user with these groups or a server with these names or addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        parts += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(x509.Name(parts), key).add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        # Go writes this extension, and so does kubeadm. From 3.13 on, Python refuses certificates without it.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_san(host) for host in hosts]), critical=False)
        cert = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return cert, key_pem(key)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


class ApiServer:
    """One kube-apiserver with its etcd. Call `close` at the end. The methods block, so a test with other tasks in its
    event loop must use `asyncio.to_thread`."""

    def __init__(self, folder: Path, *, audit: bool = False, flags: Sequence[str] = ()) -> None:
        """`audit`: write an audit log of all requests (`audited`). `flags`: further flags of kube-apiserver."""
        self._bin = binaries()
        self.folder = folder
        self._audit = audit
        self._flags = list(flags)
        self.authority = Authority(folder)
        self.ca_file = self.authority.file
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.token = ADMIN_TOKEN
        self._etcd_port, self._peer_port = free_port(), free_port()
        self._data = data_folder(folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        cert, key = self.authority.issue("kube-apiserver", hosts=["127.0.0.1", "localhost", "kubernetes.default.svc"])
        (folder / "server.crt").write_bytes(cert)
        (folder / "server.key").write_bytes(key)
        (folder / "sa.key").write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1())))
        (folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        try:
            self._start_etcd()
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start kube-apiserver and wait until it is ready."""
        folder = self.folder
        flags = list(self._flags)
        if self._audit:
            policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
            (folder / "audit-policy.yml").write_text(json.dumps(policy))
            flags += [f"--audit-policy-file={folder}/audit-policy.yml", f"--audit-log-path={folder}/audit.log"]
        self._spawn(
            "kube-apiserver",
            *flags,
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--tls-cert-file={folder}/server.crt",
            f"--tls-private-key-file={folder}/server.key",
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC,Node",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/sa.key",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            f"--cert-dir={folder}",
            "--shutdown-delay-duration=0s",
        )
        self._wait("kube-apiserver", lambda: self._get("/readyz") == b"ok")

    def audited(self, user: str) -> list[dict[str, Any]]:
        """Return the requests of a user that the API server has answered so far, from its audit log."""
        entries = [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]
        return [each for each in entries if each["user"]["username"] == user and each["stage"] == "ResponseComplete"]

    def stop(self, *, kill: bool = True) -> None:
        """Stop kube-apiserver, by default with SIGKILL; etcd keeps its data."""
        self._end("kube-apiserver", kill=kill)

    def close(self) -> None:
        for name in list(self._processes):
            self._end(name, kill=True)
        shutil.rmtree(self._data, ignore_errors=True)

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] = ("system:masters",), server: str = "") -> Path:
        """Write a kubeconfig with a client certificate of this user and these groups; return its path. The file is
        replaced as a whole, because a process may just be reading the one that an earlier call wrote."""
        cert, key = self.authority.issue(user, groups)
        ca = self.ca_file.read_bytes()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": server or self.url, "certificate-authority-data": _base64(ca)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate-data": _base64(cert), "client-key-data": _base64(key)},
                }
            ],
        }
        path = self.folder / f"{user.replace(':', '-').replace('/', '-')}.kubeconfig"
        half = path.with_suffix(".half")
        half.touch(mode=0o600)
        half.write_text(json.dumps(config))
        return half.replace(path)

    def kubectl(self, *arguments: str, input: str = "") -> str:
        """Run kubectl as admin; return its output. Raises CalledProcessError, with its error output, or
        TimeoutExpired."""
        path = self.folder / "admin.kubeconfig"
        if not path.exists():
            self.kubeconfig()
        done = subprocess.run(
            [self._bin / "kubectl", f"--kubeconfig={path}", *arguments],
            input=input,
            text=True,
            capture_output=True,
            timeout=KUBECTL_SECONDS,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        return done.stdout

    def save(self) -> Path:
        """Copy etcd's current data; return the copy's folder. etcd stops for a moment."""
        copy = self.folder / f"etcd-{time.monotonic_ns()}"
        self._end("etcd", kill=False)
        shutil.copytree(self._data, copy)
        self._start_etcd()
        return copy

    def restore(self, copy: Path | None, *, bump: bool = True) -> None:
        """Replace etcd's data by a copy, or by an empty folder, and restart everything.

        `bump` raises the revision of a copy and marks it as compacted, as `etcdutl snapshot restore --bump-revision
        --mark-compacted` does. Otherwise, watches would wait for revisions that the copy never had.
        """
        revision = self._revision()
        self._end("kube-apiserver", kill=True)
        self._end("etcd", kill=True)
        shutil.rmtree(self._data)
        if copy is not None:
            shutil.copytree(copy, self._data)
        self._start_etcd()
        if copy is not None and bump:
            while self._revision() <= revision:
                _post(f"{self._kv}/put", {"key": _base64(b"/bump"), "value": ""})
            self.compact()
        self.start()

    @property
    def _kv(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}/v3/kv"

    def _revision(self) -> int:
        return int(json.loads(_post(f"{self._kv}/range", {"key": _base64(b"/")}))["header"]["revision"])

    def compact(self) -> None:
        """Make etcd forget all old revisions. In a real cluster, kube-apiserver does so every five minutes."""
        try:
            _post(f"{self._kv}/compaction", {"revision": str(self._revision()), "physical": True})
        except urllib.error.HTTPError as error:
            if b"has been compacted" not in error.read():  # nothing was written since the last compaction
                raise

    def pid(self, name: str = "kube-apiserver") -> int:
        return self._processes[name].pid

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            "etcd",
            f"--data-dir={self._data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._wait("etcd", lambda: b"true" in _open(f"{client}/health"))

    def _spawn(self, name: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._bin / name, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _end(self, name: str, *, kill: bool) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.kill() if kill else process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float = 180.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):  # URLError and time-outs are OSErrors
                if ready():
                    return
            code = self._processes[name].poll()
            if code is not None or time.monotonic() > deadline:
                what = f"ended with {code}" if code is not None else f"is not ready after {seconds:g} s"
                tail = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
                raise RuntimeError(f"{name} {what}; its last lines:\n" + "\n".join(tail))
            time.sleep(0.05)

    def _get(self, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        return _open(request, ssl.create_default_context(cafile=str(self.ca_file)))


def _open(request: urllib.request.Request | str, context: ssl.SSLContext | None = None) -> bytes:
    """Send GET or POST on loopback, without any proxy of the environment; return the answer."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
        return bytes(answer.read())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _post(url: str, body: object) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return _open(request)


async def remove_objects(kube: KubeClient) -> None:
    """Delete what tests and their programs read back from the whole cluster: all Nodes, PersistentVolumes, Services but
    `kubernetes`, Events, and the Lease of the cloud-controller-manager. Finalizers do not stop it."""
    for kind in ("nodes", "persistentvolumes", "services", "events"):
        items, _ = await kube.list(f"/api/v1/{kind}", PartialObject)
        for item in items:
            meta = item.metadata
            if kind == "services" and meta.name == "kubernetes":
                continue
            folder = f"/api/v1/namespaces/{meta.namespace}" if meta.namespace else "/api/v1"
            own = f"{folder}/{kind}/{meta.name}"
            with contextlib.suppress(NotFoundError):
                if meta.finalizers:
                    await kube.patch(own, {"metadata": {"finalizers": None}})
                await kube.delete(own)
    with contextlib.suppress(NotFoundError):
        await kube.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager")
