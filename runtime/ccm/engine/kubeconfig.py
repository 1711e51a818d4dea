# SPDX-License-Identifier: Apache-2.0
"""Finds the API server and its credentials: in the kubeconfig, `--master`, or the Pod's ServiceAccount.

A kubeconfig that cannot be used is refused before the first request. The message names file, line and field, but no
secret.
"""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path
from typing import Any

from ccm.base.clock import SYSTEM_CLOCK, Clock
from ccm.base.yaml_reader import Document
from ccm.base.yaml_reader import Path as Place

from .api_credentials import Access, ExecPlugin, FileText, Pem, is_header
from .api_errors import KubeConfigError
from .endpoints import environment_proxy, proxy_of, server_url

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def load(kubeconfig: str = "", master: str = "", *, clock: Clock = SYSTEM_CLOCK) -> Access:
    """Return the access to the API server that the flags `--kubeconfig` and `--master` configure.

    `--master` replaces the server of the kubeconfig. If only `--master` is set, the access has no credentials. If
    neither is set, it is that of the Pod's ServiceAccount. If the access names no proxy, the environment's is used.

    Raises KubeConfigError if the access cannot be used.
    """
    if kubeconfig:
        access = from_kubeconfig(Path(kubeconfig), clock=clock)
        if master:
            access.server = server_url(master, "--master")
    elif master:
        access = Access(server_url(master, "--master"))
    else:
        access = in_cluster(clock=clock)
    access.proxy = access.proxy or proxy_of(environment_proxy(access.server), "the environment's proxy")
    return access


def in_cluster(*, clock: Clock = SYSTEM_CLOCK) -> Access:
    """Return access as the ServiceAccount of the Pod we run in. Raises KubeConfigError outside of a Pod, and if a file
    of the ServiceAccount cannot be used."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise KubeConfigError(
            "no API server is configured: this is not a Pod (KUBERNETES_SERVICE_HOST and _PORT are not set) "
            "and neither --kubeconfig nor --master is set. Set --kubeconfig FILE"
        )
    token, ca = SERVICE_ACCOUNT_DIR / "token", SERVICE_ACCOUNT_DIR / "ca.crt"
    for path in (token, ca):
        if not os.access(path, os.R_OK):
            raise KubeConfigError(
                f"cannot read {path}: the Pod has no ServiceAccount token. "
                f"Remove automountServiceAccountToken: false, or set --kubeconfig FILE"
            )
    host = f"[{host}]" if ":" in host else host
    return Access(f"https://{host}:{port}", ca=Pem(file=ca), token_file=FileText(token, clock))


class _Fields:
    """A mapping of the kubeconfig. Invalid fields raise KubeConfigError, which names the file, the line and the field,
    and quotes no secret."""

    def __init__(self, document: Document, file: Path, where: str, at: Place, data: object) -> None:
        """`where`: the mapping's name in errors. `at`: its path in the document."""
        self.document, self.file, self.where, self._at = document, file, where, at
        if not isinstance(data, dict):
            raise self.error("", f"is {type(data).__name__ if data is not None else 'missing'}, not a mapping")
        self.data: dict[str, Any] = data

    def name(self, field: str) -> str:
        """Return the name of a field in errors: "kubeconfig FILE, line 7: clusters[prod].cluster.server"."""
        place = self.document.place((*self._at, field) if field else self._at)
        return f"{place}: {'.'.join(part for part in (self.where, field) if part) or 'the document'}"

    def error(self, field: str, problem: str) -> KubeConfigError:
        return KubeConfigError(f"{self.name(field)} {problem}")

    def below(self, field: str, data: object) -> _Fields:
        """Return the mapping in a field."""
        where = f"{self.where}.{field}" if self.where else field
        return _Fields(self.document, self.file, where, (*self._at, field), data)

    def text(self, name: str) -> str:
        value = self.data.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"is {type(value).__name__}, not text")
        return value

    def flag(self, name: str) -> bool:
        value = self.data.get(name) or False
        if not isinstance(value, bool):
            raise self.error(name, "is not true or false")
        return value

    def strings(self, name: str) -> list[str]:
        value = self.data.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, "is not a list of strings")
        return value

    def path(self, name: str) -> Path | None:
        """Return a readable file, None if no name is set. Relative names start at the kubeconfig's directory, as in
        kubectl."""
        text = self.text(name)
        if not text:
            return None
        path = self.file.parent / text
        try:
            with path.open("rb"):
                return path
        except (OSError, ValueError) as error:  # ValueError: not a valid file name
            reason = getattr(error, "strerror", None) or error
            raise self.error(name, f"names {str(path)!r}, which cannot be read: {reason}") from None

    def pem(self, name: str) -> Pem | None:
        """Return `<name>-data`, which is base64, or with lower precedence the file `<name>`; None without either."""
        data = self.text(f"{name}-data")
        if data:
            try:
                return Pem(base64.b64decode(data, validate=True))
            except ValueError:  # binascii.Error, or non-ASCII characters
                raise self.error(f"{name}-data", "is not base64") from None
        path = self.path(name)
        return Pem(file=path) if path else None

    def named(self, name: str, entry_name: str, kind: str) -> _Fields:
        """Return the mapping `kind` of the entry `entry_name` in the list `name`; it is empty if the entry has none."""
        entries = self.data.get(name) or []
        if not isinstance(entries, list):
            raise self.error(name, "is not a list")
        for index, entry in enumerate(entries):
            if isinstance(entry, dict) and entry.get("name") == entry_name:
                at = (*self._at, name, index, kind)
                return _Fields(self.document, self.file, f"{name}[{entry_name}].{kind}", at, entry.get(kind) or {})
        there = ", ".join(str(e["name"]) for e in entries if isinstance(e, dict) and e.get("name")) or "none"
        raise self.error(name, f"has no entry {entry_name!r} (existing entries: {there})")


def from_kubeconfig(path: Path, *, clock: Clock = SYSTEM_CLOCK) -> Access:
    """Return access for the current context of one kubeconfig file. Raises KubeConfigError if it cannot be used."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KubeConfigError(f"cannot read kubeconfig {path}: {getattr(error, 'strerror', None) or error}") from None
    document = Document.parse(text, f"kubeconfig {path}", secret=True)
    if document.problems:
        raise KubeConfigError("; ".join(document.problems))
    config = _Fields(document, path, "", (), document.data)
    current = config.text("current-context")
    if not current:
        raise config.error("current-context", "is not set: run `kubectl config use-context NAME --kubeconfig FILE`")
    context = config.named("contexts", current, "context")
    cluster = config.named("clusters", context.text("cluster"), "cluster")
    user_name = context.text("user")
    user = config.named("users", user_name, "user") if user_name else config.below("user", {})

    ca, insecure = cluster.pem("certificate-authority"), cluster.flag("insecure-skip-tls-verify")
    if ca and insecure:
        raise cluster.error("insecure-skip-tls-verify", "and certificate-authority exclude each other: keep the latter")
    access = Access(
        server_url(cluster.text("server"), cluster.name("server")),
        ca=ca,
        insecure=insecure,
        server_name=cluster.text("tls-server-name") or None,
        proxy=proxy_of(cluster.text("proxy-url"), cluster.name("proxy-url")),
        cert=user.pem("client-certificate"),
        key=user.pem("client-key"),
        token=user.text("token").strip(),
        impersonate=_impersonation(user),
    )
    if (access.cert is None) != (access.key is None):
        raise user.error("", "needs both client-certificate and client-key (or their -data), but has only one")
    if not is_header(access.token):
        raise user.error("token", "contains characters that are not valid in a token")
    token_file = user.path("tokenFile")
    if token_file:
        access.token_file = FileText(token_file, clock)
    if user.data.get("exec") and not (access.token or access.token_file):
        access.exec = _exec_plugin(user, cluster, clock)
    for name, instead in (("auth-provider", "use an exec plugin"), ("username", "use a token or a client certificate")):
        if user.data.get(name):
            raise user.error(name, f"is not supported because Kubernetes removed it: {instead}")
    try:
        access.try_certificates()
    except (OSError, ValueError) as error:
        raise KubeConfigError(
            f"kubeconfig {path}: the certificates of {cluster.where} or {user.where} cannot be used: {error}"
        ) from None
    return access


def _impersonation(user: _Fields) -> list[tuple[str, str]]:
    if user.data.get("as-user-extra"):
        raise user.error("as-user-extra", "is not supported: grant the permissions to the user itself")
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.strings("as-groups")]
    for name, value in headers:
        if not is_header(value):
            raise user.error("as, as-uid, as-groups", f"cannot be sent as {name}: {value!r}")
    return [(name, value) for name, value in headers if value]


def _exec_plugin(user: _Fields, cluster: _Fields, clock: Clock) -> ExecPlugin:
    plugin = user.below("exec", user.data["exec"])
    version, command = plugin.text("apiVersion"), plugin.text("command")
    if version not in _EXEC_VERSIONS:
        raise plugin.error("apiVersion", f"is {version!r}: supported are {' and '.join(_EXEC_VERSIONS)}")
    if plugin.text("interactiveMode") == "Always":
        raise plugin.error("interactiveMode", "is Always, but a controller has no terminal: use another user")
    if os.sep in command:
        command = str(user.file.parent / command)
    if "\0" in command or not shutil.which(command):
        hint = plugin.text("installHint")
        raise plugin.error("command", f"is {command!r}, which is not an executable here{'. ' + hint if hint else ''}")
    env = {}
    for entry in plugin.data.get("env") or []:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise plugin.error("env", "is not a list of {name, value}")
        env[entry["name"]] = str(entry.get("value", ""))
    return ExecPlugin(
        command,
        plugin.strings("args"),
        env,
        version,
        install_hint=plugin.text("installHint"),
        cluster=_exec_cluster(cluster) if plugin.flag("provideClusterInfo") else None,
        clock=clock,
    )


def _exec_cluster(cluster: _Fields) -> dict[str, Any]:
    info: dict[str, Any] = {"server": cluster.text("server")}
    ca = cluster.pem("certificate-authority")
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca.read()).decode()
    for name in ("tls-server-name", "proxy-url"):
        if cluster.text(name):
            info[name] = cluster.text(name)
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    return info
