# SPDX-License-Identifier: Apache-2.0
"""Runs etcd and kube-apiserver on loopback, for users without a cluster. No kubelet runs: Nodes are only objects."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from .errors import SuiteError

#: Seconds within which each of the two must answer, even on a busy machine.
PATIENCE = 120
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
TOKEN = "token-of-the-suite"  # not secret: the API server listens on loopback, for minutes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ControlPlane:
    """A running etcd and kube-apiserver. `binaries`: a folder with both. `audited`: kube-apiserver writes a line for
    each request of a ServiceAccount to the file `audit`, which is None otherwise. Raises SuiteError if they do not
    start."""

    def __init__(self, binaries: Path, folder: Path, *, audited: bool = False) -> None:
        missing = [name for name in ("etcd", "kube-apiserver") if not (binaries / name).is_file()]
        if missing:
            raise SuiteError(f"--binaries {binaries}: {' and '.join(missing)} missing")
        self._binaries, self._folder = binaries, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port, self._etcd, self._peer = free_port(), free_port(), free_port()
        self.kubeconfig = folder / "kubeconfig"
        self.audit = folder / "audit.log" if audited else None
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (folder / "service-accounts.key").write_bytes(key)
        (folder / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))
        (folder / "tokens.csv").write_text(f'{TOKEN},suite,suite,"system:masters"\n')
        try:
            self._start_etcd()
            self.start()
        except BaseException:
            self.close()
            raise

    def _start_etcd(self) -> None:
        self._spawn(
            "etcd",
            f"--data-dir={self._folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{self._etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self._peer}",
            f"--initial-cluster=default=http://127.0.0.1:{self._peer}",
        )
        self._wait("etcd", f"http://127.0.0.1:{self._etcd}/health")

    def start(self) -> None:
        """Start kube-apiserver, and wait until it is ready."""
        folder = self._folder
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--cert-dir={folder}/certificates",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/service-accounts.key",
            f"--service-account-signing-key-file={folder}/service-accounts.key",
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
            "--disable-admission-plugins=ServiceAccount",
            "--shutdown-delay-duration=0s",
            *self._audit_flags(),
        )
        self._wait("kube-apiserver", f"https://127.0.0.1:{self._port}/readyz")
        self._write_kubeconfig()

    def _audit_flags(self) -> list[str]:
        if self.audit is None:
            return []
        return [f"--audit-log-path={self.audit}", f"--audit-policy-file={self._folder}/audit-policy.yaml"]

    def _write_kubeconfig(self) -> None:
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": f"{self._folder}/certificates/apiserver.crt",
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "suite",
            "contexts": [{"name": "suite", "context": {"cluster": "suite", "user": "suite"}}],
            "clusters": [{"name": "suite", "cluster": cluster}],
            "users": [{"name": "suite", "user": {"token": TOKEN}}],
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(document))

    def stop(self) -> None:
        """Kill kube-apiserver; etcd keeps its data."""
        self._end("kube-apiserver")

    def close(self) -> None:
        for name in list(self._processes):
            self._end(name)
        shutil.rmtree(self._folder / "etcd", ignore_errors=True)

    def _spawn(self, name: str, *flags: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._binaries / name, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _wait(self, name: str, url: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5, context=context):
                    return
            except (urllib.error.URLError, OSError) as error:
                ended = self._processes[name].poll() is not None
                if ended or time.monotonic() > deadline:
                    raise SuiteError(
                        f"{name} {'ended' if ended else f'is not ready after {PATIENCE} s'} ({error}); see "
                        f"{self._folder / name}.log"
                    ) from error
                time.sleep(0.1)
